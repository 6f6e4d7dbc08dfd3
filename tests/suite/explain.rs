//! `explain`: for each fate of a request, which policy and why, which sources and why not, which limits and keys.

use std::io::Write;
use std::process::Stdio;

use tempfile::TempDir;

use crate::support::cli;
use crate::support::keys::{self, Part};
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;

const POLICIES: &str = "
  - name: uploads
    version: 1
    match: { path: { prefix: /files }, methods: [PUT], host: files.example, route: { plan: gold } }
    limits: [{ name: only, per: [tenant], fixed_window: { limit: 3, window: 60s } }]
    on_failure: closed
  - name: orders
    version: 1
    match: { path: { prefix: /orders } }
    cost: { route: cost, default: 1, max: 5 }
    limits:
      - { name: each, per: [tenant, subject], fixed_window: { limit: 5, window: 60s } }
      - { name: all, per: [tenant], mode: shadow, sliding_window: { limit: 9, window: 60s } }
    overrides:
      - { tenant: { value: big }, limit: each, set: { limit: 50 } }
      - { tenant: { value: banned }, limit: each, set: { limit: 0 } }
      - { tenant: { value: free }, limit: each, set: { unlimited: true } }
      - { tenant: { value: free }, limit: all, set: { unlimited: true } }
    on_unidentified: { deny: { status: 403 } }
    on_failure: closed
  - name: guests
    version: 1
    match: { path: { prefix: /guests } }
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 3, window: 60s } }]
    on_unidentified: { address: { fixed_window: { limit: 2, window: 60s } } }
    on_failure: closed
  - name: tried
    version: 1
    match: { path: { prefix: /tried } }
    mode: shadow
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 3, window: 60s } }]
    on_failure: closed
  - name: switched
    version: 1
    match: { path: { prefix: /switched } }
    mode: \"off\"
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 3, window: 60s } }]
    on_failure: closed";

