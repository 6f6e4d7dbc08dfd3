//! What the file means: from the tree to a [`Config`]. Called by `Config::load` alone.

mod certificates;
mod identity;
mod path;
mod policies;
mod server;
mod store;
mod tls;

use std::path::Path;
use std::time::Duration;

use self::certificates::Certificates;
use super::reader::{Field, Findings, Problem};
use super::words::unreadable;
use super::{Config, Source, StoreSettings, tree};
use crate::authz::AuthzSettings;
use crate::authz::response::{Answers, RateLimitFields};
use crate::decision::key::{Secret, content_hash};
use crate::decision::name::Prefix;
use crate::decision::policy::{Answer, Rules};

/// A configuration is read by people; one beyond this size is not one.
const MAX_FILE_LEN: u64 = 2 * 1024 * 1024;
const LONGEST_BUDGET: Duration = Duration::from_secs(10);

pub fn load(path: &Path, secret: Option<&Secret>) -> Result<Config, Vec<Problem>> {
    let whole = |text: String| vec![Problem { at: None, path: String::new(), text }];
    let unread = |error: std::io::Error| whole(format!("cannot be read: {}", unreadable(path, &error)));
    let about = std::fs::metadata(path).map_err(unread)?;
    if about.is_dir() {
        return Err(whole("is a folder, wanted a file".to_owned()));
    }
    let length = about.len();
    if length > MAX_FILE_LEN {
        return Err(whole(format!("has {length} bytes, more than the {MAX_FILE_LEN} that a configuration may have")));
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    let source = String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        whole(format!("is not UTF-8, from line {line} on: save it in this encoding"))
    })?;
    let root =
        tree::parse(&source).map_err(|error| vec![Problem { at: error.at, path: String::new(), text: error.text }])?;
    let findings = Findings::default();
    let config = config(&Field::root(&root, &findings), secret);
    let (problems, warnings) = findings.into_parts();
    match config {
        Some(mut config) if problems.is_empty() => {
            config.source.hash = content_hash(source.as_bytes());
            config.source.files.insert(0, path.to_owned());
            Ok(Config { warnings, ..config })
        }
        None if problems.is_empty() => Err(whole(
            "is refused, and nothing above says why: this is a mistake of Tallygate's, please report it".to_owned(),
        )),
        _ => Err(problems),
    }
}

/// `None` where something needed is missing or wrong; the findings then say what. Every part is read before any is
/// given up, so that all problems are found.
fn config(root: &Field<'_>, running: Option<&Secret>) -> Option<Config> {
    if root.is_null() {
        root.problem("the file says nothing: it needs hmac, store and policies");
        return None;
    }
    let file = root.section()?;
    let prefix = match file.optional("key_prefix") {
        Some(field) => field.parse(Prefix::parse),
        None => Some(Prefix::default()),
    };
    let certificates = Certificates::default();
    let store = file
        .required("store", "{ redis: { url: \"redis://127.0.0.1:6379\" } }")
        .and_then(|field| store::store(&field, &certificates));
    let is_cluster = store.as_ref().is_some_and(StoreSettings::is_cluster);
    let served = server::fixed(&file, store, prefix.as_ref(), &certificates);
    let (secret, secret_file) =
        match file.required("hmac", "{ secret_file: /etc/tallygate/hmac.key }").map(|hmac| server::secret(&hmac)) {
            Some((secret, file)) => (secret, file),
            None => (None, None),
        };
    // Without a secret and a prefix nothing can be keyed; stand-ins let the policies be read and their problems be found.
    let stand_in = || Secret::read([0; Secret::MIN_LEN]).ok();
    let in_use = running.cloned().or_else(|| secret.clone()).or_else(stand_in)?;
    let decision_budget = budget(file.optional("decision_budget"));
    let rails = policies::rails(file.optional("guard_rails"));
    let identity =
        file.optional("identity").map_or_else(|| Some(Default::default()), |field| identity::sources(&field));
    let answers = answers(file.optional("answers"));
    let around = policies::Around {
        prefix: prefix.unwrap_or_default(),
        rails,
        identity: identity.clone(),
        secret: in_use,
        is_cluster,
    };
    let policies =
        file.required("policies", "[{ name: orders, ... }]").and_then(|field| policies::policies(&field, &around));
    let fixed_answer = |key, default| {
        let choices = [("allow", Answer::Allow), ("deny", Answer::Deny)];
        file.optional(key).map_or(Some(default), |field| field.choice(&choices))
    };
    let unmatched = fixed_answer("unmatched", Answer::Allow);
    let ambiguous_path = fixed_answer("ambiguous_path", Answer::Deny);
    if let (Some(policies), Some(Answer::Allow)) = (&policies, unmatched)
        && policies.iter().any(|policy| policy.matcher.path.is_some())
        && file.optional("unmatched").is_none()
    {
        root.warning(
            "policies match by path, and a path that none of them matches passes unlimited: \
             write unmatched: allow to say that you mean it, or unmatched: deny",
        );
    }
    file.finish();
    let rules =
        Rules { policies: policies?, identity: identity?, unmatched: unmatched?, ambiguous_path: ambiguous_path? };
    let authz = AuthzSettings { decision_budget: decision_budget?, answers: answers? };
    let (fixed, tls) = served?;
    let (handshakes, tls_files) = tls.map_or((None, Vec::new()), |tls| (Some(tls.handshakes), tls.files));
    let store_files = match &fixed.store {
        StoreSettings::Redis(settings) => settings.files(),
        StoreSettings::Memory { .. } => Vec::new(),
    };
    let files = secret_file.into_iter().chain(store_files).chain(tls_files).collect();
    let source = Source { hash: String::new(), files };
    let certificates = certificates.into_list();
    Some(Config { fixed, rules, authz, handshakes, certificates, secret: secret?, source, warnings: Vec::new() })
}

fn budget(field: Option<Field<'_>>) -> Option<Duration> {
    let Some(field) = field else {
        return Some(Duration::from_millis(250));
    };
    let budget = field.duration()?;
    if budget < Duration::from_millis(10) || budget > LONGEST_BUDGET {
        field.problem("a decision's budget is 10ms to 10s");
        return None;
    }
    Some(budget)
}

fn answers(field: Option<Field<'_>>) -> Option<Answers> {
    let default = Answers::default();
    let Some(field) = field else {
        return Some(default);
    };
    let section = field.section()?;
    let fields = [
        ("never", RateLimitFields::Never),
        ("on_denied", RateLimitFields::OnDenied),
        ("always", RateLimitFields::Always),
    ];
    let ratelimit_fields =
        section.optional("ratelimit_fields").map_or(Some(default.ratelimit_fields), |field| field.choice(&fields));
    let stop = section
        .optional("stop_retries_on_failure")
        .map_or(Some(default.stop_retries_on_failure), |field| field.boolean());
    section.finish();
    Some(Answers { ratelimit_fields: ratelimit_fields?, stop_retries_on_failure: stop? })
}
