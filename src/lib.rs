//! Tallygate: an Envoy external-authorization (ext_authz) rate-limit sidecar.
//!
//! ```text
//!  Envoy ──gRPC Check──► authz ──► limiter ──► store ──► Redis (one Lua script)
//!                          │          │           └────► this process (embedded)
//!                          │          └─ plan → take → settle
//!                          └─ translate, answer, guard
//!                       decision: the pure ground floor that all of them stand on
//! ```
//!
//! Imports point down this list only; a test holds it.
//!
//! - [`cli`]: the command line, one file a command
//! - [`server`]: wiring, listeners, health, drain; [`admin`]: HTTP for operators
//! - [`config`]: the file, its validation, reload
//! - [`authz`]: Envoy's messages in and out; the only place where a status code is chosen
//! - [`limiter`]: the decision, within its deadline; failure modes
//! - [`telemetry`]: metrics and logs
//! - [`store`]: the contract of *take*, over Redis and in memory
//! - [`tls`]: certificates: what the files hold, until when, and who may ask
//! - [`decision`]: attributes, identity, keys, limits, policies, verdicts: pure
//!
//! Words, one an idea: *tenant* and *subject* (who pays, who asks), *policy*, *limit*, *charge* (what a request would take
//! from one limit), *take* (charge all or none), *admission* (the store's answer), *verdict* (the request's answer),
//! *failure mode* (what *failed* becomes).

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic when the reader has left: say! and tell! do not"
)]

pub mod admin;
pub mod authz;
pub mod cli;
pub mod config;
pub mod decision;
pub mod limiter;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod tls;
