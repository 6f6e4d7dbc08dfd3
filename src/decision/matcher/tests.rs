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
