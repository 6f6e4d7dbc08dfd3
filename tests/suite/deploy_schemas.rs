//! What `deploy/` has for Kubernetes, Istio and Envoy Gateway is what their API servers accept, fields that they would drop
//! in silence included. The schemas: `tests/data/schemas/README.md`.

use serde_json::{Value, json};

use crate::support::kustomize;
use crate::support::manifests::{self, Judge, find, kind};
use crate::support::process::root;

#[test]
fn every_kustomization_renders_to_manifests_that_the_schemas_accept() {
    let judge = Judge::new();
    let mut kinds = Vec::new();
    for folder in kustomize::all() {
        for manifest in kustomize::render(&folder) {
            assert_eq!(judge.problems(&manifest), None, "deploy/{folder}: {}", kind(&manifest));
            kinds.push(kind(&manifest));
        }
    }
    kinds.sort();
    kinds.dedup();
    assert!(kinds.len() >= 16, "only {kinds:?} were seen");
}

// Kubernetes takes an unknown field of a custom resource and drops it: a limit that is misspelt is none.
#[test]
fn a_misspelt_field_and_a_wrong_type_are_seen() {
    let judge = Judge::new();
    let wrong: [(&str, &str, &str, &str, Value); 8] = [
        (
            "kubernetes/central",
            "Deployment",
            "tallygate",
            "/spec/template/spec/containers/0/securityContext",
            json!({ "readOnlyRootFileSystem": true }),
        ),
        ("kubernetes/central", "HorizontalPodAutoscaler", "tallygate", "/spec/minReplicas", json!("two")),
        ("kubernetes/central", "NetworkPolicy", "tallygate", "/spec/policyTypes", json!("Ingress")),
        ("istio/custom-sidecar", "AuthorizationPolicy", "tallygate", "/spec/action", json!("CUSTOMARY")),
        (
            "istio/custom-sidecar",
            "DestinationRule",
            "tallygate-local",
            "/spec/trafficPolicy/connectionPool/http",
            json!({ "http2MaxRequest": 1 }),
        ),
        (
            "istio/jwt-sidecar",
            "RequestAuthentication",
            "idp",
            "/spec/jwtRules/0",
            json!({ "issuer": "x", "jwksUrl": "y" }),
        ),
        ("envoy-gateway", "SecurityPolicy", "orders", "/spec/extAuth/timeout", json!(0.4)),
        (
            "envoy-gateway",
            "EnvoyProxy",
            "tallygate-example",
            "/spec/filterOrder/0/after",
            json!("envoy.filters.http.jwt"),
        ),
    ];
    for (folder, of_kind, name, pointer, value) in wrong {
        let rendered = kustomize::render(folder);
        let mut manifest = find(&rendered, of_kind, name).clone();
        manifests::replace(&mut manifest, pointer, &value);
        assert!(judge.problems(&manifest).is_some(), "{of_kind} {pointer}: {value} passes");
    }
    let rendered = kustomize::render("istio/jwt-sidecar");
    let mut manifest = find(&rendered, "EnvoyFilter", "tallygate").clone();
    manifest["metadata"]["namespaces"] = json!("orders");
    assert!(judge.problems(&manifest).is_some(), "metadata is judged too");
}

/// The fields of `EnvoyExternalAuthorizationGrpcProvider` in Istio's `mesh/v1alpha1/config.proto` (istio/api, seen at
/// 0040fb30e9c0). MeshConfig has no schema, and istiod ignores what it does not know.
const PROVIDER: [&str; 7] =
    ["service", "port", "timeout", "failOpen", "statusOnError", "includeRequestBodyInCheck", "clearRouteCache"];

#[test]
fn each_provider_of_the_mesh_is_one_that_istio_knows_and_names_a_server_that_is_there() {
    let mesh = manifests::read_one(&root().join("deploy/istio/mesh-config.yaml"));
    assert_eq!(kind(&mesh), "install.istio.io/v1alpha1/IstioOperator");
    let config = &mesh["spec"]["meshConfig"];
    let fields: Vec<_> = config.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["extensionProviders", "pathNormalization"]);
    assert_eq!(config["pathNormalization"], json!({ "normalization": "MERGE_SLASHES" }));
    let providers = config["extensionProviders"].as_array().unwrap();
    for (name, folder, service, port) in [
        ("tallygate-sidecar", "istio/custom-sidecar", "tallygate.local", 50051),
        ("tallygate-central", "istio/custom-central", "tallygate.tallygate.svc.cluster.local", 50051),
    ] {
        let provider = providers.iter().find(|provider| provider["name"] == name).expect("a provider");
        let own = &provider["envoyExtAuthzGrpc"];
        assert!(own.as_object().unwrap().keys().all(|field| PROVIDER.contains(&field.as_str())), "{own}");
        let expected =
            json!({ "service": service, "port": port, "timeout": "0.4s", "statusOnError": "503", "failOpen": false });
        assert_eq!(*own, expected);

        let rendered = kustomize::render(folder);
        let policies = rendered.iter().filter(|m| m["spec"]["action"] == "CUSTOM");
        let named: Vec<_> = policies.map(|policy| policy["spec"]["provider"]["name"].clone()).collect();
        assert_eq!(named, [name], "one CUSTOM policy: two would count twice");
        assert_eq!(serves(&rendered, service), Some(port), "{service}");
    }
    assert_eq!(providers.len(), 2);
}

