//! Names that appear in keys, metrics and logs: of policies, limits, and the key prefix.

use std::fmt;

/// A policy's or a limit's name: `[a-z0-9][a-z0-9-]{0,31}`. It cannot hold `:` or braces, so a key can neither
/// be forged nor moved to another Cluster slot by a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to 32 of a-z, 0-9 and '-', and starts with a letter or digit")]
pub struct BadName;

impl Name {
    pub const MAX_LEN: usize = 32;

    pub fn parse(text: &str) -> Result<Self, BadName> {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(alphanumeric);
        if first && text.len() <= Self::MAX_LEN && bytes.all(|b| alphanumeric(b) || b == b'-') {
            Ok(Self(text.into()))
        } else {
            Err(BadName)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first part of every key: `[a-z0-9]{1,16}`, `rl` unless the operator shares one Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(Box<str>);

/// Why a text is not a [`Prefix`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key prefix is 1 to 16 of a-z and 0-9")]
pub struct BadPrefix;

impl Prefix {
    pub fn parse(text: &str) -> Result<Self, BadPrefix> {
        let fits = (1..=16).contains(&text.len());
        if fits && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
            Ok(Self(text.into()))
        } else {
            Err(BadPrefix)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self("rl".into())
    }
}

/// A policy's version, 1 to 999,999. A new version starts every counter of the policy afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u32);

/// Why a number is not a [`Version`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a version is a whole number from 1 to 999999")]
pub struct BadVersion;

impl Version {
    pub fn try_new(number: u64) -> Result<Self, BadVersion> {
        match u32::try_from(number) {
            Ok(small @ 1..=999_999) => Ok(Self(small)),
            _ => Err(BadVersion),
        }
    }

    pub fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_carry_a_separator_or_a_slot_tag() {
        for good in ["a", "0", "orders", "per-subject", "a--b-", &"x".repeat(32)] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "A", "a:b", "a{b}", "a b", "é", "a\n", "a_b", &"x".repeat(33)] {
            assert_eq!(Name::parse(bad), Err(BadName), "{bad:?}");
        }
    }

    #[test]
    fn versions_and_prefixes_are_bounded() {
        assert_eq!(Version::try_new(1).unwrap().get(), 1);
        assert_eq!(Version::try_new(999_999).unwrap().get(), 999_999);
        for bad in [0, 1_000_000, u64::MAX] {
            assert_eq!(Version::try_new(bad), Err(BadVersion));
        }
        for bad in ["", "a:b", "RL", "a-b", &"x".repeat(17)] {
            assert_eq!(Prefix::parse(bad), Err(BadPrefix), "{bad:?}");
        }
    }
}
