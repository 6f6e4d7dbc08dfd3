//! Tallygate: an Envoy external-authorization (ext_authz) rate-limit sidecar.
pub mod authz;
pub mod decision;
pub mod limiter;
pub mod store;
pub mod telemetry;
