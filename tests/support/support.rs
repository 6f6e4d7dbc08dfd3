//! What both test binaries share: real servers started on free ports, and small clients that show exactly what a
//! peer got.
//!
//! Each server is a process of its own with its own folder; dropping it kills it. Nothing here decides what is
//! right: the tests do. Everything blocks, so that a test reads from top to bottom; only `grpc` has a runtime inside.

pub mod answer;
pub mod canaries;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod envoy;
pub mod greeting;
pub mod grpc;
pub mod http;
pub mod http2;
pub mod https;
pub mod keys;
pub mod kustomize;
pub mod manifests;
pub mod mesh;
pub mod metrics;
pub mod odd_replies;
pub mod pair;
pub mod policy;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod resp;
pub mod schedule;
pub mod script;
pub mod sentinel;
pub mod setup;
pub mod sidecar;
pub mod stack;
pub mod stub;
pub mod tls;
pub mod token;
pub mod upstream;
pub mod wait;
