//! Replies to the script that are no answer, and the class of failure that each must become (RL-27).

use super::stub::admit;

/// Words that only the server says. Wherever they turn up, its text was passed on.
pub const CANARY: &str = "CANARY-WORDS";

pub struct OddReply {
    pub bytes: Vec<u8>,
    pub class: &'static str,
    /// What a test prints about it.
    pub name: String,
    /// Whether the connection stays in use.
    pub keeps_connection: bool,
}

/// Error codes, the class of each, and whether the connection stays: where the node can count no more, a new one may lead
/// to another.
const CODES: [(&str, &str, bool); 24] = [
    ("LOADING", "loading", true),
    ("BUSY", "busy", true),
    ("UNKILLABLE", "busy", true),
    ("MASTERDOWN", "readonly", false),
    ("READONLY", "readonly", false),
    ("NOREPLICAS", "readonly", true),
    ("MISCONF", "oom", true),
    ("OOM", "oom", true),
    ("NOAUTH", "permission", false),
    ("WRONGPASS", "permission", true),
    ("NOPERM", "permission", true),
    ("DENIED", "permission", true),
    ("TRYAGAIN", "cluster", true),
    ("CLUSTERDOWN", "cluster", true),
    ("CROSSSLOT", "cluster", true),
    ("MOVED 1 127.0.0.1:1", "cluster", true),
    ("ASK 1 127.0.0.1:1", "cluster", true),
    ("EXECABORT", "other", true),
    ("WRONGTYPE", "other", true),
    // What a script says is told from what the server says by its shape: wording makes no class.
    ("ERR OOM command not allowed when used memory > 'maxmemory'.", "other", true),
    ("ERR Error running script", "other", true),
    ("ERR READONLY You can't write against a read only replica.", "other", true),
    ("WEIRD x", "other", true),
    ("busy", "other", true),
];

/// Error replies: every code that a server is known to send, some that none is, and odd forms of them.
pub fn errors() -> Vec<OddReply> {
    let error = |name: String, text: &str, class, keeps_connection| {
        let bytes = format!("-{text}\r\n").into_bytes();
        OddReply { bytes, class, name, keeps_connection }
    };
    let mut all: Vec<_> = CODES
        .iter()
        .map(|(code, class, keeps)| error((*code).to_owned(), &format!("{code} {CANARY}"), class, *keeps))
        .collect();
    all.push(error("no space".into(), CANARY, "other", true));
    all.push(error("empty".into(), "", "other", true));
    all.push(error("a space alone".into(), " ", "other", true));
    all.push(error("1 MiB".into(), &format!("ERR {}", CANARY.repeat((1 << 20) / CANARY.len())), "other", true));
    // RESP3's other form of an error.
    let blob = format!("OOM {CANARY}");
    let bytes = format!("!{}\r\n{blob}\r\n", blob.len()).into_bytes();
    all.push(OddReply { bytes, class: "oom", name: "blob error".into(), keeps_connection: true });
    all
}

/// Replies of a shape that the script does not make.
pub fn shapes() -> Vec<OddReply> {
    let malformed = |name: &str, text: &str, keeps_connection| {
        let bytes = text.as_bytes().to_vec();
        OddReply { bytes, class: "malformed", name: name.into(), keeps_connection }
    };
    let proper = String::from_utf8(admit()).expect("digits");
    let mut all = vec![
        malformed("nil", "_\r\n", true),
        malformed("RESP2 nil", "$-1\r\n", true),
        malformed("nil list", "*-1\r\n", true),
        malformed("empty list", "*0\r\n", true),
        malformed("one short", &proper.replacen("*5", "*4", 1).replace(":60000\r\n", ""), true),
        malformed("one long", &(proper.replacen("*5", "*6", 1) + ":0\r\n"), true),
        malformed("strings for integers", &proper.replace(":60000", "$5\r\n60000"), true),
        malformed("all strings", &proper.replace(':', "+"), true),
        malformed("doubles for integers", &proper.replace(':', ","), true),
        malformed("more admitted than asked", &proper.replacen(":1\r\n", ":2\r\n", 1), true),
        malformed("a time that overflows", "*5\r\n:1\r\n:9223372036854775807\r\n:4\r\n:0\r\n:60000\r\n", true),
        malformed("a map", "%1\r\n+admitted\r\n:1\r\n", true),
        malformed("a set", &proper.replacen('*', "~", 1), true),
        malformed("a list in a list", &format!("*1\r\n{proper}"), true),
        malformed("a list under an attribute", &format!("|1\r\n+ttl\r\n:1\r\n{proper}"), true),
        malformed("OK", "+OK\r\n", true),
        malformed("text", &format!("+{CANARY}\r\n"), true),
        malformed("bytes", &format!("${}\r\n{CANARY}\r\n", CANARY.len()), true),
        malformed("verbatim text", &format!("={}\r\ntxt:{CANARY}\r\n", CANARY.len() + 4), true),
        malformed("one integer", ":1\r\n", true),
        malformed("true", "#t\r\n", true),
        malformed("a big number", "(1\r\n", true),
        malformed("an unknown reason", "*3\r\n:-99\r\n:1\r\n:1\r\n", true),
        // No RESP at all: nobody knows where the next reply would begin.
        malformed("an integer of 20 digits", ":99999999999999999999\r\n", false),
        malformed("HTTP", &format!("HTTP/1.1 400 {CANARY}\r\n\r\n"), false),
    ];
    let nested = format!("*5\r\n:1\r\n:1\r\n-OOM {CANARY}\r\n:0\r\n:60000\r\n").into_bytes();
    all.push(OddReply { bytes: nested, class: "oom", name: "an error in a list".into(), keeps_connection: true });
    all
}
