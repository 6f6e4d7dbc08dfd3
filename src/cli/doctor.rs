//! `tallygate doctor`.

use std::process::ExitCode;

use clap::Args;

use super::{ConfigFile, exit, runtime};
use crate::config::StoreSettings;
use crate::store::redis::doctor::{Severity, examine};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let config = match arguments.config.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let StoreSettings::Redis(settings) = &config.fixed.store else {
        println!("ok       the embedded store has nothing to look at");
        return ExitCode::SUCCESS;
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let findings = runtime.block_on(examine(settings, config.fixed.key_prefix.as_str()));
    for finding in &findings {
        let word = match finding.severity {
            Severity::Good => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        println!("{word:8} {} {}", finding.place, finding.text);
        if !finding.remedy.is_empty() {
            println!("         -> {}", finding.remedy);
        }
    }
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Problem) => ExitCode::from(exit::UNAVAILABLE),
        Some(Severity::Warning) => ExitCode::from(exit::NO),
        _ => ExitCode::SUCCESS,
    }
}
