//! The process edge: arguments in, exit code out. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    tallygate::cli::run(tallygate::cli::Cli::parse())
}
