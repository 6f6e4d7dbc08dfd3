mod overrides;

use std::fs;
use std::path::Path;

use super::*;
use crate::decision::policy::{Answer, LocalLimit, OnFailure, OnUnidentified};

pub const VALID: &str = r#"
hmac: { secret_file: SECRET }
store: { redis: { url: "redis://127.0.0.1:6379" } }
identity:
  tenant: [{ route: tenant }]
policies:
  - name: orders
    version: 1
    limits: [{ name: per-tenant, per: [tenant], fixed_window: { limit: 3, window: 10s } }]
    on_failure: closed
"#;

/// Loads `text` from a file beside a good secret; `SECRET` in the text becomes the secret's path.
pub fn load(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let (file, secret) = (folder.path().join("t.yaml"), folder.path().join("hmac.key"));
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(&file, text.replace("SECRET", &secret.display().to_string())).unwrap();
    let shown = format!("{}:", file.display());
    Config::load(&file, None).map_err(|invalid| invalid.to_string().replace(&shown, ""))
}

/// The problems of the valid file with `from` replaced by `to`.
fn problems(from: &str, to: &str) -> String {
    assert!(VALID.contains(from), "{from}");
    load(&VALID.replace(from, to)).map_or_else(|problems| problems, |_| "none".to_owned())
}

#[test]
fn the_manual_is_a_valid_configuration() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tallygate.yaml");
    let text = fs::read_to_string(manual).unwrap();
    let config = load(&text.replace("/etc/tallygate/hmac.key", "SECRET")).unwrap();
    assert_eq!(config.rules.policies.len(), 2);
    assert_eq!(config.rules.unmatched, Answer::Allow);
    assert_eq!(config.rules.policies[1].limits.len(), 2);
    assert!(matches!(config.rules.policies[1].on_failure, OnFailure::Open(LocalLimit::Limited(_))));
    // The manual shows every source, the weak ones behind the strong ones.
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
    assert!(config.warnings.iter().all(|warning| warning.text.contains("a second quota")), "{:?}", config.warnings);
}

#[test]
fn what_the_manual_calls_a_default_is_the_default() {
    let config = load(VALID).unwrap();
    let Fixed { listen, tls, admin, drain, store, key_prefix } = config.fixed;
    assert!(!tls);
    assert_eq!(key_prefix.as_str(), "rl");
    assert_eq!(listen, Listen::Tcp("127.0.0.1:50051".parse().unwrap()));
    assert_eq!((admin, drain), ("127.0.0.1:9180".parse().unwrap(), Duration::from_secs(5)));
    let StoreSettings::Redis(redis) = store else { panic!("redis") };
    assert_eq!(
        (redis.dialer.connect_timeout, redis.dialer.command_timeout),
        (Duration::from_millis(200), Duration::from_millis(200))
    );
    assert_eq!(config.authz.decision_budget, Duration::from_millis(250));
    assert_eq!(config.rules.ambiguous_path, Answer::Deny);
    assert!(matches!(config.rules.policies[0].on_unidentified, OnUnidentified::Deny(_)));
}

#[test]
fn every_problem_is_reported_with_its_place_and_remedy() {
    let five = VALID
        .replace("limit: 3", "limt: 3")
        .replace("window: 10s", "window: 10")
        .replace("version: 1", "version: 01")
        .replace("on_failure: closed", "on_failure: closd")
        .replace("[tenant]", "[tenant, subject]");
    let problems = load(&five).err().unwrap();
    let wanted = "\
8:14: policies[0].version: found the number 01, wanted a whole number in plain digits, like 1000
9:48: policies[0].limits[0].per[1]: identity.subject names no source, so no request has one: \
add one, like subject: [{ route: subject }]
9:74: policies[0].limits[0].fixed_window: unknown key \"limt\": did you mean \"limit\"?
9:91: policies[0].limits[0].fixed_window.window: 10 has no unit: write 10s for seconds or 10ms for milliseconds
10:17: policies[0].on_failure: \"closd\" is not one of closed, envoy, open: did you mean closed?";
    assert_eq!(problems, wanted);
}

