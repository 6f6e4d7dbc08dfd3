//! Response headers: each once, each overwriting, each safe to put on the wire.

use std::fmt::Write as _;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};

use crate::decision::verdict::{Quota, RetryAfter};

#[derive(Default)]
pub struct HeaderList(Vec<(&'static str, String)>);

impl HeaderList {
    /// Sets `name` (ours, lower-case) to `value`, in place of an earlier one. A value that could end the line is dropped: by
    /// default Envoy would write it out as it is.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        self.0.retain(|(set, _)| *set != name);
        if value.bytes().all(|b| b == b'\t' || (b' '..0x7f).contains(&b)) {
            self.0.push((name, value));
        }
    }

    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) for the limit that binds. The wait is the
    /// number that Retry-After has; `w` is there only where the window is whole seconds.
    pub fn ratelimit_fields(&mut self, quota: Option<&Quota<'_>>) {
        let Some(quota) = quota else { return };
        let (name, algorithm, admission) = (&quota.limit.name, &quota.algorithm, &quota.admission);
        let mut policy = format!("\"{name}\";q={}", algorithm.quota());
        if let Some(window) = algorithm.window_ms().filter(|ms| ms % 1000 == 0) {
            // Writing into a String cannot fail.
            let _infallible = write!(policy, ";w={}", window / 1000);
        }
        let mut state = format!("\"{name}\";r={}", admission.remaining);
        let wait = match admission.retry_after_ms {
            Some(0) => Some(admission.reset_after_ms).filter(|ms| *ms > 0).map(RetryAfter::from_ms),
            Some(ms) => Some(RetryAfter::from_ms(ms)),
            None => None,
        };
        if let Some(wait) = wait {
            let _infallible = write!(state, ";t={}", wait.seconds());
        }
        self.set("ratelimit-policy", policy);
        self.set("ratelimit", state);
    }

    pub fn into_options(self) -> Vec<HeaderValueOption> {
        let option = |(name, value): (&str, String)| HeaderValueOption {
            header: Some(HeaderValue { key: name.to_owned(), value, ..Default::default() }),
            append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
            ..Default::default()
        };
        self.0.into_iter().map(option).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_there_once_and_cannot_split_the_response() {
        let mut headers = HeaderList::default();
        headers.set("retry-after", "1");
        headers.set("retry-after", "2");
        headers.set("ratelimit", "a\r\nx-injected: 1");
        let options = headers.into_options();
        let values: Vec<_> = options.iter().filter_map(|option| option.header.as_ref()).collect();
        assert_eq!(values.iter().map(|h| (&*h.key, &*h.value)).collect::<Vec<_>>(), [("retry-after", "2")]);
        assert!(options.iter().all(|o| o.append_action == HeaderAppendAction::OverwriteIfExistsOrAdd as i32));
    }
}
