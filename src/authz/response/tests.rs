use super::*;
use crate::decision::algorithm::Admission;
use crate::decision::identity::{IdentitySources, Missing, Part};
use crate::decision::policy::{LocalLimit, Policy, Unidentified, fixtures};
use crate::decision::verdict::Quota;

fn policy(on_failure: OnFailure) -> Policy {
    let mut policy = fixtures::policy(&[("per-subject", 3, &[])]);
    policy.on_failure = on_failure;
    policy
}

fn quota(policy: &Policy, remaining: u64, retry_after_ms: Option<u64>) -> Quota<'_> {
    Quota {
        limit: &policy.limits[0],
        algorithm: policy.limits[0].algorithm,
        admission: Admission { charged: 0, remaining, retry_after_ms, reset_after_ms: 900 },
    }
}

/// `code kind status header=value ...` of the reply.
fn shape(reply: &CheckResponse) -> String {
    let code = reply.status.as_ref().map(|status| status.code);
    let (kind, status, headers) = match reply.http_response.as_ref() {
        Some(HttpResponse::OkResponse(ok)) => ("ok", None, &ok.response_headers_to_add),
        Some(HttpResponse::DeniedResponse(denied)) => ("denied", denied.status, &denied.headers),
        Some(HttpResponse::ErrorResponse(error)) => ("error", error.status, &error.headers),
        None => return "empty".to_owned(),
    };
    let mut words = vec![format!("{}", code.unwrap_or(-1)), kind.to_owned()];
    words.extend(status.map(|status| status.code.to_string()));
    words.extend(headers.iter().filter_map(|option| {
        let header = option.header.as_ref()?;
        Some(format!("{}={}", header.key, header.value))
    }));
    words.join(" ")
}

fn answered(verdict: Verdict<'_>, policy: &Policy, caller: Caller, answers: &Answers) -> String {
    shape(&answer(&Decision::of(policy, verdict), caller, answers))
}

#[test]
fn every_verdict_has_its_answer() {
    let closed = policy(OnFailure::Closed);
    let default = Answers::default();
    let http = |verdict| answered(verdict, &closed, Caller::Http, &default);
    assert_eq!(http(Verdict::Allowed(None)), "0 ok");
    assert_eq!(http(Verdict::Allowed(Some(quota(&closed, 2, Some(0))))), "0 ok");
    assert_eq!(
        http(Verdict::Denied(quota(&closed, 0, Some(900)))),
        "8 denied 429 retry-after=1 x-envoy-ratelimited=true \
         ratelimit-policy=\"per-subject\";q=3;w=1 ratelimit=\"per-subject\";r=0;t=1"
    );
    assert_eq!(
        http(Verdict::Denied(quota(&closed, 1, None))),
        "8 denied 429 x-envoy-ratelimited=true ratelimit-policy=\"per-subject\";q=3;w=1 ratelimit=\"per-subject\";r=1"
    );
    let missing = Unidentified { part: Part::Subject, missing: Missing::Absent };
    assert_eq!(http(Verdict::Unidentified(missing)), "16 denied 401");
    assert_eq!(http(Verdict::Unmatched(Answer::Allow)), "0 ok");
    assert_eq!(http(Verdict::Unmatched(Answer::Deny)), "7 denied 403");
    assert_eq!(http(Verdict::AmbiguousPath), "7 denied 403");
    let failed = "14 denied 503 retry-after=1 x-envoy-ratelimited=true";
    assert_eq!(http(Verdict::Failed(FailureClass::Timeout)), failed);
    assert_eq!(shape(&failed_without_decision(FailureClass::Panic)), failed);
}

#[test]
fn only_the_policy_that_hands_the_choice_to_envoy_answers_an_error() {
    let by_envoy = policy(OnFailure::Envoy);
    let verdict = || Verdict::Failed(FailureClass::Timeout);
    let answers = Answers { stop_retries_on_failure: false, ..Default::default() };
    assert_eq!(answered(verdict(), &by_envoy, Caller::Http, &answers), "14 error 503 retry-after=1");
    let open = policy(OnFailure::Open(LocalLimit::Unlimited));
    assert_eq!(answered(verdict(), &open, Caller::Http, &answers), "14 denied 503 retry-after=1");
}