/// The port at which the mesh knows this host.
fn serves(rendered: &[Value], host: &str) -> Option<i64> {
    let entry = rendered.iter().find(|m| kind(m).ends_with("/ServiceEntry") && m["spec"]["hosts"] == json!([host]));
    if let Some(entry) = entry {
        return entry["spec"]["ports"][0]["number"].as_i64();
    }
    let of =
        |m: &Value| format!("{}.{}.svc.cluster.local", text(&m["metadata"]["name"]), text(&m["metadata"]["namespace"]));
    let service = rendered.iter().find(|m| kind(m) == "v1/Service" && of(m) == host)?;
    // Istio's sidecars cannot send a check to a Service without a cluster IP.
    assert_eq!(service["spec"].get("clusterIP"), None);
    service["spec"]["ports"][0]["port"].as_i64()
}

// One set of values, with its reasons, for every way to ask: `envoy/tallygate.yaml`.
#[test]
fn every_filter_and_cluster_has_the_values_that_are_documented_for_envoy() {
    let config = manifests::read_one(&root().join("envoy/tallygate.yaml"));
    let resources = &config["static_resources"];
    let manager = &resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    let filters = manager["http_filters"].as_array().unwrap().iter();
    let documented = filters.map(|f| &f["typed_config"]).find(|f| text(&f["@type"]).ends_with(".ExtAuthz")).unwrap();
    let timeout = &documented["grpc_service"]["timeout"];
    for folder in ["istio/jwt-sidecar", "istio/gateway"] {
        let rendered = kustomize::render(folder);
        let patches = find(&rendered, "EnvoyFilter", "tallygate")["spec"]["configPatches"].as_array().unwrap();
        let mut own = patches.last().unwrap()["patch"]["value"]["typed_config"].clone();
        assert_eq!(own["grpc_service"]["timeout"], *timeout, "{folder}");
        own["grpc_service"] = documented["grpc_service"].clone();
        assert_eq!(own, *documented, "{folder}");
    }
    let rendered = kustomize::render("istio/jwt-sidecar");
    let cluster = &find(&rendered, "EnvoyFilter", "tallygate")["spec"]["configPatches"][0]["patch"]["value"];
    let clusters = resources["clusters"].as_array().unwrap();
    assert_eq!(cluster, clusters.iter().find(|cluster| cluster["name"] == "tallygate").unwrap());

    let rendered = kustomize::render("envoy-gateway");
    let own = &find(&rendered, "SecurityPolicy", "orders")["spec"]["extAuth"];
    assert_eq!((text(timeout), text(&own["timeout"])), ("0.4s", "400ms"));
    let breaker = json!({ "maxParallelRequests": 65536, "maxPendingRequests": 65536 });
    assert_eq!(own["grpc"]["backendSettings"]["circuitBreaker"], breaker);
    assert_eq!((&own["statusOnError"], &own["failOpen"]), (&json!(503), &json!(false)));
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

// Istio's own rules for a ServiceEntry, which a schema cannot tell: with endpoints a resolution other than NONE, and the
// protocol that makes it speak HTTP/2. And for a CUSTOM policy: rules, and no principal, namespace or claim in them.
#[test]
fn istio_takes_the_entries_and_rules_that_its_webhook_would_refuse_otherwise() {
    for folder in kustomize::all().iter().filter(|folder| folder.starts_with("istio/")) {
        let rendered = kustomize::render(folder);
        for entry in rendered.iter().filter(|m| kind(m).ends_with("/ServiceEntry")) {
            assert_eq!(entry["spec"]["resolution"], "STATIC");
            assert_eq!(entry["spec"]["endpoints"], json!([{ "address": "127.0.0.1" }]));
            assert_eq!(entry["spec"]["ports"][0]["protocol"], "GRPC");
        }
        for policy in rendered.iter().filter(|m| m["spec"]["action"] == "CUSTOM") {
            let rules = policy["spec"]["rules"].as_array().expect("without rules it would ask about nothing");
            assert!(!rules.is_empty());
            assert!(rules.iter().all(|rule| rule.get("from").is_none() && rule.get("when").is_none()), "{rules:?}");
            // In the root namespace without a selector it would be every workload's, Tallygate's own too.
            assert!(policy["spec"]["selector"]["matchLabels"].is_object());
        }
        for rule in rendered.iter().filter(|m| kind(m).ends_with("/DestinationRule")) {
            assert_eq!(rule["spec"]["trafficPolicy"].get("outlierDetection"), None, "it would eject the only host");
        }
    }
}
