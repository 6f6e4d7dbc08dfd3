//! Reload: validate whole, swap at once, or keep what runs and say so.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Config, Fixed, line};
use crate::authz::AuthzSettings;
use crate::decision::key::Secret;
use crate::limiter::Limiter;
use crate::telemetry::metrics::Metrics;

/// Brings a changed file into use.
pub struct Reloader {
    file: PathBuf,
    /// In use until the process restarts.
    secret: Secret,
    fixed: Fixed,
    limiter: Arc<Limiter>,
    settings: Arc<ArcSwap<AuthzSettings>>,
    metrics: Arc<Metrics>,
}

impl Reloader {
    pub fn new(
        file: PathBuf,
        secret: Secret,
        fixed: Fixed,
        limiter: &Arc<Limiter>,
        settings: &Arc<ArcSwap<AuthzSettings>>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (limiter, settings, metrics) = (Arc::clone(limiter), Arc::clone(settings), Arc::clone(metrics));
        Self { file, secret, fixed, limiter, settings, metrics }
    }

    /// Reads the file again. A bad one changes nothing.
    pub fn reload(&self) {
        match Config::load(&self.file, Some(&self.secret)) {
            Ok(config) => {
                for warning in &config.warnings {
                    tracing::warn!("{}", line(&self.file, warning));
                }
                for setting in config.fixed.changed_from(&self.fixed) {
                    tracing::warn!(setting, "changed in the file, and takes effect only with a restart");
                }
                if config.secret.fingerprint() != self.secret.fingerprint() {
                    tracing::warn!(setting = "hmac", "changed, and takes effect only with a restart");
                }
                self.limiter.swap(config.rules);
                self.settings.store(Arc::new(config.authz));
                self.metrics.config_generation.inc();
                self.metrics.config_last_reload_failed.set(0);
                tracing::info!(file = %self.file.display(), generation = self.metrics.config_generation.get(),
                    "the configuration was reloaded");
            }
            Err(invalid) => {
                self.metrics.config_last_reload_failed.set(1);
                for problem in &invalid.problems {
                    tracing::error!("{}", line(&self.file, problem));
                }
                tracing::error!(
                    problems = invalid.problems.len(),
                    "the changed file was refused: the rules before it stay in use"
                );
            }
        }
    }
}
