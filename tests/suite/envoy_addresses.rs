//! `envoy/edge-address.yaml`: the client's address, which no client can choose.

use crate::support::keys;
use crate::support::pair::{Edit, LIMIT, Pair};

const HEADER: Edit<'_> = (
    "source: { call_metadata: x-clientip }",
    "source: { header: { name: x-envoy-external-address, trusted_because: 'the edge overwrites it' } }",
);
const BEHIND_A_BALANCER: Edit<'_> = ("xff_num_trusted_hops: 0", "xff_num_trusted_hops: 1");
const NO_EDGE: Edit<'_> = ("use_remote_address: true", "use_remote_address: false");

/// By the metadata of the call, and by the header.
fn both_ways(envoy: &[Edit<'_>]) -> [Pair; 2] {
    [&[][..], &[HEADER]].map(|tallygate| Pair::edited("edge-address.yaml", envoy, tallygate))
}

fn key(address: [u8; 4]) -> String {
    let value = [&[4, 32], &address[..]].concat();
    keys::key("everything", 60_000, &[("address", "", &value)])
}

#[test]
fn at_the_edge_a_client_cannot_choose_its_address() {
    for pair in both_ways(&[]) {
        let forged = |n: usize| {
            let address = format!("192.0.2.{n}");
            let names = ["x-forwarded-for", "x-envoy-external-address", "x-real-ip", "x-clientip", "forwarded"];
            pair.envoy.get("/", &names.map(|name| (name, &*address))).status()
        };
        let statuses: Vec<_> = (0..=LIMIT).map(forged).collect();
        assert_eq!(statuses, [200, 200, 200, 429]);
        assert_eq!(pair.redis.keys(), [key([127, 0, 0, 1])]);
    }
}

// A balancer appends the address that it saw; what stands before that is the client's own.
#[test]
fn behind_one_trusted_hop_clients_are_counted_apart_by_what_the_balancer_wrote() {
    for pair in both_ways(&[BEHIND_A_BALANCER]) {
        for client in ["198.51.100.7", "198.51.100.8"] {
            let through = |n: usize| {
                let forwarded = format!("192.0.2.{n}, {client}");
                let headers = [("x-forwarded-for", &*forwarded), ("x-envoy-external-address", "192.0.2.9")];
                pair.envoy.get("/", &headers).status()
            };
            let statuses: Vec<_> = (0..=LIMIT).map(through).collect();
            assert_eq!(statuses, [200, 200, 200, 429], "{client}");
        }
        let mut wanted = [key([198, 51, 100, 7]), key([198, 51, 100, 8])];
        wanted.sort();
        assert_eq!(pair.redis.keys(), wanted);
    }
}

// Why the file says so: the danger, shown.
#[test]
fn without_use_remote_address_a_client_chooses_its_address() {
    for pair in both_ways(&[NO_EDGE]) {
        let forged = |n: u8| {
            let address = format!("192.0.2.{n}");
            let headers = ["x-forwarded-for", "x-envoy-external-address"].map(|name| (name, &*address));
            pair.envoy.get("/", &headers).status()
        };
        assert_eq!([1, 2, 3, 4, 5].map(forged), [200; 5]);
        assert_eq!(pair.redis.keys().len(), 5);
    }
}
