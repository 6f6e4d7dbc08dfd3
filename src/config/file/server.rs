//! `server`, `admin`, `hmac`: what takes effect at start.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::certificates::Certificates;
use super::tls::{self, ServerTls};
use crate::config::duration::shown;
use crate::config::reader::{Field, Section};
use crate::config::words::{is_path, unreadable};
use crate::config::{Fixed, Listen, StoreSettings, UnixListen};
use crate::decision::key::Secret;
use crate::decision::name::Prefix;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 50051);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9180);
/// What the system's address of a Unix socket holds, less the final NUL.
const MOST_SOCKET_PATH: usize = 107;
const DEFAULT_DRAIN: Duration = Duration::from_secs(5);

/// What is fixed, and what the listener's TLS goes by.
pub fn fixed(
    file: &Section<'_>,
    store: Option<StoreSettings>,
    prefix: Option<&Prefix>,
    certificates: &Certificates,
) -> Option<(Fixed, Option<ServerTls>)> {
    let server = file.optional("server").map(|field| field.section());
    let (listen, tls, drain) = match server {
        None => (Some(Listen::Tcp(DEFAULT_LISTEN)), Some(None), Some(DEFAULT_DRAIN)),
        Some(None) => (None, None, None),
        Some(Some(section)) => {
            let tls = section.optional("tls");
            let listen = listen(&section, tls.as_ref());
            let tls = tls.map_or(Some(None), |field| tls::listener(&field, certificates).map(Some));
            let drain = section
                .optional("drain")
                .map_or(Some(DEFAULT_DRAIN), |field| bounded(&field, Duration::ZERO, Duration::from_secs(300)));
            section.finish();
            (listen, tls, drain)
        }
    };
    let admin = match file.optional("admin") {
        None => Some(DEFAULT_ADMIN),
        Some(field) => field.section().and_then(|section| {
            let admin = section.optional("listen").map_or(Some(DEFAULT_ADMIN), |field| socket_address(&field));
            section.finish();
            admin
        }),
    };
    if let (Some(Listen::Tcp(checks)), Some(admin)) = (&listen, admin)
        && *checks == admin
        && admin.port() != 0
    {
        file.problem(format!("server.listen and admin.listen are both {admin}: give one of them another port"));
    }
    let key_prefix = prefix?.clone();
    let (listen, tls) = (listen?, tls?);
    let fixed = Fixed { listen, tls: tls.is_some(), admin: admin?, drain: drain?, store: store?, key_prefix };
    Some((fixed, tls))
}

fn listen(section: &Section<'_>, tls: Option<&Field<'_>>) -> Option<Listen> {
    let listen = section.optional("listen");
    let socket = [section.optional("socket_mode"), section.optional("socket_group")];
    let Some(field) = listen else { return tcp(None, socket, tls) };
    match field.text()?.strip_prefix("unix:") {
        Some(path) => {
            if let Some(tls) = tls {
                tls.problem(
                    "is for a TCP address, and server.listen is a Unix socket, whose mode says who may connect",
                );
            }
            unix(&field, path, socket)
        }
        None => tcp(Some(&field), socket, tls),
    }
}

fn tcp(field: Option<&Field<'_>>, socket: [Option<Field<'_>>; 2], tls: Option<&Field<'_>>) -> Option<Listen> {
    for field in socket.into_iter().flatten() {
        field.problem("is for a Unix socket, and server.listen is a TCP address: leave it out");
    }
    let address = field.map_or(Some(DEFAULT_LISTEN), socket_address)?;
    // Where there is TLS, its own settings say who may ask.
    if let (Some(field), None, false) = (field, tls, address.ip().is_loopback()) {
        field.warning(
            "whoever reaches this address can spend every limit: keep it to loopback or a Unix socket, or let \
             server.tls ask for client certificates",
        );
    }
    Some(Listen::Tcp(address))
}

fn unix(field: &Field<'_>, path: &str, [mode, group]: [Option<Field<'_>>; 2]) -> Option<Listen> {
    if !path.starts_with('/') || path.len() > MOST_SOCKET_PATH {
        field.problem(format!(
            "a Unix socket is unix: and an absolute path of at most {MOST_SOCKET_PATH} bytes, like \
             unix:/run/tallygate/authz.sock"
        ));
        return None;
    }
    let octal = |text: &str| {
        let plain = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        u32::from_str_radix(text, 8).ok().filter(|mode| plain && *mode <= 0o777)
    };
    let mode = mode.map_or(Some(0o660), |field| {
        field.parse(|text| octal(text).ok_or("a mode is three octal digits as a text, like \"0660\""))
    });
    let group = group.map_or(Some(None), |field| {
        let id = if field.is_text() { None } else { u32::try_from(field.whole()?).ok() };
        if id.is_none() {
            field.problem("a group is a numeric id, up to 4294967295: look it up with: getent group NAME");
        }
        id.map(Some)
    });
    Some(Listen::Unix(UnixListen { path: path.into(), mode: mode?, group: group? }))
}

fn socket_address(field: &Field<'_>) -> Option<SocketAddr> {
    field.parse(|text| {
        text.parse::<SocketAddr>().map_err(|_| "an address is IP:PORT, like 127.0.0.1:50051 or [::1]:50051")
    })
}

pub fn bounded(field: &Field<'_>, least: Duration, most: Duration) -> Option<Duration> {
    let duration = field.duration()?;
    if !(least..=most).contains(&duration) {
        field.problem(format!("{} is not within {} to {}", shown(duration), shown(least), shown(most)));
        return None;
    }
    Some(duration)
}

/// The secret, from a file or an environment variable, and that file. Its value is never printed.
pub fn secret(field: &Field<'_>) -> (Option<Secret>, Option<PathBuf>) {
    let chosen = field.clone().private().section().and_then(|section| {
        let chosen = section.one_of(&["secret_file", "secret_env"]);
        section.finish();
        chosen
    });
    let Some((kind, field)) = chosen else { return (None, None) };
    let Some(place) = field.nonempty() else { return (None, None) };
    let (bytes, file) = match kind {
        "secret_file" => (read_secret(place), Some(place.into())),
        _ => {
            let value = std::env::var_os(place).map(OsStringExt::into_vec);
            // Its name is not repeated: who writes the secret itself here should not find it in a log.
            (value.ok_or_else(|| "this environment variable is not set".to_owned()), None)
        }
    };
    let secret = match bytes.map(Secret::read) {
        Ok(Ok(secret)) => Some(secret),
        Ok(Err(short)) => {
            field.problem(format!("{short}: create one with: openssl rand -hex 32"));
            None
        }
        Err(error) => {
            field.problem(error);
            None
        }
    };
    (secret, file)
}

fn read_secret(path: &str) -> Result<Vec<u8>, String> {
    const MOST: u64 = 64 * 1024;
    // Who writes the secret itself here should not find it in a log.
    let shown = if is_path(path) { path } else { "the file" };
    let explain = |error: std::io::Error| format!("{shown}: {}", unreadable(Path::new(path), &error));
    let about = std::fs::metadata(path).map_err(explain)?;
    if about.is_dir() {
        return Err(format!("{shown} is a folder, wanted a file"));
    }
    if !about.is_file() {
        return Err(format!("{shown} is not a file"));
    }
    if about.len() > MOST {
        return Err(format!("{shown} has {} bytes: a secret has at most {MOST}", about.len()));
    }
    std::fs::read(path).map_err(explain)
}
