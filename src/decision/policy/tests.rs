use super::*;
use crate::decision::identity::Source;
use fixtures::{policy, request};

fn sources() -> IdentitySources {
    IdentitySources {
        tenant: vec![Source::route("tenant")],
        subject: vec![Source::route("subject")],
        ..Default::default()
    }
}

#[test]
fn a_plan_has_one_charge_for_each_limit_in_order() {
    let policy = policy(&[("a", 1, &[Part::Tenant]), ("b", 2, &[Part::Tenant, Part::Subject])]);
    let sources = sources();
    let route = fixtures::route(&[("tenant", "acme"), ("subject", "ada")]);
    let plan = policy.plan(&sources, &request(&route)).unwrap_or_else(|_| panic!("identified"));
    let names: Vec<_> = plan.charges.iter().map(|charge| charge.limit.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(plan.charges[0].key.text.contains("}:a:"));
}

#[test]
fn a_limit_does_not_see_the_parts_that_it_does_not_count_by() {
    let policy = policy(&[("a", 1, &[Part::Tenant])]);
    let sources = sources();
    let key = |subject: &str| {
        let route = fixtures::route(&[("tenant", "acme"), ("subject", subject)]);
        policy.plan(&sources, &request(&route)).map(|plan| plan.charges[0].key.text.clone()).ok().unwrap()
    };
    assert_eq!(key("ada"), key("eve"));
}

#[test]
fn only_a_part_that_a_limit_counts_by_can_be_missing() {
    let sources = sources();
    let route = fixtures::route(&[("tenant", "acme")]);
    let of = |per: &[Part]| policy(&[("a", 1, per)]).plan(&sources, &request(&route)).map(|_| ());
    assert_eq!(of(&[Part::Tenant]), Ok(()));
    assert_eq!(of(&[]), Ok(()));
    let missing = |part| Err(Unidentified { part, missing: Missing::Absent });
    assert_eq!(of(&[Part::Tenant, Part::Subject]), missing(Part::Subject));
    assert_eq!(of(&[Part::Address]), missing(Part::Address));
}

#[test]
fn the_first_policy_that_matches_decides() {
    let mut first = policy(&[("a", 1, &[])]);
    first.matcher.methods = vec!["POST".into()];
    let rules = Rules {
        policies: vec![first, policy(&[("b", 1, &[])])],
        identity: sources(),
        unmatched: Answer::Allow,
        ambiguous_path: Answer::Deny,
    };
    let route = fixtures::route(&[]);
    match rules.find(&request(&route)) {
        Found::Policy(found) => assert_eq!(found.limits[0].name.as_str(), "b"),
        _ => panic!("the second policy has no conditions"),
    }
}

#[test]
fn an_ambiguous_path_is_denied_unless_a_setting_says_otherwise() {
    let rules = |ambiguous_path| {
        let mut by_path = policy(&[("a", 1, &[])]);
        by_path.matcher.path = crate::decision::matcher::PathPattern::prefix("/a").ok();
        Rules { policies: vec![by_path], identity: sources(), unmatched: Answer::Allow, ambiguous_path }
    };
    let route = fixtures::route(&[]);
    let mut request = request(&route);
    request.path = "/a%2fb";
    assert!(matches!(rules(Answer::Deny).find(&request), Found::AmbiguousPath));
    assert!(matches!(rules(Answer::Allow).find(&request), Found::Unmatched));
}
