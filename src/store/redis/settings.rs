//! How Redis is reached, as it is configured.

use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo};

pub use super::dial::{Address, Credentials, Dialer, Password, Tls};

/// Where the nodes are, and how connections to them are opened.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    pub topology: Topology,
    pub dialer: Dialer,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Topology {
    One(Address),
    /// The master of this name, by any of the Sentinels, which have credentials and TLS of their own.
    Sentinel {
        master: String,
        sentinels: Vec<Address>,
        dialer: Box<Dialer>,
    },
    /// Any of the nodes leads to the others.
    Cluster {
        seeds: Vec<Address>,
    },
}

/// Why a text is not a Redis URL that this store can use. The message never repeats it: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error(
        "a Redis URL is redis://HOST:PORT (rediss:// for TLS) or redis+unix:///PATH, perhaps with USER:PASSWORD@ before \
         the host (percent-encoded) and /DB behind"
    )]
    Form,
    /// A password that holds one of these would be cut short there, and the rest be taken for a host.
    #[error("a Redis URL holds no '#' and no '?', and one '@' at most: in a user or password write %23, %3F, %40")]
    Unencoded,
    /// Redis is told who we are only together with a password.
    #[error("a user without a password is never sent: write USER:PASSWORD@, or :PASSWORD@ for a password alone")]
    NoPassword,
}

/// Why a text is not HOST:PORT.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a node is HOST:PORT, like redis-0.example:6379 or [::1]:6379")]
pub struct BadAddress;

/// What a URL says.
pub struct Url {
    pub address: Address,
    pub credentials: Credentials,
    pub database: i64,
    pub tls: bool,
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        const SCHEMES: [&str; 6] = ["redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix"];
        if !text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme)) {
            return Err(BadUrl::Form);
        }
        if text.contains(['#', '?']) || text.matches('@').count() > 1 {
            return Err(BadUrl::Unencoded);
        }
        let info = text.into_connection_info().map_err(|_| BadUrl::Form)?;
        let (address, tls) = match info.addr() {
            ConnectionAddr::Tcp(_, 0) | ConnectionAddr::TcpTls { port: 0, .. } => return Err(BadUrl::Form),
            ConnectionAddr::Tcp(host, port) => (Address::Tcp { host: host.clone(), port: *port }, false),
            ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
                (Address::Tcp { host: host.clone(), port: *port }, true)
            }
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), false),
            _ => return Err(BadUrl::Form),
        };
        let redis = info.redis_settings();
        if redis.username().is_some() && redis.password().is_none() {
            return Err(BadUrl::NoPassword);
        }
        let credentials = Credentials {
            username: redis.username().map(str::to_owned),
            password: redis.password().map(|password| Password::Text(password.to_owned())),
        };
        Ok(Self { address, credentials, database: redis.db(), tls })
    }
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(BadAddress)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(v6) if v6.contains(':') => v6,
            None if !host.contains([':', '[', ']', '/', '@']) => host,
            _ => return Err(BadAddress),
        };
        let port: u16 = port.parse().map_err(|_| BadAddress)?;
        if host.is_empty() || port == 0 { Err(BadAddress) } else { Ok(Self::Tcp { host: host.to_owned(), port }) }
    }
}

impl RedisSettings {
    /// The files that a connection reads, to be checked when the configuration is.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut dialers = vec![&self.dialer];
        if let Topology::Sentinel { dialer, .. } = &self.topology {
            dialers.push(dialer);
        }
        let files = dialers.into_iter().flat_map(|dialer| {
            let password = match &dialer.credentials.password {
                Some(Password::File(path)) => Some(path.clone()),
                _ => None,
            };
            let tls = dialer.tls.iter().flat_map(|tls| {
                let identity = tls.identity.iter().flat_map(|(certificate, key)| [certificate.clone(), key.clone()]);
                tls.ca_file.iter().cloned().chain(identity)
            });
            password.into_iter().chain(tls)
        });
        files.collect()
    }
}

/// The default for both time-outs.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_who_and_whether_tls() {
        let url = Url::parse("rediss://tally:p%40ss%2F%23%25%3Aword@redis.example:6380/3").unwrap();
        assert_eq!(url.address.to_string(), "redis.example:6380");
        assert_eq!((url.credentials.username.as_deref(), url.database, url.tls), (Some("tally"), 3, true));
        assert!(url.credentials.password == Some(Password::Text("p@ss/#%:word".into())));
        assert_eq!(Url::parse("redis+unix:///run/redis.sock").unwrap().address.to_string(), "unix:/run/redis.sock");
        for bad in ["", "http://x", "redis://", "redis://h:99999", "redis://h:0", "unix:/x", "localhost:6379"] {
            assert_eq!(Url::parse(bad).err(), Some(BadUrl::Form), "{bad}");
        }
    }

    // RL-32: `redis://:p@ss/#word@h` once led to the host `ss` with the password `p`, and a lone user to no AUTH at all.
    #[test]
    fn a_password_that_is_not_encoded_is_refused() {
        for bad in ["redis://:p@ss/#%:word@h:1", "redis://:a?b@h:1", "redis://:a@b@h:1", "rediss://h:1/#insecure"] {
            assert_eq!(Url::parse(bad).err(), Some(BadUrl::Unencoded), "{bad}");
        }
        assert_eq!(Url::parse("redis://:a/b@h:1").err(), Some(BadUrl::Form));
        assert_eq!(Url::parse("redis://hunter2@h:1").err(), Some(BadUrl::NoPassword));
        assert!(Url::parse("redis://:hunter2@h:1").is_ok());
    }

    #[test]
    fn nodes_are_host_and_port() {
        for good in ["localhost:6379", "[::1]:7000", "10.0.0.1:1"] {
            assert_eq!(Address::parse(good).unwrap().to_string(), good);
        }
        for bad in ["", "localhost", ":6379", "h:0", "h:65536", "::1:7000", "redis://h:1", "u@h:1", "[h]:1"] {
            assert_eq!(Address::parse(bad), Err(BadAddress), "{bad}");
        }
    }
}
