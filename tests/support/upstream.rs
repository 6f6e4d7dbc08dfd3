//! The application behind Envoy: an HTTP/1.1 server that answers 200 and remembers what it was asked.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

pub struct Upstream {
    port: u16,
    requests: Arc<Mutex<Vec<Received>>>,
}

/// The head of a request.
#[derive(Debug, Clone)]
pub struct Received {
    /// `GET /orders HTTP/1.1`
    pub line: String,
    pub headers: Vec<(String, String)>,
}

impl Upstream {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Adds these lines (each with its `\r\n`) to the head of every answer.
    pub fn start_with(headers: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let port = listener.local_addr().expect("it is bound").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        // It ends with the test process: nothing of it outlives that.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(&stream, headers, &kept));
            }
        });
        Self { port, requests }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it has been asked so far.
    pub fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Received {
    /// Every value of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_str()).collect()
    }
}

/// Answers one connection until its client leaves. A body is read and forgotten.
fn serve(stream: &TcpStream, headers: &str, kept: &Mutex<Vec<Received>>) {
    let mut reader = BufReader::new(stream);
    while let Some(received) = head(&mut reader) {
        let length = received.all("content-length").first().and_then(|length| length.parse().ok()).unwrap_or(0);
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(received);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n{headers}\r\nserved");
        let body = io::copy(&mut reader.by_ref().take(length), &mut io::sink());
        if body.is_err() || (&mut &*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn head(reader: &mut impl BufRead) -> Option<Received> {
    let mut lines = reader.lines().map_while(Result::ok);
    let line = lines.next()?;
    let fields = lines.take_while(|line| !line.is_empty());
    let headers = fields.filter_map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())));
    Some(Received { line, headers: headers.collect() })
}
