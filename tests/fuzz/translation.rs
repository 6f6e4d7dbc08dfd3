//! From a message to attributes, identity, policy and charges, in this process: nothing panics, and what is found keeps to
//! what identity and keys promise.

use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use prost::Message;
use tallygate::authz::request::View;
use tallygate::config::Config;
use tallygate::decision::identity::{MAX_VALUE_LEN, Missing, Part};
use tallygate::decision::key::MAX_KEY_LEN;
use tallygate::decision::policy::{Found, Unplanned};
use tallygate::decision::spiffe::MAX_ID_LEN;
use tempfile::TempDir;
use tonic::metadata::MetadataMap;

use super::{driver, seeds};
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;

/// One policy that all requests meet, and one that counts by everything.
fn rules() -> Config {
    let policies = "
  - name: orders
    version: 1
    match: { path: { prefix: /orders }, methods: [GET, POST] }
    cost: { route: cost, default: 1, max: 9 }
    limits:
      - { name: each, per: [tenant, subject], fixed_window: { limit: 9, window: 60s } }
      - { name: site, per: [tenant, address], sliding_log: { limit: 9, window: 60s } }
    overrides: [{ tenant: { value: acme, source: route/tenant }, limit: each, set: { limit: 99 } }]
    on_unidentified: { address: { token_bucket: { rate: 1, per: 1s, burst: 9 } } }
    on_failure: closed
  - name: rest
    version: 1
    limits: [{ name: each, per: [subject], sliding_window: { limit: 9, window: 60s } }]
    on_failure: closed";
    let folder = TempDir::new().expect("a folder");
    let setup = Setup::memory().identity(seeds::IDENTITY).policies(policies);
    Config::load(&write_files(&folder, &setup), None).unwrap_or_else(|invalid| panic!("{invalid}"))
}

#[test]
fn every_message_is_somebody_or_nobody() {
    let config = rules();
    let (rules, honest) = (&config.rules, seeds::requests());
    let call = MetadataMap::new();
    driver::run(
        "every_message_is_somebody_or_nobody",
        |random| seeds::message(random, &honest),
        |bytes| {
            let Ok(message) = CheckRequest::decode(&**bytes) else { return };
            let view = View::of(&message, &call);
            let request = view.attributes();
            let _caller = view.caller();
            for part in [Part::Tenant, Part::Subject, Part::Address] {
                let found = rules.identity.find(part, &request);
                if let Ok(evidence) = &found {
                    // An integer has a NUL before it.
                    let most = if evidence.kind == "mtls" { MAX_ID_LEN } else { MAX_VALUE_LEN + 1 };
                    assert!((1..=most).contains(&evidence.value.len()), "{} bytes", evidence.value.len());
                    assert!(evidence.issuer.len() <= MAX_VALUE_LEN);
                }
                let trace = rules.identity.trace(part, &request);
                let last = trace.last().map_or(Err(Missing::Absent), |(_, answer)| *answer);
                assert_eq!(found.map(|_| ()), last, "what an operator is shown is what happens");
            }
            let Found::Policy(policy) = rules.find(&request) else { return };
            match policy.plan(&rules.identity, &request) {
                Ok(plan) => {
                    assert!(!plan.charges.is_empty());
                    for charge in &plan.charges {
                        let key = &charge.key.text;
                        assert!(key.len() <= MAX_KEY_LEN && key.bytes().all(|b| b.is_ascii_graphic()), "{key}");
                    }
                }
                Err(Unplanned::Unidentified(missing)) => {
                    assert_eq!(rules.identity.find(missing.part, &request).err(), Some(missing.missing));
                }
                Err(_) => {}
            }
        },
    );
}
