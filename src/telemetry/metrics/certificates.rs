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

    /// These, and no others, are named by the configuration.
    pub fn set(&self, files: &[CertificateFile]) {
        let ends = files.iter().map(|file| (SettingLabel { setting: file.setting.clone() }, file.not_after));
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends.collect();
        self.days_left.clear();
    }

    /// Days pass between two looks at the metrics.
    pub fn refresh(&self, now: u64) {
        for (label, end) in self.ends.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.days_left.get_or_create(label).set(end.days_left(now));
        }
    }
}
