//! The command line: one file a command.

mod check_config;
mod doctor;
mod probe;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, Invalid};

/// An Envoy external-authorization (ext_authz) rate-limit sidecar.
///
/// Envoy asks it about each request; it counts per verified tenant and subject in Redis, and answers allowed, denied (429
/// with an exact Retry-After) or failed (503, or a bounded local answer, by the policy's failure mode).
#[derive(Parser)]
#[command(name = "tallygate", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer Envoy's checks until SIGTERM; SIGHUP reloads the configuration
    Serve(serve::Arguments),
    /// Read a configuration and say everything that is wrong with it
    CheckConfig(check_config::Arguments),
    /// Look at the configured Redis: version, permissions, memory, role, latency (exit 0 good, 1 warnings, 69 problems)
    Doctor(doctor::Arguments),
    /// Ask a running sidecar one check, as Envoy would, or for its health
    Probe(probe::Arguments),
}

/// Which configuration.
#[derive(Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(long = "config", short = 'c', env = "TALLYGATE_CONFIG", value_name = "FILE")]
    path: PathBuf,
}

/// Exit codes beyond success, as in sysexits.h where it has one.
mod exit {
    /// The answer is no: denied, not serving.
    pub const NO: u8 = 1;
    /// A service cannot be reached or had.
    pub const UNAVAILABLE: u8 = 69;
    pub const SOFTWARE: u8 = 70;
    /// The configuration is wrong.
    pub const CONFIG: u8 = 78;
}

/// Runs the command and tells how the process should end.
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Probe(arguments) => probe::run(arguments),
    }
}

impl ConfigFile {
    /// The configuration; or its problems printed, and the exit code.
    fn load(&self) -> Result<Config, ExitCode> {
        Config::load(&self.path, None).map_err(|invalid| refused(&invalid))
    }
}

fn refused(invalid: &Invalid) -> ExitCode {
    eprintln!("{invalid}");
    let count = invalid.problems.len();
    eprintln!(
        "{count} problem{} in {}: nothing was started",
        if count == 1 { "" } else { "s" },
        invalid.file.display()
    );
    ExitCode::from(exit::CONFIG)
}

/// A runtime for a command that talks to a server.
fn runtime() -> Result<tokio::runtime::Runtime, ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| {
        eprintln!("cannot start: {error}");
        ExitCode::from(exit::SOFTWARE)
    })
}
