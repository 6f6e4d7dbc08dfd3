//! A `CheckResponse`, read as strictly as a careful Envoy would.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValueOption;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{CheckResponse, DeniedHttpResponse};
use envoy_types::pb::google::protobuf::value::Kind;

/// What an answer says when code and body agree. Anything else is `Odd`, so that no half-filled message passes for
/// one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Code 0 and an `ok_response`.
    Allowed,
    /// Code 8 and a 429.
    Limited,
    /// Code 14 and a 503.
    Failed,
    /// Code 16 and a 401.
    Unauthorized,
    /// Code 7 and a 403.
    Forbidden,
    Odd,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub message: CheckResponse,
    /// From the call to its answer, as the client saw it.
    pub took: Duration,
}

impl Answer {
    pub fn outcome(&self) -> Outcome {
        // An absent status reads as code 0 in Envoy.
        let code = self.message.status.as_ref().map(|status| status.code);
        match (code, &self.message.http_response) {
            (Some(0), Some(HttpResponse::OkResponse(_))) => Outcome::Allowed,
            (Some(code), Some(HttpResponse::DeniedResponse(denied))) => match (code, http_status(denied)) {
                (8, 429) => Outcome::Limited,
                (14, 503) => Outcome::Failed,
                (16, 401) => Outcome::Unauthorized,
                (7, 403) => Outcome::Forbidden,
                _ => Outcome::Odd,
            },
            _ => Outcome::Odd,
        }
    }

    /// The denial; panics if this is none.
    #[track_caller]
    pub fn denied(&self) -> &DeniedHttpResponse {
        match &self.message.http_response {
            Some(HttpResponse::DeniedResponse(denied)) => denied,
            other => panic!("wanted a denied_response, got {other:?}"),
        }
    }

    /// The header entries of a denial.
    #[track_caller]
    pub fn headers(&self) -> &[HeaderValueOption] {
        &self.denied().headers
    }

    /// Every value of one header of a denial.
    #[track_caller]
    pub fn all(&self, name: &str) -> Vec<&str> {
        let headers = self.headers().iter().filter_map(|option| option.header.as_ref());
        headers.filter(|header| header.key.eq_ignore_ascii_case(name)).map(|header| header.value.as_str()).collect()
    }

    /// The seconds of the one `Retry-After`.
    #[track_caller]
    pub fn retry_after(&self) -> u64 {
        let values = self.all("retry-after");
        let [seconds] = values[..] else { panic!("wanted one Retry-After, got {values:?}") };
        assert!(seconds.bytes().all(|byte| byte.is_ascii_digit()), "not plain digits: {seconds:?}");
        seconds.parse().expect("digits are a number")
    }

    /// A field of the dynamic metadata as text, or empty where there is none.
    pub fn metadata(&self, field: &str) -> String {
        let value = self.message.dynamic_metadata.as_ref().and_then(|fields| fields.fields.get(field));
        match value.and_then(|value| value.kind.as_ref()) {
            Some(Kind::StringValue(text)) => text.clone(),
            Some(Kind::NumberValue(number)) => number.to_string(),
            Some(Kind::BoolValue(truth)) => truth.to_string(),
            _ => String::new(),
        }
    }
}

fn http_status(denied: &DeniedHttpResponse) -> i32 {
    denied.status.as_ref().map_or(0, |status| status.code)
}

/// How many answers have this outcome.
pub fn count(answers: &[Answer], outcome: Outcome) -> usize {
    answers.iter().filter(|answer| answer.outcome() == outcome).count()
}
