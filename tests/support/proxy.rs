//! A TCP proxy that misbehaves on demand, in front of a real server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// What happens to bytes that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// New connections are accepted; no byte goes either way. A connection that lost a byte so stays dead after
    /// healing, as one does that a firewall forgot.
    Swallow,
    /// Requests arrive, replies do not.
    SwallowReplies,
    /// Requests are kept, and arrive when the fault is over, even if whoever sent them has left: so does a network that was
    /// merely slow, or a server that was stopped.
    HoldRequests,
    /// The first half of a reply arrives, and then the connection is closed.
    HalveReplies,
    /// Every connection, old or new, is closed.
    Cut,
}

pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    fault: AtomicU8,
    delay_us: AtomicU64,
    jitter_us: AtomicU64,
    accepted: AtomicUsize,
    closed: AtomicBool,
}

impl FaultProxy {
    /// A proxy in front of a loopback port.
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            target,
            fault: AtomicU8::new(Fault::Pass as u8),
            delay_us: AtomicU64::new(0),
            jitter_us: AtomicU64::new(0),
            accepted: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.closed.load(Ordering::Relaxed) {
                    return;
                }
                accepting.accepted.fetch_add(1, Ordering::Relaxed);
                join(client, &accepting);
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, fault: Fault) {
        self.shared.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Holds back each reply for so long, and none longer for those before it.
    pub fn delay(&self, delay: Duration) {
        self.shared.delay_us.store(micros(delay), Ordering::Relaxed);
    }

    /// Holds back each reply for up to so much longer, but never lets one pass another.
    pub fn jitter(&self, most: Duration) {
        self.shared.jitter_us.store(micros(most), Ordering::Relaxed);
    }

    /// Connections taken so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.set(Fault::Cut);
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn micros(delay: Duration) -> u64 {
    delay.as_micros().try_into().expect("a short delay")
}

/// Which way a pump moves bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Replies,
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault.load(Ordering::Relaxed) == fault as u8
    }

    /// When a reply that came now may leave. The jitter runs through its range in even steps, the same in every run.
    fn due(&self, nth: u64) -> Instant {
        let jitter = self.jitter_us.load(Ordering::Relaxed) * (nth * 7 % 11) / 10;
        Instant::now() + Duration::from_micros(self.delay_us.load(Ordering::Relaxed) + jitter)
    }
}

fn join(client: TcpStream, shared: &Arc<Shared>) {
    // A target that refuses ends the client's connection, as without a proxy.
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target)) else {
        return;
    };
    let dead = Arc::new(AtomicBool::new(false));
    let (Ok(client_in), Ok(server_in), Ok(client_out)) = (client.try_clone(), server.try_clone(), client.try_clone())
    else {
        return;
    };
    if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return;
    }
    let (line, leaving) = mpsc::channel();
    let writer = thread::spawn(move || write_when_due(&client_out, &leaving));
    let (requests, asked, requests_dead) = (Arc::clone(shared), server, Arc::clone(&dead));
    thread::spawn(move || {
        let mut held = Vec::new();
        pump(&client_in, Way::Requests, &requests, &requests_dead, |chunk| {
            held.extend_from_slice(chunk);
            requests.has(Fault::HoldRequests) || (&asked).write_all(&std::mem::take(&mut held)).is_ok()
        });
        if held.is_empty() || requests.has(Fault::Cut) {
            return close(&client_in, &asked);
        }
        while requests.has(Fault::HoldRequests) {
            thread::sleep(Duration::from_millis(1));
        }
        // The client has left. The server reads what it had sent, then its end, and then closes.
        let _ = (&asked).write_all(&held);
        let _ = asked.shutdown(Shutdown::Write);
    });
    let (replies, mut nth) = (Arc::clone(shared), 0);
    thread::spawn(move || {
        pump(&server_in, Way::Replies, &replies, &dead, |chunk| {
            nth += 1;
            let halved = replies.has(Fault::HalveReplies);
            let passed = if halved { &chunk[..chunk.len() / 2] } else { chunk };
            line.send((replies.due(nth), passed.to_vec())).is_ok() && !halved
        });
        // What was on its way when the server closed still arrives.
        drop(line);
        if !replies.has(Fault::Cut) {
            let _has_ended = writer.join();
        }
        close(&server_in, &client);
    });
}

fn close(one: &TcpStream, other: &TcpStream) {
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}

fn write_when_due(mut client: &TcpStream, leaving: &Receiver<(Instant, Vec<u8>)>) {
    for (due, chunk) in leaving {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if client.write_all(&chunk).is_err() {
            return;
        }
    }
}

/// Moves bytes one way until either side ends, the fault says so, or `pass` takes no more. An empty chunk is passed every
/// few milliseconds without traffic.
fn pump(mut from: &TcpStream, way: Way, shared: &Shared, dead: &AtomicBool, mut pass: impl FnMut(&[u8]) -> bool) {
    let mut chunk = [0; 16 * 1024];
    // Short, so that a change of fault is seen by idle connections too.
    if from.set_read_timeout(Some(Duration::from_millis(5))).is_err() {
        return;
    }
    loop {
        let read = from.read(&mut chunk);
        if shared.has(Fault::Cut) {
            return;
        }
        let length = match read {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(_) => return,
        };
        if length > 0 && shared.has(Fault::Swallow) {
            dead.store(true, Ordering::Relaxed);
        }
        let lost = shared.has(Fault::SwallowReplies) && way == Way::Replies;
        if lost || dead.load(Ordering::Relaxed) || (length == 0 && way == Way::Replies) {
            continue;
        }
        if !pass(&chunk[..length]) {
            return;
        }
    }
}
