//! `tallygate schema`.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use super::exit;
use crate::config::schema::SCHEMA;

pub fn run() -> ExitCode {
    match std::io::stdout().write_all(SCHEMA.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            tell!("cannot write: {error}");
            ExitCode::from(exit::SOFTWARE)
        }
    }
}
