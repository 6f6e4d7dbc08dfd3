//! What commands print: `say!` for answers, `tell!` for what is wrong.
//!
//! A reader that has left (`| head`) is no fault of anybody's, and must not stop a `reset` half-way: the command goes on to its
//! end, and its exit code tells. `println!` would panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// A line to standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::say(format_args!($($text)*)) };
}

/// A line to standard error.
macro_rules! tell {
    ($($text:tt)*) => { $crate::cli::output::tell(format_args!($($text)*)) };
}

pub fn say(text: Arguments<'_>) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => tell!("cannot write: {error}"),
        _ => {}
    }
}

pub fn tell(text: Arguments<'_>) {
    // Without standard error nobody is left to be told.
    let _unread = writeln!(std::io::stderr(), "{text}");
}
