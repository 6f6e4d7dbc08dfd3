//! `store`: where counters live; for Redis where the nodes are, who we are to them, and how long we wait.

use std::time::Duration;

use super::certificates::Certificates;
use super::path::path;
use super::server::bounded;
use crate::config::StoreSettings;
use crate::config::reader::{Field, Section};
use crate::store::redis::settings::{
    Address, Credentials, DEFAULT_TIMEOUT, Dialer, Password, RedisSettings, Tls, Topology, Url,
};
use crate::tls::certificate::Role;

const MOST_NODES: usize = 64;
const DEFAULT_COUNTERS: u64 = 1_000_000;
const MOST_COUNTERS: u64 = 100_000_000;

pub fn store(field: &Field<'_>, certificates: &Certificates) -> Option<StoreSettings> {
    let section = field.section()?;
    let chosen = section.one_of(&["redis", "memory"]);
    section.finish();
    match chosen? {
        ("redis", field) => settings(&field, certificates).map(Box::new).map(StoreSettings::Redis),
        (_, field) => memory(&field),
    }
}

fn memory(field: &Field<'_>) -> Option<StoreSettings> {
    let section = field.section()?;
    let max = section.optional("max_counters");
    let max = max.map_or(Some(DEFAULT_COUNTERS), |field| {
        let max = field.whole()?;
        if !(1..=MOST_COUNTERS).contains(&max) {
            field.problem(format!("the embedded store holds 1 to {MOST_COUNTERS} counters"));
            return None;
        }
        Some(max)
    });
    section.finish();
    field.warning("the embedded store counts for this process alone: two sidecars let twice the limit pass");
    let max_counters = usize::try_from(max?).unwrap_or(usize::MAX);
    Some(StoreSettings::Memory { max_counters })
}

fn settings(field: &Field<'_>, certificates: &Certificates) -> Option<RedisSettings> {
    let section = field.clone().private().section()?;
    let chosen = section.one_of(&["url", "sentinel", "cluster"]);
    let timeout = |key| {
        let field = section.optional(key);
        field.map_or(Some(DEFAULT_TIMEOUT), |field| bounded(&field, Duration::from_millis(5), Duration::from_secs(5)))
    };
    let (connect, command) = (timeout("connect_timeout"), timeout("command_timeout"));
    let (credentials, tls) = (credentials(&section), tls(&section, certificates));
    let database = section.optional("database").map_or(Some(0), |field| database(&field));
    section.finish();
    let (kind, field) = chosen?;
    // Where one of these is wrong, a stand-in lets the rest be read and its problems be found.
    let sound = credentials.is_some() && tls.is_some() && database.is_some() && connect.is_some() && command.is_some();
    let mut dialer = Dialer {
        credentials: credentials.unwrap_or_default(),
        tls: tls.flatten(),
        database: database.unwrap_or_default(),
        connect_timeout: connect.unwrap_or(DEFAULT_TIMEOUT),
        command_timeout: command.unwrap_or(DEFAULT_TIMEOUT),
    };
    let topology = match kind {
        "url" => Topology::One(url(&field, &mut dialer)?),
        "sentinel" => sentinel(&field, &dialer, certificates)?,
        _ => cluster(&field, &dialer)?,
    };
    if !sound {
        return None;
    }
    Some(RedisSettings { topology, dialer })
}

/// The address of a URL; who and what else it says goes to the dialer, unless settings beside it say it too.
fn url(field: &Field<'_>, dialer: &mut Dialer) -> Option<Address> {
    let url = field.parse_unseen(Url::parse)?;
    let in_url = url.credentials != Credentials::default();
    if in_url && dialer.credentials != Credentials::default() {
        field.problem("user and password stand in the URL and beside it: write them in one place");
    } else if in_url {
        dialer.credentials = url.credentials;
    }
    if url.database != 0 {
        if dialer.database != 0 && dialer.database != url.database {
            field.problem("the database stands in the URL and beside it: write it in one place");
        }
        dialer.database = url.database;
    }
    match (url.tls, &dialer.tls) {
        (true, None) => dialer.tls = Some(Tls::default()),
        (false, Some(_)) => field.problem("tls is configured and the URL does not ask for it: write rediss://"),
        _ => {}
    }
    Some(url.address)
}

