//! A trusted header as a real Envoy passes it on, in either of its forms: one certain value is somebody, everything else is
//! nobody (RL-14).

use crate::support::envoy::Envoy;
use crate::support::http::{Response, message, send};
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::stack::{IDENTITY, USER};
use crate::support::upstream::Upstream;

/// As texts, which Envoy cleans and joins; and as bytes, an entry a line.
const FORMS: [(&str, &str); 2] = [
    ("stat_prefix: tallygate\n", "stat_prefix: tallygate\n"),
    ("stat_prefix: tallygate\n", "stat_prefix: tallygate\n                      encode_raw_headers: true\n"),
];

/// A GET with these header lines, as they are.
fn get(envoy: &Envoy, lines: &[&[u8]]) -> Response {
    let head = message("GET", "/orders", &[]);
    let head = head.strip_suffix(b"\r\n").expect("an empty line ends it");
    let lines = lines.iter().map(|line| [USER.as_bytes(), b": ", line, b"\r\n"].concat());
    send(envoy.address(), &[head.to_vec(), lines.collect::<Vec<_>>().concat(), b"\r\n".to_vec()].concat()).unwrap()
}

#[test]
fn a_header_that_is_not_one_certain_value_is_nobody_in_either_form() {
    for form in FORMS {
        let redis = RedisServer::start();
        let application = Upstream::start();
        let sidecar = Setup::redis(redis.port()).identity(IDENTITY).policy("orders", 2, "60s", "closed").start();
        let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &[form]);
        let long = [b'a'; 20 * 1024];
        let nobody: [&[&[u8]]; 9] =
            [&[b"a", b"b"], &[b"a", b"a"], &[b"a,b"], &[b"a, a"], &[b"us\xe9r"], &[b"us\xe8r"], &[b""], &[&long], &[]];
        for lines in nobody {
            let shown: Vec<_> = lines.iter().map(|line| line[..line.len().min(9)].escape_ascii().to_string()).collect();
            assert_eq!(get(&envoy, lines).status(), 401, "{shown:?} with {form:?}");
        }
        assert_eq!(redis.keys(), [""; 0], "{form:?}");
        assert!(application.requests().is_empty());
        // As text it may stand for any byte that Envoy cleaned away; as bytes it is what it is.
        let cleaned = get(&envoy, &[b"us!r"]).status();
        assert_eq!(cleaned, if form == FORMS[0] { 401 } else { 200 }, "{form:?}");
        redis.run(&["FLUSHALL"]);
        let statuses = [(); 3].map(|()| get(&envoy, &[b"ada"]).status());
        assert_eq!(statuses, [200, 200, 429], "{form:?}");
        assert_eq!(redis.keys(), [keys::demo("ada")], "one key, whatever the form: {form:?}");
    }
}
