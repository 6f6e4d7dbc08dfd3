//! What Tallygate promises, each promise held against real processes: a redis-server, an Envoy, sidecars.
//!
//! One module a promise or a surface. Nothing here depends on how fast the machine is; what does is in `timing.rs`.
//! `make parts` gets the servers. One binary for all of it, since linking is what takes the time.

#![expect(clippy::disallowed_methods, reason = "the tests are clients, and clients have clocks of their own")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and stops"
)]

#[path = "support/support.rs"]
mod support;

mod suite {
    mod answers;
    mod certificates;
    mod changed_numbers;
    mod cluster;
    mod cluster_migration;
    mod configuration;
    mod costs;
    mod counting;
    mod crowds;
    mod demo;
    mod deploy_alerts;
    mod deploy_docker;
    mod deploy_gateway;
    mod deploy_istio;
    mod deploy_pods;
    mod deploy_schemas;
    mod doctor;
    mod envoy_access_log;
    mod envoy_addresses;
    mod envoy_answers;
    mod envoy_bodies;
    mod envoy_files;
    mod envoy_fleet;
    mod envoy_grpc;
    mod envoy_headers;
    mod envoy_jwt;
    mod envoy_mtls;
    mod envoy_outages;
    mod envoy_overflow;
    mod envoy_paths;
    mod envoy_routes;
    mod envoy_shadow;
    mod envoy_smallest;
    mod envoy_tls;
    mod envoy_variants;
    mod exactness;
    mod explain;
    mod failures_table;
    mod fallback;
    mod file_watch;
    mod foreign;
    mod foreign_states;
    mod foreign_texts;
    mod gallery;
    mod ghosts;
    mod guard;
    mod handshakes;
    mod house;
    mod identity;
    mod leaks;
    mod leaks_settings;
    mod leaks_tools;
    mod lifecycle;
    mod listeners;
    mod logs;
    mod lua_equals_rust;
    mod matching;
    mod memory;
    mod modes;
    mod numbers;
    mod operator_tools;
    mod overload;
    mod overrides;
    mod pace;
    mod pages;
    mod privacy;
    mod probe;
    mod published_keys;
    mod redis_auth;
    mod redis_errors;
    mod redis_tls;
    mod refusals;
    mod reload;
    mod replies;
    mod retry_after;
    mod schema;
    mod script_rules;
    mod scripts;
    mod secrets;
    mod sentinel;
    mod server_tls;
    mod several_limits;
    mod silent_sources;
    mod store_contract;
    mod strangers;
    mod tls_checks;
    mod windows;
}
