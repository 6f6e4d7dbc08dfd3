//! Paths of files that a configuration names: whether the file can be read is told at once, in the place that names it.

use std::path::{Path, PathBuf};

use crate::config::reader::Field;
use crate::config::words::{is_path, unreadable};

/// A path whose file can be read: one that cannot would only be missed at the first connection.
pub fn path(field: &Field<'_>) -> Option<PathBuf> {
    let text = field.nonempty()?;
    // Who writes the password itself here should not find it in a log.
    let shown = if is_path(text) { text } else { "the file" };
    match std::fs::File::open(text).and_then(|file| file.metadata()) {
        Ok(about) if about.is_dir() => field.problem(format!("{shown} is a folder, wanted a file")),
        Ok(_) => {}
        Err(error) => field.problem(format!("{shown}: {}", unreadable(Path::new(text), &error))),
    }
    Some(text.into())
}
