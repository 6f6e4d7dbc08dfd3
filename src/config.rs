//! The configuration: owning a [`Config`] means that it was validated, whole.
//!
//! Two stages. `tree` and `reader` hold what was typed, with places; `file` says what it means. All problems of a file are
//! reported at once, each with line, path and remedy. A file that has one changes nothing.

pub mod duration;
pub mod explain;
mod file;
mod reader;
pub mod reload;
pub mod schema;
mod syntax;
mod tree;
mod watch;
mod words;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::reader::Problem;
use crate::authz::AuthzSettings;
use crate::decision::key::Secret;
use crate::decision::name::Prefix;
use crate::decision::policy::Rules;
use crate::store::redis::settings::{RedisSettings, Topology};
use crate::tls::certificate::CertificateFile;
use crate::tls::server::ServerConfig;

/// A validated configuration.
pub struct Config {
    /// What needs a restart to change.
    pub fixed: Fixed,
    /// What a reload swaps.
    pub rules: Rules,
    pub authz: AuthzSettings,
    /// For new connections of those who ask; none where they speak plain HTTP/2.
    pub handshakes: Option<Arc<ServerConfig>>,
    /// Every file with certificates that the configuration names.
    pub certificates: Vec<CertificateFile>,
    pub secret: Secret,
    pub source: Source,
    /// What the operator should know, though nothing is refused for it.
    pub warnings: Vec<Problem>,
}

/// What the configuration was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The same in every sidecar that runs the same file.
    pub hash: String,
    /// The file itself and each file that it names.
    pub files: Vec<PathBuf>,
}

/// Settings that take effect at start only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    pub listen: Listen,
    /// Whether those who ask speak TLS. The files may change while it runs.
    pub tls: bool,
    pub admin: SocketAddr,
    pub drain: Duration,
    pub store: StoreSettings,
    pub key_prefix: Prefix,
}

/// Where checks are awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(UnixListen),
}

/// A Unix socket. Envoy runs as another user, so who may connect is a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixListen {
    pub path: PathBuf,
    /// Permission bits, like 0o660.
    pub mode: u32,
    /// Numeric group that the socket is given to.
    pub group: Option<u32>,
}

/// Where counters live.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreSettings {
    Redis(Box<RedisSettings>),
    /// At most so many counters in this process.
    Memory {
        max_counters: usize,
    },
}

impl StoreSettings {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Memory { .. } => "memory",
        }
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Redis(settings) if matches!(settings.topology, Topology::Cluster { .. }))
    }
}

/// The name alone: the rest may hold a password.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a file was refused: everything that is wrong with it.
#[derive(Debug)]
pub struct Invalid {
    pub file: PathBuf,
    pub problems: Vec<Problem>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.problems.iter().map(|problem| line(&self.file, problem));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Invalid {}

/// `FILE:LINE:COLUMN: path.to.key: what is wrong`, as editors and people read it.
pub fn line(file: &Path, problem: &Problem) -> String {
    let space = if problem.at.is_some() { "" } else { " " };
    format!("{}:{space}{problem}", file.display())
}

impl Config {
    /// Reads and validates `path`. While running, `secret` is the one in use: it changes only with a restart.
    pub fn load(path: &Path, secret: Option<&Secret>) -> Result<Self, Invalid> {
        file::load(path, secret).map_err(|problems| Invalid { file: path.to_owned(), problems })
    }
}

impl Fixed {
    /// The settings that differ from `running`, by their path in the file.
    pub fn changed_from(&self, running: &Self) -> Vec<&'static str> {
        [
            (self.listen != running.listen, "server.listen"),
            (self.tls != running.tls, "server.tls"),
            (self.drain != running.drain, "server.drain"),
            (self.admin != running.admin, "admin.listen"),
            (self.store != running.store, "store"),
            (self.key_prefix != running.key_prefix, "key_prefix"),
        ]
        .into_iter()
        .filter_map(|(changed, name)| changed.then_some(name))
        .collect()
    }
}

#[cfg(test)]
mod tests;
