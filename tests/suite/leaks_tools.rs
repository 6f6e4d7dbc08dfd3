//! What an operator's commands print about somebody: keys and numbers, and no name, even where the name was typed (P10, RL-35).
//!
//! Only a complaint about an argument repeats that argument, to the terminal where it was typed.

use std::panic::catch_unwind;

use tempfile::TempDir;

use crate::support::canaries::{ADDRESS, BEARER, CLAIM, HEADER, PASSWORD, SUBJECT, TENANT, none_in};
use crate::support::cli;
use crate::support::redis::RedisServer;
use crate::support::setup::{SECRET, Setup};
use crate::support::sidecar::write_files;

#[test]
fn no_command_prints_a_name_or_a_secret() {
    let redis = RedisServer::start_with(|| ["--requirepass", PASSWORD].map(str::to_owned).into());
    let store = format!("{{ redis: {{ url: 'redis://:{PASSWORD}@127.0.0.1:{}' }} }}", redis.port());
    let setup = Setup::store(&store).policies(&format!(
        "
  - name: orders
    version: 1
    match: {{ route: {{ tenant: {TENANT} }} }}
    limits: [{{ name: only, per: [tenant, subject, address], fixed_window: {{ limit: 3, window: 60s }} }}]
    overrides: [{{ tenant: {{ value: {TENANT} }}, set: {{ limit: 9 }} }}]
    on_failure: closed"
    ));
    let sidecar = setup.start();
    let folder = TempDir::new().unwrap();
    let config = write_files(&folder, &setup);
    let request = folder.path().join("request.json");
    let json = format!(
        r#"{{"attributes": {{"source": {{"address": {{"socketAddress": {{"address": "{ADDRESS}"}}}}}},
            "request": {{"http": {{"path": "/{SUBJECT}", "headers": {{"authorization": "Bearer {BEARER}"}}}}}},
            "contextExtensions": {{"tenant": "{TENANT}", "subject": "{SUBJECT}"}}}}}}"#
    );
    std::fs::write(&request, json).unwrap();
    let tenant = format!("tenant={TENANT}");
    let subject = format!("subject={SUBJECT}");
    let (header, claim) = (format!("authorization=Bearer {BEARER}"), format!("email={CLAIM}"));
    let typed = ["--path", "/orders", "--route", &tenant, "--route", &subject, "--header", &header];
    let more = ["--claim", &claim, "--source-address", ADDRESS, "--principal", HEADER];
    let (tenant_is, subject_is) = (format!("route/tenant={TENANT}"), format!("route/subject={SUBJECT}"));
    let whose = ["--policy", "orders", "--tenant", &tenant_is, "--subject", &subject_is, "--address", ADDRESS];
    let with = |command: &[&str], arguments: &[&str]| -> Vec<String> {
        let config = ["--config", config.to_str().unwrap()];
        [command, arguments, &config].concat().into_iter().map(str::to_owned).collect()
    };
    let probe = ["probe", "--address", sidecar.grpc()];
    for (arguments, code) in [
        (with(&["explain", "--store"], &[&typed[..], &more].concat()), 0),
        (with(&["explain"], &typed), 0),
        (with(&["explain", "--request", request.to_str().unwrap()], &[]), 0),
        (with(&["key"], &whose), 0),
        (with(&["peek"], &whose), 0),
        (with(&["reset"], &whose), 0),
        (with(&["key"], &["--policy", "orders", "--tenant", &tenant_is]), 64),
        (with(&["check-config", "--explain"], &[]), 0),
        (with(&["doctor"], &[]), 1),
        ([&probe[..], &typed].concat().into_iter().map(str::to_owned).collect(), 1),
    ] {
        let done = cli::run(&arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {done:?}");
        assert!(!(done.stdout.is_empty() && done.stderr.is_empty()), "{arguments:?}");
        none_in(&arguments[0], format!("{}{}", done.stdout, done.stderr));
    }
}

// The tests of leaks are worth what their search finds.
#[test]
fn the_search_for_leaks_finds_each_form_of_a_name() {
    let bytes: Vec<u8> = TENANT.bytes().collect();
    for text in [
        format!("tenant={TENANT}"),
        TENANT.to_lowercase(),
        "54454e414e542d43414e415259".to_owned(),
        "%54%45%4E%41%4E%54%2D%43%41%4E%41%52%59".to_owned(),
        "VEVOQU5ULUNBTkFSWQ==".to_owned(),
        "eHRlbmFudD1URU5BTlQtQ0FOQVJZeA==".to_owned(),
        "eHh0ZW5hbnQ9VEVOQU5ULUNBTkFSWXh4".to_owned(),
        format!("{bytes:?}"),
        SECRET.to_owned(),
        format!("peer {ADDRESS}:80"),
        "cb00714d".to_owned(),
    ] {
        assert!(catch_unwind(|| none_in("a text", &text)).is_err(), "{text}");
    }
    none_in("a text", "rl:orders:v1:aa5f53915c2e26657e27d0ae211146215b5a9dbc567d7077a7f6177053ed3be6");
}
