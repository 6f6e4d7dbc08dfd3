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
    let of = |per: &[Part]| match policy(&[("a", 1, per)]).plan(&sources, &request(&route)) {
        Ok(_) => Ok(()),
        Err(Unplanned::Unidentified(missing)) => Err(missing),
        Err(_) => panic!("neither planned nor unidentified"),
    };
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

#[test]
fn the_cost_is_the_policys_or_the_routes_and_never_a_guess() {
    let mut policy = policy(&[("a", 1, &[])]);
    policy.cost = Cost::Route { key: "cost".into(), default: 2, max: 1000 };
    let sources = sources();
    let cost = |value: Option<&str>| {
        let route = fixtures::route(&value.map(|value| ("cost", value)).into_iter().collect::<Vec<_>>());
        policy.plan(&sources, &request(&route)).map(|plan| plan.charges[0].cost).ok()
    };
    assert_eq!(cost(None), Some(2));
    assert_eq!(cost(Some("7")), Some(7));
    for bad in ["0", "", "-1", "+1", "1.0", "1001", "many", "99999999999999999999"] {
        assert_eq!(cost(Some(bad)), None, "{bad}");
    }
}

#[test]
fn an_override_changes_numbers_blocks_or_skips() {
    let mut policy = policy(&[("a", 10, &[Part::Tenant]), ("b", 20, &[Part::Tenant])]);
    let own = crate::decision::fixed_window::FixedWindow::try_new(99, 1000).unwrap();
    let entry = |value: &str, limit, set| crate::decision::overrides::Override {
        tenant: crate::decision::overrides::TenantMatch { value: value.into(), source: None, issuer: None },
        limit,
        set,
    };
    policy.overrides = Overrides::new([
        entry("big", 1, Set::Numbers(crate::decision::algorithm::Algorithm::FixedWindow(own))),
        entry("bad", 0, Set::Block),
        entry("free", 0, Set::Unlimited),
        entry("freest", 0, Set::Unlimited),
        entry("freest", 1, Set::Unlimited),
    ]);
    let sources = sources();
    let plan = |tenant: &str| {
        let route = fixtures::route(&[("tenant", tenant)]);
        match policy.plan(&sources, &request(&route)) {
            Ok(plan) => plan.charges.iter().map(|c| format!("{}={}", c.limit.name, c.algorithm.quota())).collect(),
            Err(Unplanned::Blocked(limit)) => vec![format!("blocked by {}", limit.name)],
            Err(Unplanned::Uncounted) => vec!["uncounted".to_owned()],
            Err(_) => vec![],
        }
    };
    assert_eq!(plan("acme"), ["a=10", "b=20"]);
    assert_eq!(plan("big"), ["a=10", "b=99"]);
    assert_eq!(plan("bad"), ["blocked by a"]);
    assert_eq!(plan("free"), ["b=20"]);
    assert_eq!(plan("freest"), ["uncounted"]);
}

#[test]
fn a_limit_that_is_off_counts_nothing_and_needs_nobody() {
    let mut policy = policy(&[("a", 1, &[Part::Subject]), ("b", 1, &[Part::Tenant])]);
    policy.limits[0].mode = Mode::Off;
    policy.limits[1].mode = Mode::Shadow;
    let sources = sources();
    let route = fixtures::route(&[("tenant", "acme")]);
    let plan = policy.plan(&sources, &request(&route)).unwrap_or_else(|_| panic!("identified"));
    assert_eq!(plan.charges.iter().map(|c| (c.limit.name.as_str(), c.role)).collect::<Vec<_>>(), [("b", Role::Shadow)]);
    assert!(!plan.is_enforced());
}

// RL-17: strangers are counted by address, in a name space that meets nobody's else.
#[test]
fn strangers_can_be_counted_by_address_and_without_one_are_refused() {
    let mut policy = policy(&[("a", 1, &[Part::Subject])]);
    let mut other = fixtures::policy(&[("stranger", 1, &[Part::Address])]);
    policy.on_unidentified = OnUnidentified::ByAddress(Box::new(other.limits.remove(0)));
    let sources = sources();
    let key = |address: Option<&str>| {
        let route = fixtures::route(&[]);
        let mut request = request(&route);
        request.source = address.map(|address| address.parse().unwrap());
        match policy.plan(&sources, &request) {
            Ok(plan) => Ok((plan.charges[0].key.text.clone(), plan.stranger.is_some())),
            Err(Unplanned::Unidentified(missing)) => Err(missing.part),
            Err(_) => panic!("neither planned nor unidentified"),
        }
    };
    let one = key(Some("203.0.113.7")).unwrap();
    assert!(one.1);
    assert_ne!(one, key(Some("203.0.113.8")).unwrap());
    assert_eq!(key(None), Err(Part::Subject));
}
