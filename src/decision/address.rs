//! Client addresses as bits, never as text: one client has one spelling (RL-13).

use std::net::{IpAddr, Ipv6Addr};

/// How many leading bits of an IPv6 address name one client, 1 to 128. A site usually owns a /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Prefix(u8);

/// Why a number is not an [`Ipv6Prefix`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an IPv6 prefix is a whole number from 1 to 128")]
pub struct BadPrefix;

impl Ipv6Prefix {
    pub fn try_new(bits: u64) -> Result<Self, BadPrefix> {
        match u8::try_from(bits) {
            Ok(bits @ 1..=128) => Ok(Self(bits)),
            _ => Err(BadPrefix),
        }
    }
}

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

/// The bytes that stand for `address` in a key: family (4 or 6), prefix length, then the masked address. An
/// IPv4-mapped address is its IPv4 address and is never masked as IPv6.
pub fn identity_bytes(address: IpAddr, prefix: Ipv6Prefix) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(v4) => [&[4, 32][..], &v4.octets()].concat(),
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (128 - u32::from(prefix.0));
            let masked = Ipv6Addr::from_bits(v6.to_bits() & mask);
            [&[6, prefix.0][..], &masked.octets()].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str, prefix: u64) -> Vec<u8> {
        identity_bytes(text.parse().unwrap(), Ipv6Prefix::try_new(prefix).unwrap())
    }

    #[test]
    fn equal_bits_are_one_client_and_different_bits_are_two() {
        assert_eq!(bytes("203.0.113.7", 64), [4, 32, 203, 0, 113, 7]);
        assert_eq!(bytes("::ffff:203.0.113.7", 64), bytes("203.0.113.7", 64));
        assert_eq!(bytes("::ffff:cb00:7107", 1), bytes("203.0.113.7", 64));
        assert_eq!(bytes("2001:DB8:0:0:0:0:0:1", 128), bytes("2001:db8::1", 128));
        assert_ne!(bytes("2001:db8::1.2.3.4", 128), bytes("1.2.3.4", 128));
        assert_ne!(bytes("203.0.113.7", 64), bytes("203.0.113.8", 64));
    }

    #[test]
    fn a_prefix_joins_a_site_and_nothing_beyond_it() {
        assert_eq!(bytes("2001:db8:1:2::a", 64), bytes("2001:db8:1:2:ffff::b", 64));
        assert_ne!(bytes("2001:db8:1:2::a", 64), bytes("2001:db8:1:3::a", 64));
        assert_ne!(bytes("2001:db8:1:2::", 64), bytes("2001:db8:1:2::", 128), "the length is part of the key");
    }

    #[test]
    fn a_prefix_is_from_1_to_128() {
        for bad in [0, 129, u64::MAX] {
            assert_eq!(Ipv6Prefix::try_new(bad), Err(BadPrefix));
        }
    }
}
