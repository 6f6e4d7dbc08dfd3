//! What Envoy's access log can say about a decision: `%DYNAMIC_METADATA(envoy.filters.http.ext_authz:policy)%`.
//!
//! Names of policies and limits, words of closed sets and numbers; no identity and no key.

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};

use crate::decision::policy::OnFailure;
use crate::decision::verdict::{Decision, Verdict};

pub fn of(decision: &Decision<'_>) -> Struct {
    let mut fields = Vec::with_capacity(8);
    let mut text = |name: &str, value: &str| {
        fields.push((name.to_owned(), Kind::StringValue(value.to_owned())));
    };
    if let Some(policy) = decision.policy {
        text("policy", policy.name.as_str());
        text("mode", policy.mode.as_str());
    }
    let (word, quota, reason) = match &decision.verdict {
        Verdict::Allowed(quota) => ("allowed", quota.as_ref(), None),
        Verdict::Denied(quota) => ("denied", Some(quota), None),
        Verdict::Failed(class) => ("failed", None, Some(class.as_str())),
        Verdict::Unidentified(unidentified) => ("unidentified", None, Some(unidentified.missing.as_str())),
        Verdict::Unmatched(_) => ("unmatched", None, None),
        Verdict::AmbiguousPath => ("ambiguous_path", None, None),
    };
    text("verdict", word);
    if let Some(reason) = reason.or(decision.fallback.map(|class| class.as_str())) {
        text("reason", reason);
    }
    if let (Some(policy), true) = (decision.policy, is_failure(decision)) {
        let mode = match policy.on_failure {
            OnFailure::Closed => "closed",
            OnFailure::Open(_) => "open",
            OnFailure::Envoy => "envoy",
        };
        text("failure_mode", mode);
    }
    if !decision.shadow_denied.is_empty() {
        let names: Vec<_> = decision.shadow_denied.iter().map(|limit| limit.name.as_str()).collect();
        text("shadow_denied", &names.join(","));
    }
    if let Verdict::Unidentified(missing) = &decision.verdict {
        text("missing", missing.part.as_str());
    } else if let Some(missing) = decision.stranger {
        text("missing", missing.part.as_str());
        text("reason", missing.missing.as_str());
    }
    if let Some(quota) = quota {
        text("limit", quota.limit.name.as_str());
        let mut number = |name: &str, value: u64| {
            fields.push((name.to_owned(), Kind::NumberValue(exact(value))));
        };
        number("remaining", quota.admission.remaining);
        if let (Verdict::Denied(_), Some(wait)) = (&decision.verdict, quota.retry_after()) {
            number("retry_after", wait.seconds());
        }
    }
    Struct { fields: fields.into_iter().map(|(name, kind)| (name, Value { kind: Some(kind) })).collect() }
}

fn is_failure(decision: &Decision<'_>) -> bool {
    decision.fallback.is_some() || matches!(decision.verdict, Verdict::Failed(_))
}

/// Counts and waits are below 2^53, where a double is exact.
#[expect(clippy::cast_precision_loss, reason = "bounded by HARD_MAX_LIMIT and HARD_MAX_WINDOW_MS")]
fn exact(number: u64) -> f64 {
    number as f64
}
