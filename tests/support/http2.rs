//! HTTP/2 as bytes (RFC 9113, RFC 7541), for requests that no client library would send.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Sends one request with these header fields as they are, and this body, on a connection of its own; whatever comes back.
#[track_caller]
pub fn request(address: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("a server");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0); // a literal that is not indexed, with a name of its own
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text"));
            block.extend(text.as_bytes());
        }
    }
    let message = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &block),
        frame(DATA, END_STREAM, 1, body),
    ];
    stream.write_all(&message.concat()).expect("it listens");
    let mut reply = Vec::new();
    // It ends with the server's close, or with its silence.
    let _ended = stream.read_to_end(&mut reply);
    reply
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}
