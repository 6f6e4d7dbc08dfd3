//! Listeners: bound before anything else starts, so that a port in use ends the process with a clear error.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::TcpIncoming;

use crate::config::{Fixed, Listen, UnixListen};

/// Listeners in hand.
pub struct Bound {
    pub incoming: BoundIncoming,
    pub admin: TcpListener,
    /// Where checks are awaited, as it is written in a configuration.
    pub grpc_address: String,
    pub admin_address: SocketAddr,
}

/// The listener for checks, and what to clean up after it.
pub struct BoundIncoming {
    incoming: Incoming,
    socket: Option<SocketFile>,
}

pub enum Incoming {
    Tcp(TcpIncoming),
    Unix(UnixListenerStream),
}

/// Why a listener could not be had, and what to do. The operator mends it; waiting helps only where another process is about
/// to end.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {address}: {source}{}", remedy(source))]
pub struct BindError {
    setting: &'static str,
    address: String,
    source: io::Error,
}

/// What to do, where the error's words do not say it.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        // Errors of our own say it themselves.
        _ if error.raw_os_error().is_none() => "",
        io::ErrorKind::AddrInUse => ": end who listens there, or choose another (ss -ltnp shows who)",
        io::ErrorKind::AddrNotAvailable => ": no interface of this machine has the address",
        io::ErrorKind::NotFound => ": create the socket's folder",
        io::ErrorKind::PermissionDenied => {
            ": choose a port above 1023, or a folder that the user whom Tallygate runs as may write to"
        }
        _ => "",
    }
}

/// A socket's file, removed when the process ends in an orderly way.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Nobody is left to tell; the next start unlinks it too.
        let _gone_already = fs::remove_file(&self.0);
    }
}

impl BoundIncoming {
    pub fn split(self) -> (Incoming, Option<SocketFile>) {
        (self.incoming, self.socket)
    }
}

impl Bound {
    pub async fn bind(fixed: &Fixed) -> Result<Self, BindError> {
        let (incoming, grpc_address) = match &fixed.listen {
            Listen::Tcp(address) => {
                let failed = |source| BindError { setting: "server.listen", address: address.to_string(), source };
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                let shown = listener.local_addr().map_err(failed)?.to_string();
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                (BoundIncoming { incoming: Incoming::Tcp(incoming), socket: None }, shown)
            }
            Listen::Unix(unix) => {
                let shown = format!("unix:{}", unix.path.display());
                let failed = |source| BindError { setting: "server.listen", address: shown.clone(), source };
                let listener = bind_unix(unix).map_err(failed)?;
                let incoming = Incoming::Unix(UnixListenerStream::new(listener));
                (BoundIncoming { incoming, socket: Some(SocketFile(unix.path.clone())) }, shown)
            }
        };
        let failed = |source| BindError { setting: "admin.listen", address: fixed.admin.to_string(), source };
        let admin = TcpListener::bind(fixed.admin).await.map_err(failed)?;
        let admin_address = admin.local_addr().map_err(failed)?;
        Ok(Self { incoming, admin, grpc_address, admin_address })
    }
}

fn bind_unix(unix: &UnixListen) -> io::Result<UnixListener> {
    remove_stale(&unix.path)?;
    let listener = UnixListener::bind(&unix.path)?;
    fs::set_permissions(&unix.path, fs::Permissions::from_mode(unix.mode))?;
    if unix.group.is_some() {
        chown(&unix.path, None, unix.group)?;
    }
    Ok(listener)
}

/// A crash leaves the socket's file behind. It is removed only if it is a socket that nobody answers on.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(about) if !about.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "exists and is not a socket: remove it or choose another path",
        )),
        Ok(_) => match StdUnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another process answers on this socket: end it, or choose another path",
            )),
            Err(_) => fs::remove_file(path),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: PathBuf) -> UnixListen {
        UnixListen { path, mode: 0o660, group: None }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authz.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = bind_unix(&unix(path.clone())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(bind_unix(&unix(path)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::write(&path, "precious").unwrap();
        assert_eq!(bind_unix(&unix(path.clone())).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    }
}
