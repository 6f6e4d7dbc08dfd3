//! End to end through a real Envoy with the shipped configuration: what a client got, byte for byte.

use std::time::Duration;

use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::stack::{Stack, USER};
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;

#[test]
fn three_requests_pass_and_the_fourth_gets_429_with_exactly_these_headers() {
    let stack = Stack::start(3, "closed");
    for _ in 0..3 {
        let response = stack.orders("ada");
        assert_eq!(response.status_line, "HTTP/1.1 200 OK");
        assert_eq!(response.text(), "served");
        assert_eq!(response.all("x-envoy-ratelimited"), [""; 0]);
    }
    let served = stack.upstream.requests();
    assert_eq!(served.len(), 3);
    assert_eq!((served[0].line.as_str(), served[0].all(USER)), ("GET /orders HTTP/1.1", vec!["ada"]), "as it was sent");

    let refused = stack.orders("ada");
    assert_eq!(refused.status_line, "HTTP/1.1 429 Too Many Requests");
    let seconds = refused.one("retry-after");
    assert!(["59", "60"].contains(&seconds), "{seconds}");
    assert_eq!(refused.one("x-envoy-ratelimited"), "true");
    assert_eq!(refused.one("ratelimit-policy"), r#""only";q=3;w=60"#);
    assert_eq!(refused.one("ratelimit"), format!(r#""only";r=0;t={seconds}"#), "the same number as Retry-After");
    assert_eq!(refused.one("content-type"), "text/plain");
    assert_eq!(refused.text(), format!("rate limit exceeded: retry after {seconds} s\n"));
    assert_eq!(refused.one("content-length"), refused.body.len().to_string());
    let ours =
        ["content-length", "content-type", "ratelimit", "ratelimit-policy", "retry-after", "x-envoy-ratelimited"];
    let envoys = ["connection", "date", "server"];
    let mut expected = [&ours[..], &envoys[..]].concat();
    expected.sort_unstable();
    assert_eq!(refused.names(), expected);
    assert_eq!(stack.upstream.requests().len(), 3, "the application was not asked");

    assert_eq!(stack.orders("grace").status(), 200, "another subject has its own count");
    assert_eq!(stack.redis.get(&keys::demo("ada")).as_deref(), Some("3"));
    assert_eq!(stack.envoy.counter("http.edge.ext_authz.tallygate.denied"), 1);
    assert_eq!(stack.envoy.counter("http.edge.ext_authz.tallygate.error"), 0);
}

#[test]
fn the_access_log_tells_what_was_decided_and_nobodys_name() {
    let stack = Stack::start(1, "closed");
    stack.orders("ada-canary");
    stack.orders("ada-canary");
    wait_for("two lines in the access log", Duration::from_secs(5), || stack.envoy.access_log().lines().count() == 2);
    let log = stack.envoy.access_log();
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].contains(r#""verdict":"allowed""#) && lines[0].contains(r#""code":200"#), "{log}");
    assert!(lines[1].contains(r#""verdict":"denied""#) && lines[1].contains(r#""code":429"#), "{log}");
    for field in [r#""policy":"orders""#, r#""limit":"only""#] {
        assert!(lines.iter().all(|line| line.contains(field)), "{field}: {log}");
    }
    assert!(!log.contains("canary"), "{log}");
}

// RL-12
#[test]
fn the_applications_own_headers_are_neither_changed_nor_doubled() {
    let application = Upstream::start_with("retry-after: 7\r\nratelimit: mine\r\n");
    let stack = Stack::start_with(3, "closed", application);
    let response = stack.orders("ada");
    assert_eq!(response.status(), 200);
    assert_eq!(response.one("retry-after"), "7");
    assert_eq!(response.one("ratelimit"), "mine");
}

// RL-12: without grpc-status 8 the caller would be told UNAVAILABLE, which meshes repeat.
#[test]
fn a_grpc_caller_is_told_resource_exhausted() {
    let stack = Stack::start(1, "closed");
    let grpc = [(USER, "ada"), ("content-type", "application/grpc"), ("te", "trailers")];
    assert_eq!(stack.envoy.get("/orders", &grpc).status(), 200);
    assert_eq!(stack.upstream.requests().len(), 1);
    let refused = stack.envoy.get("/orders", &grpc);
    assert_eq!(refused.status_line, "HTTP/1.1 200 OK", "a gRPC status travels in the headers");
    assert_eq!(refused.one("grpc-status"), "8");
    assert!(["59", "60"].contains(&refused.one("retry-after")));
    assert_eq!(stack.upstream.requests().len(), 1, "the application was not asked");

    // The same over HTTP/2, as a real gRPC client sees it. A call without x-user counts by nobody: refused too, as 16.
    let status = Client::connect(stack.envoy.address()).raw("/orders/Get", Vec::new()).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unauthenticated, "{status:?}");
}

#[test]
fn a_header_that_the_client_made_up_does_nothing_where_the_route_names_the_tenant() {
    let stack = Stack::start_per_tenant(3);
    let forged = |n: usize| {
        let name = format!("tenant-{n}");
        let headers =
            ["x-tenant", "tenant", "x-user", "x-envoy-auth-partial-body", "x-forwarded-for"].map(|h| (h, &*name));
        stack.envoy.get("/orders", &headers).status()
    };
    let statuses: Vec<_> = (0..6).map(forged).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    let key = keys::key("orders", 60_000, &[("route/tenant", "", b"demo")]);
    assert_eq!(stack.redis.keys(), [key], "one tenant, one counter");
}

#[test]
fn every_spelling_of_a_path_is_limited_as_one() {
    let stack = Stack::start(3, "closed");
    let spellings = ["/orders", "//orders", "/%6frders", "/./orders", "/x/../orders", "/orders?x=1", "/orders/"];
    let statuses: Vec<_> = spellings.iter().map(|path| stack.envoy.get(path, &[(USER, "ada")]).status()).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429], "{spellings:?}");
    for path in ["/orders%2f..", "/x%2f..%2forders", "/orders%5c"] {
        let status = stack.envoy.get(path, &[(USER, "ada")]).status();
        assert!([400, 403].contains(&status), "{path}: {status}");
    }
    assert_eq!(stack.upstream.requests().len(), 3);
}

#[test]
fn a_request_without_identity_gets_401() {
    let stack = Stack::start(3, "closed");
    let response = stack.envoy.get("/orders", &[]);
    assert_eq!(response.status_line, "HTTP/1.1 401 Unauthorized");
    assert_eq!(response.all("retry-after"), [""; 0]);
    // Envoy joins repeated lines; a list is not an identity.
    let twice = stack.envoy.get("/orders", &[(USER, "ada"), (USER, "grace")]);
    assert_eq!(twice.status(), 401);
    assert_eq!(stack.redis.keys(), [""; 0]);
    assert!(stack.upstream.requests().is_empty());
}