// A mistake once hid others (a bad prefix every policy, a bad user the URL), or made some up (a bad source that of a part).
#[test]
fn one_mistake_neither_hides_others_nor_makes_some_up() {
    let count = |text: &str| load(text).err().map_or(0, |problems| problems.lines().count());
    let prefix = format!("{}key_prefix: RL\n", VALID.replace("version: 1", "version: 0"));
    assert_eq!(count(&prefix), 2, "{:?}", load(&prefix).err());
    let store = VALID.replace("url: \"redis://127.0.0.1:6379\"", "url: \"http://h\", username: 1, database: no");
    assert_eq!(count(&store), 3, "{:?}", load(&store).err());
    // Once refused without a word: settings that were not read yet were taken for a misspelt url or algorithm.
    assert_eq!(count(&VALID.replace("url: \"redis://127.0.0.1:6379\"", "command_timeout: 100ms")), 1);
    assert_eq!(count(&VALID.replace("on_failure: closed", "on_failure: { open: { replicas: 4 } }")), 1);
    // Of a list only the first mistake was told.
    let list = VALID.replace("version: 1", "version: 1\n    match: { methods: [get, GET, post] }");
    assert_eq!(count(&list), 2, "{:?}", load(&list).err());
    let identity =
        VALID.replace("tenant: [{ route: tenant }]", "tenant: [{ route: tenant }]\n  subject: [{ rout: x }]");
    assert_eq!(count(&identity), 1, "{:?}", load(&identity).err());
}

// RL-32: what is not what it looks like is refused, with the name of the setting that raises a rail.
#[test]
fn odd_and_out_of_range_numbers_are_refused() {
    for odd in ["010", "0o10", "0x10", "1_000", "1e3", "1.0", "\"100\"", "-1", "0", ".inf", "~", "", "9007199254740992"]
    {
        let found = problems("limit: 3", &format!("limit: {odd}"));
        assert!(found.contains("fixed_window.limit: "), "{odd}: {found}");
    }
    assert!(problems("limit: 3", "limit: 1000001").contains("raise guard_rails.max_limit"));
    assert!(problems("window: 10s", "window: 61m").contains("raise guard_rails.max_window"));
    for odd in ["0", "0s", "60", "1.5", "100y", "-5s", "10us", "1M", "1.5s", "ten", "~"] {
        let found = problems("window: 10s", &format!("window: {odd}"));
        assert!(found.contains("fixed_window.window: "), "{odd}: {found}");
    }
    assert!(load(&VALID.replace("window: 10s", "window: 1ms")).is_ok());
    let raised = format!("{}guard_rails: {{ max_window: 1d }}\n", VALID.replace("window: 10s", "window: 61m"));
    assert!(load(&raised).is_ok());
}

// RL-32: a name is never turned into a boolean or a number.
#[test]
fn names_are_texts() {
    assert_eq!(load(&VALID.replace("name: orders", "name: no")).unwrap().rules.policies[0].name.as_str(), "no");
    assert!(problems("name: orders", "name: 123").contains("write \"123\""));
    assert_eq!(load(&VALID.replace("name: orders", "name: \"123\"")).unwrap().rules.policies[0].name.as_str(), "123");
    for odd in ["null", "Orders", "a_b", "true"] {
        assert!(problems("name: orders", &format!("name: {odd}")).contains("policies[0].name: "), "{odd}");
    }
}

// RL-31: what other parsers let pass.
#[test]
fn mistakes_in_yaml_do_not_pass() {
    for (from, to) in [
        ("version: 1", "version: 1\n    version: 2"),
        ("limit: 3", "limit: 3, limit: 4"),
        ("policies:", "policies: []\npolicies:"),
        ("policies:", "---\npolicies:"),
        ("    version: 1", "\tversion: 1"),
        ("hmac:", "unknown: 1\nhmac:"),
        ("limit: 3", "limit: 3, rate: 1"),
        ("{ route: tenant }", "{ route: tenant, jwt: { claim: a } }"),
        ("redis: {", "redis: { tls: 1,"),
    ] {
        assert_ne!(problems(from, to), "none", "{to}");
    }
}

