//! Notices that a configured source of identity never yields: a filter in the wrong order, or metadata that is not
//! forwarded. People then believe that they limit by user, and do not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::attributes::Attributes;
use crate::decision::identity::{IdentitySources, Missing, Part, Source};
use crate::decision::policy::{Policy, Rules};

/// So many requests are watched; then the sources that never had anything are reported, once.
const REQUESTS: u64 = 1000;
/// A source that was asked less often, since one before it yielded or no policy counts by its part, may just have had no
/// occasion.
const ENOUGH: u64 = 100;

/// How often each source was asked, and had anything, since these rules came into use.
pub struct SourceWatch {
    requests: AtomicU64,
    sources: Vec<Watched>,
}

struct Watched {
    part: Part,
    kind: Box<str>,
    asked: AtomicU64,
    present: AtomicU64,
}

impl SourceWatch {
    pub fn of(rules: &Rules) -> Self {
        let IdentitySources { tenant, subject, .. } = &rules.identity;
        let watched = |part| {
            move |source: &Source| Watched {
                part,
                kind: source.kind().into(),
                asked: AtomicU64::new(0),
                present: AtomicU64::new(0),
            }
        };
        let sources = tenant.iter().map(watched(Part::Tenant)).chain(subject.iter().map(watched(Part::Subject)));
        Self { requests: AtomicU64::new(0), sources: sources.collect() }
    }

    /// Notes one request under a policy: which sources it asks, and which of them have anything.
    pub fn note(&self, policy: &Policy, sources: &IdentitySources, request: &Attributes<'_>) {
        let nth = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if nth > REQUESTS {
            return;
        }
        for part in [Part::Tenant, Part::Subject].into_iter().filter(|part| policy.counts_by(*part)) {
            for (kind, answer) in sources.trace(part, request) {
                if let Some(source) = self.sources.iter().find(|source| source.part == part && *source.kind == *kind) {
                    source.asked.fetch_add(1, Ordering::Relaxed);
                    // What is there and not believed is counted by its reason elsewhere: the source is not silent.
                    let is_present = answer != Err(Missing::Absent);
                    source.present.fetch_add(is_present.into(), Ordering::Relaxed);
                }
            }
        }
        if nth == REQUESTS {
            for Watched { part, kind, asked, .. } in self.silent() {
                tracing::warn!(
                    part = part.as_str(),
                    source = &**kind,
                    "in {} requests this source of identity has not yielded once: {}",
                    asked.load(Ordering::Relaxed),
                    remedy(kind)
                );
            }
        }
    }

    fn silent(&self) -> impl Iterator<Item = &Watched> {
        let is_silent = |source: &&Watched| {
            source.asked.load(Ordering::Relaxed) >= ENOUGH && source.present.load(Ordering::Relaxed) == 0
        };
        self.sources.iter().filter(is_silent)
    }
}

/// What usually keeps a source of this kind silent.
fn remedy(kind: &str) -> &'static str {
    match kind.split('/').next().unwrap_or_default() {
        "jwt" => {
            "place jwt_authn before ext_authz, give it payload_in_metadata, and list its namespace in ext_authz's \
             metadata_context_namespaces (Istio's CUSTOM policies run before JWT checks and forward no metadata)"
        }
        "mtls" => {
            "Envoy sends a principal only for connections with a client certificate and a validation context \
             (require_client_certificate, trusted_ca), and only this trust domain counts"
        }
        "route" => "write it into check_settings.context_extensions of the routes or the virtual host",
        "header" => {
            "see that the filter or proxy which sets it runs before ext_authz, and that allowed_headers lets it through"
        }
        _ => "a Unix socket or an internal listener has no peer address: choose another identity.address.source",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::policy::{Answer, fixtures};

    fn rules(per: &[Part]) -> Rules {
        let identity = IdentitySources {
            tenant: vec![Source::route("tenant")],
            subject: vec![Source::header("x-user", &[]), Source::route("user"), Source::address()],
            ..Default::default()
        };
        let policies = vec![fixtures::policy(&[("a", 1, per)])];
        Rules { policies, identity, unmatched: Answer::Allow, ambiguous_path: Answer::Deny }
    }

    /// The kinds that are reported when so many requests carry `route`, and the rest nothing.
    fn silent(per: &[Part], with: u64, route: &[(&str, &str)]) -> Vec<String> {
        let rules = rules(per);
        let watch = SourceWatch::of(&rules);
        let (some, none) = (fixtures::route(route), fixtures::route(&[]));
        for n in 0..REQUESTS {
            let route = if n < with { &some } else { &none };
            watch.note(&rules.policies[0], &rules.identity, &fixtures::request(route));
        }
        watch.silent().map(|source| source.kind.to_string()).collect()
    }

    const BOTH: [Part; 2] = [Part::Tenant, Part::Subject];

    #[test]
    fn a_source_that_never_has_anything_is_reported_and_one_that_once_had_is_not() {
        assert_eq!(silent(&BOTH, 1, &[("tenant", "acme")]), ["header/x-user", "route/user", "address"]);
        assert_eq!(silent(&BOTH, 1, &[("user", "ada")]), ["route/tenant", "header/x-user", "address"]);
    }

    // The tenant was found in every request that was refused for want of a subject.
    #[test]
    fn a_part_that_was_found_is_not_blamed_for_one_that_is_missing() {
        assert!(!silent(&BOTH, REQUESTS, &[("tenant", "acme")]).contains(&"route/tenant".to_owned()));
    }

    #[test]
    fn a_source_that_nobody_needed_is_not_reported() {
        let all = [("tenant", "acme"), ("user", "ada")];
        assert_eq!(silent(&BOTH, REQUESTS - ENOUGH + 1, &all), ["header/x-user"], "the address had too few occasions");
        assert_eq!(silent(&[Part::Tenant], REQUESTS, &all), [""; 0], "no policy counts by subject");
    }

    #[test]
    fn every_kind_of_source_has_a_remedy_of_its_own() {
        let kinds = ["jwt/sub", "mtls", "route/t", "header/x", "address"];
        let remedies: std::collections::HashSet<_> = kinds.iter().map(|kind| remedy(kind)).collect();
        assert_eq!(remedies.len(), kinds.len());
    }
}
