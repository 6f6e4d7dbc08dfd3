//! A secret or a name that stands in the wrong place of a file, or that Redis refuses, is in no message (P10, RL-35).
//!
//! Texts are repeated where names, numbers and patterns of requests belong; never where a secret or somebody's name does.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::canaries::{ENV_SECRET, PASSWORD, SUBJECT, TENANT, none_in};
use crate::support::check::Check;
use crate::support::cli;
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::{Sidecar, write_files};
use crate::support::wait::wait_for;

const HMAC: &str = "hmac: { secret_file: ";
const LISTEN: &str = "listen: '127.0.0.1:0'";
const STORE: &str = "store: { redis: { url: 'redis://127.0.0.1:9' } }";
const OVERRIDE: &str = "overrides: [{ tenant: { value: acme }, set: { limit: 9 } }]";
const ROUTE: &str = "route: { plan: gold }";

/// What stands in a valid file, and what stands in its place. `SECRET-CANARY` stands for each kind of secret.
const WRONG: [(&str, &str); 46] = [
    (HMAC, "hmac: SECRET-CANARY #"),
    (HMAC, "hmac: 'an SECRET-CANARY of 32 bytes and more: so' #"),
    (HMAC, "hmac: { SECRET-CANARY } #"),
    (HMAC, "hmac: { SECRET-CANARY: x } #"),
    (HMAC, "hmac: { 'secret_file:SECRET-CANARY': } #"),
    (HMAC, "hmac: { secret_file:SECRET-CANARY } #"),
    (HMAC, "hmac: [SECRET-CANARY] #"),
    (HMAC, "hmac: { secret: SECRET-CANARY } #"),
    (HMAC, "hmac: { secret_file: SECRET-CANARY } #"),
    (HMAC, "hmac: { secret_file: 'a/SECRET-CANARY.x' } #"),
    (HMAC, "hmac: { secret_file: '/SECRET-CANARY/+base64==' } #"),
    (HMAC, "hmac: { secret_file: [SECRET-CANARY] } #"),
    (HMAC, "hmac: { secret_env: SECRET-CANARY } #"),
    (HMAC, "hmac: { secret_env: \"SECRET-CANARY\\0\" } #"),
    (HMAC, "hmac: { secret_env: 'SECRET-CANARY=x' } #"),
    (HMAC, "hmac: { secret_env: A, secret_file: SECRET-CANARY } #"),
    (STORE, "store: 'redis://:SECRET-CANARY@127.0.0.1:9'"),
    (STORE, "store: { redis: 'redis://:SECRET-CANARY@127.0.0.1:9' }"),
    (STORE, "store: { redis: { url: ['redis://:SECRET-CANARY@127.0.0.1:9'] } }"),
    (STORE, "store: { redis: { url: 'redis://:SECRET-CANARY@127.0.0.1:notaport' } }"),
    (STORE, "store: { redis: { url: 'redis://:SECRET-CANARY@#127.0.0.1:9' } }"),
    (STORE, "store: { redis: { url: 'redis://SECRET-CANARY@127.0.0.1:9' } }"),
    (STORE, "store: { redis: { url: 'http://:SECRET-CANARY@127.0.0.1:9' } }"),
    (STORE, "store: { redis: { url: SECRET-CANARY } }"),
    (STORE, "store: { redis: { url: redis://:SECRET-CANARY@127.0.0.1:9, SECRET-CANARY } }"),
    (STORE, "store: { redis: { url:redis://:SECRET-CANARY@127.0.0.1:9 } }"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', password: SECRET-CANARY } }"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', password_file: SECRET-CANARY } }"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', password_file: 'SECRET-CANARY/x.y' } }"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', username: SECRET-CANARY } }"),
    (STORE, "store: { redis: { cluster: { nodes: ['u:SECRET-CANARY@h:1'] } } }"),
    (STORE, "store: { redis: { sentinel: { master: m, nodes: ['h:1'], SECRET-CANARY: x } } }"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', command_timeout: SECRET-CANARY } }"),
    (
        STORE,
        "store: { redis: { url: 'rediss://127.0.0.1:9', tls: { certificate_file: /x/y, private_key_file: '-----BEGIN SECRET-CANARY' } } }",
    ),
    (LISTEN, "listen: '127.0.0.1:0', tls: { certificate_file: /x/y, private_key_file: '-----BEGIN SECRET-CANARY' }"),
    (OVERRIDE, "overrides: [{ tenant: TENANT-CANARY, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: [{ tenant: { TENANT-CANARY }, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: [{ tenant: { value: [TENANT-CANARY] }, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: [{ tenant: { value: acme, source: TENANT-CANARY }, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: [{ tenant: { value: acme, issuer: TENANT-CANARY }, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: [{ tenant:TENANT-CANARY, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: { TENANT-CANARY: { limit: 9 } }"),
    (
        OVERRIDE,
        "overrides: [{ tenant: { value: TENANT-CANARY }, set: { limit: 9 } }, { tenant: { value: TENANT-CANARY }, set: { limit: 8 } }]",
    ),
    (OVERRIDE, "overrides: [{ tenant: { value: &a TENANT-CANARY, value: *TENANT-CANARY }, set: { limit: 9 } }]"),
    (OVERRIDE, "overrides: [{ tenant: { value: \"TENANT-CANARY\\q\" }, set: { limit: 9 } }]"),
    (ROUTE, "route: { plan: [TENANT-CANARY] }"),
];

