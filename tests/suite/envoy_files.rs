//! Every Envoy configuration that we ship is one that Envoy accepts, holds what none may lack, and has Tallygate's side.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::envoy;
use crate::support::process::root;

/// The names of the YAML files in this folder, sorted.
fn files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of configurations");
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml")).collect();
    names.sort();
    assert!(names.len() > 5, "{folder} has {names:?}: the search is broken");
    names
}

#[test]
fn envoy_accepts_every_shipped_configuration() {
    for name in files("envoy") {
        let done = envoy::validate(&envoy::placed(&name, 0, 0));
        assert_eq!(done.code, Some(0), "{name}:\n{}", done.stderr);
        // A deprecated field is accepted today and refused tomorrow.
        assert!(!done.stderr.to_lowercase().contains("deprecated"), "{name}:\n{}", done.stderr);
    }
}

#[test]
fn every_file_has_tallygates_side_and_is_in_the_index() {
    let index = fs::read_to_string(root().join("envoy/README.md")).unwrap();
    let mut sides = files("envoy/tallygate");
    sides.push("tallygate.yaml".into()); // the demo's
    sides.sort();
    assert_eq!(files("envoy"), sides);
    for name in sides {
        assert!(index.contains(&format!("]({name})")), "envoy/README.md does not name {name}");
    }
}

/// Every object in there that `is` one of those that are looked for.
fn find<'v>(value: &'v Value, is: &impl Fn(&Value) -> bool) -> Vec<&'v Value> {
    let below: Vec<_> = match value {
        Value::Array(items) => items.iter().flat_map(|item| find(item, is)).collect(),
        Value::Object(fields) => fields.values().flat_map(|field| find(field, is)).collect(),
        _ => Vec::new(),
    };
    if is(value) { [vec![value], below].concat() } else { below }
}

fn one(file: &Value, is: impl Fn(&Value) -> bool) -> &Value {
    let found = find(file, &is);
    assert_eq!(found.len(), 1, "one of these in a file: {found:#?}");
    found[0]
}

fn of_type(value: &Value, name: &str) -> bool {
    value["@type"].as_str().is_some_and(|kind| kind.ends_with(name))
}

#[test]
fn no_file_lacks_what_every_one_needs() {
    for name in files("envoy") {
        let text = fs::read_to_string(root().join("envoy").join(&name)).unwrap();
        let file: Value = serde_yaml::from_str(&text).expect("YAML");
        let filter = one(&file, |value| of_type(value, ".ExtAuthz"));
        for (field, wanted) in [
            ("transport_api_version", json!("V3")),
            ("failure_mode_allow", json!(false)),
            ("status_on_error", json!({ "code": "ServiceUnavailable" })),
            ("validate_mutations", json!(true)),
            ("charge_cluster_response_stats", json!(false)),
            ("stat_prefix", json!("tallygate")),
        ] {
            assert_eq!(filter[field], wanted, "{name}: {field}");
        }
        assert_eq!(filter["grpc_service"]["timeout"], "0.4s", "{name}");
        assert_eq!(filter["with_request_body"], Value::Null, "{name}");

        let manager = one(&file, |value| of_type(value, ".HttpConnectionManager"));
        for field in ["normalize_path", "merge_slashes"] {
            assert_eq!(manager[field], true, "{name}: {field}");
        }
        assert_eq!(manager["path_with_escaped_slashes_action"], "REJECT_REQUEST", "{name}");
        let filters = manager["http_filters"].as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap());
        let ends: Vec<_> = filters.collect();
        assert_eq!(
            ends[ends.len() - 2..],
            ["envoy.filters.http.ext_authz", "envoy.filters.http.router"],
            "{name}: last of all"
        );
        let hosts = manager["route_config"]["virtual_hosts"].as_array().unwrap();
        for host in hosts {
            let last = host["routes"].as_array().unwrap().last().unwrap();
            assert_eq!(last["match"], json!({ "prefix": "/" }), "{name}: a request without a route is not checked");
        }

        let cluster = one(&file, |value| value["name"] == "tallygate" && value["load_assignment"].is_object());
        assert_eq!(cluster["outlier_detection"], Value::Null, "{name}");
        assert_eq!(cluster["health_checks"], Value::Null, "{name}");
        let many = json!([{ "max_requests": 65536, "max_pending_requests": 65536 }]);
        assert_eq!(cluster["circuit_breakers"]["thresholds"], many, "{name}");
    }
}
