//! Ports for servers that cannot be told "any free port".

use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below the range that the kernel hands to clients. There a client that connects over and over to a stopped
/// server can be given that very port as its own and meet itself.
const RANGE: std::ops::Range<u32> = 12_000..32_000;

/// Where this process starts to look, so that two of them rarely ask for the same port.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.subsec_nanos());
    AtomicU32::new((now ^ std::process::id()) % (RANGE.end - RANGE.start))
});

/// A loopback port that nobody listened on a moment ago. Another process may still take it: whoever starts a server
/// on it tries again with another.
pub fn free() -> u16 {
    for _ in 0..1000 {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % (RANGE.end - RANGE.start);
        let port = u16::try_from(RANGE.start + offset).expect("the range ends below 65536");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port in {RANGE:?}");
}
