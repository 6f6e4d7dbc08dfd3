//! A real Envoy with the configuration that a mesh's control plane makes of our manifests, as far as a request to an
//! application meets it. Istio itself cannot run here: what it would generate is built after its source (pilot, 1.31).

use serde_json::{Value, json};

use super::envoy::Envoy;
use super::manifests::find;
use super::sidecar::Sidecar;
use super::tls::pem;
use super::token::{ISSUER, key_set};

const HCM: &str = "envoy.filters.network.http_connection_manager";
const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// What follows the address of Redis in a file.
pub const PATIENT: &str = "\n    connect_timeout: 5s\n    command_timeout: 5s";

/// The HTTP filters and clusters of a proxy, to be filled in.
pub struct Proxy {
    pub filters: Vec<Value>,
    pub clusters: Vec<Value>,
    manager: Value,
    routes: Value,
    transport: Option<Value>,
}

/// An HTTP filter of Envoy's own with this configuration.
pub fn filter(name: &str, of: &str, mut config: Value) -> Value {
    config["@type"] = json!(format!("{TYPES}.filters.http.{of}"));
    json!({ "name": name, "typed_config": config })
}

impl Proxy {
    /// Inbound as pilot has it before anything of ours: what it always adds, and the router.
    pub fn new(application: u16) -> Self {
        let filters = vec![
            filter("istio.grpc_stats", "grpc_stats.v3.FilterConfig", json!({ "emit_filter_state": true })),
            filter("istio.fault", "fault.v3.HTTPFault", json!({})),
            filter("envoy.filters.http.cors", "cors.v3.Cors", json!({})),
            filter("envoy.filters.http.router", "router.v3.Router", json!({})),
        ];
        let clusters = vec![cluster("application", application)];
        Self { filters, clusters, manager: json!({}), routes: json!({}), transport: None }
    }

    /// What the operator says about every route: names and values, as Envoy Gateway lists them.
    pub fn context(&mut self, extensions: &Value) {
        let pairs = extensions.as_array().into_iter().flatten();
        let pairs: serde_json::Map<_, _> =
            pairs.map(|pair| (pair["name"].as_str().expect("a name").to_owned(), pair["value"].clone())).collect();
        self.routes = json!({ "envoy.filters.http.ext_authz": {
            "@type": format!("{TYPES}.filters.http.ext_authz.v3.ExtAuthzPerRoute"),
            "check_settings": { "context_extensions": pairs },
        } });
    }

    /// The connection manager of a gateway behind `trusted` balancers.
    pub fn gateway(mut self, trusted: u32) -> Self {
        self.manager = json!({ "use_remote_address": true, "xff_num_trusted_hops": trusted });
        self
    }

    /// Mutual TLS as `PeerAuthentication` STRICT asks for it.
    pub fn strict(mut self) -> Self {
        let mut context = certificates("mesh-orders");
        context["require_client_certificate"] = json!(true);
        context["@type"] = json!(format!("{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext"));
        self.transport = Some(json!({ "name": "envoy.transport_sockets.tls", "typed_config": context }));
        self
    }

    /// The token check that a `RequestAuthentication` becomes, ahead of the rest. A key set takes the place of the address
    /// that it would be fetched from.
    pub fn authentication(mut self, manifest: &Value) -> Self {
        let rule = &manifest["spec"]["jwtRules"][0];
        assert_eq!(rule["issuer"], ISSUER);
        let mut provider = json!({
            "issuer": ISSUER,
            "forward": rule["forwardOriginalToken"],
            "payload_in_metadata": "payload",
            "normalize_payload_in_metadata": { "space_delimited_claims": ["scope", "permission"] },
            "local_jwks": { "inline_string": key_set() },
        });
        if rule["audiences"].is_array() {
            provider["audiences"] = rule["audiences"].clone();
        }
        let either = json!([{ "provider_name": "origins-0" }, { "allow_missing": {} }]);
        let config = json!({
            "providers": { "origins-0": provider },
            "rules": [{ "match": { "prefix": "/" }, "requires": { "requires_any": { "requirements": either } } }],
            "bypass_cors_preflight": true,
        });
        self.filters.insert(0, filter("envoy.filters.http.jwt_authn", "jwt_authn.v3.JwtAuthentication", config));
        self
    }

    /// What an `EnvoyFilter` adds in this context, as pilot adds it.
    #[track_caller]
    pub fn patched(mut self, manifest: &Value, context: &str) -> Self {
        for patch in manifest["spec"]["configPatches"].as_array().expect("patches") {
            let (place, change) = (&patch["match"], &patch["patch"]);
            assert_eq!(place["context"], context);
            match (patch["applyTo"].as_str(), change["operation"].as_str()) {
                (Some("CLUSTER"), Some("ADD")) => self.clusters.push(change["value"].clone()),
                (Some("HTTP_FILTER"), Some("INSERT_BEFORE")) => {
                    let wanted = &place["listener"]["filterChain"]["filter"];
                    assert_eq!(wanted["name"], HCM);
                    let name = &wanted["subFilter"]["name"];
                    // Pilot passes over a patch whose anchor is not there.
                    if let Some(at) = self.filters.iter().position(|filter| filter["name"] == *name) {
                        self.filters.insert(at, change["value"].clone());
                    }
                }
                other => panic!("{other:?} is not known here"),
            }
        }
        self
    }

