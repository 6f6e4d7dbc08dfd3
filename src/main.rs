//! The process edge: arguments in, exit code out. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;

// musl's own serves one thread at a time, and a check would cost more than twice as much.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tallygate::cli::run(tallygate::cli::Cli::parse())
}
