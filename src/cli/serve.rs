//! `tallygate serve`.

use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

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
    /// What is logged: a level, or levels by module
    #[arg(long, default_value = USUAL, env = "TALLYGATE_LOG", value_name = "FILTER", value_parser = filter)]
    log: Box<EnvFilter>,
}

/// An environment variable that was left empty must not silence everything: that takes the word `off`.
fn filter(text: &str) -> Result<Box<EnvFilter>, tracing_subscriber::filter::ParseError> {
    let says_nothing = text.split(',').all(|directive| directive.trim().is_empty());
    EnvFilter::try_new(if says_nothing { USUAL } else { text }).map(Box::new)
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
        eprintln!("cannot listen to signals: {error}");
        return ExitCode::from(exit::SOFTWARE);
    }
    let bound = match Bound::bind(&config.fixed).await {
        Ok(bound) => bound,
        Err(error) => {
            eprintln!("cannot listen: {error}");
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
