//! Notices that a configured source of identity never yields: a filter in the wrong order, or metadata that is not
//! forwarded. People then believe that they limit by user, and do not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::identity::{IdentitySources, Part, Source};
use crate::decision::policy::Rules;

/// After so many requests a source that never yielded is reported, once.
const REQUESTS: u64 = 1000;

/// How often each source yielded, since these rules came into use.
pub struct SourceWatch {
    requests: AtomicU64,
    /// Part, kind, and how often it yielded.
    yields: Vec<(Part, Box<str>, AtomicU64)>,
}

impl SourceWatch {
    pub fn of(rules: &Rules) -> Self {
        let IdentitySources { tenant, subject, .. } = &rules.identity;
        let counter = |part| move |source: &Source| (part, source.kind().into(), AtomicU64::new(0));
        let yields = tenant.iter().map(counter(Part::Tenant)).chain(subject.iter().map(counter(Part::Subject)));
        Self { requests: AtomicU64::new(0), yields: yields.collect() }
    }

    /// Notes one request that was looked at, and by what evidence each part was found.
    pub fn note<'k>(&self, found: impl Iterator<Item = (Part, &'k str)>) {
        for (part, kind) in found {
            if let Some((_, _, count)) = self.yields.iter().find(|(p, k, _)| *p == part && **k == *kind) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.requests.fetch_add(1, Ordering::Relaxed) + 1 == REQUESTS {
            for (part, kind) in self.silent() {
                tracing::warn!(
                    part = part.as_str(),
                    source = kind,
                    "in {REQUESTS} requests this source of identity has not yielded once: {}",
                    remedy(kind)
                );
            }
        }
    }

    fn silent(&self) -> impl Iterator<Item = (Part, &str)> {
        let silent = self.yields.iter().filter(|(_, _, count)| count.load(Ordering::Relaxed) == 0);
        silent.map(|(part, kind, _)| (*part, &**kind))
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
    use crate::decision::policy::Answer;

    fn watch() -> SourceWatch {
        let identity = IdentitySources {
            tenant: vec![Source::route("tenant")],
            subject: vec![Source::header("x-user", &[]), Source::address()],
            ..Default::default()
        };
        SourceWatch::of(&Rules {
            policies: Vec::new(),
            identity,
            unmatched: Answer::Allow,
            ambiguous_path: Answer::Deny,
        })
    }

    #[test]
    fn a_source_that_never_yields_is_known_and_one_that_did_is_not_reported() {
        let watch = watch();
        for _ in 0..REQUESTS {
            watch.note([(Part::Tenant, "route/tenant"), (Part::Subject, "address")].into_iter());
        }
        assert_eq!(watch.silent().collect::<Vec<_>>(), [(Part::Subject, "header/x-user")]);
    }

    #[test]
    fn every_kind_of_source_has_a_remedy_of_its_own() {
        let kinds = ["jwt/sub", "mtls", "route/t", "header/x", "address"];
        let remedies: std::collections::HashSet<_> = kinds.iter().map(|kind| remedy(kind)).collect();
        assert_eq!(remedies.len(), kinds.len());
    }
}
