//! Client addresses as bits, never as text: one client has one spelling (RL-13).

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::attributes::Attributes;
use super::identity::Missing;

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

/// Where the client's address is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressSource {
    pub origin: AddressOrigin,
    pub ipv6_prefix: Ipv6Prefix,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AddressOrigin {
    /// The TCP peer of the connection that Envoy accepted: the last hop.
    #[default]
    Peer,
    /// A header that the edge's Envoy overwrites with what it resolved, like x-envoy-external-address.
    Header(Box<str>),
    /// The check's own gRPC metadata (`initial_metadata` on Envoy's grpc_service): out of a client's reach.
    CallMetadata(Box<str>),
    /// `x-forwarded-for`, on connections of trusted proxies only: the entry so many hops from the right.
    Forwarded { trusted_peers: Vec<IpNet>, hops: usize },
}

impl AddressSource {
    /// The client's address as key bytes.
    pub fn find(&self, request: &Attributes<'_>) -> Result<Vec<u8>, Missing> {
        let address = match &self.origin {
            AddressOrigin::Peer => request.source.ok_or(Missing::Absent)?,
            AddressOrigin::Header(name) => {
                let text = request.headers.single(name).map_err(Missing::BadHeader)?.ok_or(Missing::Absent)?;
                parse(text).ok_or(Missing::BadAddress)?
            }
            AddressOrigin::CallMetadata(key) => {
                let text = request.metadata.call(key).ok_or(Missing::Absent)?;
                parse(text).ok_or(Missing::BadAddress)?
            }
            AddressOrigin::Forwarded { trusted_peers, hops } => {
                let peer = request.source.ok_or(Missing::Absent)?.to_canonical();
                if trusted_peers.iter().any(|network| network.contains(&peer)) {
                    forwarded(request, *hops)?
                } else {
                    peer // nobody that we believe says that it speaks for another
                }
            }
        };
        Ok(identity_bytes(address, self.ipv6_prefix))
    }
}

/// The entry of `x-forwarded-for` that lies `hops` from the right, across all lines of the header. What stands left of it is
/// the client's to write, and is not looked at.
fn forwarded(request: &Attributes<'_>, hops: usize) -> Result<IpAddr, Missing> {
    let list = request.headers.list("x-forwarded-for");
    let entry = list.iter().rev().flat_map(|line| line.rsplit(',')).nth(hops.saturating_sub(1));
    match entry {
        Some(text) => parse(text).ok_or(Missing::BadAddress),
        None if list.is_empty() => Err(Missing::Absent),
        None => Err(Missing::BadAddress),
    }
}

/// An address as proxies write it: perhaps with spaces, a port, or brackets around an IPv6 address.
fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, port) = rest.split_once(']')?;
            let port_or_nothing = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            return if port_or_nothing { inside.parse().ok().filter(IpAddr::is_ipv6) } else { None };
        }
        None => match text.split_once(':') {
            Some((v4, port)) if !port.contains(':') => is_port(port).then_some(v4)?,
            _ => text,
        },
    };
    bare.parse().ok()
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|b| b.is_ascii_digit())
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

    proptest::proptest! {
        #[test]
        fn two_addresses_are_one_client_only_if_their_masked_bits_are_equal(a: u128, flip in 0_u32..128, prefix in 1_u8..=128) {
            let bits = |bits: u128| identity_bytes(Ipv6Addr::from_bits(bits).into(), Ipv6Prefix(prefix));
            let mapped = |bits: u128| Ipv6Addr::from_bits(bits).to_ipv4_mapped().is_some();
            let b = a ^ (1 << (127 - flip));
            if !mapped(a) && !mapped(b) {
                proptest::prop_assert_eq!(bits(a) == bits(b), flip >= u32::from(prefix));
            }
        }

        // Every way of writing an address down is the same address.
        #[test]
        fn an_address_is_its_bits_however_it_is_written(bits: u128, v4: u32, port: u16) {
            let v6 = Ipv6Addr::from_bits(bits);
            let s = v6.segments();
            let long = s.map(|segment| format!("{segment:04X}")).join(":");
            for text in [v6.to_string(), long, format!("[{v6}]"), format!(" [{v6}]:{port}")] {
                proptest::prop_assert_eq!(parse(&text), Some(v6.into()), "{}", text);
            }
            let v4 = std::net::Ipv4Addr::from_bits(v4);
            let same = [v4.to_string(), format!("{v4}:{port}"), format!("::ffff:{v4}"), format!("[::FFFF:{v4}]:{port}")];
            for text in same {
                let found = parse(&text).map(|address| identity_bytes(address, Ipv6Prefix(1)));
                proptest::prop_assert_eq!(found, Some(identity_bytes(v4.into(), Ipv6Prefix(128))), "{}", text);
            }
        }
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

    // RL-13: one address, many spellings; what is no address is none.
    #[test]
    fn every_spelling_of_an_address_is_one_address() {
        let v4 = ["203.0.113.7", "203.0.113.7:4711", " 203.0.113.7 ", "::ffff:203.0.113.7", "::ffff:cb00:7107"];
        for text in v4.iter().chain(&["[::ffff:203.0.113.7]:443"]) {
            let address = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(identity_bytes(address, Ipv6Prefix::default()), bytes("203.0.113.7", 64), "{text}");
        }
        for text in ["2001:db8::1", "2001:DB8:0:0:0:0:0:1", "[2001:db8::1]:8443", "[2001:db8::1]"] {
            assert_eq!(parse(text), "2001:db8::1".parse().ok(), "{text}");
        }
        // Plain IPv6, though it ends like an IPv4 address.
        assert_eq!(parse("2001:db8::1.2.3.4"), "2001:db8::102:304".parse().ok());
        assert_eq!(parse("[2001:db8::1.2.3.4]:443"), "2001:db8::102:304".parse().ok());
        for text in [
            "::ffff:203.0.113.7:443",
            "203.0.113.7, 203.0.113.8",
            "203.0.113.7 203.0.113.8",
            "0xcb.0.113.7",
            "3405803783",
            "2001:db8:::1",
            "2001:db8::1/64",
            "[]",
            "[]:80",
            ":80",
            "fe80::1%eth0",
            "203.0.113.007",
            "1.2.3",
            "unknown",
            "",
            "203.0.113.7:",
            "203.0.113.7:99999",
            "203.0.113.7:+1",
            "[203.0.113.7]:80",
            "[2001:db8::1]x",
            "[2001:db8::1",
            "_hidden",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