    /// The bootstrap that has all of this, with these texts replaced; each must occur.
    #[track_caller]
    pub fn start(self, edits: &[(&str, &str)]) -> Envoy {
        let mut manager = json!({
            "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "inbound",
            "normalize_path": true,
            "merge_slashes": true,
            "http_filters": self.filters,
            "route_config": { "virtual_hosts": [{ "name": "inbound", "domains": ["*"], "typed_per_filter_config": self.routes,
                "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "application" } }] }] },
            "access_log": [{ "name": "log", "typed_config": {
                "@type": format!("{TYPES}.access_loggers.stream.v3.StdoutAccessLog"),
                "log_format": { "text_format_source": { "inline_string":
                    "%RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ext_authz:policy)%\n" } } } }],
        });
        super::manifests::merge(&mut manager, &self.manager);
        let mut chain = json!({ "filters": [{ "name": HCM, "typed_config": manager }] });
        if let Some(transport) = self.transport {
            chain["transport_socket"] = transport;
        }
        // The time-out of a check, likewise.
        let text = bootstrap(&chain, &self.clusters).to_string().replace(r#""timeout":"0.4s""#, r#""timeout":"10s""#);
        Envoy::start(&super::envoy::substitute(&text, edits))
    }
}

/// A workload of the mesh: what is sent to its address goes to `to` by mutual TLS, with this certificate.
#[track_caller]
pub fn workload(certificate: &str, to: &Envoy) -> Envoy {
    let port = to.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let mut context = certificates(certificate);
    context["@type"] = json!(format!("{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext"));
    let mut server = cluster("server", port);
    server["transport_socket"] = json!({ "name": "envoy.transport_sockets.tls", "typed_config": context });
    let proxy = json!({
        "@type": format!("{TYPES}.filters.network.tcp_proxy.v3.TcpProxy"), "stat_prefix": "outbound", "cluster": "server",
    });
    let chain = json!({ "filters": [{ "name": "envoy.filters.network.tcp_proxy", "typed_config": proxy }] });
    Envoy::start(&bootstrap(&chain, &[server]).to_string())
}

/// Tallygate with the file of a rendered ConfigMap, on free ports, in front of this Redis, with these texts replaced. It is given
/// time: whom it counts must not depend on how fast this machine is.
#[track_caller]
pub fn tallygate(rendered: &[Value], redis: u16, edits: &[(&str, &str)]) -> Sidecar {
    let map = find(rendered, "ConfigMap", "tallygate");
    let text = map["data"]["tallygate.yaml"].as_str().expect("a file");
    let redis = format!("redis://127.0.0.1:{redis}{PATIENT}");
    let places = [
        ("/etc/tallygate/secret/hmac.key", "SECRET_FILE"),
        ("0.0.0.0:9180", "127.0.0.1:0"),
        ("redis://redis.redis.svc.cluster.local:6379", redis.as_str()),
    ];
    let text = super::envoy::substitute(&super::envoy::substitute(text, &places), edits);
    let text = text.replace("0.0.0.0:50051", "127.0.0.1:0").replace("127.0.0.1:50051", "127.0.0.1:0");
    Sidecar::start_placed(&format!("{text}decision_budget: 10s\n"))
}

fn bootstrap(chain: &Value, clusters: &[Value]) -> Value {
    json!({
        "admin": { "address": socket(0) },
        "static_resources": {
            "listeners": [{ "name": "inbound", "address": socket(0), "filter_chains": [chain] }],
            "clusters": clusters,
        },
    })
}

/// A cluster that speaks HTTP/2, as a control plane makes it of a gRPC server that it knows.
pub fn grpc_cluster(name: &str, port: u16) -> Value {
    let mut cluster = cluster(name, port);
    cluster["typed_extension_protocol_options"] = json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": { "http2_protocol_options": {} },
    } });
    cluster
}

fn cluster(name: &str, port: u16) -> Value {
    let endpoint = json!({ "endpoint": { "address": socket(port) } });
    json!({
        "name": name, "connect_timeout": "1s",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
    })
}

fn socket(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

fn certificates(name: &str) -> Value {
    let [chain, key, ca] = [name, &format!("{name}-key"), "istio"].map(|name| json!({ "filename": pem(name) }));
    json!({ "common_tls_context": {
        "tls_certificates": [{ "certificate_chain": chain, "private_key": key }],
        "validation_context": { "trusted_ca": ca },
    } })
}
