//! The command line: one file a command.

#[macro_use]
mod output;

mod asked;
mod check_config;
mod doctor;
mod explain;
mod keys;
mod probe;
mod schema;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::keys::Verb;
use crate::config::{Config, Invalid};
use crate::telemetry::logs;

/// An Envoy external-authorization (ext_authz) rate-limit sidecar.
///
/// Envoy asks it about each request; it counts per verified tenant and subject in Redis, and answers allowed, denied (429
/// with an exact Retry-After) or failed (503, or a bounded local answer, by the policy's failure mode).
#[derive(Parser)]
#[command(name = "tallygate", version, after_help = EXIT_CODES)]
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
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Look at the configured Redis: version, permissions, memory, role, latency (exit 0 good, 1 warnings, 69 problems)
    Doctor(doctor::Arguments),
    /// Say what a request would meet: which policy, which identity sources, limits and keys
    Explain(Box<explain::Arguments>),
    /// Print the keys of a tenant and a subject
    Key(keys::Arguments),
    /// Say what the keys of a tenant and a subject hold in Redis
    Peek(keys::Arguments),
    /// Remove the keys of a tenant and a subject from Redis: their counters start anew
    Reset(keys::Arguments),
    /// Ask a running sidecar one check, as Envoy would, or for its health
    Probe(probe::Arguments),
}

/// Which configuration.
#[derive(Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(id = "config_file", long = "config", short = 'c', env = "TALLYGATE_CONFIG", value_name = "FILE")]
    path: PathBuf,
}

const EXIT_CODES: &str = "\
Exit codes:
  0   done, or the answer is yes
  1   the answer is no: denied, not serving, warnings of doctor
  2   the command line is wrong; 64 where it asks for what is not there
  69  a server cannot be reached or used, or a port or socket not be had
  70  a fault of Tallygate or of the system
  78  the configuration is wrong, or a file that it names";

/// Exit codes beyond success, as in sysexits.h where it has one. [`EXIT_CODES`] tells them.
mod exit {
    /// The answer is no: denied, not serving.
    pub const NO: u8 = 1;
    /// What was asked for makes no sense.
    pub const USAGE: u8 = 64;
    /// A service cannot be reached or had.
    pub const UNAVAILABLE: u8 = 69;
    pub const SOFTWARE: u8 = 70;
    /// The configuration is wrong.
    pub const CONFIG: u8 = 78;
}

/// Runs the command and tells how the process should end.
pub fn run(cli: Cli) -> ExitCode {
    logs::hush_panics();
    match cli.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Schema => schema::run(),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Explain(arguments) => explain::run(*arguments),
        Command::Key(arguments) => keys::run(&arguments, Verb::Print),
        Command::Peek(arguments) => keys::run(&arguments, Verb::Peek),
        Command::Reset(arguments) => keys::run(&arguments, Verb::Reset),
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
    tell!("{invalid}");
    let count = invalid.problems.len();
    tell!("{count} problem{} in {}: nothing was started", if count == 1 { "" } else { "s" }, invalid.file.display());
    ExitCode::from(exit::CONFIG)
}

/// A runtime for a command that talks to a server.
fn runtime() -> Result<tokio::runtime::Runtime, ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| {
        tell!("cannot start: {error}");
        ExitCode::from(exit::SOFTWARE)
    })
}

/// `KEY=VALUE`
fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `NAME=VALUE` of a header, whose name Envoy sends in lower case.
fn header(text: &str) -> Result<(String, String), String> {
    pair(text).map(|(name, value)| (name.to_ascii_lowercase(), value))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn the_help_tells_every_exit_code() {
        use super::exit::{CONFIG, NO, SOFTWARE, UNAVAILABLE, USAGE};
        let help = super::Cli::command().render_long_help().to_string();
        for code in [0, NO, 2, USAGE, UNAVAILABLE, SOFTWARE, CONFIG].map(|code| code.to_string()) {
            let told = help.lines().any(|line| line.split([' ', ';']).any(|word| word == code));
            assert!(told, "{code} is missing in:\n{help}");
        }
    }
}
