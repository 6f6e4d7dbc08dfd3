//! Logs are for machines where the operator asked for that.

use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cli;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;

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
        assert!(line.starts_with('{') && line.ends_with('}'), "not JSON: {line}\n\nin:\n{log}");
    }
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
