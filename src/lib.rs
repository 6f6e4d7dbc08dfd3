//! Tallygate: an Envoy external-authorization (ext_authz) rate-limit sidecar.
pub mod decision;
pub mod store;
