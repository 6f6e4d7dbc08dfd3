use std::collections::HashMap;

use super::*;
use crate::decision::attributes::{Headers, NoMetadata};

fn holds(matcher: &Matcher, method: &str, host: &str, path: &str) -> Result<bool, Ambiguous> {
    let route = HashMap::from([("policy".to_owned(), "orders".to_owned())]);
    let request = Attributes {
        method,
        host,
        path,
        headers: Headers::default(),
        source: None,
        principal: "",
        route: &route,
        metadata: &NoMetadata,
    };
    matcher.holds(&Candidate::new(&request))
}

fn path_holds(pattern: PathPattern, path: &str) -> Result<bool, Ambiguous> {
    holds(&Matcher { path: Some(pattern), ..Default::default() }, "GET", "", path)
}

#[test]
fn a_prefix_ends_at_a_segments_edge_and_cannot_be_walked_round() {
    for (path, wanted) in [
        ("/orders", true),
        ("/orders/", true),
        ("/orders/7?x", true),
        ("//orders", true),
        ("/%6frders", true),
        ("/./orders", true),
        ("/x/../orders", true),
        ("/orders2", false),
        ("/Orders", false),
        ("/orders/../x", false),
        ("", false),
    ] {
        assert_eq!(path_holds(PathPattern::prefix("/orders").unwrap(), path), Ok(wanted), "{path}");
        assert_eq!(path_holds(PathPattern::prefix("/orders/").unwrap(), path), Ok(wanted), "{path}");
    }
    assert_eq!(path_holds(PathPattern::prefix("/orders").unwrap(), "/orders%2f7"), Err(Ambiguous));
    assert_eq!(path_holds(PathPattern::prefix("/").unwrap(), "/anything"), Ok(true));
}

#[test]
fn exact_and_template_patterns_take_whole_paths() {
    let template = || PathPattern::template("/users/{id}/orders").unwrap();
    assert_eq!(path_holds(template(), "/users/7/orders"), Ok(true));
    for other in ["/users//orders", "/users/7/orders/", "/users/7", "/users/7/8/orders", "/users/orders"] {
        assert_eq!(path_holds(template(), other), Ok(false), "{other}");
    }
    assert_eq!(path_holds(PathPattern::exact("/a").unwrap(), "/a"), Ok(true));
    assert_eq!(path_holds(PathPattern::exact("/a").unwrap(), "/a/"), Ok(false));
}

#[test]
fn hosts_are_compared_without_case_and_port() {
    let exact = Matcher { host: Some(HostPattern::parse("api.example").unwrap()), ..Default::default() };
    let below = Matcher { host: Some(HostPattern::parse("*.example").unwrap()), ..Default::default() };
    for (host, is_exact, is_below) in [
        ("api.example", true, true),
        ("API.example:8080", true, true),
        ("api.example.", true, true),
        ("example", false, false),
        ("evilexample", false, false),
        ("api.example.evil", false, false),
        ("api.example,b", false, false),
    ] {
        assert_eq!(holds(&exact, "GET", host, "/"), Ok(is_exact), "{host}");
        assert_eq!(holds(&below, "GET", host, "/"), Ok(is_below), "{host}");
    }
    let v6 = Matcher { host: Some(HostPattern::parse("[::1]").unwrap()), ..Default::default() };
    assert_eq!(holds(&v6, "GET", "[::1]:80", "/"), Ok(true));
    assert_eq!(holds(&v6, "GET", "[::1]", "/"), Ok(true));
}

#[test]
fn every_condition_must_hold_and_an_unclear_path_matters_only_where_it_is_asked() {
    let matcher = Matcher {
        path: Some(PathPattern::prefix("/orders").unwrap()),
        methods: vec!["GET".into()],
        ..Default::default()
    };
    assert_eq!(holds(&matcher, "GET", "", "/orders"), Ok(true));
    assert_eq!(holds(&matcher, "get", "", "/orders"), Ok(false));
    assert_eq!(holds(&matcher, "POST", "", "/a%2fb"), Ok(false));
    let by_route = |value: &str| Matcher { route: vec![("policy".into(), value.into())], ..Default::default() };
    assert_eq!(holds(&by_route("orders"), "GET", "", "/a%2fb"), Ok(true));
    assert_eq!(holds(&by_route("other"), "GET", "", "/"), Ok(false));
    assert_eq!(holds(&Matcher::default(), "GET", "", ""), Ok(true));
}

