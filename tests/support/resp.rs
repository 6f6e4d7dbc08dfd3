//! A Redis client of our own (RESP2, one command a connection), so that what a test sees of the store does not pass
//! through the code under test.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Error(String),
    Integer(i64),
    Bytes(Vec<u8>),
    Nil,
    Array(Vec<Value>),
}

impl Value {
    /// The integer; panics on anything else.
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("wanted an integer, got {other:?}"),
        }
    }

    /// The string as text; panics on anything else.
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("wanted a string, got {other:?}"),
        }
    }
}

/// Sends one command on a fresh connection, after AUTH where there is a password, and reads its reply.
pub fn call<A: AsRef<[u8]>>(port: u16, password: Option<&str>, arguments: &[A]) -> io::Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    if let Some(password) = password {
        stream.write_all(&message(&["AUTH", password])?)?;
        if let Value::Error(error) = read(&mut replies)? {
            return Err(io::Error::other(error));
        }
    }
    stream.write_all(&message(arguments)?)?;
    read(&mut replies)
}

fn message<A: AsRef<[u8]>>(arguments: &[A]) -> io::Result<Vec<u8>> {
    let mut message = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let bytes = argument.as_ref();
        write!(message, "${}\r\n", bytes.len())?;
        message.extend_from_slice(bytes);
        message.extend_from_slice(b"\r\n");
    }
    Ok(message)
}

fn read(stream: &mut impl BufRead) -> io::Result<Value> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => Value::Text(rest.to_owned()),
        "-" => Value::Error(rest.to_owned()),
        ":" => Value::Integer(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Value::Bytes(bytes)
            }
            Err(_) => Value::Nil,
        },
        "*" => match usize::try_from(number()?) {
            Ok(length) => Value::Array((0..length).map(|_| read(stream)).collect::<io::Result<_>>()?),
            Err(_) => Value::Nil,
        },
        _ => return Err(io::Error::other(format!("not a RESP2 reply: {line}"))),
    })
}
