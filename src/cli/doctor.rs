//! `tallygate doctor`.

use std::process::ExitCode;

use clap::Args;

use super::{ConfigFile, exit, runtime};
use crate::config::StoreSettings;
use crate::store::clock;
use crate::store::redis::doctor::{Finding, Severity, examine};
use crate::tls::certificate::{CertificateFile, SOON_DAYS};

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
    let mut findings: Vec<_> = config.certificates.iter().map(certificate).collect();
    match &config.fixed.store {
        StoreSettings::Redis(settings) => {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(code) => return code,
            };
            findings.extend(runtime.block_on(examine(settings, config.fixed.key_prefix.as_str())));
        }
        StoreSettings::Memory { .. } => say!("ok       the embedded store has nothing to look at"),
    }
    for finding in &findings {
        let word = match finding.severity {
            Severity::Good => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        say!("{word:8} {} {}", finding.place, finding.text);
        if !finding.remedy.is_empty() {
            say!("         -> {}", finding.remedy);
        }
    }
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Problem) => ExitCode::from(exit::UNAVAILABLE),
        Some(Severity::Warning) => ExitCode::from(exit::NO),
        _ => ExitCode::SUCCESS,
    }
}

/// How long the certificates of one file are still good for. Loading has warned of those that soon are not.
fn certificate(file: &CertificateFile) -> Finding {
    let CertificateFile { setting, path, not_after } = file;
    let left = not_after.days_left(clock::unix_seconds());
    let (severity, text, remedy) = match left {
        ..0.0 => (Severity::Problem, format!("has expired on {not_after}"), "renew it: whoever is shown it refuses it"),
        ..SOON_DAYS => (Severity::Warning, format!("expires on {not_after}, in {left:.1} days"), "renew it"),
        _ => (Severity::Good, format!("expires on {not_after}, in {left:.0} days"), ""),
    };
    Finding { severity, place: setting.clone(), text: format!("{} {text}", path.display()), remedy }
}
