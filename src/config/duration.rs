//! Durations as operators write and read them: `250ms`, `10s`, `1h30m`, `366d`.
//!
//! One spelling each. Others (`M` for a month, `1.5s`, `5 minutes`) are refused, since what they mean has to be looked up.

use std::time::Duration;

/// Units with their milliseconds, the longest first.
const UNITS: [(&str, u64); 5] = [("d", 24 * 3600 * 1000), ("h", 3600 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    #[error("a duration is whole numbers with units (d, h, m, s, ms), the longest first, like 250ms, 10s or 1h30m")]
    Form,
    #[error("{0} has no unit: write {0}s for seconds or {0}ms for milliseconds")]
    NoUnit(String),
}

/// Reads what [`shown`] writes. A duration that no integer holds is the longest that one does.
pub fn parse(text: &str) -> Result<Duration, BadDuration> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadDuration::NoUnit(text.to_owned()));
    }
    let (mut rest, mut units, mut sum_ms) = (text, UNITS.iter(), 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest.bytes().skip(digits).take_while(u8::is_ascii_alphabetic).count();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + letters]);
        // Each unit once, and none after a shorter one.
        let (_, ms) = units.find(|(name, _)| *name == unit).filter(|_| digits > 0).ok_or(BadDuration::Form)?;
        sum_ms = sum_ms.saturating_add(number.parse().unwrap_or(u64::MAX).saturating_mul(*ms));
        rest = &rest[digits + letters..];
    }
    if text.is_empty() { Err(BadDuration::Form) } else { Ok(Duration::from_millis(sum_ms)) }
}

/// The shortest text that [`parse`] reads as this; what is below a millisecond is left out.
pub fn shown(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, ms) in UNITS {
        if rest >= ms {
            text += &format!("{}{unit}", rest / ms);
            rest %= ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_one_spelling() {
        for (text, ms) in [
            ("1ms", 1),
            ("250ms", 250),
            ("10s", 10_000),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1m1ms", 60_001),
            ("366d", 31_622_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
            assert_eq!(shown(Duration::from_millis(ms)), text);
        }
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(shown(Duration::from_secs(90)), "1m30s");
    }

    // RL-32: what might mean something else is refused. A capital M is a month elsewhere.
    #[test]
    fn what_might_mean_something_else_is_refused() {
        for bad in [
            "",
            "s",
            "ten",
            "1.5s",
            "-5s",
            "+5s",
            "1M",
            "10S",
            "100y",
            "1w",
            "10us",
            "5 minutes",
            "10 s",
            " 10s",
            "10s ",
            "1s1m",
            "1s1s",
            "1sm",
            "1h 30m",
            "1e3s",
            "1_000s",
            "\u{661}s",
            "1\u{b5}s",
        ] {
            assert_eq!(parse(bad), Err(BadDuration::Form), "{bad:?}");
        }
        assert_eq!(parse("60"), Err(BadDuration::NoUnit("60".to_owned())));
    }

    #[test]
    fn a_duration_that_no_integer_holds_is_a_very_long_one() {
        assert_eq!(parse("99999999999999999999s"), Ok(Duration::from_millis(u64::MAX)));
        assert_eq!(parse("18446744073709551615d1h"), Ok(Duration::from_millis(u64::MAX)));
    }
}