const IDENTITY: &str = "
  tenant: [{ route: tenant }]
  subject:
    - jwt: { claim: sub, issuers: [https://idp.example] }
    - mtls: { trust_domain: td.example }
    - header: { name: x-user, trusted_because: set by the edge }";

struct Tool {
    folder: TempDir,
    config: String,
}

/// No Redis listens where this configuration says: `explain` must not ask for it.
fn tool(unmatched: &str) -> Tool {
    let folder = TempDir::with_prefix("tallygate-tool-").unwrap();
    let setup = Setup::redis(9).identity(IDENTITY).policies(POLICIES).more(&format!("unmatched: {unmatched}"));
    let config = write_files(&folder, &setup).to_str().unwrap().to_owned();
    Tool { folder, config }
}

impl Tool {
    #[track_caller]
    fn explain(&self, arguments: &[&str]) -> String {
        let done = cli::run(&[&["explain", "--config", &self.config], arguments].concat());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{arguments:?}: {done:?}");
        done.stdout
    }

    /// What `explain` says for words of the command line, parted by spaces: all of `wanted`, and nothing of `unwanted`.
    #[track_caller]
    fn says(&self, arguments: &str, wanted: &[&str], unwanted: &[&str]) {
        let said = self.explain(&arguments.split(' ').collect::<Vec<_>>());
        for line in wanted {
            assert!(said.lines().any(|found| found.trim_start() == *line), "{arguments}: wanted {line:?} in\n{said}");
        }
        for text in unwanted {
            assert!(!said.contains(text), "{arguments}: {text:?} in\n{said}");
        }
    }
}

#[test]
fn each_policy_that_does_not_match_says_why() {
    let tool = tool("deny");
    for (arguments, why) in [
        ("--path /files --method GET", "its method is not listed"),
        ("--path /files --method PUT", "the route's values differ"),
        ("--path /files --method PUT --route plan=gold --host other", "its host is another"),
        ("--path /else --method PUT --route plan=gold --host files.example", "its path is another"),
    ] {
        tool.says(
            arguments,
            &[&format!("policy   uploads: no, {why}"), "verdict  denied (403): no policy matches"],
            &["key "],
        );
    }
    let all = "--path /files/7 --method PUT --route plan=gold --route tenant=acme --host FILES.example:8443";
    tool.says(
        all,
        &["policy   uploads v1: yes (enforce)", "tenant   route/tenant: yields"],
        &["policy   orders", "subject"],
    );
    self::tool("allow").says("--path /else", &["verdict  allowed: no policy matches"], &[]);
    tool.says("--path /a%2fb", &["verdict  denied (403): the path can be read in two ways"], &[]);
}

#[test]
fn each_source_says_whether_it_yields_or_why_not() {
    let tool = tool("allow");
    let orders = |more: &str| format!("--path /orders --route tenant=acme {more}");
    let issuer = "--claim iss=https://idp.example";
    tool.says(&orders(&format!("{issuer} --claim sub=ada")), &["subject  jwt/sub: yields"], &["mtls", "header/x-user"]);
    tool.says(
        &orders("--claim iss=https://other.example --claim sub=ada --principal spiffe://td.example/a"),
        &["subject  jwt/sub: absent", "subject  mtls: yields"],
        &["header/x-user"],
    );
    tool.says(
        &orders("--principal spiffe://other.example/a --header x-user=ada"),
        &["subject  jwt/sub: absent", "subject  mtls: absent", "subject  header/x-user: yields"],
        &["verdict"],
    );
    for (more, reason) in [
        ("--header x-user=a,b", "header_repeated"),
        ("--header x-user=a --header X-User=b", "header_repeated"),
        ("--header x-user=us!r", "header_lossy"),
        ("--header x-user=", "bad_length"),
    ] {
        let verdict = format!("verdict  unidentified: the subject is {reason}; denied (403)");
        tool.says(&orders(more), &[&format!("subject  header/x-user: {reason}"), &verdict], &["key "]);
    }
    let spoilt = format!("{issuer} --claim sub= --header x-user=ada");
    tool.says(&orders(&spoilt), &["subject  jwt/sub: bad_claim"], &["header/x-user", "key "]);
    tool.says("--path /orders", &["tenant   route/tenant: absent"], &["key "]);
}

#[test]
fn limits_overrides_and_costs_are_those_that_this_request_meets() {
    let tool = tool("allow");
    let of = |tenant: &str| format!("--path /orders --header x-user=ada --route tenant={tenant}");
    let each = "limit    each: 5 every 1m per tenant and subject (fixed window of 1m; up to 10 around a window's edge)";
    let shadow = "limit    all: 9 every 1m per tenant (sliding window of 1m; somewhat more in an arbitrary one) (shadow: never refuses)";
    tool.says(&of("acme"), &[each, shadow], &["override"]);
    let own = "limit    each: 50 every 1m per tenant and subject (fixed window of 1m; up to 100 around a window's edge), by an override";
    tool.says(&of("big"), &[own, shadow], &[]);
    tool.says(&of("banned"), &["verdict  denied: an override blocks this tenant under each"], &["key "]);
    tool.says(&of("free"), &["verdict  allowed: no limit counts this request"], &["key "]);
    let wrong = "verdict  failed: the route's cost is no whole number within the policy's bounds";
    tool.says(&format!("{} --route cost=6", of("acme")), &[wrong], &["key "]);
    let tenant: Part<'_> = ("route/tenant", "", b"acme");
    let subject: Part<'_> = ("header/x-user", "", b"ada");
    let scope = |shape| keys::Scope { policy: "orders", version: 1, shape };
    let each = keys::joint(scope("fixed_window/60000ms"), "each", &[tenant, subject], &[tenant]);
    let all = keys::joint(scope("sliding_window/60000ms"), "all", &[tenant], &[tenant]);
    let costly = format!("{} --route cost=3", of("acme"));
    tool.says(&costly, &[&format!("cost 3, key {each}"), &format!("cost 3, key {all}")], &[]);
}

#[test]
fn strangers_shadows_and_policies_that_are_off_are_told() {
    let tool = tool("allow");
    tool.says(
        "--path /guests --route tenant=acme --source-address 203.0.113.7",
        &["stranger without a subject, counted by address"],
        &["verdict"],
    );
    let nowhere = "verdict  unidentified: the subject is absent; denied (401)";
    tool.says("--path /guests --route tenant=acme", &[nowhere], &["key "]);
    tool.says(
        "--path /tried --route tenant=acme --header x-user=ada",
        &["policy   tried v1: yes (shadow)"],
        &["verdict"],
    );
    let shadow = "verdict  unidentified: the tenant is absent; allowed, since the policy is a shadow";
    tool.says("--path /tried --header x-user=ada", &[shadow], &[]);
    let off = "verdict  allowed: the policy is off, so nothing is counted";
    tool.says(
        "--path /switched --route tenant=acme --header x-user=ada",
        &["policy   switched v1: yes (off)", off],
        &["key "],
    );
}

#[test]
fn a_check_request_with_raw_headers_is_read_from_standard_input() {
    let tool = tool("allow");
    let of = |raw: &str| {
        format!(
            r#"{{"attributes": {{"request": {{"http": {{"path": "/orders",
                "headerMap": {{"headers": [{{"key": "x-user", "rawValue": "{raw}"}}]}}}}}},
                "contextExtensions": {{"tenant": "acme"}}}}}}"#
        )
    };
    let explain = |json: &str| {
        let mut command = cli::command(&["explain", "--config", &tool.config, "--request", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(json.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = explain(&of("YWRh"));
    assert!(code == Some(0) && said.contains("header/x-user: yields"), "{said}");
    // us\xe9r
    let (code, said) = explain(&of("dXPpcg=="));
    assert!(code == Some(0) && said.contains("header/x-user: header_lossy"), "{said}");
    for (json, why) in [
        ("{", "EOF"),
        ("[]", "it is no CheckRequest"),
        (r#"{"request": {}}"#, "it is no CheckRequest"),
        (&*of("?"), "a rawValue in headerMap is not base64"),
    ] {
        let (code, said) = explain(json);
        assert!(code == Some(64) && said.contains(why), "{json}: {said}");
    }
}

#[test]
fn what_redis_holds_is_asked_for_only_when_it_is_wanted() {
    let tool = tool("allow");
    let request = ["--path", "/orders", "--route", "tenant=acme", "--header", "x-user=ada"];
    assert!(tool.explain(&request).contains("key rl:orders:v1:{"));
    let wanted = [&["explain", "--config", &tool.config, "--store"], &request[..]].concat();
    let done = cli::run(&wanted);
    assert!(done.code == Some(69) && done.stdout.contains("key rl:orders:v1:{"), "{done:?}");
    let embedded = write_files(&tool.folder, &Setup::memory().identity(IDENTITY).policies(POLICIES));
    let done = cli::run(&[&["explain", "--config", embedded.to_str().unwrap(), "--store"], &request[..]].concat());
    assert!(done.code == Some(0) && done.stdout.contains("embedded: only the running process knows"), "{done:?}");
}
