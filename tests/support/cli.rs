//! The binary under test, as a command that runs to its end or as a server.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use super::process::{Finished, Process};

/// `tallygate` with `arguments`, not yet started. The caller's environment must not steer it.
pub fn command<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallygate"));
    for (name, _) in std::env::vars_os() {
        if name == "RUST_LOG" || name.to_string_lossy().starts_with("TALLYGATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

/// Runs `tallygate` with `arguments` to its end.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(arguments: &[A]) -> Finished {
    Process::spawn(&mut command(arguments)).finish(Duration::from_secs(10))
}
