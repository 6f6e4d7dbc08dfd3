//! Reload: validate whole, swap at once, or keep what runs and say so.
//!
//! A thread of its own watches the files and hears SIGHUP; reading them may block, and checks must not wait for that.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::reader::Problem;
use super::watch::{PAUSE, Watch};
use super::{Config, Fixed, Invalid, Source, explain, line};
use crate::authz::AuthzSettings;
use crate::decision::key::{Secret, content_hash};
use crate::decision::name::Name;
use crate::decision::policy::{Policy, Rules};
use crate::limiter::Limiter;
use crate::store::clock;
use crate::telemetry::metrics::Metrics;
use crate::tls::certificate::CertificateFile;
use crate::tls::server::ServerConfig;

/// What a reload works on, and what may not change without a restart.
pub struct Reloader {
    pub file: PathBuf,
    /// In use until the process restarts.
    pub secret: Secret,
    pub fixed: Fixed,
    pub limiter: Arc<Limiter>,
    pub settings: Arc<ArcSwap<AuthzSettings>>,
    /// None where the listener was started without TLS.
    pub handshakes: Option<Arc<ArcSwap<ServerConfig>>>,
    pub metrics: Arc<Metrics>,
    pub state: Arc<ReloadState>,
}

/// What is in use, for operators to see.
pub struct ReloadState(Mutex<InUse>);

struct InUse {
    generation: u64,
    hash: String,
    since: Instant,
    /// Why the newest file was refused, if it was.
    last_error: Option<String>,
}

impl ReloadState {
    pub fn new(source: &Source) -> Self {
        Self(Mutex::new(InUse { generation: 1, hash: source.hash.clone(), since: clock::now(), last_error: None }))
    }

    /// A page of text: what is in use, since when, and why the newest file is not.
    pub fn page(&self, rules: &Rules) -> String {
        let in_use = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = (clock::now() - in_use.since).as_secs();
        let error = in_use.last_error.as_deref().unwrap_or("none");
        format!(
            "generation {}\nhash       {}\nin use     for {age} s\nlast error {error}\n\n{}",
            in_use.generation,
            in_use.hash,
            explain::page(rules)
        )
    }
}

impl Reloader {
    /// Starts watching `files`. Each message makes it reload at once; it ends when the sender is gone.
    pub fn watch(self, files: Vec<PathBuf>) -> std::io::Result<Sender<()>> {
        let (sender, wanted) = channel();
        std::thread::Builder::new().name("config".to_owned()).spawn(move || self.run(files, &wanted))?;
        Ok(sender)
    }

    fn run(&self, files: Vec<PathBuf>, wanted: &Receiver<()>) {
        let mut watch = Watch::start(files);
        let mut due = !self.is_still_in_use();
        loop {
            if !due {
                match wanted.recv_timeout(PAUSE) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) if watch.has_changed() => {}
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            // Looked at before it is read: what changes in between is seen by the next look.
            watch.act(watch.files().to_vec());
            // With other files to watch it is read once more, so that no change falls between the two lists.
            due = match self.reload() {
                Some(files) if files != watch.files() => {
                    watch.act(files);
                    true
                }
                _ => false,
            };
        }
    }

    /// Whether the file holds what is in use. It may have changed between the moment it was read for the start and this one, and
    /// so may have the files that it names: they are taken into use once more.
    fn is_still_in_use(&self) -> bool {
        let hash = std::fs::read(&self.file).map(|bytes| content_hash(&bytes));
        if !hash.is_ok_and(|hash| hash == self.state.0.lock().unwrap_or_else(PoisonError::into_inner).hash) {
            return false;
        }
        match self.load() {
            Ok(config) => {
                self.tell_what_waits(&config);
                self.renew(config.handshakes, &config.certificates);
            }
            Err(invalid) => self.refuse(&invalid),
        }
        true
    }

    fn load(&self) -> Result<Config, Invalid> {
        let config = Config::load(&self.file, Some(&self.secret))?;
        let problems = moved_counters(&self.limiter.rules(), &config.rules);
        if problems.is_empty() { Ok(config) } else { Err(Invalid { file: self.file.clone(), problems }) }
    }

    /// Reads the file again; the files that it names, if it is now in use. A bad one changes nothing.
    fn reload(&self) -> Option<Vec<PathBuf>> {
        match self.load() {
            Ok(config) => Some(self.adopt(config)),
            Err(invalid) => {
                self.refuse(&invalid);
                None
            }
        }
    }

