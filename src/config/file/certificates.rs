//! The files with certificates that a configuration names: read when it is, so that a wrong or an old one is told in its place.

use std::cell::RefCell;
use std::path::PathBuf;

use super::path::path;
use crate::config::reader::Field;
use crate::store::clock;
use crate::tls::certificate::{CertificateFile, NotAfter, NotBefore, Role, SOON_DAYS};
use crate::tls::private_key;

/// Those that were read so far.
#[derive(Default)]
pub struct Certificates(RefCell<Vec<CertificateFile>>);

impl Certificates {
    /// The path that `field` names, and what the file holds. That it has expired is a warning only: whoever is shown it
    /// decides, and this machine's clock may be wrong.
    pub fn read(&self, field: &Field<'_>, role: Role) -> Option<(PathBuf, Vec<u8>)> {
        let path = path(field)?;
        let shown = path.display();
        // What cannot be read was told just now.
        let bytes = std::fs::read(&path).ok()?;
        let not_after = match NotAfter::of(&bytes, role) {
            Ok(not_after) => not_after,
            Err(bad) => {
                field.problem(format!("{shown} {bad}"));
                return None;
            }
        };
        let now = clock::unix_seconds();
        // Of authorities nobody asks since when.
        if role == Role::Chain
            && let Ok(start) = NotBefore::of(&bytes)
            && !start.is_past(now)
        {
            field.warning(format!(
                "{shown} is not valid before {start}: until then nobody takes it; is the clock right?"
            ));
        }
        let left = not_after.days_left(now);
        if left < 0.0 {
            field.warning(format!("{shown} has expired on {not_after}: renew it"));
        } else if left < SOON_DAYS {
            field.warning(format!("{shown} expires on {not_after}, in {left:.1} days: renew it"));
        }
        let file = CertificateFile { setting: field.path().to_owned(), path: path.clone(), not_after };
        self.0.borrow_mut().push(file);
        Some((path, bytes))
    }

    /// The same for a private key, which has no end.
    pub fn read_key(&self, field: &Field<'_>) -> Option<(PathBuf, Vec<u8>)> {
        let path = path(field)?;
        let bytes = std::fs::read(&path).ok()?;
        if let Err(bad) = private_key(&bytes) {
            field.problem(format!("{} {bad}", path.display()));
            return None;
        }
        Some((path, bytes))
    }

    pub fn into_list(self) -> Vec<CertificateFile> {
        self.0.into_inner()
    }
}