#[test]
fn what_can_never_work_is_refused() {
    for (from, to, wanted) in [
        ("  - name: orders", "  - name: orders\n    match: {}", "no condition"),
        ("store: {", "store: { memory: {},", "redis and memory stand here together"),
        ("[{ route: tenant }]", "[{ route: tenant }, { route: tenant }]", "stands in the list already"),
        ("[{ route: tenant }]", "[{ header: { name: x-t } }]", "\"trusted_because\" is missing"),
        ("secret_file: SECRET", "secret_file: /none", "No such file"),
        ("secret_file: SECRET", "secret_env: TALLYGATE_NO_SUCH_VARIABLE", "is not set"),
        ("store: {", "server: { listen: \"127.0.0.1:9180\" }\nstore: {", "are both 127.0.0.1:9180"),
        ("store: {", "server: { socket_mode: \"0660\" }\nstore: {", "is for a Unix socket"),
        ("redis: {", "redis: { username: tally,", "a user without a password is never sent"),
        ("redis: {", "redis: { password_file: /none,", "password_file: /none: No such file"),
        ("redis: {", "redis: { password_file: /etc,", "password_file: /etc is a folder"),
        // An empty list once believed everybody.
        (
            "[{ route: tenant }]",
            "[{ header: { name: x, trusted_because: y, from_principals: [] } }]",
            "leave it out to believe every caller",
        ),
        (
            "version: 1",
            "version: 1\n    cost: 2\n    on_unidentified: { address: { fixed_window: { limit: 1, window: 1m } } }",
            "on_unidentified.address: lets 1 pass at once, and a request costs 2",
        ),
        ("per: [tenant]", "per: [tenant, tenant]", "stands here twice"),
        ("per: [tenant]", "per: tenant", "wanted a list"),
    ] {
        let found = problems(from, to);
        assert!(found.contains(wanted), "{to}: {found}");
    }
    let policy = &VALID[VALID.find("  - name").unwrap()..];
    let twice = format!("{VALID}{}", policy.replace("orders", "other"));
    assert!(load(&twice).err().unwrap().contains("is never reached: policy orders"), "{twice}");
}

#[test]
fn a_password_is_never_repeated() {
    let redis = "url: \"redis://127.0.0.1:6379\"";
    for (from, to, key) in [
        ("redis://127.0.0.1:6379", "redis://u:PW-CANARY@ho st:99999", "store.redis.url"),
        (redis, "cluster: { nodes: [\"redis://:PW-CANARY@h:1\"] }", "store.redis.cluster.nodes[0]"),
        (redis, "url:redis://u:PW-CANARY@h:1", "store.redis: unknown key"), // the space behind the colon is missing
        ("store: {", "server: { listen: \"redis://u:PW-CANARY@h:1\" }\nstore: {", "server.listen"),
        ("secret_file: SECRET", "secret_env: CANARY0123456789abcdef0123456789", "hmac.secret_env"),
        ("secret_file: SECRET", "secret_file: CANARY0123456789abcdef0123456789", "hmac.secret_file"),
    ] {
        let found = problems(from, to);
        assert!(found.contains(key) && !found.contains("CANARY"), "{to}: {found}");
    }
    let config = load(&VALID.replace("redis://127", "redis://u:PW-CANARY@127")).unwrap();
    assert!(!format!("{:?}", config.fixed).contains("CANARY"));
}

#[test]
fn the_secret_in_use_stays_until_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("hmac.key");
    let file = folder.path().join("t.yaml");
    fs::write(&file, VALID.replace("SECRET", &secret.display().to_string())).unwrap();
    let key = |config: &Config| {
        let template = &config.rules.policies[0].limits[0].key;
        template.key(std::iter::empty(), std::iter::empty()).text
    };
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let running = Config::load(&file, None).unwrap();
    fs::write(&secret, "another-secret-of-32-bytes-length").unwrap();
    let reloaded = Config::load(&file, Some(&running.secret)).unwrap();
    assert_eq!(key(&reloaded), key(&running));
    assert_ne!(reloaded.secret.fingerprint(), running.secret.fingerprint(), "and the difference can be told");
}

#[test]
fn a_local_limit_is_shared_by_the_sidecars() {
    let open = "on_failure: { open: { fixed_window: { limit: 10, window: 1s }, replicas: 4 } }";
    let config = load(&VALID.replace("on_failure: closed", open)).unwrap();
    let OnFailure::Open(LocalLimit::Limited(limit)) = &config.rules.policies[0].on_failure else { panic!("open") };
    assert_eq!(limit.algorithm.quota(), 2);
    let many = load(&VALID.replace("on_failure: closed", &open.replace("replicas: 4", "replicas: 99"))).unwrap();
    let OnFailure::Open(LocalLimit::Limited(limit)) = &many.rules.policies[0].on_failure else { panic!("open") };
    assert_eq!(limit.algorithm.quota(), 1, "never nothing");
}

#[test]
fn in_a_cluster_limits_that_share_nothing_need_a_word() {
    let cluster = VALID.replace("url: \"redis://127.0.0.1:6379\"", "cluster: { nodes: [\"h:1\"] }");
    let two = cluster.replace(
        "limits: [{ name: per-tenant,",
        "limits: [{ name: all, per: [], fixed_window: { limit: 9, window: 1s } }, { name: per-tenant,",
    );
    assert!(load(&cluster).is_ok());
    assert!(load(&two).err().unwrap().contains("write one_slot: true"));
    assert!(load(&two.replace("    version: 1", "    version: 1\n    one_slot: true")).is_ok());
}
