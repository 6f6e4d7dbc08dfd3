//! An HTTP/1.1 client that sends exactly the bytes it is given and keeps exactly the bytes it got.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Response {
    /// `HTTP/1.1 429 Too Many Requests`
    pub status_line: String,
    /// In the order of arrival; names as sent.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.status_line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line has a code")
    }

    /// Every value of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_str()).collect()
    }

    /// The value of a header that must be there exactly once.
    #[track_caller]
    pub fn one(&self, name: &str) -> &str {
        match self.all(name)[..] {
            [value] => value,
            ref other => panic!("wanted one {name}, got {other:?} in {self:#?}"),
        }
    }

    /// The names of all headers, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort();
        names
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A request as bytes: `path` as written, these header lines, no body.
pub fn message(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut message = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        message.extend([name, ": ", value, "\r\n"]);
    }
    message += "\r\n";
    message.into_bytes()
}

/// A GET of `path` as written, with these header lines.
#[track_caller]
pub fn request(address: impl ToSocketAddrs, path: &str, headers: &[(&str, &str)]) -> Response {
    request_as("GET", address, path, headers)
}

/// The same with another method, without a body.
#[track_caller]
pub fn request_as(method: &str, address: impl ToSocketAddrs, path: &str, headers: &[(&str, &str)]) -> Response {
    match send(address, &message(method, path, headers)) {
        Ok(response) => response,
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

#[track_caller]
pub fn get(address: impl ToSocketAddrs, path: &str) -> Response {
    request(address, path, &[])
}

/// A GET that may fail.
pub fn try_get(address: impl ToSocketAddrs, path: &str) -> io::Result<Response> {
    send(address, &message("GET", path, &[]))
}

/// Sends these bytes and reads the answer.
pub fn send(address: impl ToSocketAddrs, message: &[u8]) -> io::Result<Response> {
    exchange(&mut connect(address)?, message)
}

/// The same over a connection of the caller's.
pub fn exchange(stream: &mut (impl Read + Write), message: &[u8]) -> io::Result<Response> {
    stream.write_all(message)?;
    answer(stream)
}

/// A request whose answer nobody has read yet.
pub struct Sent(TcpStream);

impl Sent {
    pub fn start(address: impl ToSocketAddrs, message: &[u8]) -> io::Result<Self> {
        let mut stream = connect(address)?;
        stream.write_all(message)?;
        Ok(Self(stream))
    }

    #[track_caller]
    pub fn join(mut self) -> Response {
        answer(&mut self.0).expect("an answer")
    }
}

fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Reads an answer to its end, which may come before that of the connection: Envoy holds one for a second where it answered
/// before it had read the whole request.
fn answer(stream: &mut impl Read) -> io::Result<Response> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    while !is_whole(&bytes) {
        match stream.read(&mut chunk)? {
            0 => break,
            length => bytes.extend(&chunk[..length]),
        }
    }
    parse(&bytes).ok_or_else(|| io::Error::other(format!("not a response: {}", String::from_utf8_lossy(&bytes))))
}

/// Whether the answer says how long it is, and is here.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = find(bytes, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    match length {
        Some(length) => bytes.len() - end - 4 >= length,
        None => head.contains("\r\ntransfer-encoding: chunked") && bytes.ends_with(b"\r\n0\r\n\r\n"),
    }
}

fn parse(bytes: &[u8]) -> Option<Response> {
    let end = find(bytes, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next()?.to_owned();
    let headers = lines
        .map(|line| line.split_once(':').map(|(n, v)| (n.to_owned(), v.strip_prefix(' ').unwrap_or(v).to_owned())));
    let mut response = Response { status_line, headers: headers.collect::<Option<_>>()?, body: Vec::new() };
    let rest = &bytes[end + 4..];
    response.body = if response.all("transfer-encoding") == ["chunked"] {
        unchunk(rest)?
    } else {
        let length = response.all("content-length").first().and_then(|length| length.parse().ok());
        rest.get(..length.unwrap_or(rest.len()))?.to_vec()
    };
    Some(response)
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = find(rest, b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + length)?);
        rest = rest.get(line + 2 + length + 2..)?;
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
