//! Logs go to standard error, one event a line, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Starts logging for the whole process. `filter` as in `info` or `tallygate=debug,warn`.
pub fn start(format: LogFormat, filter: EnvFilter) {
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_current_span(false).init(),
    }
}
