//! The scripts: one for each *shape* (the list of a policy's algorithms), put together from the parts in `lua/`.
//!
//! Unrolled text beats a loop over the charges by a third of the server's time, and a policy has one shape for good.
//! `lua/open.lua` documents KEYS, ARGV and the reply; this file only joins the parts and writes the arguments.

use redis::{Cmd, Script};

use crate::decision::algorithm::{Algorithm, Role};
use crate::decision::limit::Charge;

/// Makes a node that could not record an allowance refuse before the first line runs (Redis 7.0, Valkey 7.2).
const HEADER: &str = "#!lua\n";
const OPEN: &str = include_str!("../../../lua/open.lua");
const SHARED: &str = include_str!("../../../lua/shared.lua");
const JOIN: &str = include_str!("../../../lua/join.lua");
const FIXED_WINDOW: &str = include_str!("../../../lua/fixed_window.lua");
const SLIDING_LOG: &str = include_str!("../../../lua/sliding_log.lua");
const SLIDING_WINDOW: &str = include_str!("../../../lua/sliding_window.lua");
const TOKEN_BUCKET: &str = include_str!("../../../lua/token_bucket.lua");

/// The arguments before the first charge's: not-after and n.
const COMMON_ARGUMENTS: usize = 2;

/// One charge's place in a shape: which algorithm, and whether it only rides along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    pub kind: Kind,
    pub role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    FixedWindow,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
}

impl Slot {
    pub fn of(charge: &Charge<'_>) -> Self {
        let kind = match charge.algorithm {
            Algorithm::FixedWindow(_) => Kind::FixedWindow,
            Algorithm::SlidingLog(_) => Kind::SlidingLog,
            Algorithm::SlidingWindow(_) => Kind::SlidingWindow,
            Algorithm::TokenBucket(_) => Kind::TokenBucket,
        };
        Self { kind, role: charge.role }
    }
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Self::FixedWindow => FIXED_WINDOW,
            Self::SlidingLog => SLIDING_LOG,
            Self::SlidingWindow => SLIDING_WINDOW,
            Self::TokenBucket => TOKEN_BUCKET,
        }
    }

    /// The names of the numbers that a charge of this kind brings as arguments, in order.
    fn numbers(self) -> Vec<String> {
        part(self.text(), "numbers").trim().split(", ").map(str::to_owned).collect()
    }
}

/// The script for one shape.
pub struct ShapeScript {
    script: Script,
    text: String,
}

impl ShapeScript {
    pub fn assemble(shape: &[Slot]) -> Self {
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
        match &charge.algorithm {
            Algorithm::FixedWindow(rule) => command.arg(rule.limit()).arg(rule.window_ms()),
            Algorithm::SlidingLog(rule) => command.arg(rule.limit()).arg(rule.window_ms()),
            Algorithm::SlidingWindow(rule) => command.arg(rule.limit()).arg(rule.window_ms()),
            Algorithm::TokenBucket(rule) => command.arg(rule.rate()).arg(rule.per_ms()).arg(rule.burst()),
        };
        command.arg(charge.cost);
    }
    command
}

fn text(shape: &[Slot]) -> String {
    let mut script = HEADER.to_owned();
    script.push_str(&code(&open(shape)));
    let each = |section: &str, script: &mut String| {
        for ((slot, first), place) in shape.iter().zip(first_arguments(shape)).zip(1..) {
            script.push_str(&charge_part(*slot, section, place, first));
        }
    };
    each("arguments", &mut script);
    script.push_str(&part(JOIN, "before the checks"));
    each("check", &mut script);
    script.push_str(&part(JOIN, "after the checks"));
    for (index, _) in shape.iter().enumerate().filter(|(_, slot)| slot.role == Role::Shadow) {
        script.push_str(&part(JOIN, "after the checks, shadow").replace("$N", &(index + 1).to_string()));
    }
    script.push_str("if admitted > 0 then\n");
    each("prepare", &mut script);
    each("write", &mut script);
    script.push_str("end\n");
    each("reply", &mut script);
    let fields = shape.iter().zip(1..).map(|(slot, n)| match slot.role {
        Role::Enforced => format!(", remaining_{n}, retry_{n}, reset_{n}"),
        Role::Shadow => format!(", remaining_{n}, retry_{n}, reset_{n}, charged_{n}"),
    });
    script + &format!("return {{admitted, now_us{}}}\n", fields.collect::<String>())
}

