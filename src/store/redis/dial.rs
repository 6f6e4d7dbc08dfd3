//! Opening one connection: address, TLS, credentials, time-outs.
//!
//! Files (password, certificates) are read anew for each connection, so that what was rotated takes effect at the next one.

mod tls;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisFuture,
};
use tokio::sync::Notify;
use tokio::time::timeout;

pub use self::tls::Tls;
use super::error::classify;
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

/// Commands that may wait for the socket's writer; more only add memory, not speed.
const PIPELINE_BUFFER: usize = 1024;

/// A host and a port, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Who Tallygate is to Redis. It has no `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub username: Option<String>,
    pub password: Option<Password>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// From the URL.
    Text(String),
    /// A file's content, less one final line end.
    File(PathBuf),
}

/// How connections are opened, to whichever node.
#[derive(Clone, PartialEq, Eq)]
pub struct Dialer {
    pub credentials: Credentials,
    pub tls: Option<Tls>,
    pub database: i64,
    pub connect_timeout: Duration,
    pub command_timeout: Duration,
}

impl Dialer {
    /// A connection that said hello, within both time-outs. `closed` is told when its socket closes later.
    pub async fn dial(&self, address: &Address, closed: Arc<Notify>) -> Result<MultiplexedConnection, StoreError> {
        let client = self.client(address).await?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None) // each call brings its own
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.notify_one();
                }
                Ok::<(), Infallible>(())
            })
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        if let (Some(Tls { server_name: Some(_), .. }), Address::Tcp { host, .. }) = (&self.tls, address) {
            config = config.set_dns_resolver(InsteadOfName(host.clone()));
        }
        let opening = client.get_multiplexed_async_connection_with_config(&config);
        let limit = self.connect_timeout + self.command_timeout;
        let late = |_| StoreError::new(FailureClass::Timeout, "the server does not answer in time");
        let opened =
            timeout(limit, opening).await.map_err(late).and_then(|opened| opened.map_err(|error| self.refusal(&error)));
        opened.map_err(|error| self.with_suspicion(error))
    }

    /// Why the server did not let us in. A server that does not know HELLO or AUTH quotes the command in its error, and with it
    /// the password: what is said under a code of no known meaning is not repeated.
    fn refusal(&self, error: &redis::RedisError) -> StoreError {
        let refusal = classify(error).inner;
        if error.code() == Some("NOAUTH") && self.credentials.password.is_none() {
            return StoreError::new(refusal.class, "the server wants a password, and none is configured (NOAUTH)");
        }
        // The library puts it in words of its own, without the server's code.
        if self.database != 0 && error.to_string().starts_with("Redis server refused to switch database") {
            let detail =
                format!("the server refuses database {}: it has fewer, or the user lacks +select", self.database);
            return StoreError::new(FailureClass::Permission, detail);
        }
        if self.credentials.password.is_none() || refusal.class != FailureClass::Other {
            return refusal;
        }
        let detail =
            "the server refuses HELLO, which brings the password: its words are not repeated, for they may quote it";
        StoreError::new(refusal.class, detail)
    }

    /// TLS on one side only shows as a silence or as odd bytes: neither tells an operator.
    fn with_suspicion(&self, error: StoreError) -> StoreError {
        let detail = match (error.class, &self.tls) {
            (FailureClass::Timeout, Some(_)) => format!("{}: perhaps it does not speak TLS", error.detail),
            // What the parser says of the bytes of another protocol helps nobody.
            (FailureClass::Malformed, None) => "this is not how Redis answers: perhaps it wants TLS".to_owned(),
            _ => return error,
        };
        StoreError { detail: detail.into(), ..error }
    }

    async fn client(&self, address: &Address) -> Result<Client, StoreError> {
        let unusable = |error: redis::RedisError| classify(&error).inner;
        // RESP3 tells at once when the socket has closed.
        let mut redis = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(self.database);
        if let Some(username) = &self.credentials.username {
            redis = redis.set_username(username);
        }
        match &self.credentials.password {
            Some(Password::Text(password)) => redis = redis.set_password(password),
            Some(Password::File(path)) => redis = redis.set_password(read_password(path).await?),
            None => {}
        }
        let wire = self.wire_address(address);
        let info = wire.into_connection_info().map_err(unusable)?.set_redis_settings(redis);
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.tls {
            None => Client::open(info).map_err(unusable),
            Some(tls) => Client::build_with_tls(info, tls.read().await?).map_err(unusable),
        }
    }

    fn wire_address(&self, address: &Address) -> ConnectionAddr {
        match (address, &self.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Address::Tcp { host, port }, Some(tls)) => ConnectionAddr::TcpTls {
                host: tls.server_name.clone().unwrap_or_else(|| host.clone()),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        }
    }
}

async fn read_password(path: &PathBuf) -> Result<String, StoreError> {
    let bytes = read(path).await?;
    let text = String::from_utf8(bytes)
        .map_err(|_| StoreError::new(FailureClass::Permission, format!("{} is not UTF-8", path.display())))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, StoreError> {
    let failed = |error| StoreError::new(FailureClass::Permission, format!("{}: {error}", path.display()));
    tokio::fs::read(path).await.map_err(failed)
}

/// Resolves to the real host while TLS asks for the certificate's name.
struct InsteadOfName(String);

impl AsyncDNSResolver for InsteadOfName {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((self.0.as_str(), port)).await?;
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}
