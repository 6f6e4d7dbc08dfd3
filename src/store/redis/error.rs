//! Redis' errors, told apart by code and kind and never by wording, which differs between versions and servers.

use redis::{ErrorKind, RedisError};

use super::dial::Address;
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

/// A failed call, and what it says about the connection.
#[derive(Debug)]
pub struct CallError {
    pub inner: StoreError,
    /// The server does not know the script: nothing ran.
    pub is_no_script: bool,
    /// The connection is broken, or leads to a node that is no master: a new one may lead elsewhere.
    pub breaks_connection: bool,
    /// Another node of the Cluster should be asked: nothing ran.
    pub redirect: Option<Redirect>,
}

/// Where a Cluster sends a call instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// The slot is served there now.
    Moved(Address),
    /// The slot is on its way there: this one call, after ASKING.
    Ask(Address),
}

impl Redirect {
    /// A redirect that names a port alone means the host that answered.
    fn seen_from(mut self, answering: &Address) -> Self {
        let (Self::Moved(named) | Self::Ask(named)) = &mut self;
        if let (Address::Tcp { host, .. }, Address::Tcp { host: theirs, .. }) = (named, answering)
            && host.is_empty()
        {
            host.clone_from(theirs);
        }
        self
    }
}

impl CallError {
    /// The same, as said by the node at `answering`.
    pub fn said_by(mut self, answering: &Address) -> Self {
        self.redirect = self.redirect.map(|redirect| redirect.seen_from(answering));
        self
    }
}

impl From<StoreError> for CallError {
    fn from(inner: StoreError) -> Self {
        Self { inner, is_no_script: false, breaks_connection: false, redirect: None }
    }
}

/// The class of an error, from its code where the server sent one.
pub fn classify(error: &RedisError) -> CallError {
    let class = match error.code() {
        Some(code) => class_of_code(code),
        None => match error.kind() {
            ErrorKind::Io if error.is_timeout() => FailureClass::Timeout,
            ErrorKind::Io => FailureClass::Disconnected,
            ErrorKind::AuthenticationFailed => FailureClass::Permission,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => FailureClass::Malformed,
            _ => FailureClass::Other,
        },
    };
    CallError {
        inner: StoreError::new(class, detail(error)),
        is_no_script: error.code() == Some("NOSCRIPT"),
        // After what is no reply at all, the next bytes mean nothing either.
        breaks_connection: class == FailureClass::Disconnected
            || error.kind() == ErrorKind::Parse
            || matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "NOAUTH")),
        redirect: redirect(error),
    }
}

fn redirect(error: &RedisError) -> Option<Redirect> {
    let (host, port) = error.redirect_node().and_then(|(node, _)| node.rsplit_once(':'))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = Address::Tcp { host: host.to_owned(), port: port.parse().ok()? };
    match error.code() {
        Some("MOVED") => Some(Redirect::Moved(address)),
        Some("ASK") => Some(Redirect::Ask(address)),
        _ => None,
    }
}

fn class_of_code(code: &str) -> FailureClass {
    match code {
        "BUSY" | "UNKILLABLE" => FailureClass::Busy,
        "LOADING" => FailureClass::Loading,
        "READONLY" | "MASTERDOWN" | "NOREPLICAS" => FailureClass::Readonly,
        "OOM" | "MISCONF" => FailureClass::Oom,
        "NOPERM" | "NOAUTH" | "WRONGPASS" | "DENIED" => FailureClass::Permission,
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "CROSSSLOT" => FailureClass::Cluster,
        _ => FailureClass::Other,
    }
}

/// The server's words for the log, bounded: some carry a mebibyte.
fn detail(error: &RedisError) -> String {
    const MOST: usize = 200;
    let words = error.to_string();
    words.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // RL-27: classes by code, whatever the wording.
    #[test]
    fn every_code_has_its_class_and_an_unknown_one_is_other() {
        for (code, class) in [
            ("LOADING", FailureClass::Loading),
            ("BUSY", FailureClass::Busy),
            ("UNKILLABLE", FailureClass::Busy),
            ("READONLY", FailureClass::Readonly),
            ("MASTERDOWN", FailureClass::Readonly),
            ("NOREPLICAS", FailureClass::Readonly),
            ("MISCONF", FailureClass::Oom),
            ("OOM", FailureClass::Oom),
            ("NOAUTH", FailureClass::Permission),
            ("WRONGPASS", FailureClass::Permission),
            ("NOPERM", FailureClass::Permission),
            ("MOVED", FailureClass::Cluster),
            ("CLUSTERDOWN", FailureClass::Cluster),
            ("TRYAGAIN", FailureClass::Cluster),
            ("EXECABORT", FailureClass::Other),
            ("WEIRD", FailureClass::Other),
            ("ERR", FailureClass::Other),
        ] {
            assert_eq!(class_of_code(code), class, "{code}");
        }
    }

    #[test]
    fn a_redirect_without_a_host_means_the_one_that_answered() {
        let answering = Address::parse("10.0.0.7:6379").unwrap();
        let redirect = |words: &str| {
            let reply = redis::parse_redis_value(format!("-{words}\r\n").as_bytes()).unwrap();
            classify(&reply.extract_error().unwrap_err()).said_by(&answering).redirect
        };
        let address = |text| Address::parse(text).unwrap();
        assert_eq!(redirect("MOVED 3999 :6380"), Some(Redirect::Moved(address("10.0.0.7:6380"))));
        assert_eq!(redirect("ASK 3999 10.0.0.8:6380"), Some(Redirect::Ask(address("10.0.0.8:6380"))));
        assert_eq!(redirect("MOVED 3999 ::1:6380"), Some(Redirect::Moved(address("[::1]:6380"))));
        assert_eq!(redirect("TRYAGAIN later"), None);
    }

    #[test]
    fn a_broken_pipe_breaks_the_connection_and_an_error_reply_does_not() {
        let io = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(classify(&io).breaks_connection);
        let reply = redis::make_extension_error("OOM".into(), Some("x".repeat(1 << 20)));
        let error = classify(&reply);
        assert!(!error.breaks_connection);
        assert!(error.inner.detail.len() <= 200);
    }
}
