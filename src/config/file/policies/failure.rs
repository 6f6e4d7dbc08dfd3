//! `on_failure` and `on_unidentified`: what becomes of a request that cannot be counted.

use super::algorithm::{algorithm, shared_by};
use super::{Around, Scope, can_pass, parts, spares_redis};
use crate::config::reader::Field;
use crate::decision::algorithm::Algorithm;
use crate::decision::identity::Part;
use crate::decision::key::KeyTemplate;
use crate::decision::limit::{Limit, Mode};
use crate::decision::name::Name;
use crate::decision::policy::{Cost, DenyStatus, LocalLimit, OnFailure, OnUnidentified};

/// What a policy that fails open could have.
const OPEN: &str = "{ fixed_window: { limit: 20, window: 10s } }";

/// Limits that stand beside a policy's own; their names are in their keys.
pub const OWN_NAMES: [&str; 2] = ["local", "stranger"];

pub fn on_unidentified(
    field: &Field<'_>,
    scope: Scope<'_>,
    cost: Option<&Cost>,
    around: &Around,
) -> Option<OnUnidentified> {
    if field.is_text() {
        let allow = field.choice(&[("deny", false), ("allow", true)])?;
        let deny = OnUnidentified::Deny(DenyStatus::Unauthorized);
        return Some(if allow { OnUnidentified::Allow } else { deny });
    }
    let section = field.section()?;
    let chosen = section.one_of(&["deny", "address"]);
    section.finish();
    match chosen? {
        ("deny", field) => deny(&field),
        (_, field) => {
            let section = field.section()?;
            let algorithm = algorithm(&section, around.rails);
            section.finish();
            let algorithm = algorithm?;
            can_pass(&field, &algorithm, cost);
            spares_redis(&field, &algorithm, cost, around.rails);
            let limit = own_limit("stranger", vec![Part::Address], algorithm, scope, around)?;
            Some(OnUnidentified::ByAddress(Box::new(limit)))
        }
    }
}

fn deny(field: &Field<'_>) -> Option<OnUnidentified> {
    let section = field.section()?;
    let status = section.required("status", "403");
    section.finish();
    let field = status?;
    match field.whole()? {
        401 => Some(OnUnidentified::Deny(DenyStatus::Unauthorized)),
        403 => Some(OnUnidentified::Deny(DenyStatus::Forbidden)),
        _ => {
            field.problem("the status is 401 or 403");
            None
        }
    }
}

/// A limit beside the policy's own, told apart in keys by its name.
fn own_limit(name: &str, per: Vec<Part>, algorithm: Algorithm, scope: Scope<'_>, around: &Around) -> Option<Limit> {
    let name = Name::parse(name).ok()?;
    let key = KeyTemplate::joint(&around.secret, scope, name.as_str(), &algorithm.shape());
    Some(Limit { name, algorithm, per, mode: Mode::Enforce, key })
}

/// `first` is the policy's first limit, whose `per` a local limit has unless it says otherwise.
pub fn on_failure(
    field: &Field<'_>,
    scope: Scope<'_>,
    first: Option<&Limit>,
    cost: Option<&Cost>,
    around: &Around,
) -> Option<OnFailure> {
    if field.is_text() {
        // `Some` holds whether Envoy decides.
        let chosen = field.choice(&[("closed", Some(false)), ("envoy", Some(true)), ("open", None)])?;
        let Some(to_envoy) = chosen else {
            field.problem(format!("open needs a limit of its own: write {{ open: {OPEN} }}, or {{ open: unlimited }}"));
            return None;
        };
        return Some(if to_envoy { OnFailure::Envoy } else { OnFailure::Closed });
    }
    let section = field.section()?;
    let open = section.required("open", OPEN);
    section.finish();
    let field = open?;
    if field.is_text() {
        field.choice(&[("unlimited", ())])?;
        return Some(OnFailure::Open(LocalLimit::Unlimited));
    }
    let section = field.section()?;
    let per = match section.optional("per") {
        Some(field) => parts(&field, around.identity.as_ref()),
        None => first.map(|limit| limit.per.clone()),
    };
    let algorithm = algorithm(&section, around.rails);
    let replicas = section.optional("replicas").map_or(Some(1), |field| match field.whole()? {
        replicas @ 1..=10_000 => Some(replicas),
        _ => {
            field.problem("the number of sidecars that share the limit is 1 to 10000");
            None
        }
    });
    section.finish();
    let (per, algorithm, replicas) = (per?, algorithm?, replicas?);
    // Each of the sidecars gets its share, rounded down, but never nothing.
    let algorithm = shared_by(&algorithm, replicas);
    can_pass(&field, &algorithm, cost);
    let limit = own_limit("local", per, algorithm, scope, around)?;
    Some(OnFailure::Open(LocalLimit::Limited(Box::new(limit))))
}