/// The first part, with what it needs to know of the shape.
fn open(shape: &[Slot]) -> String {
    let (mut names, mut values, mut arguments) = (String::new(), String::new(), COMMON_ARGUMENTS);
    for (slot, place) in shape.iter().zip(1..) {
        for name in slot.kind.numbers() {
            arguments += 1;
            names += &format!(", {name}_{place}");
            // The usual cost needs no reading.
            let shortcut = if name == "cost" { format!("ARGV[{arguments}] == '1' and 1 or ") } else { String::new() };
            values += &format!(", {shortcut}ARGV[{arguments}] + 0");
        }
    }
    let first = first_arguments(shape).map(|first| first.to_string()).collect::<Vec<_>>().join(", ");
    OPEN.replace("$KEYS", &shape.len().to_string())
        .replace("$ARGV", &arguments.to_string())
        .replace("$NAMES", &names)
        .replace("$VALUES", &values)
        .replace("$FIRST", &first)
}

/// The place of each charge's first argument.
fn first_arguments(shape: &[Slot]) -> impl Iterator<Item = usize> {
    shape.iter().scan(COMMON_ARGUMENTS + 1, |next, slot| {
        let first = *next;
        *next += slot.kind.numbers().len();
        Some(first)
    })
}

/// One section of one charge: its included pieces and its names filled in. A shadow charge has a count of its own and writes
/// only if that is above zero.
fn charge_part(slot: Slot, section: &str, place: usize, first_argument: usize) -> String {
    let own = part(slot.kind.text(), section).lines().fold(String::new(), |text, line| {
        match (line.strip_prefix("$include "), slot.role) {
            (None, _) => text + line + "\n",
            (Some("fits"), Role::Shadow) => text + &part(SHARED, "fits, shadow"),
            (Some(piece), _) => text + &part(SHARED, piece),
        }
    });
    let own = match (section, slot.role) {
        ("write", Role::Shadow) => format!("if $CHARGED > 0 then\n{own}end\n"),
        _ => own,
    };
    let charged = match slot.role {
        Role::Enforced => "admitted".to_owned(),
        Role::Shadow => format!("charged_{place}"),
    };
    own.replace("$CHARGED", &charged).replace("$N", &place.to_string()).replace("$A", &first_argument.to_string())
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

    const KINDS: [Kind; 4] = [Kind::FixedWindow, Kind::SlidingLog, Kind::SlidingWindow, Kind::TokenBucket];

    fn slot(kind: Kind, role: Role) -> Slot {
        Slot { kind, role }
    }

    #[test]
    fn a_script_starts_with_the_header_line_and_leaves_no_placeholder() {
        let all = KINDS.into_iter().flat_map(|kind| [slot(kind, Role::Enforced), slot(kind, Role::Shadow)]);
        for shape in [all.collect::<Vec<_>>(), vec![slot(Kind::FixedWindow, Role::Enforced)]] {
            let text = text(&shape);
            assert!(text.starts_with("#!lua\nlocal "), "{text}");
            for left in ["$N", "$A", "$C", "$K", "$include", "--"] {
                assert!(!text.contains(left), "{left} in {text}");
            }
            for n in 1..=shape.len() {
                for name in ["stored", "fits", "remaining", "retry", "reset"] {
                    let sorted = [Kind::SlidingLog].contains(&shape[n - 1].kind) && name == "stored";
                    assert_eq!(text.contains(&format!("{name}_{n}")), !sorted, "{name}_{n} in {text}");
                }
            }
        }
    }

    #[test]
    fn every_charge_has_its_own_arguments() {
        let text = text(&[slot(Kind::TokenBucket, Role::Enforced), slot(Kind::FixedWindow, Role::Enforced)]);
        assert!(text.contains("#KEYS ~= 2 or #ARGV ~= 9"), "{text}");
        let names = "not_after, n, rate_1, per_1, burst_1, cost_1, limit_2, window_2, cost_2 = pcall(";
        assert!(text.contains(names), "{text}");
        let values = [3, 4, 5].map(|place| format!(", ARGV[{place}] + 0")).concat();
        assert!(text.contains(&format!("{values}, ARGV[6] == '1' and 1 or ARGV[6] + 0, ARGV[7] + 0")), "{text}");
        assert!(text.contains("ipairs({3, 7})"), "{text}");
        assert!(text.ends_with("remaining_1, retry_1, reset_1, remaining_2, retry_2, reset_2}\n"), "{text}");
    }

    #[test]
    fn a_shadow_charge_does_not_narrow_what_is_admitted() {
        let text = text(&[slot(Kind::FixedWindow, Role::Shadow)]);
        assert!(!text.contains("admitted = fits_1"), "{text}");
        assert!(text.contains("if charged_1 > 0 then"), "{text}");
        assert!(text.ends_with("reset_1, charged_1}\n"), "{text}");
    }
}
