//! Logs are for machines where the operator asked for that.

use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cli;
use crate::support::http;
use crate::support::ports;
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;
use crate::support::wait::wait_for;

/// What a sidecar writes from its start to its end under these directives, some of them in variables that are not its own.
fn written(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let dir = tempfile::TempDir::with_prefix("tallygate-").unwrap();
    let admin = format!("127.0.0.1:{}", ports::free());
    let config = write_files(&dir, &Setup::memory().policy("orders", 1, "60s", "closed"));
    // Without a log nobody tells where it listens.
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        text.replace("admin: { listen: '127.0.0.1:0' }", &format!("admin: {{ listen: '{admin}' }}")),
    )
    .unwrap();
    let mut command = cli::command(&[&["serve", "--config", config.to_str().unwrap()], arguments].concat());
    let process = Process::spawn(command.envs(environment.iter().copied()));
    wait_for("the sidecar to be ready", Duration::from_secs(10), || {
        http::try_get(&admin, "/readyz").is_ok_and(|response| response.status() == 200)
    });
    process.signal("TERM");
    process.finish(Duration::from_secs(15)).stderr
}

#[test]
fn what_is_logged_is_what_the_directives_say_and_silence_takes_the_word_off() {
    for (directives, has_warnings, has_news) in [
        ("off", false, false),
        ("tallygate=off", false, false),
        ("h2=trace", false, false),
        ("error", false, false),
        ("warn", true, false),
        ("INFO", true, true),
        ("trace", true, true),
        ("tallygate=trace,h2=trace", true, true),
        ("off,tallygate::server=info", true, true),
        // Nothing said: as if it were not there.
        ("", true, true),
        (" , ", true, true),
    ] {
        let found = |text: &str| (text.contains(" WARN "), text.contains("listening"));
        let by_option = written(&["--log", directives], &[]);
        assert_eq!(found(&by_option), (has_warnings, has_news), "{directives:?}: {by_option}");
        let by_variable = written(&[], &[("TALLYGATE_LOG", directives), ("RUST_LOG", "off")]);
        assert_eq!(found(&by_variable), (has_warnings, has_news), "{directives:?}: {by_variable}");
        assert!(has_warnings || by_option.is_empty(), "{directives:?}: {by_option}");
    }
    let usual = written(&[], &[("RUST_LOG", "off")]);
    assert!(usual.contains("listening"), "a variable of other programs has no say: {usual}");
}

#[test]
fn a_directive_that_means_nothing_is_refused_with_what_is_known() {
    for directives in ["tallygate=loud", "a=b=c", "info,h2=9x", "[{"] {
        let done = cli::run(&["serve", "--config", "tallygate.yaml", "--log", directives]);
        assert_eq!(done.code, Some(2), "{directives:?}: {done:?}");
        assert!(done.stderr.contains("--log <FILTER>") && done.stderr.contains(directives), "{done:?}");
    }
}

#[test]
fn each_line_of_a_json_log_is_a_json_object() {
    // A configuration that draws warnings: an embedded store, and no word about what no policy matches.
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
    let logged = sidecar.log().len();
    sidecar.rewrite_with("policies: [");
    sidecar.sighup();
    wait_for("the log to name the problem", Duration::from_secs(5), || {
        sidecar.log()[logged..].contains("tallygate.yaml")
    });
    let log = sidecar.log();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        // Flat, so that whoever collects logs finds each field by its name.
        assert!(["timestamp", "level", "message", "target"].iter().all(|name| line[name].is_string()), "{line}");
        assert!(line.as_object().is_some_and(|fields| fields.values().all(|value| !value.is_object())), "{line}");
    }
}

#[test]
fn the_log_of_an_outage_tells_where_why_and_how_long() {
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let logged = |text: &str| sidecar.log().lines().filter(|line| line.contains(text)).count();
    redis.kill9();
    wait_for("the outage in the log", Duration::from_secs(5), || logged("Redis cannot be used yet") == 1);
    redis.restart();
    wait_for("its end in the log", Duration::from_secs(5), || logged("Redis is in use") == 2);
    let log = sidecar.log();
    let place = format!("127.0.0.1:{}", redis.port());
    let of_redis = log.lines().filter(|line| line.contains("\"Redis "));
    let mut of_redis: Vec<serde_json::Value> =
        of_redis.map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    // A Redis that is starting may be refused for more than one reason.
    of_redis.dedup_by_key(|line| line["message"].to_string());
    let told: Vec<_> = of_redis.iter().map(|line| line["message"].as_str().unwrap_or_default()).collect();
    let wanted = ["Redis is in use", "Redis is out of use", "Redis cannot be used yet", "Redis is in use"];
    assert_eq!(told.len(), wanted.len(), "nothing more, and nothing again and again: {log}");
    for ((line, told), wanted) in of_redis.iter().zip(told).zip(wanted) {
        assert!(told.starts_with(wanted) && line["place"] == place.as_str(), "{line}");
        assert_eq!(line["level"], if wanted == "Redis is in use" { "INFO" } else { "WARN" }, "{line}");
    }
    assert!(of_redis[0].get("out_of_use_ms").is_none(), "{}", of_redis[0]);
    assert!(of_redis[2]["message"].as_str().is_some_and(|text| text.contains("tallygate doctor")), "{}", of_redis[2]);
    assert!(of_redis[3]["out_of_use_ms"].as_u64().is_some_and(|ms| ms > 0), "{}", of_redis[3]);
}

// A word that is no level would silence everything: it would be taken for the name of a module.
#[test]
fn a_misspelt_level_is_refused() {
    for wrong in ["warning", "info,verbose", "tallygate=loud"] {
        let done = cli::run(&["serve", "--config", "tallygate.yaml", "--log", wrong]);
        assert!(done.code == Some(2) && done.stderr.contains("for '--log <FILTER>'"), "{wrong}: {done:?}");
    }
    for right in ["warn", "INFO", "off", "info,tallygate::store=debug", "tallygate=trace,warn"] {
        let done = cli::run(&["serve", "--config", "/nowhere/tallygate.yaml", "--log", right]);
        assert_eq!(done.code, Some(78), "{right}: the file is missing, and nothing else is wrong: {done:?}");
    }
}
