//! What a certificate says of itself: until when it is valid, and which SPIFFE ID it names.

use std::fmt;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::{DateTime, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Validity;

use super::{BadPem, certificates};

/// Whoever renews certificates by hand needs some days for it; what renews them by itself has failed by then.
pub const SOON_DAYS: f64 = 14.0;
const DAY: f64 = 86_400.0;

/// What the certificates of a file are for, which decides when the file as a whole expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What Tallygate shows of itself, with what vouches for it: useless when the first of them has expired.
    Chain,
    /// Whom Tallygate believes: useless when the last of them has expired, since a successor stands beside the old one.
    Authorities,
}

/// The end of a certificate's validity, in seconds since the Unix epoch. Shown as a date, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotAfter(u64);

/// When every certificate of a file has come into its time, in seconds since the Unix epoch. Shown as a date, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotBefore(u64);

/// A file with certificates, and the setting that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFile {
    /// Its path in the configuration, like `server.tls.certificate_file`.
    pub setting: String,
    pub path: PathBuf,
    pub not_after: NotAfter,
}

impl NotAfter {
    /// When the certificates of a PEM file are of no use any more.
    pub fn of(pem: &[u8], role: Role) -> Result<Self, BadPem> {
        let ends = validities(pem)?.into_iter().map(|validity| Self(validity.not_after.to_unix_duration().as_secs()));
        let end = match role {
            Role::Chain => ends.min(),
            Role::Authorities => ends.max(),
        };
        end.ok_or(BadPem::NoCertificate)
    }

    /// Days from `now` (seconds since the Unix epoch) to this end; negative when it is past.
    pub fn days_left(self, now: u64) -> f64 {
        let seconds = |from: u64, to: u64| std::time::Duration::from_secs(to.saturating_sub(from)).as_secs_f64();
        (seconds(now, self.0) - seconds(self.0, now)) / DAY
    }
}

impl NotBefore {
    pub fn of(pem: &[u8]) -> Result<Self, BadPem> {
        let starts = validities(pem)?.into_iter().map(|validity| validity.not_before.to_unix_duration().as_secs());
        starts.max().map(Self).ok_or(BadPem::NoCertificate)
    }

    pub fn is_past(self, now: u64) -> bool {
        self.0 <= now
    }
}

fn validities(pem: &[u8]) -> Result<Vec<Validity>, BadPem> {
    let read = |der: CertificateDer<'_>| {
        let certificate = Certificate::from_der(&der).map_err(|_| BadPem::Unreadable)?;
        Ok(*certificate.tbs_certificate().validity())
    };
    certificates(pem)?.into_iter().map(read).collect()
}

impl fmt::Display for NotAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        date(self.0, f)
    }
}

impl fmt::Display for NotBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        date(self.0, f)
    }
}

fn date(seconds: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match DateTime::from_unix_duration(std::time::Duration::from_secs(seconds)) {
        Ok(date) => write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
        Err(_) => f.write_str("the end of time"),
    }
}

/// The SPIFFE ID that a certificate names: its one URI (X509-SVID, 2). Two URIs are no identity.
pub fn spiffe_id(der: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let (_, names) = certificate.tbs_certificate().get_extension::<SubjectAltName>().ok()??;
    let mut uris = names.0.into_iter().filter_map(|name| match name {
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str().to_owned()),
        _ => None,
    });
    let id = uris.next()?;
    uris.next().is_none().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> Vec<u8> {
        let path = format!("{}/tests/support/certs/{name}.pem", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(path).unwrap()
    }

    #[test]
    fn a_chain_ends_with_its_first_certificate_and_authorities_with_their_last() {
        let (expired, ca) = (pem("expired"), pem("ca"));
        let both = [expired.clone(), ca.clone()].concat();
        let end = |pem: &[u8], role| NotAfter::of(pem, role).unwrap();
        assert_eq!(end(&both, Role::Chain), end(&expired, Role::Chain));
        assert_eq!(end(&both, Role::Authorities), end(&ca, Role::Authorities));
        assert!(end(&expired, Role::Chain) < end(&ca, Role::Chain));
    }

    #[test]
    fn an_end_is_shown_as_a_date_and_counted_in_days() {
        let end = NotAfter::of(&pem("expired"), Role::Chain).unwrap();
        assert_eq!(end.to_string(), "2021-03-04");
        assert_eq!(end.days_left(end.0 - 86_400), 1.0);
        assert_eq!(end.days_left(end.0 + 43_200), -0.5);
    }

    #[test]
    fn a_chain_is_in_its_time_when_each_of_its_certificates_is() {
        let (early, ca) = (pem("early"), pem("ca"));
        let start = |pem: &[u8]| NotBefore::of(pem).unwrap();
        assert_eq!(start(&[ca.clone(), early.clone()].concat()).to_string(), "2120-01-01");
        assert!(start(&ca) < start(&early));
        let (NotBefore(now), early) = (start(&early), start(&early));
        assert!(early.is_past(now) && !early.is_past(now - 1));
    }

    #[test]
    fn soon_is_what_the_alert_takes_for_soon() {
        let path = format!("{}/deploy/prometheus/alerts.yaml", env!("CARGO_MANIFEST_DIR"));
        let alerts = std::fs::read_to_string(path).unwrap();
        assert!(alerts.contains(&format!("(tallygate_certificate_days_left) < {SOON_DAYS}\n")));
    }

    #[test]
    fn a_file_without_a_certificate_has_no_end() {
        for (text, why) in [("", BadPem::NoCertificate), ("no PEM\n", BadPem::NoCertificate)] {
            assert_eq!(NotAfter::of(text.as_bytes(), Role::Chain), Err(why), "{text:?}");
        }
        assert_eq!(NotAfter::of(&pem("client-key"), Role::Chain), Err(BadPem::NoCertificate));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(NotAfter::of(broken.as_bytes(), Role::Chain), Err(BadPem::Unreadable));
    }

    #[test]
    fn a_certificate_names_a_spiffe_id_only_where_it_names_one_uri() {
        let id = |name: &str| spiffe_id(&certificates(&pem(name)).unwrap()[0]);
        assert_eq!(id("envoy").as_deref(), Some("spiffe://td.example/ns/edge/sa/envoy"));
        assert_eq!(id("two-ids"), None);
        assert_eq!(id("client"), None, "a DNS name is no URI");
        assert_eq!(spiffe_id(b"no DER"), None);
    }
}
