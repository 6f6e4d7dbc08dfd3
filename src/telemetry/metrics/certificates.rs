//! How long the certificates that the configuration names are still good for. One series a setting, whatever the files hold.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::tls::certificate::{CertificateFile, NotAfter};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SettingLabel {
    setting: String,
}

#[derive(Default)]
pub struct Certificates {
    days_left: Family<SettingLabel, Gauge<f64, AtomicU64>>,
    ends: Mutex<Vec<(SettingLabel, NotAfter)>>,
}

impl Certificates {
    pub fn register(registry: &mut Registry) -> Self {
        let certificates = Self::default();
        registry.register(
            "certificate_days_left",
            "Days until the certificates of a file expire, by the setting that names it; negative when they have",
            certificates.days_left.clone(),
        );
        certificates
    }

    /// These, and no others, are named by the configuration. What was named before keeps its series, so that no look at the
    /// metrics falls into a gap.
    pub fn set(&self, files: &[CertificateFile]) {
        let newest = files.iter().map(|file| (SettingLabel { setting: file.setting.clone() }, file.not_after));
        let newest: Vec<_> = newest.collect();
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        for (gone, _) in ends.iter().filter(|(label, _)| newest.iter().all(|(named, _)| named != label)) {
            self.days_left.remove(gone);
        }
        *ends = newest;
    }

    /// Days pass between two looks at the metrics.
    pub fn refresh(&self, now: u64) {
        for (label, end) in self.ends.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.days_left.get_or_create(label).set(end.days_left(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::tls::certificate::Role;

    fn files(settings: &[&str]) -> Vec<CertificateFile> {
        let pem = include_bytes!("../../../tests/support/certs/ca.pem");
        let not_after = NotAfter::of(pem, Role::Chain).unwrap();
        let file = |setting: &&str| CertificateFile { setting: (*setting).into(), path: "/tls.crt".into(), not_after };
        settings.iter().map(file).collect()
    }

    fn series(certificates: &Certificates, setting: &str) -> bool {
        certificates.days_left.get(&SettingLabel { setting: setting.into() }).is_some()
    }

    // The metrics are looked at while another thread takes a configuration into use.
    #[test]
    fn a_setting_that_stays_has_its_series_at_every_moment_and_one_that_goes_has_none() {
        let (certificates, done) = (Certificates::default(), AtomicBool::new(false));
        certificates.set(&files(&["stays"]));
        certificates.refresh(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..10_000 {
                    certificates.set(&files(if round % 2 == 0 { &["stays", "comes"] } else { &["stays"] }));
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                certificates.refresh(0);
                assert!(series(&certificates, "stays"));
            }
        });
        certificates.refresh(0);
        assert!(series(&certificates, "stays") && !series(&certificates, "comes"));
    }
}
