//! One table of files that differ from a valid one in shape: what the schema refuses there, the reader does, and no other.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

use super::schema;
use crate::config::tests::{VALID, load};

/// Whether the schema accepts YAML text.
struct Judge {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Judge {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("schema.json", schema()).expect("a resource");
        let index = compiler.compile("schema.json", &mut schemas).expect("a valid schema");
        Self { schemas, index }
    }

    fn accepts(&self, text: &str) -> bool {
        let options = serde_yaml::options! { strict_booleans: true }; // YAML 1.2, as editors read it
        let value: Value = serde_yaml::from_str_with_options(text, options).expect("YAML");
        self.schemas.validate(&value, self.index).is_ok()
    }
}

// Ranges, words and forms: what one refuses for its shape, the other does.
/// Settings of `server.tls`.
const CERTIFICATE: &str =
    "certificate_file: tests/support/certs/sidecar.pem, private_key_file: tests/support/certs/sidecar-key.pem";
const CLIENTS: &str = "client_ca_file: tests/support/certs/mesh.pem";

#[test]
fn the_schema_and_the_reader_judge_the_same() {
    const GOOD: bool = true;
    const BAD: bool = false;
    let url = "url: \"redis://127.0.0.1:6379\"";
    let limit = "fixed_window: { limit: 3, window: 10s }";
    let on_failure = "on_failure: closed";
    let cases: &[(&str, &[(&str, bool)])] = &[
        ("limit: 3", &[("limit: 1", GOOD), ("limit: 0", BAD), ("limit: -1", BAD), ("limit: 2000000000", BAD)]),
        ("limit: 3", &[("limit: \"3\"", BAD), ("limit: true", BAD), ("limit: 1.5", BAD), ("limit: ~", BAD)]),
        ("window: 10s", &[("window: 1ms", GOOD), ("window: 1m30s", GOOD), ("window: 10", BAD), ("window: 1.5s", BAD)]),
        ("window: 10s", &[("window: 1M", BAD), ("window: s", BAD), ("window: \"\"", BAD), ("window: 1s1m", BAD)]),
        (
            limit,
            &[("sliding_window: { limit: 3, window: 10s }", GOOD), ("sliding_log: { limit: 3, window: 10s }", GOOD)],
        ),
        (limit, &[("token_bucket: { rate: 1, per: 1s, burst: 1 }", GOOD), ("token_bucket: { rate: 1, per: 1s }", BAD)]),
        (limit, &[("mode: off", BAD), ("leaky_bucket: {}", BAD)]),
        ("name: per-tenant", &[("name: a", GOOD), ("name: A", BAD), ("name: -a", BAD), ("name: local", BAD)]),
        (
            "version: 1",
            &[("version: 999999", GOOD), ("version: 1000000", BAD), ("version: 0", BAD), ("version: \"1\"", BAD)],
        ),
        (
            "[tenant]",
            &[("[]", GOOD), ("[tenant, address]", GOOD), ("[tenant, tenant]", BAD), ("[user]", BAD), ("tenant", BAD)],
        ),
        (
            on_failure,
            &[("on_failure: envoy", GOOD), ("on_failure: { open: unlimited }", GOOD), ("on_failure: open", BAD)],
        ),
        (on_failure, &[("on_failure: { open: { fixed_window: { limit: 1, window: 1s }, replicas: 2 } }", GOOD)]),
        (
            on_failure,
            &[("on_failure: { open: { replicas: 2 } }", BAD), ("on_failure: { open: { per: [tenant] } }", BAD)],
        ),
        (
            "version: 1",
            &[
                ("version: 1\n    on_unidentified: allow", GOOD),
                ("version: 1\n    on_unidentified: { deny: { status: 403 } }", GOOD),
                ("version: 1\n    on_unidentified: { deny: { status: 404 } }", BAD),
                ("version: 1\n    on_unidentified: { address: { fixed_window: { limit: 1, window: 1s } } }", GOOD),
                ("version: 1\n    on_unidentified: { address: {} }", BAD),
                ("version: 1\n    cost: 3", GOOD),
                ("version: 1\n    cost: 0", BAD),
                ("version: 1\n    cost: { route: c, default: 2, max: 3 }", GOOD),
                ("version: 1\n    cost: { default: 2 }", BAD),
                ("version: 1\n    mode: shadow", GOOD),
                ("version: 1\n    mode: on", BAD),
                ("version: 1\n    match: {}", BAD),
                (
                    "version: 1\n    match: { path: { prefix: /a }, methods: [GET], host: a.example, route: { a: b } }",
                    GOOD,
                ),
                ("version: 1\n    match: { path: { prefix: a } }", BAD),
                ("version: 1\n    match: { path: { prefix: /a, exact: /b } }", BAD),
                ("version: 1\n    match: { methods: [get] }", BAD),
                ("version: 1\n    match: { host: A.example }", BAD),
                ("version: 1\n    match: { host: \"*.a.example\" }", GOOD),
                ("version: 1\n    match: { host: \"a.example:80\" }", BAD),
                ("version: 1\n    match: { host: \"[::1]\" }", GOOD),
                ("version: 1\n    match: { host: a.example. }", BAD),
                ("version: 1\n    match: { route: { a: 1 } }", BAD),
                ("version: 1\n    overrides: []", GOOD),
                ("version: 1\n    overrides: [{ tenant: { value: a }, set: { limit: 0 } }]", GOOD),
                ("version: 1\n    overrides: [{ tenant: { value: a }, set: { unlimited: true } }]", GOOD),
                ("version: 1\n    overrides: [{ tenant: { value: a }, set: { unlimited: false } }]", BAD),
                ("version: 1\n    overrides: [{ tenant: { value: a }, set: { unlimited: true, limit: 1 } }]", BAD),
                ("version: 1\n    overrides: [{ tenant: { value: a }, set: { limit: 1, rate: 1 } }]", BAD),
                ("version: 1\n    overrides: [{ tenant: { value: a }, set: {} }]", BAD),
                ("version: 1\n    overrides: [{ tenant: { value: \"\" }, set: { limit: 1 } }]", BAD),
            ],
        ),
        (
            "{ route: tenant }",
            &[
                ("address", GOOD),
                ("peer", BAD),
                ("{ route: \"\" }", BAD),
                ("{ route: a, jwt: { claim: a } }", BAD),
                ("{ jwt: { claim: [a, b], issuers: [c], integers: true } }", GOOD),
                ("{ jwt: { claim: [] } }", BAD),
                ("{ jwt: { claim: a, issuers: [] } }", BAD),
                ("{ mtls: { trust_domain: td.example } }", GOOD),
                ("{ mtls: { trust_domain: \"spiffe://td\" } }", BAD),
                ("{ header: { name: x-a, trusted_because: b } }", GOOD),
                ("{ header: { name: x-a } }", BAD),
                ("{ header: { name: \"x a\", trusted_because: b } }", BAD),
                ("{ header: { name: x-a, trusted_because: b, from_principals: [] } }", BAD),
                ("{ header: { name: x-a, trusted_because: b, from_principals: [\"spiffe://a/b\"] } }", GOOD),
                ("{ header: { name: x-a, trusted_because: b, from_principals: [\"spiffe://a\"] } }", BAD),
            ],
        ),
        (
            "[{ route: tenant }]",
            &[
                ("[]", BAD),
                ("[address]\n  address: { ipv6_prefix: 128 }", GOOD),
                ("[address]\n  address: { ipv6_prefix: 129 }", BAD),
                ("[address]\n  address: { source: peer }", GOOD),
                ("[address]\n  address: { source: edge }", BAD),
                ("[address]\n  address: { source: { call_metadata: x-a } }", GOOD),
                ("[address]\n  address: { source: { header: { name: x-a } } }", BAD),
                ("[address]\n  address: { source: { forwarded: { trusted_peers: [10.0.0.0/8] } } }", GOOD),
                ("[address]\n  address: { source: { forwarded: { trusted_peers: [10.0.0.1] } } }", BAD),
                (
                    "[address]\n  address: { source: { forwarded: { trusted_peers: [fd00::/8], trusted_hops: 33 } } }",
                    BAD,
                ),
            ],
        ),
        (
            url,
            &[
                ("url: \"rediss://u:p%40@h:1/3\"", GOOD),
                ("url: \"redis+unix:///run/redis.sock\"", GOOD),
                ("url: \"valkeys://h:1\"", GOOD),
                ("url: \"http://h:1\"", BAD),
                ("url: \"redis://:p@ss@h:1\"", BAD),
                ("url: \"redis://h:1?db=1\"", BAD),
                ("url: \"redis://h:1\", cluster: { nodes: [\"h:1\"] }", BAD),
                ("url: \"redis://h:1\", username: u", BAD),
                ("url: \"redis://h:1\", database: 1000001", BAD),
                ("url: \"rediss://h:1\", tls: { certificate_file: /dev/null }", BAD),
                ("url: \"rediss://h:1\", tls: { ca_file: tests/support/certs/ca.pem, server_name: h }", GOOD),
                ("url: \"rediss://h:1\", tls: { server_name: \"h/\" }", BAD),
                ("cluster: { nodes: [\"[::1]:7000\", \"h:1\"] }", GOOD),
                ("cluster: { nodes: [] }", BAD),
                ("cluster: { nodes: [\"redis://h:1\"] }", BAD),
                ("cluster: { nodes: [\"h\"] }", BAD),
                ("sentinel: { master: m, nodes: [\"h:1\"] }", GOOD),
                ("sentinel: { nodes: [\"h:1\"] }", BAD),
                ("command_timeout: 100ms", BAD),
            ],
        ),
        (
            "hmac: { secret_file: SECRET }",
            &[
                ("hmac: {}", BAD),
                ("hmac: { secret_file: SECRET, secret_env: A }", BAD),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"unix:/a\", socket_mode: \"0660\" }", GOOD),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"unix:a\" }", BAD),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"[::1]:1\" }", GOOD),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"localhost:1\" }", BAD),
                ("hmac: { secret_file: SECRET }\nserver: { tls: { CERTIFICATE } }", GOOD),
                ("hmac: { secret_file: SECRET }\nserver: { tls: { CERTIFICATE, CLIENTS } }", GOOD),
                ("hmac: { secret_file: SECRET }\nserver: { tls: { CLIENTS } }", BAD),
                (
                    "hmac: { secret_file: SECRET }\nserver: { tls: { CERTIFICATE, allowed_clients: [spiffe://a/b] } }",
                    BAD,
                ),
                (
                    "hmac: { secret_file: SECRET }\nserver: { tls: { CERTIFICATE, CLIENTS, allowed_clients: [spiffe://a/b] } }",
                    GOOD,
                ),
                ("hmac: { secret_file: SECRET }\nserver: { tls: { CERTIFICATE, CLIENTS, allowed_clients: [] } }", BAD),
                (
                    "hmac: { secret_file: SECRET }\nserver: { tls: { CERTIFICATE, CLIENTS, allowed_clients: [a.example] } }",
                    BAD,
                ),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"unix:/a\", socket_mode: \"888\" }", BAD),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"unix:/a\", socket_mode: 660 }", BAD),
                ("hmac: { secret_file: SECRET }\nserver: { listen: \"unix:/a\", socket_group: -1 }", BAD),
                ("hmac: { secret_file: SECRET }\nunmatched: deny\nambiguous_path: allow\nkey_prefix: a1", GOOD),
                ("hmac: { secret_file: SECRET }\nunmatched: no", BAD),
                ("hmac: { secret_file: SECRET }\nkey_prefix: a-1", BAD),
                (
                    "hmac: { secret_file: SECRET }\nanswers: { ratelimit_fields: never, stop_retries_on_failure: false }",
                    GOOD,
                ),
                ("hmac: { secret_file: SECRET }\nanswers: { stop_retries_on_failure: no }", BAD),
                ("hmac: { secret_file: SECRET }\nanswers: ~", BAD),
                ("hmac: { secret_file: SECRET }\nguard_rails: { max_limit: 1000000000, max_window: 366d }", GOOD),
                ("hmac: { secret_file: SECRET }\nguard_rails: { max_log_cost: 0 }", BAD),
                ("hmac: { secret_file: SECRET }\nstore2: {}", BAD),
            ],
        ),
    ];
    let judge = Judge::new();
    for (from, changes) in cases {
        assert_eq!(VALID.matches(from).count(), 1, "{from}");
        for (to, wanted) in *changes {
            let text = VALID.replace(from, &to.replace("CERTIFICATE", CERTIFICATE).replace("CLIENTS", CLIENTS));
            let read = load(&text);
            assert_eq!(read.is_ok(), *wanted, "the reader, {to}: {:?}", read.err());
            assert_eq!(judge.accepts(&text), *wanted, "the schema, {to}");
        }
    }
}