#[test]
fn a_pattern_that_no_request_can_meet_is_refused() {
    assert_eq!(PathPattern::prefix("orders"), Err(BadPattern::Relative));
    assert_eq!(PathPattern::exact("/a//b"), Err(BadPattern::NotNormal("/a/b".into())));
    assert_eq!(PathPattern::exact("/%6f"), Err(BadPattern::NotNormal("/o".into())));
    assert_eq!(PathPattern::exact("/a?b"), Err(BadPattern::Unmatchable));
    assert_eq!(PathPattern::exact("/a%2fb"), Err(BadPattern::Unmatchable));
    assert_eq!(PathPattern::template("/a/x{id}"), Err(BadPattern::Segment));
    assert_eq!(PathPattern::template("/a/{}"), Err(BadPattern::Segment));
    for bad in ["", "Example", "http://x", "x:80", "a/b", "*"] {
        assert_eq!(HostPattern::parse(bad), Err(BadPattern::Host), "{bad}");
    }
}

/// A matcher in short: `path|methods|host|route`, each part as it stands in a file.
fn matcher(text: &str) -> Matcher {
    let mut parts = text.split('|');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let path = next().map(|path| match path.strip_prefix('=') {
        Some(exact) => PathPattern::exact(exact).unwrap(),
        None if path.contains('{') => PathPattern::template(path).unwrap(),
        None => PathPattern::prefix(path).unwrap(),
    });
    let methods = next().map(|methods| methods.split(' ').map(str::to_owned).collect()).unwrap_or_default();
    let host = next().map(|host| HostPattern::parse(host).unwrap());
    let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    let route = next().map(|route| route.split(' ').map(pair).collect()).unwrap_or_default();
    Matcher { path, methods, host, route }
}

#[test]
fn a_matcher_that_takes_all_requests_of_another_covers_it() {
    for (earlier, later) in [
        ("", "/a|GET|h|k=v"),
        ("/", "/a"),
        ("/a", "/a"),
        ("/a", "/a/b"),
        ("/a", "=/a/"),
        ("/a", "/a/{x}/b"),
        ("/a/{x}", "/a/{y}"),
        ("/a/{x}", "=/a/b"),
        ("|GET POST", "|POST GET"),
        ("|GET POST", "/a|GET"),
        ("||*.example", "||a.example"),
        ("||*.example", "||*.a.example"),
        ("|||k=v", "|||l=w k=v"),
    ] {
        assert!(matcher(earlier).covers(&matcher(later)), "{earlier:?} covers {later:?}");
    }
    for (earlier, later) in [
        ("/a", ""),
        ("/a", "/"),
        ("/a/b", "/a"),
        ("/a", "/ab"),
        ("=/a", "/a"),
        ("=/a", "=/a/"),
        ("/a/b", "/a/{x}"),
        ("/a/{x}", "/a"),
        ("/a/{x}", "/a/{x}/b"),
        ("/a/{x}", "=/a/"),
        ("/{x}/b", "/a/{x}"),
        ("|GET", ""),
        ("|GET", "|GET POST"),
        ("||a.example", "||*.example"),
        ("||*.a.example", "||*.example"),
        ("||*.example", "||example"),
        ("|||k=v", "|||k=w"),
        ("/a|GET", "/a"),
    ] {
        assert!(!matcher(earlier).covers(&matcher(later)), "{earlier:?} does not cover {later:?}");
    }
}

// A host with the root's dot could never match.
#[test]
fn a_host_is_written_without_the_roots_dot() {
    assert_eq!(HostPattern::parse("api.example."), Err(BadPattern::Host));
    assert_eq!(HostPattern::parse("*."), Err(BadPattern::Host));
}

const PATHS: [&str; 12] = ["", "/", "=/", "/a", "/a/b", "=/a", "=/a/", "=/a/b", "/{x}", "/{x}/b", "/a/{x}", "/a/{x}/b"];
const METHODS: [&str; 3] = ["", "GET", "GET POST"];
const HOSTS: [&str; 5] = ["", "b", "a.b", "*.b", "*.a.b"];

proptest::proptest! {
    // What is refused at load as never reached must really be so.
    #[test]
    fn no_request_passes_by_a_matcher_that_covers_its_own(
        earlier in (0..12_usize, 0..3_usize, 0..5_usize),
        later in (0..12_usize, 0..3_usize, 0..5_usize),
        method in "GET|POST", host in "(a[.]){0,2}b", path in "(/[ab]){0,3}/?",
    ) {
        let at = |(path, method, host)| matcher(&format!("{}|{}|{}", PATHS[path], METHODS[method], HOSTS[host]));
        let (earlier, later) = (at(earlier), at(later));
        if earlier.covers(&later) && holds(&later, &method, &host, &path) == Ok(true) {
            proptest::prop_assert_eq!(holds(&earlier, &method, &host, &path), Ok(true));
        }
    }
}