#[test]
fn a_grpc_caller_is_told_resource_exhausted_and_nobody_else_is() {
    let closed = policy(OnFailure::Closed);
    let denied = |caller| answered(Verdict::Denied(quota(&closed, 0, Some(900))), &closed, caller, &Answers::default());
    assert!(denied(Caller::Grpc).contains("grpc-status=8"));
    assert!(!denied(Caller::Http).contains("grpc-status"));
}

#[test]
fn ratelimit_fields_follow_the_setting() {
    let closed = policy(OnFailure::Closed);
    let with = |ratelimit_fields| {
        let answers = Answers { ratelimit_fields, ..Default::default() };
        let allowed = answered(Verdict::Allowed(Some(quota(&closed, 2, Some(0)))), &closed, Caller::Http, &answers);
        let denied = answered(Verdict::Denied(quota(&closed, 0, Some(900))), &closed, Caller::Http, &answers);
        (allowed.contains("ratelimit="), denied.contains("ratelimit="))
    };
    assert_eq!(with(RateLimitFields::Never), (false, false));
    assert_eq!(with(RateLimitFields::OnDenied), (false, true));
    assert_eq!(with(RateLimitFields::Always), (true, true));
}

// RL-12: an all-default reply reads as allowed, so none is ever made.
#[test]
fn no_reply_reads_as_allowed_unless_it_is() {
    let closed = policy(OnFailure::Closed);
    let sources = IdentitySources::default();
    let plan = fixtures::plan(&closed, &sources);
    for class in FailureClass::ALL {
        let reply = answer(&Decision::settle(&plan, Err(class)), Caller::Grpc, &Answers::default());
        assert!(reply.status.as_ref().is_some_and(|status| status.code != 0), "{}", class.as_str());
        assert!(matches!(reply.http_response, Some(HttpResponse::DeniedResponse(_))));
    }
}

#[test]
fn metadata_names_the_policy_and_why() {
    let open = policy(OnFailure::Open(LocalLimit::Unlimited));
    let verdict = Verdict::Denied(quota(&open, 0, Some(1500)));
    let decision = Decision { fallback: Some(FailureClass::Timeout), ..Decision::of(&open, verdict) };
    let reply = answer(&decision, Caller::Http, &Answers::default());
    let fields = reply.dynamic_metadata.unwrap().fields;
    let mut words: Vec<_> =
        fields.iter().map(|(name, value)| format!("{name} {:?}", value.kind.as_ref().unwrap())).collect();
    words.sort();
    assert_eq!(
        words,
        [
            "failure_mode StringValue(\"open\")",
            "limit StringValue(\"per-subject\")",
            "mode StringValue(\"enforce\")",
            "policy StringValue(\"p\")",
            "reason StringValue(\"timeout\")",
            "remaining NumberValue(0.0)",
            "retry_after NumberValue(2.0)",
            "verdict StringValue(\"denied\")",
        ]
    );
}

#[test]
fn a_shadow_policy_answers_everything_as_allowed_and_tells_what_would_have_been() {
    let mut shadow = policy(OnFailure::Closed);
    shadow.mode = Mode::Shadow;
    for verdict in [Verdict::Denied(quota(&shadow, 0, Some(900))), Verdict::Failed(FailureClass::Timeout)] {
        let reply = answer(&Decision::of(&shadow, verdict), Caller::Http, &Answers::default());
        assert_eq!(shape(&reply), "0 ok");
        let fields = reply.dynamic_metadata.unwrap().fields;
        assert_ne!(format!("{:?}", fields["verdict"]), format!("{:?}", fields["mode"]));
        assert!(format!("{:?}", fields["mode"]).contains("shadow"));
    }
}