    fn adopt(&self, config: Config) -> Vec<PathBuf> {
        for warning in &config.warnings {
            tracing::warn!("{}", line(&self.file, warning));
        }
        self.tell_what_waits(&config);
        let mut in_use = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.hash != config.source.hash {
            in_use.generation += 1;
            in_use.since = clock::now();
        }
        in_use.hash.clone_from(&config.source.hash);
        in_use.last_error = None;
        self.limiter.swap(config.rules);
        self.settings.store(Arc::new(config.authz));
        self.renew(config.handshakes, &config.certificates);
        self.metrics.set_config(in_use.generation, &in_use.hash);
        self.metrics.config_last_reload_failed.set(0);
        tracing::info!(generation = in_use.generation, hash = %in_use.hash, "the configuration was read again and is in use");
        config.source.files
    }

    fn tell_what_waits(&self, config: &Config) {
        for setting in config.fixed.changed_from(&self.fixed) {
            tracing::warn!(setting, "changed in the file, and takes effect only with a restart");
        }
        if config.secret.fingerprint() != self.secret.fingerprint() {
            tracing::warn!(setting = "hmac", "changed, and takes effect only with a restart");
        }
    }

    fn renew(&self, handshakes: Option<Arc<ServerConfig>>, certificates: &[CertificateFile]) {
        if let (Some(in_use), Some(newest)) = (&self.handshakes, handshakes) {
            in_use.store(newest);
        }
        self.metrics.set_certificates(certificates);
    }

    fn refuse(&self, invalid: &Invalid) {
        self.metrics.config_last_reload_failed.set(1);
        for problem in &invalid.problems {
            tracing::error!("{}", line(&self.file, problem));
        }
        tracing::error!(
            problems = invalid.problems.len(),
            "the changed file was refused: the rules before it stay in use"
        );
        let mut in_use = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.last_error = Some(invalid.to_string());
    }
}

/// Policies whose counters would move to other keys without anybody having said so: the form of a key, and the tag in it,
/// belong to a policy's version.
fn moved_counters(before: &Rules, after: &Rules) -> Vec<Problem> {
    let moved = after.policies.iter().filter_map(|policy| {
        let earlier = before.policies.iter().find(|earlier| earlier.name == policy.name)?;
        let why = (earlier.version == policy.version).then(|| what_moves(earlier, policy))??;
        let next = policy.version.get() + 1;
        let text = format!("{why} moves the counters of policy {}: write version: {next}", policy.name);
        Some(Problem { at: None, path: String::new(), text })
    });
    moved.collect()
}

fn what_moves(before: &Policy, after: &Policy) -> Option<String> {
    let names = |policy: &Policy| policy.limits.iter().map(|limit| limit.name.clone()).collect::<Vec<Name>>();
    let (old, new) = (names(before), names(after));
    let was_alone = old.len() == 1;
    if was_alone != (new.len() == 1) {
        let changed = |from: &[Name], to: &[Name], verb: &str| {
            let limits: Vec<String> = to.iter().filter(|name| !from.contains(name)).map(ToString::to_string).collect();
            format!("{verb} limit {}", limits.join(", "))
        };
        return Some(if was_alone { changed(&old, &new, "adding") } else { changed(&new, &old, "removing") });
    }
    (!was_alone && before.shared_parts() != after.shared_parts()).then(|| {
        let parts: Vec<_> = after.shared_parts().iter().map(|part| part.as_str()).collect();
        format!("that its limits now share [{}]", parts.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::identity::Part;
    use crate::decision::policy::{Answer, fixtures};

    fn moved(before: &[(&str, u64, &[Part])], after: &[(&str, u64, &[Part])]) -> String {
        let rules = |limits| Rules {
            policies: vec![fixtures::policy(limits)],
            identity: Default::default(),
            unmatched: Answer::Allow,
            ambiguous_path: Answer::Deny,
        };
        moved_counters(&rules(before), &rules(after)).first().map_or_else(String::new, |problem| problem.text.clone())
    }

    #[test]
    fn a_change_that_moves_counters_names_the_sentence_to_write() {
        const T: &[Part] = &[Part::Tenant];
        const TS: &[Part] = &[Part::Tenant, Part::Subject];
        assert_eq!(moved(&[("a", 1, T)], &[("a", 9, T)]), "");
        assert_eq!(moved(&[("a", 1, T)], &[("b", 1, T)]), "", "a lone limit's name is in no key");
        assert_eq!(
            moved(&[("a", 1, T)], &[("a", 1, T), ("b", 1, T)]),
            "adding limit b moves the counters of policy p: write version: 2"
        );
        assert_eq!(
            moved(&[("a", 1, T), ("b", 1, T)], &[("b", 1, T)]),
            "removing limit a moves the counters of policy p: write version: 2"
        );
        assert_eq!(
            moved(&[("a", 1, TS), ("b", 1, TS)], &[("a", 1, TS), ("b", 1, T)]),
            "that its limits now share [tenant] moves the counters of policy p: write version: 2"
        );
        assert_eq!(moved(&[("a", 1, T), ("b", 1, T)], &[("a", 1, T), ("b", 1, T), ("c", 1, T)]), "");
    }
}
