//! `tallygate check-config`.

use std::process::ExitCode;

use clap::Args;

use super::ConfigFile;
use crate::config::{explain, line};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the policies as a person reads them: order, match, limits in words, what failures become
    #[arg(long)]
    explain: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match arguments.config.load() {
        Ok(config) => {
            for warning in &config.warnings {
                tell!("warning: {}", line(&arguments.config.path, warning));
            }
            let count = config.rules.policies.len();
            let plural = if count == 1 { "policy" } else { "policies" };
            say!("{}: valid, {count} {plural}", arguments.config.path.display());
            if arguments.explain {
                say!("\n{}", explain::page(&config.rules).trim_end());
            }
            ExitCode::SUCCESS
        }
        Err(code) => code,
    }
}
