//! `explain`, `key`, `peek` and `reset`: an operator sees which keys a person has, what they hold, and removes just these.

use std::fs;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cli;
use crate::support::keys;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;

const TWO_LIMITS: &str = "
  - name: plans
    version: 1
    match: { path: { prefix: /plans } }
    limits:
      - { name: each, per: [tenant, subject], fixed_window: { limit: 2, window: 60s } }
      - { name: all, per: [tenant], sliding_window: { limit: 9, window: 60s } }
    on_failure: closed";

struct Tool {
    _folder: TempDir,
    config: String,
}

impl Tool {
    fn with(setup: &Setup) -> Self {
        let folder = TempDir::with_prefix("tallygate-tool-").unwrap();
        let config = write_files(&folder, setup).to_str().unwrap().to_owned();
        Self { _folder: folder, config }
    }

    /// Exit code, standard output and standard error.
    fn run(&self, command: &str, arguments: &[&str]) -> (i32, String, String) {
        let output = cli::command(&[&[command, "--config", &self.config], arguments].concat()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

const ADA: [&str; 6] = ["--policy", "orders", "--tenant", "route/tenant=acme", "--subject", "route/subject=ada"];

#[test]
fn an_operator_finds_sees_and_removes_just_the_keys_of_one_person() {
    let redis = RedisServer::start();
    let setup = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").policies(TWO_LIMITS);
    let (sidecar, tool) = (setup.start(), Tool::with(&setup));
    let client = sidecar.client();
    for subject in ["ada", "eve"] {
        assert_eq!(client.check(&Check::of(subject)).outcome(), Outcome::Allowed);
    }
    let key = keys::orders("ada");
    assert_eq!(tool.run("key", &ADA), (0, format!("{key}\n"), String::new()));
    let (code, seen, _) = tool.run("peek", &ADA);
    assert!(code == 0 && seen.starts_with(&format!("{key}: \"1\", expires in ")), "{seen}");
    assert_eq!(tool.run("reset", &["--key", &key]), (0, format!("{key}: removed\n"), String::new()));
    assert_eq!(tool.run("reset", &ADA), (0, format!("{key}: was not there\n"), String::new()));
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "a fresh counter");
    assert_eq!(client.check(&Check::of("eve")).outcome(), Outcome::Limited, "nobody else is touched");
}

#[test]
fn a_limit_that_others_share_is_never_chosen_silently() {
    let redis = RedisServer::start();
    let tool = Tool::with(&Setup::redis(redis.port()).policies(TWO_LIMITS));
    let plans = ["--policy", "plans", "--tenant", "route/tenant=acme", "--subject", "route/subject=ada"];
    let (code, own, _) = tool.run("key", &plans);
    assert_eq!((code, own.lines().count()), (0, 1));
    assert!(own.contains("}:each:"), "{own}");
    let (_, shared, _) = tool.run("key", &[&plans[..], &["--limit", "all"]].concat());
    assert!(shared.contains("}:all:"), "{shared}");
    for (arguments, said) in [
        (&["--policy", "none"][..], "there is no policy none: there are plans"),
        (&["--policy", "plans", "--tenant", "jwt/tid=acme"], "is no source of identity.tenant: it has route/tenant"),
        (&["--policy", "plans", "--tenant", "route/tenant=acme"], "this needs --subject"),
        (&["--policy", "plans", "--limit", "none"], "say --limit: one of each, all"),
        (&[], "say --policy (one of plans) or --key"),
    ] {
        let (code, _, error) = tool.run("key", arguments);
        assert!(code == 64 && error.contains(said), "{arguments:?}: {code} {error}");
    }
}

#[test]
fn explain_says_which_policy_which_sources_and_which_keys_and_what_they_hold() {
    let redis = RedisServer::start();
    let setup = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").policies(TWO_LIMITS);
    let (sidecar, tool) = (setup.start(), Tool::with(&setup));
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
    let request = ["--path", "//orders", "--route", "tenant=acme", "--route", "subject=ada"];
    let (code, said, _) = tool.run("explain", &[&request[..], &["--store"]].concat());
    assert_eq!(code, 0, "{said}");
    for wanted in [
        "policy   orders v1: yes (enforce)",
        "tenant   route/tenant: yields",
        "limit    only: 3 every 1m per tenant and subject",
        &format!("key {}", keys::orders("ada")),
        "store    only: \"1\", expires in ",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    let (_, said, _) = tool.run("explain", &["--path", "/plans", "--route", "tenant=acme"]);
    for wanted in [
        "policy   orders: no, its path is another",
        "subject  route/subject: absent",
        "unidentified: the subject is absent",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    let (_, said, _) = tool.run("explain", &["--path", "/orders%2f1"]);
    assert!(said.contains("denied (403): the path can be read in two ways"), "{said}");
}

#[test]
fn explain_reads_the_request_that_envoy_sent_and_needs_no_redis() {
    let tool = Tool::with(&Setup::redis(9).policy("orders", 3, "60s", "closed"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("request.json");
    fs::write(
        &file,
        r#"{"attributes": {"request": {"http": {"method": "GET", "path": "/orders"}},
            "contextExtensions": {"tenant": "acme", "subject": "ada"}}}"#,
    )
    .unwrap();
    let (code, said, _) = tool.run("explain", &["--request", file.to_str().unwrap()]);
    assert!(code == 0 && said.contains(&keys::orders("ada")), "{code} {said}");
}

#[test]
fn each_kind_of_evidence_leads_to_the_keys_that_its_requests_count_under() {
    let redis = RedisServer::start();
    let identity = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: [realm, sub], issuers: [https://idp.example] } }, { jwt: { claim: sub } }, address]";
    let policy = "
  - name: orders
    version: 1
    match: { path: { prefix: /orders } }
    limits:
      - { name: each, per: [tenant, subject], fixed_window: { limit: 9, window: 60s } }
      - { name: also, per: [subject, tenant], sliding_log: { limit: 9, window: 60s } }
      - { name: site, per: [tenant, address], token_bucket: { rate: 1, per: 60s, burst: 9 } }
      - { name: all, per: [tenant], sliding_window: { limit: 9, window: 60s } }
    on_failure: closed";
    let setup = Setup::redis(redis.port()).identity(identity).policies(policy);
    let (sidecar, tool) = (setup.start(), Tool::with(&setup));
    let check = Check::get("/orders").route("tenant", "acme").source("2001:db8:1:2::7").claim("sub", "ada");
    assert_eq!(sidecar.client().check(&check.claim("iss", "https://else.example")).outcome(), Outcome::Allowed);
    let ada = ["--policy", "orders", "--tenant", "route/tenant=acme", "--subject", "jwt/sub=ada"];
    let issuer = ["--subject-issuer", "https://else.example"];
    // Any address of the site.
    let site = ["--limit", "site", "--address", "2001:db8:1:2:ffff::1"];
    let mut found = Vec::new();
    for arguments in [&issuer[..], &site, &["--limit", "all"]] {
        let (code, keys, error) = tool.run("key", &[&ada[..], arguments].concat());
        assert_eq!((code, error.as_str()), (0, ""));
        found.extend(keys.lines().map(str::to_owned));
        let (_, peeked, _) = tool.run("peek", &[&ada[..], arguments].concat());
        assert_eq!(peeked.lines().count(), keys.lines().count());
        assert!(peeked.lines().all(|line| line.contains(", expires in ")), "{peeked}");
    }
    found.sort();
    assert_eq!(found, redis.keys(), "all of them, and no other");

    // Without the issuer it is somebody else.
    let (_, other, _) = tool.run("reset", &ada);
    assert!(other.lines().count() == 2 && other.lines().all(|line| line.ends_with(": was not there")), "{other}");
    assert_eq!(redis.keys(), found);
    let (_, removed, _) = tool.run("reset", &[&ada[..], &issuer].concat());
    assert!(removed.lines().count() == 2 && removed.lines().all(|line| line.ends_with(": removed")), "{removed}");
    let (own, shared): (Vec<String>, Vec<String>) =
        found.into_iter().partition(|key| key.contains(":each:") || key.contains(":also:"));
    assert_eq!((own.len(), redis.keys()), (2, shared), "what others share stays");
}

// A key of another issuer is another key: peek would say that there is nothing, and reset remove nothing.
#[test]
fn an_issuer_that_the_configuration_does_not_accept_is_refused() {
    let identity = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: sub, issuers: [https://a.example, https://b.example] } }, { mtls: { trust_domain: td.example } }]";
    let tool = Tool::with(&Setup::redis(9).identity(identity).policy("orders", 1, "60s", "closed"));
    let of = |subject, issuer: &[&str]| {
        let who = ["--policy", "orders", "--tenant", "route/tenant=acme", "--subject", subject];
        tool.run("key", &[&who[..], issuer].concat())
    };
    let wanted = "say --subject-issuer: jwt/sub counts only from https://a.example, https://b.example\n";
    for issuer in [&[][..], &["--subject-issuer", "https://c.example"]] {
        assert_eq!(of("jwt/sub=ada", issuer), (64, String::new(), wanted.to_owned()));
    }
    let a = ["--subject-issuer", "https://a.example"];
    assert_eq!(of("jwt/sub=ada", &a).0, 0);
    assert_eq!(of("mtls=spiffe://td.example/ada", &[]).0, 0);
    let none = "mtls has no issuer: leave out --subject-issuer\n";
    assert_eq!(of("mtls=spiffe://td.example/ada", &a), (64, String::new(), none.to_owned()));
}

#[test]
fn a_key_of_another_making_is_shown_as_what_it_is() {
    let redis = RedisServer::start();
    let tool = Tool::with(&Setup::redis(redis.port()).policies(TWO_LIMITS));
    redis.run(&["SET", "bare", "7"]);
    redis.run(&["RPUSH", "list", "x"]);
    redis.seed("long", "x".repeat(1000), 60_000);
    for (key, said) in [
        (
            "bare",
            "bare: \"7\", no expiry: Tallygate never writes that, and checks of this key fail until it is reset\n",
        ),
        (
            "list",
            "list: a list, no expiry: Tallygate never writes that, and checks of this key fail until it is reset\n",
        ),
        ("none", "none: nothing\n"),
    ] {
        assert_eq!(tool.run("peek", &["--key", key]), (0, said.to_owned(), String::new()));
    }
    let (code, _, error) = tool.run("reset", &["--key", "bare"]);
    assert_eq!((code, error.as_str()), (64, "\"bare\" is no key of Tallygate's: they begin with rl:\n"));
    assert_eq!(redis.get("bare").as_deref(), Some("7"), "a slip of the hand removes nothing of others");
    let (_, long, _) = tool.run("peek", &["--key", "long"]);
    assert!(long.len() < 120, "{long}");
    let (code, _, error) = tool.run("peek", &["--key", "bare", "--policy", "plans"]);
    assert!(code == 2 && error.contains("cannot be used with"), "{code} {error}");
    let embedded = Tool::with(&Setup::memory().policies(TWO_LIMITS));
    for command in ["peek", "reset"] {
        let (code, _, error) = embedded.run(command, &["--key", "rl:bare"]);
        assert!(code == 64 && error.contains("only a restart empties it"), "{error}");
    }
}

#[test]
fn where_redis_cannot_be_asked_the_tools_say_which_one_and_what_to_do() {
    let redis = RedisServer::start();
    let port = redis.port();
    let tool = |login: &str, port: u16| {
        let store = format!("{{ redis: {{ url: 'redis://{login}127.0.0.1:{port}' }} }}");
        Tool::with(&Setup::store(&store).policies(TWO_LIMITS))
    };
    redis.run(&["ACL", "SETUSER", "small", "on", ">pw", "~rl:*", "+hello"]);
    let (absent, small) = (tool("", ports::free()), tool("small:pw@", port));
    let refused = format!("127.0.0.1:{port} cannot be asked: ");
    for (tool, command, wanted) in [
        (&absent, "peek", "-> tallygate doctor looks closer\n"),
        (&absent, "reset", "-> tallygate doctor looks closer\n"),
        (&small, "peek", "-> beside what checks need, this takes a Redis user with +type, +pttl, +get and +zcard\n"),
        (&small, "reset", "-> beside what checks need, this takes a Redis user with +del\n"),
    ] {
        let (code, _, error) = tool.run(command, &["--key", "rl:x"]);
        assert!(code == 69 && error.ends_with(wanted), "{command}: {error}");
        let place = if std::ptr::eq(tool, &small) { &refused } else { "cannot be asked: Connection refused" };
        assert!(error.contains(place), "{command}: {error}");
    }
    // What the remedy names is enough.
    redis.run(&["ACL", "SETUSER", "small", "+type", "+pttl", "+get", "+zcard", "+del"]);
    redis.seed("rl:x", "1", 60_000);
    redis.run(&["ZADD", "rl:z", "1", "x"]);
    for key in ["rl:x", "rl:z"] {
        assert_eq!(small.run("peek", &["--key", key]).0, 0, "{key}");
        assert_eq!(small.run("reset", &["--key", key]), (0, format!("{key}: removed\n"), String::new()));
    }
}

// `tallygate ... | head -1` is no fault to report, and a reset goes on to its end.
#[test]
fn a_reader_that_has_left_disturbs_no_command() {
    let redis = RedisServer::start();
    let setup = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").policies(TWO_LIMITS);
    let (sidecar, tool) = (setup.start(), Tool::with(&setup));
    let key = keys::orders("ada");
    redis.seed(&key, "1", 60_000);
    let config = ["--config", &tool.config];
    let probe = ["probe", "--address", sidecar.grpc(), "--path", "/orders"];
    let (explain, wrong) = (["explain", "--store"], ["check-config", "--config", "/nowhere"]);
    for (arguments, code) in [
        ([&["reset", "--key", &key][..], &config].concat(), 0),
        ([&["check-config", "--explain"][..], &config].concat(), 0),
        ([&["doctor"][..], &config].concat(), 1),
        ([&explain[..], &config].concat(), 0),
        (probe.to_vec(), 1),
        (vec!["schema"], 0),
        (wrong.to_vec(), 78),
    ] {
        let left = || std::io::pipe().unwrap().1;
        let status = cli::command(&arguments).stdout(left()).stderr(left()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
    assert_eq!(redis.get(&key), None, "what was asked for was done");
    let left = std::io::pipe().unwrap().1;
    let loud = cli::command(&probe).stdout(left).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&loud.stderr), "");
}
