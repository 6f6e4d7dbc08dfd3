//! The scripts: one for each *shape* (the list of a policy's algorithms), put together from the parts in `lua/`.
//!
//! Unrolled text beats a loop over the charges by a third of the server's time, and a policy has one shape for good.
//! `lua/open.lua` documents KEYS, ARGV and the reply; this file only joins the parts and writes the arguments.

use redis::{Cmd, Script};

use crate::decision::algorithm::Algorithm;
use crate::decision::limit::Charge;

/// Makes a node that could not record an allowance refuse before the first line runs (Redis 7.0, Valkey 7.2).
const HEADER: &str = "#!lua\n";
const OPEN: &str = include_str!("../../../lua/open.lua");
const JOIN: &str = include_str!("../../../lua/join.lua");
const FIXED_WINDOW: &str = include_str!("../../../lua/fixed_window.lua");

/// The arguments before the first charge's: not-after and n.
const COMMON_ARGUMENTS: usize = 2;

/// One algorithm's place in a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    FixedWindow,
}

impl Kind {
    pub fn of(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::FixedWindow(_) => Self::FixedWindow,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::FixedWindow => FIXED_WINDOW,
        }
    }

    /// How many arguments a charge of this kind has.
    fn arguments(self) -> usize {
        match self {
            Self::FixedWindow => 3,
        }
    }
}

/// The script for one shape.
pub struct ShapeScript {
    script: Script,
    text: String,
}

impl ShapeScript {
    pub fn assemble(shape: &[Kind]) -> Self {
        let text = text(shape);
        Self { script: Script::new(&text), text }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// `EVALSHA`: the usual call.
    pub fn by_hash(&self, charges: &[Charge<'_>], not_after_ms: i64, n: u64) -> Cmd {
        command("EVALSHA", self.script.get_hash(), charges, not_after_ms, n)
    }

    /// `EVAL`: after NOSCRIPT, which proves that nothing ran.
    pub fn by_text(&self, charges: &[Charge<'_>], not_after_ms: i64, n: u64) -> Cmd {
        command("EVAL", &self.text, charges, not_after_ms, n)
    }
}

fn command(verb: &str, script: &str, charges: &[Charge<'_>], not_after_ms: i64, n: u64) -> Cmd {
    let mut command = Cmd::new();
    command.arg(verb).arg(script).arg(charges.len());
    for charge in charges {
        command.arg(&charge.key.text);
    }
    command.arg(not_after_ms).arg(n);
    for charge in charges {
        match &charge.limit.algorithm {
            Algorithm::FixedWindow(rule) => command.arg(rule.limit()).arg(rule.window_ms()).arg(charge.cost),
        };
    }
    command
}

fn text(shape: &[Kind]) -> String {
    let arguments: usize = COMMON_ARGUMENTS + shape.iter().map(|kind| kind.arguments()).sum::<usize>();
    let mut script = HEADER.to_owned();
    let open = OPEN.replace("$KEYS", &shape.len().to_string()).replace("$ARGV", &arguments.to_string());
    script.push_str(&code(&open));
    let each = |section: &str, script: &mut String| {
        let mut first = COMMON_ARGUMENTS + 1;
        for (index, kind) in shape.iter().enumerate() {
            let part = part(kind.text(), section);
            let part = part.replace("$N", &(index + 1).to_string()).replace("$A", &first.to_string());
            script.push_str(&part);
            first += kind.arguments();
        }
    };
    each("arguments", &mut script);
    script.push_str(&part(JOIN, "before the checks"));
    each("check", &mut script);
    script.push_str(&part(JOIN, "after the checks"));
    script.push_str("if admitted > 0 then\n");
    each("prepare", &mut script);
    each("write", &mut script);
    script.push_str("end\n");
    each("reply", &mut script);
    let fields = (1..=shape.len()).map(|n| format!(", remaining_{n}, retry_{n}, reset_{n}"));
    script.push_str(&format!("return {{admitted, now_us{}}}\n", fields.collect::<String>()));
    script
}

/// The code between the line `--- <section>` and the next such line.
fn part(text: &str, section: &str) -> String {
    let after = text.split("\n--- ").find_map(|part| part.strip_prefix(section)?.strip_prefix('\n'));
    code(after.unwrap_or_default())
}

/// Lua without its comment lines: they would be sent with every EVAL and kept in each server's memory.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once(" -- ").map_or(line, |(code, _)| code).trim());
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_starts_with_the_header_line_and_leaves_no_placeholder() {
        for shape in [&[Kind::FixedWindow][..], &[Kind::FixedWindow; 3]] {
            let text = text(shape);
            assert!(text.starts_with("#!lua\nlocal "), "{text}");
            for left in ["$N", "$A", "$KEYS", "--"] {
                assert!(!text.contains(left), "{left} in {text}");
            }
            for section in ["tonumber(ARGV[3])", "pcall('GET', KEYS[1])", "'PXAT'", "local remaining_1"] {
                assert_eq!(
                    text.matches(section).count(),
                    if section == "'PXAT'" { shape.len() } else { 1 },
                    "{section}"
                );
            }
        }
    }

    #[test]
    fn every_charge_has_its_own_arguments() {
        let text = text(&[Kind::FixedWindow, Kind::FixedWindow]);
        assert!(text.contains("#KEYS ~= 2 or #ARGV ~= 8"), "{text}");
        assert!(text.contains("tonumber(ARGV[3]), tonumber(ARGV[3 + 1]), tonumber(ARGV[3 + 2])"), "{text}");
        assert!(text.contains("tonumber(ARGV[6]), tonumber(ARGV[6 + 1]), tonumber(ARGV[6 + 2])"), "{text}");
        assert!(text.ends_with("remaining_1, retry_1, reset_1, remaining_2, retry_2, reset_2}\n"), "{text}");
    }
}
