//! A server that speaks just enough of Redis to be taken into use, and answers the script with whatever a test wants.
//!
//! It shows what no real server can be made to say, and it counts: how often the script was asked for is how often a
//! check was sent.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the script is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// As the script would: one request admitted, four units left, a window of a minute.
    Admit,
    /// The same, one byte at a time.
    AdmitByteByByte,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing at all. Everything but the script is answered as ever.
    Silence,
}

pub struct Stub {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    reply: Mutex<Reply>,
    info: Mutex<String>,
    asked: AtomicUsize,
    accepted: AtomicUsize,
}

impl Stub {
    /// Starts with [`Reply::Admit`]. It ends with the test process: nothing of it outlives that.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            reply: Mutex::new(Reply::Admit),
            info: Mutex::default(),
            asked: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serving.accepted.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&serving);
                // A connection that breaks is one that the client has left.
                thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the script is answered from now on.
    pub fn answer(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// What INFO is answered from now on.
    pub fn inform(&self, text: &str) {
        text.clone_into(&mut self.shared.info.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// How often the script was asked for, by its hash or by its text.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Connections taken so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

/// The script's own reply.
pub fn admit() -> Vec<u8> {
    format!("*5\r\n:1\r\n:{}\r\n:4\r\n:0\r\n:60000\r\n", now_us()).into_bytes()
}

fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_micros()
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut requests, mut replies) = (BufReader::new(stream), stream);
    while let Some(command) = read_command(&mut requests)? {
        let word = |n: usize| command.get(n).map_or("", String::as_str);
        let reply = match (word(0), word(2)) {
            ("HELLO", _) => HELLO.to_vec(),
            ("CLIENT" | "SELECT", _) => b"+OK\r\n".to_vec(),
            ("TIME", _) => {
                let (seconds, micros) = (now_us() / 1_000_000, now_us() % 1_000_000);
                format!("*2\r\n${}\r\n{seconds}\r\n${}\r\n{micros}\r\n", digits(seconds), digits(micros)).into_bytes()
            }
            ("INFO", _) => {
                let info = shared.info.lock().unwrap_or_else(PoisonError::into_inner).clone();
                format!("${}\r\n{info}\r\n", info.len()).into_bytes()
            }
            ("ROLE", _) => b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_vec(),
            ("SCRIPT", _) => [&b"$40\r\n"[..], &[b'0'; 40], b"\r\n"].concat(),
            // A script without keys is the self-test, which lists what is forbidden.
            ("EVAL", "0") => b"*0\r\n".to_vec(),
            ("EVAL" | "EVALSHA", _) => {
                shared.asked.fetch_add(1, Ordering::Relaxed);
                let reply = shared.reply.lock().unwrap_or_else(PoisonError::into_inner).clone();
                match reply {
                    Reply::Admit => admit(),
                    Reply::Bytes(bytes) => bytes,
                    Reply::Silence => Vec::new(),
                    Reply::AdmitByteByByte => {
                        for byte in admit() {
                            replies.write_all(&[byte])?;
                            thread::sleep(Duration::from_micros(200));
                        }
                        Vec::new()
                    }
                }
            }
            (other, _) => format!("-ERR unknown command '{other}'\r\n").into_bytes(),
        };
        replies.write_all(&reply)?;
    }
    Ok(())
}

const HELLO: &[u8] = b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:3\r\n\
    $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";

fn digits(number: u128) -> usize {
    number.to_string().len()
}

/// The words of one command, or `None` at the end.
fn read_command(requests: &mut impl BufRead) -> io::Result<Option<Vec<String>>> {
    let mut line = String::new();
    if requests.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let words = number(&line, '*')?;
    let mut command = Vec::with_capacity(words);
    for _ in 0..words {
        line.clear();
        requests.read_line(&mut line)?;
        let mut word = vec![0; number(&line, '$')? + 2];
        requests.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        command.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(Some(command))
}

fn number(line: &str, kind: char) -> io::Result<usize> {
    let digits = line.trim_end().strip_prefix(kind).ok_or(io::ErrorKind::InvalidData)?;
    digits.parse().map_err(io::Error::other)
}
