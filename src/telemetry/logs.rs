//! Logs go to standard error, one event a line, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Libraries that can print what they carry: requests, and with them identities. They stay quiet at every level.
const CARRIERS: [&str; 5] = ["h2", "hyper", "tonic", "tower", "redis"];

/// Starts logging for the whole process. `filter` as in `info` or `tallygate=debug,warn`.
pub fn start(format: LogFormat, filter: EnvFilter) {
    let quiet = CARRIERS.iter().filter_map(|carrier| format!("{carrier}=warn").parse().ok());
    let filter = quiet.fold(filter, EnvFilter::add_directive);
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_current_span(false).init(),
    }
}
