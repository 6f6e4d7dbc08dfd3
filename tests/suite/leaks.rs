//! Nobody's name, and no secret, leaves the process (P10, RL-35): whatever becomes of a request, and whatever is logged.
//!
//! Every path of a decision is walked with canaries as tenant, subject, token, header, claim, address, password and secret;
//! then everything that came out is searched: log, answers, admin pages, and what Redis was told, holds and remembers.

use std::fmt::Write;
use std::time::Duration;

use envoy_types::pb::google::protobuf::value::Kind;
use prost::Message;

use crate::support::canaries::{
    ADDRESS, ADDRESS_V6, BEARER, CLAIM, ENV_SECRET, HEADER, Monitor, PASSWORD, SUBJECT, TENANT, none_in,
};
use crate::support::check::Check;
use crate::support::grpc::{CHECK, Client};
use crate::support::http2;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

const IDENTITY: &str = "
  tenant: [{ jwt: { claim: tid, issuers: [https://idp.example] } }, { route: tenant }]
  subject:
    - jwt: { claim: sub, issuers: [https://idp.example] }
    - mtls: { trust_domain: td.example }
    - header: { name: x-user, trusted_because: set by the edge }
  address: { source: { header: { name: x-envoy-external-address, trusted_because: set by the edge } } }";

const ONE: &str = "fixed_window: { limit: 1, window: 60s }";

/// One policy for each fate of a request; those that need more text than a line are appended.
fn policies() -> String {
    let local = "{ open: { per: [tenant, subject], fixed_window: { limit: 1, window: 60s } } }";
    let each = "per: [tenant, subject]";
    let mut text = String::new();
    for (name, limit, more) in [
        ("fixed", format!("{each}, {ONE}"), "on_failure: closed"),
        ("sliding", format!("{each}, sliding_window: {{ limit: 1, window: 60s }}"), "on_failure: closed"),
        ("log", format!("{each}, sliding_log: {{ limit: 1, window: 60s }}"), "on_failure: closed"),
        ("bucket", format!("{each}, token_bucket: {{ rate: 1, per: 60s, burst: 1 }}"), "on_failure: closed"),
        ("open", format!("{each}, {ONE}"), &format!("on_failure: {local}")),
        ("envoy", format!("{each}, {ONE}"), "on_failure: envoy"),
        ("shadow", format!("{each}, {ONE}"), "on_failure: closed\n    mode: shadow"),
        ("off", format!("{each}, {ONE}"), "on_failure: closed\n    mode: \"off\""),
        ("address", format!("per: [tenant, address], {ONE}"), "on_failure: closed"),
        ("cost", format!("{each}, {ONE}"), "on_failure: closed\n    cost: { route: cost, default: 1, max: 1 }"),
        (
            "strangers",
            format!("{each}, {ONE}"),
            "on_failure: closed\n    on_unidentified: { address: { fixed_window: { limit: 1, window: 60s } } }",
        ),
        (
            "blocked",
            format!("{each}, {ONE}"),
            &format!(
                "on_failure: closed\n    overrides: [{{ tenant: {{ value: {TENANT}, source: jwt/tid }}, set: {{ limit: 0 }} }}]"
            ),
        ),
    ] {
        let condition = format!("{{ path: {{ prefix: /{name} }} }}");
        write!(
            text,
            "\n  - name: {name}\n    version: 1\n    match: {condition}\n    limits: [{{ name: only, {limit} }}]\n    {more}"
        )
        .unwrap();
    }
    text + "
  - name: several
    version: 1
    match: { path: { prefix: /several } }
    limits:
      - { name: each, per: [tenant, subject], fixed_window: { limit: 1, window: 60s } }
      - { name: all, per: [tenant], sliding_window: { limit: 9, window: 60s } }
    on_failure: closed
  - name: routed
    version: 1
    match: { route: { tenant: '"
        + TENANT
        + "' } }
    limits: [{ name: all, per: [tenant], fixed_window: { limit: 9, window: 60s } }]
    on_failure: closed"
}

const PATHS: [&str; 13] = [
    "/fixed",
    "/sliding",
    "/log",
    "/bucket",
    "/open",
    "/envoy",
    "/shadow",
    "/off",
    "/address",
    "/cost",
    "/strangers",
    "/blocked",
    "/several",
];

/// A request that carries every canary, whether or not a policy reads it.
fn somebody(path: &str) -> Check {
    nobody(&format!("{path}/{SUBJECT}?token={BEARER}"))
        .claim("iss", "https://idp.example")
        .claim("tid", TENANT)
        .claim("sub", SUBJECT)
        .header("x-envoy-external-address", ADDRESS)
}

/// The same without any identity that counts.
fn nobody(path: &str) -> Check {
    let check = Check::get(path).host(&format!("{TENANT}.example")).source(ADDRESS).claim("email", CLAIM);
    let check =
        check.header("authorization", &format!("Bearer {BEARER}")).header("cookie", &format!("session={HEADER}"));
    check.route("note", TENANT)
}

/// A check of each kind, in an order in which allowed comes before denied.
fn checks() -> Vec<Check> {
    let mut checks: Vec<_> = PATHS.iter().flat_map(|path| [somebody(path), somebody(path)]).collect();
    let known = || nobody("/fixed").claim("iss", "https://idp.example").claim("tid", TENANT);
    checks.extend([
        // The other sources, and each reason for which one is refused.
        nobody("/fixed").route("tenant", TENANT).principal(&format!("spiffe://td.example/{SUBJECT}")),
        nobody("/fixed").route("tenant", TENANT).principal(&format!("spiffe://other.example/{SUBJECT}")),
        known().header("x-user", HEADER),
        known().header("x-user", &format!("{HEADER},{HEADER}")),
        known().header("x-user", &format!("{HEADER}!")),
        known().header("x-user", HEADER).raw_header("x-user", SUBJECT.as_bytes()),
        known().raw_header("x-user", format!("{HEADER}\u{e9}").as_bytes()),
        known().raw_header("x-user", &[HEADER.as_bytes(), b"\xff"].concat()),
        known().header("x-user", &HEADER.repeat(100)),
        known().claim_of("sub", Kind::NumberValue(4711.0)),
        known().claim("sub", &SUBJECT.repeat(100)),
        known(),
        nobody("/fixed").claim("iss", &format!("https://{CLAIM}.example")).claim("tid", TENANT),
        nobody("/fixed"),
        nobody("/shadow"),
        nobody("/strangers").header("x-envoy-external-address", ADDRESS_V6),
        nobody("/strangers").header("x-envoy-external-address", ADDRESS_V6),
        nobody("/strangers"),
        somebody("/address").header("x-envoy-external-address", ADDRESS_V6),
        somebody("/address").header("x-envoy-external-address", &format!("{ADDRESS}.{HEADER}")),
        somebody("/cost").route("cost", CLAIM),
        // No policy, one of the route, and paths that can be read in two ways.
        somebody("/elsewhere"),
        nobody("/elsewhere").route("tenant", TENANT),
        somebody("/fixed%2f"),
        somebody("/fixed").header("content-type", "application/grpc"),
    ]);
    checks
}

fn ask_all(client: &Client, answers: &mut Vec<u8>) {
    for check in checks() {
        let message = client.check(&check).message;
        answers.extend(format!("{message:?}\n").into_bytes());
        answers.extend(message.encode_to_vec());
    }
    // Refused before they are decided: undecodable, cut, too large; and methods that nobody serves.
    let whole = somebody("/fixed").build().encode_to_vec();
    let large = somebody("/fixed").header("x-padding", &HEADER.repeat(100_000)).build().encode_to_vec();
    let metadata = [("authorization", BEARER), ("x-clientip", ADDRESS), ("x-user", SUBJECT)];
    for message in [SUBJECT.as_bytes().to_vec(), whole[..whole.len() - 3].to_vec(), large, whole] {
        for method in [CHECK, "/TENANT-CANARY/Check"] {
            let reply = client.raw_with(method, message.clone(), &metadata);
            answers.extend(reply.unwrap_or_else(|status| format!("{status:?}").into_bytes()));
        }
    }
}

/// What is no request at all: libraries say at some levels what they stumbled over.
fn send_malformed(sidecar: &Sidecar, answers: &mut Vec<u8>) {
    let path = format!("/{SUBJECT} <");
    let authority = format!("{BEARER}@[");
    for (path, authority, te) in
        [(&*path, "localhost", "trailers"), (CHECK, &*authority, "trailers"), (CHECK, "localhost", HEADER)]
    {
        let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority)];
        let fields = [("content-type", "application/grpc"), ("te", te), ("x-user", SUBJECT), ("connection", HEADER)];
        let message = http2::message(&[&pseudo[..], &fields].concat(), SUBJECT.as_bytes());
        let reply = http2::exchange(sidecar.grpc(), &message);
        assert!(reply.ended, "{:?}", reply.bytes);
        answers.extend(reply.bytes);
        answers.extend(http2::exchange_and_leave(sidecar.grpc(), &message[..message.len() - 3]).bytes);
    }
}

/// Puts each kind of foreign state in the place of every counter, and asks again.
fn spoil(redis: &RedisServer, client: &Client, answers: &mut Vec<u8>) {
    let far = (redis.now_us() / 1000 + 3_000_000).to_string();
    let ahead = format!("0:{far}");
    for key in redis.keys() {
        for state in [
            &["SET", &key, "1"][..],
            &["SET", &key, "foreign", "PX", "60000"],
            &["SET", &key, "1", "PX", "9000000000"],
            &["SET", &key, &ahead, "PXAT", &far],
        ] {
            redis.run(state);
            ask_all_of(client, &key, answers);
        }
        redis.run(&["DEL", &key]);
        redis.run(&["RPUSH", &key, "foreign"]);
        redis.run(&["PEXPIRE", &key, "60000"]);
        ask_all_of(client, &key, answers);
        redis.run(&["DEL", &key]);
    }
}

/// Asks what counts under a key's policy.
fn ask_all_of(client: &Client, key: &str, answers: &mut Vec<u8>) {
    let policy = key.split(':').nth(1).expect("a key names its policy");
    answers.extend(format!("{:?}\n", client.check(&somebody(&format!("/{policy}"))).message).into_bytes());
}

/// Everything that Redis holds and remembers about what it was told.
fn search_redis(redis: &RedisServer) {
    let keys = redis.keys();
    assert!(keys.len() > 10, "{keys:?}");
    for key in &keys {
        none_in("a key", key);
        none_in("a value", format!("{:?}", redis.run(&["DUMP", key])));
        let kind = redis.run(&["TYPE", key]).text();
        let read = if kind == "zset" { vec!["ZRANGE", key, "0", "-1"] } else { vec!["GET", key] };
        none_in("a value", format!("{:?}", redis.run(&read)));
    }
    for memory in [&["SLOWLOG", "GET", "-1"][..], &["ACL", "LOG"], &["CLIENT", "LIST"], &["INFO", "everything"]] {
        none_in(memory[0], format!("{:?}", redis.run(memory)));
    }
}

fn search_sidecar(sidecar: &Sidecar) {
    none_in("the log", sidecar.log());
    assert_eq!(sidecar.stdout(), "");
    for page in ["/metrics", "/config", "/livez", "/readyz", "/TENANT-CANARY"] {
        let response = sidecar.get(page);
        none_in(page, response.text());
        none_in("a head of the admin port", format!("{response:?}"));
    }
}

/// How the sidecar gets its password and secret, and what is logged.
fn walk(filter: &str, is_text: bool, secrets_in_files: bool) {
    let mut redis = RedisServer::start_with(|| {
        ["--requirepass", PASSWORD, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"]
            .map(str::to_owned)
            .into()
    });
    let (monitor, port) = (Monitor::start(redis.port(), PASSWORD), redis.port());
    let folder = tempfile::TempDir::with_prefix("tallygate-password-").unwrap();
    let file = folder.path().join("redis.pw");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let redis_yaml = match secrets_in_files {
        true => format!("url: 'redis://127.0.0.1:{port}', password_file: '{}'", file.display()),
        false => format!("url: 'redis://:{PASSWORD}@127.0.0.1:{port}'"),
    };
    let mut setup = Setup::store(&format!("{{ redis: {{ {redis_yaml} }} }}")).identity(IDENTITY).policies(&policies());
    if !secrets_in_files {
        setup = setup.hmac("{ secret_env: SECRET_OF_THIS_TEST }");
    }
    let sidecar = Sidecar::start_with(&setup, |command| {
        command.env("SECRET_OF_THIS_TEST", ENV_SECRET).env("RUST_LOG", "trace").args(["--log", filter]);
        if is_text {
            command.env("TALLYGATE_LOG_FORMAT", "text");
        }
    });
    sidecar.wait_for_store();
    let (client, mut answers) = (sidecar.client(), Vec::new());

    ask_all(&client, &mut answers);
    send_malformed(&sidecar, &mut answers);
    search_redis(&redis);
    spoil(&redis, &client, &mut answers);
    let metrics = sidecar.metrics();
    for foreign in ["wrong_type", "no_expiry", "malformed", "wrong_expiry", "ahead_of_clock"] {
        assert!(metrics.count("tallygate_foreign_state_total", &[("reason", foreign)]) > 0, "{foreign} was not met");
    }
    sidecar.sighup();
    sidecar.rewrite_with(&format!("policies: [{TENANT}, \"{PASSWORD}"));
    sidecar.sighup();
    wait_for("the changed file to be refused", Duration::from_secs(5), || {
        sidecar.metrics().count("tallygate_config_last_reload_failed", &[]) == 1
    });
    search_sidecar(&sidecar);
    redis.kill9();
    wait_for("the sidecar to notice", Duration::from_secs(5), || {
        sidecar.metrics().count("tallygate_store_up", &[]) == 0
    });
    ask_all(&client, &mut answers);

    for verdict in VERDICTS {
        let counted = sidecar.metrics().count("tallygate_verdicts_total", &[("verdict", verdict)]);
        assert!(counted > 0, "no request was {verdict}");
    }
    search_sidecar(&sidecar);
    none_in("an answer", answers);
    none_in("what Redis was told", monitor.seen());
    let arguments = std::fs::read(format!("/proc/{}/cmdline", sidecar.pid())).unwrap();
    none_in("the process's arguments", arguments);
}

const VERDICTS: [&str; 15] = [
    "allowed",
    "denied",
    "failed",
    "unidentified",
    "unidentified_allowed",
    "unidentified_denied",
    "unmatched_allowed",
    "ambiguous_path",
    "open_allowed",
    "open_denied",
    "shadow_allowed",
    "shadow_denied",
    "shadow_failed",
    "shadow_unidentified",
    "off",
];

#[test]
fn no_name_and_no_secret_comes_out_at_the_usual_level() {
    walk("info", false, true);
}

#[test]
fn none_comes_out_when_everything_is_logged() {
    walk("trace", false, false);
}

// A directive can be as narrow as an operator likes, and can name a span instead of a library.
#[test]
fn none_comes_out_when_libraries_are_asked_for_by_name() {
    let narrow = "trace,h2=trace,h2::codec=trace,h2::hpack=trace,h2::proto::streams=trace,hyper=trace,hyper::proto=trace,\
                  hyper_util=trace,tonic=trace,tonic::transport=trace,tower=trace,redis=trace,rustls=trace,tokio=trace,\
                  axum=trace,axum::rejection=trace,[Connection]=trace,[{peer}]=trace,[poll]=trace,[decode]=trace";
    walk(narrow, false, true);
}

#[test]
fn none_comes_out_as_text() {
    walk("trace,h2::codec=trace", true, false);
}
