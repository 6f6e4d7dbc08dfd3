//! A TCP proxy that misbehaves on demand, in front of a real server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

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
    delay_ms: AtomicU64,
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
            delay_ms: AtomicU64::new(0),
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

    /// Holds back each reply for so long.
    pub fn delay(&self, delay: Duration) {
        let ms = delay.as_millis().try_into().expect("a short delay");
        self.shared.delay_ms.store(ms, Ordering::Relaxed);
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

/// Which way a pump moves bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Replies,
}

fn join(client: TcpStream, shared: &Arc<Shared>) {
    // A target that refuses ends the client's connection, as without a proxy.
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target)) else {
        return;
    };
    let dead = Arc::new(AtomicBool::new(false));
    let (Ok(client_in), Ok(server_in)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    for (from, to, way) in [(client_in, server, Way::Requests), (server_in, client, Way::Replies)] {
        let (shared, dead) = (Arc::clone(shared), Arc::clone(&dead));
        thread::spawn(move || {
            pump(&from, &to, way, &shared, &dead);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Moves bytes one way until either side ends or the fault says so.
fn pump(mut from: &TcpStream, mut to: &TcpStream, way: Way, shared: &Shared, dead: &AtomicBool) {
    let mut chunk = [0; 16 * 1024];
    // Short, so that a change of fault is seen by idle connections too.
    if from.set_read_timeout(Some(Duration::from_millis(5))).is_err() {
        return;
    }
    loop {
        let read = from.read(&mut chunk);
        let fault = shared.fault.load(Ordering::Relaxed);
        if fault == Fault::Cut as u8 {
            return;
        }
        let length = match read {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return,
        };
        if fault == Fault::Swallow as u8 {
            dead.store(true, Ordering::Relaxed);
        }
        let lost = fault == Fault::SwallowReplies as u8 && way == Way::Replies;
        if lost || dead.load(Ordering::Relaxed) {
            continue;
        }
        if way == Way::Replies {
            thread::sleep(Duration::from_millis(shared.delay_ms.load(Ordering::Relaxed)));
        }
        if to.write_all(&chunk[..length]).is_err() {
            return;
        }
    }
}
