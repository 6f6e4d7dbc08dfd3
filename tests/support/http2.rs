//! HTTP/2 as bytes (RFC 9113, RFC 7541), for requests that no client library would send.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A server that says nothing for so long will say nothing any more.
const SILENCE: Duration = Duration::from_millis(500);

/// What came back.
pub struct Reply {
    pub bytes: Vec<u8>,
    /// Whether the server ended the stream or the connection.
    pub ended: bool,
}

/// A connection's first bytes, and one request with these header fields as they are, and this body.
pub fn message(fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0); // a literal that is not indexed, with a name of its own
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text"));
            block.extend(text.as_bytes());
        }
    }
    let frames = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &block),
        frame(DATA, END_STREAM, 1, body),
    ];
    frames.concat()
}

/// Sends `bytes` on a connection of its own, and reads until the server ends the stream or the connection, or is silent.
#[track_caller]
pub fn exchange(address: &str, bytes: &[u8]) -> Reply {
    read(send(address, bytes))
}

/// The same, and tells the server at once that nothing more will come.
#[track_caller]
pub fn exchange_and_leave(address: &str, bytes: &[u8]) -> Reply {
    let stream = send(address, bytes);
    let _has_left = stream.shutdown(Shutdown::Write);
    read(stream)
}

#[track_caller]
fn send(address: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a server");
    stream.set_read_timeout(Some(SILENCE)).expect("a time");
    // A server may close while it is still being told things.
    let _written = stream.write_all(bytes);
    stream
}

fn read(mut stream: TcpStream) -> Reply {
    let mut reply = Reply { bytes: Vec::new(), ended: false };
    let mut chunk = [0; 4096];
    while !reply.ended {
        match stream.read(&mut chunk) {
            Ok(length @ 1..) => reply.bytes.extend(&chunk[..length]),
            Ok(_) => reply.ended = true,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => reply.ended = true,
            Err(_) => break,
        }
        reply.ended |= has_ended(&reply.bytes);
    }
    reply
}

/// Whether the last word on stream 1 was said.
fn has_ended(mut bytes: &[u8]) -> bool {
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let is_last = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        if is_last || matches!(kind, RST_STREAM | GOAWAY) {
            return rest.len() >= length;
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    false
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}
