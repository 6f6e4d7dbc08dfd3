//! What is no gRPC message at all, on connections of its own: the sidecar answers or closes, and lives.

use super::driver::{self, Random};
use super::requests::{is_sound, start};
use super::{mutate, seeds};
use crate::support::grpc::CHECK;
use crate::support::http2;
use crate::support::redis::RedisServer;

#[derive(Debug)]
struct Sent {
    path: String,
    timeout: String,
    encoding: String,
    body: Vec<u8>,
    /// A change to the bytes of the whole connection.
    spoilt: Option<Vec<u8>>,
}

fn sent(random: &mut Random, requests: &[Vec<u8>]) -> Sent {
    let message = random.one_of(requests).clone();
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    let framed = [&[0][..], &length, &message].concat();
    let body = mutate::mutated(random, &[framed], &[&[1, 0, 0, 0, 0], &[0, 255, 255, 255, 255]]);
    let body: Vec<u8> = body.into_iter().take(8000).collect();
    let path = if random.below(8) == 0 { "/no.such/Method" } else { CHECK };
    let text = |random: &mut Random, seeds: &[&str]| {
        let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
        let bytes =
            if random.below(2) == 0 { random.one_of(&seeds).clone() } else { mutate::mutated(random, &seeds, &[]) };
        String::from_utf8_lossy(&bytes).chars().filter(char::is_ascii_graphic).take(100).collect()
    };
    let (timeout, encoding) = (text(random, &["249m", "1S", "99999999H", "0n"]), text(random, &["identity", "gzip"]));
    let mut sent = Sent { path: path.to_owned(), timeout, encoding, body, spoilt: None };
    if random.below(3) == 0 {
        let whole = http2::message(&sent.fields(), &sent.body);
        sent.spoilt = Some(mutate::mutated(random, &[whole], &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0, 0, 0]]));
    }
    sent
}

impl Sent {
    fn fields(&self) -> Vec<(&str, &str)> {
        vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":path", &self.path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-timeout", &self.timeout),
            ("grpc-encoding", &self.encoding),
        ]
    }
}

#[test]
fn every_frame_is_survived() {
    let redis = RedisServer::start();
    let sidecar = start(&redis);
    let requests = seeds::requests();
    driver::run(
        "every_frame_is_survived",
        |random| sent(random, &requests),
        |sent| {
            let reply = match &sent.spoilt {
                Some(bytes) => http2::exchange_and_leave(sidecar.grpc(), bytes),
                None => http2::exchange(sidecar.grpc(), &http2::message(&sent.fields(), &sent.body)),
            };
            assert!(reply.ended, "no answer, and no end of it: {:?}", reply.bytes);
        },
    );
    is_sound(&sidecar, &redis);
}