/// Values that YAML does not read as texts: they are searched for as they are.
const NUMBERS: [(&str, &str); 6] = [
    (HMAC, "hmac: 47114711471147114711471147114711 #"),
    (HMAC, "hmac: { secret_file: 4711471147114711 } #"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', password_file: 4711471147114711 } }"),
    (STORE, "store: { redis: { url: 'redis://127.0.0.1:9', username: 0x4711471147114711 } }"),
    (OVERRIDE, "overrides: [{ tenant: { value: 4711471147114711 }, set: { limit: 9 } }]"),
    (ROUTE, "route: { plan: 4711471147114711 }"),
];

fn valid() -> Setup {
    Setup::redis(9).policies(&format!(
        "
  - name: orders
    version: 1
    match: {{ path: {{ prefix: /orders }}, {ROUTE} }}
    limits: [{{ name: only, per: [tenant, subject], fixed_window: {{ limit: 3, window: 60s }} }}]
    {OVERRIDE}
    on_failure: closed"
    ))
}

/// Each wrong file, by what stands in it.
fn wrong_files(valid: &str) -> impl Iterator<Item = (&'static str, String)> {
    WRONG.into_iter().chain(NUMBERS).map(move |(from, to)| {
        assert!(valid.contains(from), "{from} is not in the file");
        // A comment takes what is left of the line.
        (to, valid.replacen(from, to, 1))
    })
}

#[track_caller]
fn says_nothing(what: &str, said: &str) {
    none_in(what, said);
    assert!(!said.contains("47114711"), "{what}: {said}");
}

#[test]
fn a_file_that_is_refused_at_the_start_is_refused_without_its_secrets_and_names() {
    let dir = TempDir::new().unwrap();
    let file = write_files(&dir, &valid());
    let text = fs::read_to_string(&file).unwrap();
    let commands = [&["check-config"][..], &["check-config", "--explain"], &["serve", "--log", "trace"], &["doctor"]];
    assert_eq!(
        cli::run(&["check-config", "--config", file.to_str().unwrap()]).code,
        Some(0),
        "the file is valid at first"
    );
    for (place, (what, wrong)) in wrong_files(&text).enumerate() {
        fs::write(&file, wrong).unwrap();
        let done = cli::run(&[commands[place % commands.len()], &["--config", file.to_str().unwrap()]].concat());
        assert_eq!(done.code, Some(78), "{what}: {done:?}");
        says_nothing(what, &format!("{}{}", done.stdout, done.stderr));
        let line = done.stderr.lines().next().unwrap_or_default();
        assert!(line.contains("tallygate.yaml:"), "{what}: the place is still told: {line}");
    }
}

#[test]
fn a_file_that_is_refused_at_a_reload_is_refused_without_its_secrets_and_names() {
    let sidecar = Sidecar::start_with(&valid(), |command| {
        command.args(["--log", "trace"]);
    });
    let text = fs::read_to_string(sidecar.folder().join("tallygate.yaml")).unwrap();
    for (what, wrong) in wrong_files(&text) {
        let refused = || sidecar.log().matches("was refused").count();
        let before = refused();
        sidecar.rewrite_with(&wrong);
        sidecar.sighup();
        wait_for("the file to be refused", Duration::from_secs(5), || refused() > before);
        says_nothing(what, &sidecar.get("/config").text());
    }
    says_nothing("the log", &sidecar.log());
    says_nothing("the metrics", &sidecar.get("/metrics").text());
}

/// A sidecar that everything is logged of, whose user at Redis is `limiter`.
fn limiter(redis: &RedisServer) -> Sidecar {
    let url = format!("redis://limiter:{PASSWORD}@127.0.0.1:{}", redis.port());
    let setup = Setup::store(&format!("{{ redis: {{ url: '{url}' }} }}")).policy("orders", 1, "60s", "closed");
    Sidecar::start_with(&setup.hmac("{ secret_env: SECRET_OF_THIS_TEST }"), |command| {
        command.env("SECRET_OF_THIS_TEST", ENV_SECRET).args(["--log", "trace"]);
    })
}

/// What it says when it cannot come in, until it says `reason`; also what the operator's tools say.
#[track_caller]
fn refused_without_the_password(redis: &RedisServer, reason: &str) {
    let sidecar = limiter(redis);
    wait_for(reason, Duration::from_secs(5), || sidecar.log().contains(reason));
    let check = Check::of(SUBJECT).route("tenant", TENANT);
    let answer = sidecar.client().check(&check);
    assert_eq!(answer.outcome(), Outcome::Failed);
    none_in("an answer", format!("{:?}", answer.message));
    none_in("the log", sidecar.log());
    none_in("the metrics", sidecar.get("/metrics").text());
    let config = sidecar.folder().join("tallygate.yaml");
    let whose = ["--tenant", "route/tenant=acme", "--subject", "route/subject=ada"];
    for command in [
        &["doctor"][..],
        &["peek", "--policy", "orders", whose[0], whose[1], whose[2], whose[3]],
        &["reset", "--policy", "orders", whose[0], whose[1], whose[2], whose[3]],
        &["explain", "--store", "--path", "/orders", "--route", "tenant=acme", "--route", "subject=ada"],
    ] {
        let arguments = [command, &["--config", config.to_str().unwrap()]].concat();
        let done = Process::spawn(cli::command(&arguments).env("SECRET_OF_THIS_TEST", ENV_SECRET))
            .finish(Duration::from_secs(20));
        assert_eq!(done.code, Some(69), "{command:?}: {done:?}");
        none_in(command[0], format!("{}{}", done.stdout, done.stderr));
    }
}

#[test]
fn a_wrong_password_is_in_no_message() {
    let redis = RedisServer::start();
    redis.run(&["ACL", "SETUSER", "limiter", "on", ">right", "~rl:*", "+@all"]);
    refused_without_the_password(&redis, "permission");
    none_in("what Redis remembers", format!("{:?}", redis.run(&["ACL", "LOG"])));
}

#[test]
fn a_missing_permission_tells_the_command_and_no_password() {
    let redis = RedisServer::start();
    redis.run(&[
        "ACL",
        "SETUSER",
        "limiter",
        "on",
        &format!(">{PASSWORD}"),
        "~rl:*",
        "+@all",
        "-time",
        "-type",
        "-del",
    ]);
    refused_without_the_password(&redis, "time");
}

// A server that does not know a command quotes it with its arguments: of HELLO and AUTH these are the password.
#[test]
fn a_server_that_quotes_the_command_it_does_not_know_is_not_repeated() {
    let redis = RedisServer::start_with(|| ["--rename-command", "HELLO", ""].map(str::to_owned).into());
    redis.run(&["ACL", "SETUSER", "limiter", "on", &format!(">{PASSWORD}"), "~rl:*", "+@all"]);
    let quoted = redis.command(&["HELLO", "3", "AUTH", "limiter", PASSWORD]);
    assert!(format!("{quoted:?}").contains(PASSWORD), "the server quotes what it does not know: {quoted:?}");
    refused_without_the_password(&redis, "the server refuses HELLO");
}
