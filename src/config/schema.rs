//! The JSON Schema of the file, for editors; `tallygate schema` prints it.
//!
//! It is written by hand, for its words and its ranges. Tests hold it against the reader: neither knows a key that the other
//! does not, and both judge the same of files that differ in shape.

/// JSON Schema, draft 2020-12, of the whole file.
pub const SCHEMA: &str = include_str!("schema.json");

#[cfg(test)]
mod tests;
