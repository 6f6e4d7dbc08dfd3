//! What must be found nowhere: names and secrets that a test puts in, in the forms in which they could come out.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::setup::SECRET;
use super::wait::wait_for;

pub const TENANT: &str = "TENANT-CANARY";
pub const SUBJECT: &str = "SUBJECT-CANARY";
pub const BEARER: &str = "BEARER-CANARY";
pub const CLAIM: &str = "CLAIM-CANARY";
pub const HEADER: &str = "HEADER-CANARY";
pub const PASSWORD: &str = "PW-CANARY";
pub const ENV_SECRET: &str = "an ENV-CANARY secret of at least 32 bytes";
pub const ADDRESS: &str = "203.0.113.77";
pub const ADDRESS_V6: &str = "2001:db8:77:77::77";

/// What all of the names above have in common, the secret of all tests, and the addresses as text and as bytes.
const NEEDLES: [&[u8]; 6] =
    [b"CANARY", SECRET.as_bytes(), ADDRESS.as_bytes(), ADDRESS_V6.as_bytes(), &[203, 0, 113, 77], b"2001:db8:77:77"];

/// Panics if one of them is in `found`, as it is or encoded: percent, hex, base64, or bytes as Rust prints them.
#[track_caller]
pub fn none_in(place: &str, found: impl AsRef<[u8]>) {
    let found = found.as_ref();
    let folded = found.to_ascii_lowercase();
    for needle in NEEDLES {
        for (form, text) in forms(needle) {
            // Base64 alone has letters of two cases; elsewhere they do not matter.
            let (haystack, text) = if form == "base64" { (found, text) } else { (&*folded, text.to_ascii_lowercase()) };
            if let Some(at) = haystack.windows(text.len()).position(|window| window == text) {
                let around = &found[at.saturating_sub(300)..found.len().min(at + 300)];
                let (needle, around) = (String::from_utf8_lossy(needle), String::from_utf8_lossy(around));
                panic!("{needle} ({form}) is in {place}:\n..{around}..");
            }
        }
    }
}

fn forms(needle: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let each = |format: fn(u8) -> String| needle.iter().map(|byte| format(*byte)).collect::<Vec<_>>();
    let mut forms = vec![
        ("hex", each(|byte| format!("{byte:02x}")).concat().into_bytes()),
        ("percent", each(|byte| format!("%{byte:02x}")).concat().into_bytes()),
        ("decimal bytes", each(|byte| byte.to_string()).join(", ").into_bytes()),
    ];
    // The four bytes of an address are too few to be told from chance where bytes stand for themselves.
    if needle.len() > 4 {
        forms.push(("as it is", needle.to_vec()));
        // Where it stands in what was encoded shifts the digits: its own are those that depend on nothing beside it.
        for before in 0..3 {
            let digits = base64(&[&b"\0\0"[..before], needle].concat());
            let (from, to) = ((before * 8).div_ceil(6), (before + needle.len()) * 8 / 6);
            forms.push(("base64", digits[from..to].to_vec()));
        }
    }
    forms
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = bytes.iter().fold(String::new(), |mut bits, byte| {
        write!(bits, "{byte:08b}").expect("a string takes any text");
        bits
    });
    let digit = |six: &[u8]| {
        let six = std::str::from_utf8(six).expect("bits");
        DIGITS[usize::from_str_radix(&format!("{six:0<6}"), 2).expect("bits")]
    };
    bits.as_bytes().chunks(6).map(digit).collect()
}

/// Everything that a Redis runs, as MONITOR tells it.
pub struct Monitor(Arc<Mutex<Vec<u8>>>);

impl Monitor {
    #[track_caller]
    pub fn start(port: u16, password: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a Redis");
        // Inline commands, so that this client's own AUTH is no part of what is found.
        stream.write_all(format!("AUTH {password}\r\nMONITOR\r\n").as_bytes()).expect("it listens");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&seen);
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut chunk) {
                writer.lock().unwrap_or_else(PoisonError::into_inner).extend(&chunk[..length]);
            }
        });
        let monitor = Self(seen);
        wait_for("MONITOR to begin", Duration::from_secs(5), || monitor.seen() == b"+OK\r\n+OK\r\n");
        monitor
    }

    pub fn seen(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