fn sentinel(field: &Field<'_>, dialer: &Dialer, certificates: &Certificates) -> Option<Topology> {
    let section = field.section()?;
    let master = section.required("master", "mymaster").and_then(|field| field.nonempty());
    let nodes = section.required("nodes", "[\"redis-0.example:6379\"]").and_then(|field| nodes(&field));
    let (credentials, tls) = (credentials(&section), tls(&section, certificates));
    section.finish();
    let theirs = Dialer { credentials: credentials?, tls: tls?, database: 0, ..dialer.clone() };
    Some(Topology::Sentinel { master: master?.to_owned(), sentinels: nodes?, dialer: Box::new(theirs) })
}

fn cluster(field: &Field<'_>, dialer: &Dialer) -> Option<Topology> {
    let section = field.section()?;
    let seeds = section.required("nodes", "[\"redis-0.example:6379\"]").and_then(|field| nodes(&field));
    section.finish();
    if dialer.database != 0 {
        field.problem("a Cluster has database 0 only");
    }
    Some(Topology::Cluster { seeds: seeds? })
}

fn nodes(field: &Field<'_>) -> Option<Vec<Address>> {
    let items = field.list()?;
    if items.is_empty() || items.len() > MOST_NODES {
        field.problem(format!("a list of nodes has 1 to {MOST_NODES} entries"));
        return None;
    }
    let read: Vec<_> = items.iter().map(|item| item.parse_unseen(Address::parse)).collect();
    read.into_iter().collect()
}

fn database(field: &Field<'_>) -> Option<i64> {
    let number = field.whole()?;
    let fits = i64::try_from(number).ok().filter(|number| *number <= 1_000_000);
    if fits.is_none() {
        field.problem("a database is a small number");
    }
    fits
}

fn credentials(section: &Section<'_>) -> Option<Credentials> {
    let (user, file) = (section.optional("username"), section.optional("password_file"));
    let username = user.map_or(Some(None), |field| {
        let user = field.nonempty()?;
        if file.is_none() {
            field.problem("a user without a password is never sent: write a password_file beside it");
        }
        Some(Some(user.to_owned()))
    });
    let password = file.map_or(Some(None), |field| path(&field).map(|path| Some(Password::File(path))));
    Some(Credentials { username: username?, password: password? })
}

fn tls(section: &Section<'_>, certificates: &Certificates) -> Option<Option<Tls>> {
    let Some(field) = section.optional("tls").map(Field::public) else { return Some(None) };
    let section = field.section()?;
    let certificate = |key, role| {
        let read = |field: Field<'_>| certificates.read(&field, role).map(|(path, _)| Some(path));
        section.optional(key).map_or(Some(None), read)
    };
    let ca = certificate("ca_file", Role::Authorities);
    let certificate = certificate("certificate_file", Role::Chain);
    let key = section.optional("private_key_file");
    if section.optional("certificate_file").is_some() != key.is_some() {
        field.problem("certificate_file and private_key_file belong together: write both, or none");
    }
    let key = key.map_or(Some(None), |field| certificates.read_key(&field).map(|(path, _)| Some(path)));
    let server_name = section.optional("server_name").map_or(Some(None), |field| field.parse(server_name).map(Some));
    section.finish();
    let identity = certificate?.zip(key?);
    Some(Some(Tls { ca_file: ca?, identity, server_name: server_name? }))
}

fn server_name(text: &str) -> Result<String, &'static str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b".-_:".contains(&b);
    let fits = (1..=253).contains(&text.len()) && text.bytes().all(allowed);
    if fits { Ok(text.to_owned()) } else { Err("a server's name is a host name or an IP address, without a port") }
}
