//! `tallygate serve`.

use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::{ConfigFile, exit, runtime};
use crate::config::Config;
use crate::server::listen::Bound;
use crate::server::{self, Control};
use crate::telemetry::logs::{self, LogFormat};

const USUAL: &str = "info";

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// How log lines look; they go to standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "TALLYGATE_LOG_FORMAT")]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug or trace, for all or by module: info,tallygate::store=debug
    #[arg(long, default_value = USUAL, env = "TALLYGATE_LOG", value_name = "FILTER", value_parser = filter)]
    log: Box<EnvFilter>,
}

/// A word that is no level would be taken for a module's name and silence all others, and so would an environment variable that
/// was left empty: silence takes the word `off`.
fn filter(text: &str) -> Result<Box<EnvFilter>, String> {
    let directives = || text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    if let Some(word) = directives().find(|directive| !directive.contains(['=', '[']) && !is_level(directive)) {
        return Err(format!("{word:?} is no level: write error, warn, info, debug or trace, or MODULE=LEVEL"));
    }
    let chosen = if directives().next().is_none() { USUAL } else { text };
    EnvFilter::try_new(chosen).map(Box::new).map_err(|error| error.to_string())
}

pub fn run(arguments: Arguments) -> ExitCode {
    let config = match arguments.config.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    logs::start(arguments.log_format, *arguments.log);
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    runtime.block_on(serve(config, arguments.config))
}

async fn serve(config: Config, file: ConfigFile) -> ExitCode {
    let control = Control::default();
    if let Err(error) = listen_to_signals(&control) {
        tell!("cannot listen to signals: {error}");
        return ExitCode::from(exit::SOFTWARE);
    }
    let bound = match Bound::bind(&config.fixed).await {
        Ok(bound) => bound,
        Err(error) => {
            tell!("cannot listen: {error}");
            return ExitCode::from(exit::UNAVAILABLE);
        }
    };
    match server::run(config, file.path, bound, control).await {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(%error, "stopped");
            ExitCode::from(exit::SOFTWARE)
        }
    }
}

/// SIGTERM and SIGINT drain, SIGHUP reloads.
fn listen_to_signals(control: &Control) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let Control { shutdown, reload } = control.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => shutdown.cancel(),
                _ = interrupt.recv() => shutdown.cancel(),
                _ = hangup.recv() => reload.notify_one(),
            }
        }
    });
    Ok(())
}
