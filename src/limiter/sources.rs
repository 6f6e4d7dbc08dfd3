//! Notices that a configured source of identity never yields: a filter in the wrong order, or metadata that is not
//! forwarded. People then believe that they limit by user, and do not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::address::AddressOrigin;
use crate::decision::identity::{IdentitySources, Missing, Part, Source};
use crate::decision::policy::{Rules, Unidentified};

/// A source that was asked so often and never yielded is reported, once.
const REQUESTS: u64 = 1000;

/// How often each source was asked and yielded, since these rules came into use.
pub struct SourceWatch {
    sources: Vec<Watched>,
    address: AddressOrigin,
}

struct Watched {
    part: Part,
    kind: Box<str>,
    asked: AtomicU64,
    yielded: AtomicU64,
}

impl SourceWatch {
    pub fn of(rules: &Rules) -> Self {
        let IdentitySources { tenant, subject, address } = &rules.identity;
        let watched = |part, kind: &str| Watched {
            part,
            kind: kind.into(),
            asked: AtomicU64::new(0),
            yielded: AtomicU64::new(0),
        };
        let of =
            |part, sources: &[Source]| sources.iter().map(|source| watched(part, source.kind())).collect::<Vec<_>>();
        let mut sources = of(Part::Tenant, tenant);
        sources.extend(of(Part::Subject, subject));
        sources.push(watched(Part::Address, "address"));
        Self { sources, address: address.origin.clone() }
    }

    /// Notes by what kind of evidence the parts of one request were found. What stands before it was asked in vain; what
    /// stands behind it was not asked, so nothing is known of it.
    pub fn found<'k>(&self, evidence: impl Iterator<Item = (Part, &'k str)>) {
        for (part, kind) in evidence {
            for source in self.of_part(part) {
                let has_yielded = *source.kind == *kind;
                if has_yielded {
                    source.yielded.fetch_add(1, Ordering::Relaxed);
                }
                self.asked(source);
                if has_yielded {
                    break;
                }
            }
        }
    }

    /// Notes a request that lacks a part. A source that was refused had something to say, and metrics tell the reason.
    pub fn missing(&self, missing: Unidentified) {
        if missing.missing == Missing::Absent {
            self.of_part(missing.part).for_each(|source| self.asked(source));
        }
    }

    fn of_part(&self, part: Part) -> impl Iterator<Item = &Watched> {
        self.sources.iter().filter(move |source| source.part == part)
    }

    fn asked(&self, source: &Watched) {
        let asked = source.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if asked == REQUESTS && source.yielded.load(Ordering::Relaxed) == 0 {
            tracing::warn!(
                part = source.part.as_str(),
                source = &*source.kind,
                "asked in {REQUESTS} requests, this source of identity has not yielded once: {}",
                remedy(&source.kind, &self.address)
            );
        }
    }
}

/// What usually keeps a source of this kind silent.
fn remedy(kind: &str, address: &AddressOrigin) -> &'static str {
    match kind.split('/').next().unwrap_or_default() {
        "jwt" => {
            "place jwt_authn before ext_authz, give it payload_in_metadata, and list its namespace in ext_authz's \
             metadata_context_namespaces (Istio's CUSTOM policies run before JWT checks and forward no metadata); only \
             tokens of the listed issuers count"
        }
        "mtls" => {
            "Envoy sends a principal only for connections with a client certificate and a validation context \
             (require_client_certificate, trusted_ca), and only this trust domain counts"
        }
        "route" => "write it into check_settings.context_extensions of the routes or the virtual host",
        "header" => {
            "see that the filter or proxy which sets it runs before ext_authz, and that allowed_headers lets it through"
        }
        _ => match address {
            AddressOrigin::Peer => {
                "a Unix socket or an internal listener has no peer address: choose another identity.address.source"
            }
            AddressOrigin::Header(_) => {
                "see that the edge's Envoy sets this header (use_remote_address for x-envoy-external-address), and that \
                 allowed_headers lets it through"
            }
            AddressOrigin::CallMetadata(_) => {
                "write it into initial_metadata of ext_authz's grpc_service, like %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"
            }
            AddressOrigin::Forwarded { .. } => {
                "see that the trusted peers write x-forwarded-for, and that allowed_headers lets it through"
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::policy::Answer;

    fn watch() -> SourceWatch {
        let identity = IdentitySources {
            tenant: vec![Source::route("tenant")],
            subject: vec![Source::header("x-user", &[]), Source::route("subject"), Source::address()],
            ..Default::default()
        };
        SourceWatch::of(&Rules {
            policies: Vec::new(),
            identity,
            unmatched: Answer::Allow,
            ambiguous_path: Answer::Deny,
        })
    }

    /// Part, kind, and how often it was asked and yielded.
    fn counts(watch: &SourceWatch) -> Vec<(Part, &str, u64, u64)> {
        let counts = |source: &Watched| (source.asked.load(Ordering::Relaxed), source.yielded.load(Ordering::Relaxed));
        watch.sources.iter().map(|s| (s.part, &*s.kind, counts(s).0, counts(s).1)).collect()
    }

    #[test]
    fn a_source_is_blamed_only_for_requests_in_which_it_was_asked() {
        let watch = watch();
        watch.found([(Part::Tenant, "route/tenant"), (Part::Subject, "route/subject")].into_iter());
        // A policy that does not count by subject asks none of its sources.
        watch.found([(Part::Tenant, "route/tenant")].into_iter());
        watch.missing(Unidentified { part: Part::Subject, missing: Missing::Absent });
        // Refused: it was there.
        watch.missing(Unidentified { part: Part::Subject, missing: Missing::BadLength });
        assert_eq!(
            counts(&watch),
            [
                (Part::Tenant, "route/tenant", 2, 2),
                (Part::Subject, "header/x-user", 2, 0),
                (Part::Subject, "route/subject", 2, 1),
                (Part::Subject, "address", 1, 0),
                (Part::Address, "address", 0, 0),
            ]
        );
    }

    #[test]
    fn every_kind_of_source_has_a_remedy_of_its_own() {
        let forwarded = AddressOrigin::Forwarded { trusted_peers: Vec::new(), hops: 1 };
        let origins = [
            AddressOrigin::Peer,
            AddressOrigin::Header("h".into()),
            AddressOrigin::CallMetadata("m".into()),
            forwarded,
        ];
        let mut remedies: Vec<_> = origins.iter().map(|origin| remedy("address", origin)).collect();
        remedies.extend(["jwt/sub", "mtls", "route/t", "header/x"].map(|kind| remedy(kind, &AddressOrigin::Peer)));
        let different: std::collections::HashSet<_> = remedies.iter().collect();
        assert_eq!(different.len(), remedies.len());
    }
}
