//! Logs go to standard error, one event a line, as text or as JSON.
//!
//! No line holds who asked, nor a secret, whatever the operator asks to be logged (P10): libraries are quiet, and so are the
//! words of a panic.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, Write};
use std::panic::PanicHookInfo;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Starts logging for the whole process. `filter` as in `info` or `tallygate=debug,warn`.
pub fn start(format: LogFormat, filter: EnvFilter) {
    // A layer of its own, since a directive in the operator's filter can always be outdone by a narrower one.
    let chosen = registry().with(filter).with(filter_fn(may_be_logged));
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            chosen.with(lines.with_ansi(std::io::stderr().is_terminal()).with_target(false)).init();
        }
        LogFormat::Json => chosen.with(lines.json().flatten_event(true).with_current_span(false)).init(),
    }
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(place = %place(panic), backtrace = %backtrace(), "a panic, which is a mistake of Tallygate's: please report it");
    }));
}

/// For commands that log nothing: what [`start`] does with a panic.
pub fn hush_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let (place, backtrace) = (place(panic), backtrace());
        // A second panic, for want of a reader, would end the process without an exit code.
        let _unread = writeln!(
            std::io::stderr(),
            "a panic at {place}, which is a mistake of Tallygate's: please report it {backtrace}"
        );
    }));
}

/// Our own events and spans at every level; those of libraries only as warnings. Below that some print what they carry: h2
/// prints the header, path or authority that it stumbles over.
fn may_be_logged(about: &Metadata<'_>) -> bool {
    let is_ours = about.target().split("::").next() == Some(env!("CARGO_CRATE_NAME"));
    is_ours || *about.level() <= Level::WARN
}

/// Where a panic began. Its words are left out: they may hold what was being worked on, like a text that could not be cut.
fn place(panic: &PanicHookInfo<'_>) -> String {
    panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string)
}

/// Functions and lines, without their arguments; empty unless RUST_BACKTRACE asks for it.
fn backtrace() -> String {
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured { backtrace.to_string() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn libraries_are_heard_when_they_warn_and_we_always() {
        let written = Written::default();
        let to = written.clone();
        let lines = fmt::layer().with_writer(move || to.clone()).with_ansi(false);
        let chosen = registry().with(EnvFilter::new("trace")).with(filter_fn(may_be_logged)).with(lines);
        tracing::subscriber::with_default(chosen, || {
            tracing::error!(target: "redis", "redis error");
            tracing::warn!(target: "h2::codec", "h2 warning");
            tracing::info!(target: "h2::codec", "h2 news");
            tracing::trace!(target: "rustls", "rustls trace");
            tracing::info!(target: "tallygate_plugin", "a namesake's news");
            tracing::trace!(target: "tallygate::limiter", "our trace");
            tracing::info!(target: "tallygate", "our news");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let said: Vec<_> = written.lines().filter_map(|line| line.rsplit(": ").next()).collect();
        assert_eq!(said, ["redis error", "h2 warning", "our trace", "our news"]);
    }

    const CHILD: &str = "TALLYGATE_TEST_PANICS";

    // The hook is the whole process's, so the panic is another process's: this test, run once more.
    #[test]
    fn a_panic_tells_its_place_and_not_its_words() {
        if let Some(way) = std::env::var_os(CHILD) {
            match way.to_str() {
                Some("logged") => start(LogFormat::Json, EnvFilter::new("trace")),
                _ => hush_panics(),
            }
            let name = String::from("SUBJECT-CANARYé");
            let _caught = std::panic::catch_unwind(|| name[..name.len() - 1].len());
            return;
        }
        for way in ["logged", "printed"] {
            let name = "telemetry::logs::tests::a_panic_tells_its_place_and_not_its_words";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let done = again.args(["--exact", name, "--nocapture"]).env(CHILD, way).output().unwrap();
            let said = String::from_utf8(done.stderr).unwrap();
            assert!(done.status.success() && said.contains("src/telemetry/logs.rs:"), "{way}: {said}");
            assert!(!said.contains("CANARY"), "{way}: {said}");
        }
    }
}
