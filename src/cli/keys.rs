//! `tallygate key`, `peek`, `reset`: the keys of a tenant and a subject, what they hold, and their removal.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::Args;

use super::{ConfigFile, exit, runtime};
use crate::config::{Config, StoreSettings};
use crate::decision::address::identity_bytes;
use crate::decision::identity::{Evidence, Part, Source};
use crate::decision::policy::Policy;
use crate::store::redis::operator::{Held, Unasked, peek, reset};
use crate::store::redis::settings::RedisSettings;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// A key as the log prints it, in place of the options below
    #[arg(long, conflicts_with_all = ["policy", "limit", "tenant", "subject", "address"])]
    key: Option<String>,
    /// The policy
    #[arg(long)]
    policy: Option<String>,
    /// The limit; needed for one that does not count by subject
    #[arg(long)]
    limit: Option<String>,
    /// The tenant with its evidence, like jwt/tid=acme or route/tenant=acme
    #[arg(long, value_name = "SOURCE=VALUE", value_parser = evidence)]
    tenant: Option<(String, String)>,
    /// The issuer of the tenant's token
    #[arg(long, default_value = "")]
    tenant_issuer: String,
    /// The tenant's claim is a number in the token, not a text (`integers: true`)
    #[arg(long, requires = "tenant")]
    tenant_integer: bool,
    /// The subject with its evidence, like jwt/sub=ada or mtls=spiffe://td.example/a
    #[arg(long, value_name = "SOURCE=VALUE", value_parser = evidence)]
    subject: Option<(String, String)>,
    /// The issuer of the subject's token
    #[arg(long, default_value = "")]
    subject_issuer: String,
    /// The subject's claim is a number in the token, not a text (`integers: true`)
    #[arg(long, requires = "subject")]
    subject_integer: bool,
    /// The client's address, for limits per address
    #[arg(long)]
    address: Option<IpAddr>,
}

fn evidence(text: &str) -> Result<(String, String), String> {
    let (source, value) = text.split_once('=').ok_or("write it as SOURCE=VALUE, like jwt/sub=ada")?;
    Ok((source.to_owned(), value.to_owned()))
}

/// What to do with the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Print,
    Peek,
    Reset,
}

pub fn run(arguments: &Arguments, verb: Verb) -> ExitCode {
    let config = match arguments.config.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let keys = match keys(arguments, &config, verb) {
        Ok(keys) => keys,
        Err(error) => {
            tell!("{error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    if verb == Verb::Print {
        keys.iter().for_each(|key| say!("{key}"));
        return ExitCode::SUCCESS;
    }
    let StoreSettings::Redis(settings) = &config.fixed.store else {
        tell!("the embedded store lives in the running process: only a restart empties it");
        return ExitCode::from(exit::USAGE);
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    match runtime.block_on(act(settings, &keys, verb)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => unasked(&error),
    }
}

/// Tells why Redis could not be asked, and what to do.
pub fn unasked(error: &Unasked) -> ExitCode {
    tell!("{error}\n-> {}", error.remedy);
    ExitCode::from(exit::UNAVAILABLE)
}

async fn act(settings: &RedisSettings, keys: &[String], verb: Verb) -> Result<(), Unasked> {
    for key in keys {
        if verb == Verb::Reset {
            let was_there = reset(settings, key).await?;
            say!("{key}: {}", if was_there { "removed" } else { "was not there" });
        } else {
            say!("{key}: {}", show(&peek(settings, key).await?));
        }
    }
    Ok(())
}

/// What a key holds, in words.
pub fn show(held: &Held) -> String {
    let until = |expires_in: &Option<std::time::Duration>| match expires_in {
        Some(left) => format!("expires in {:.1} s", left.as_secs_f64()),
        None => "no expiry".to_owned(),
    };
    let foreign = "Tallygate never writes that, and checks of this key fail until it is reset";
    match held {
        Held::Nothing => "nothing".to_owned(),
        Held::Text { value, expires_in: None } => format!("{value:?}, no expiry: {foreign}"),
        Held::Text { value, expires_in } => format!("{value:?}, {}", until(expires_in)),
        Held::Units { count, expires_in: None } => format!("a log of {count} units, no expiry: {foreign}"),
        Held::Units { count, expires_in } => format!("a log of {count} units, {}", until(expires_in)),
        Held::Foreign { kind, expires_in } => format!("a {kind}, {}: {foreign}", until(expires_in)),
    }
}

fn keys(arguments: &Arguments, config: &Config, verb: Verb) -> Result<Vec<String>, String> {
    if let Some(key) = &arguments.key {
        let ours = format!("{}:", config.fixed.key_prefix.as_str());
        // To look at another one does no harm.
        if verb == Verb::Reset && !key.starts_with(&ours) {
            return Err(format!("{key:?} is no key of Tallygate's: they begin with {ours}"));
        }
        return Ok(vec![key.clone()]);
    }
    let names = || config.rules.policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>().join(", ");
    let wanted = arguments.policy.as_deref().ok_or_else(|| format!("say --policy (one of {}) or --key", names()))?;
    let policy = config.rules.policies.iter().find(|policy| policy.name.as_str() == wanted);
    let policy = policy.ok_or_else(|| format!("there is no policy {wanted}: there are {}", names()))?;
    let Arguments { tenant, tenant_issuer, tenant_integer, subject, subject_issuer, subject_integer, .. } = arguments;
    let address = arguments.address.map(|address| {
        let value = identity_bytes(address, config.rules.identity.address.ipv6_prefix);
        Evidence { kind: "address", issuer: "", value: value.into() }
    });
    let identity = &config.rules.identity;
    // In the order of `Part`.
    let found = [
        given(Part::Tenant, &identity.tenant, tenant.as_ref(), (tenant_issuer, *tenant_integer))?,
        given(Part::Subject, &identity.subject, subject.as_ref(), (subject_issuer, *subject_integer))?,
        address,
    ];
    let keys = policy.keys(|part| found[part as usize].as_ref());
    let mut chosen = Vec::new();
    for place in chosen_limits(policy, arguments.limit.as_deref())? {
        match &keys[place] {
            Ok(key) => chosen.push(key.text.clone()),
            Err(part) => return Err(format!("this needs --{}", part.as_str())),
        }
    }
    Ok(chosen)
}

/// Evidence as an operator writes it. A source or an issuer that the configuration does not have would only name a key that
/// nobody uses.
fn given<'a>(
    part: Part,
    sources: &[Source],
    evidence: Option<&'a (String, String)>,
    (issuer, is_integer): (&'a str, bool),
) -> Result<Option<Evidence<'a>>, String> {
    let Some((kind, text)) = evidence else { return Ok(None) };
    let named: Vec<_> = sources.iter().filter(|source| source.kind() == kind).collect();
    if named.is_empty() {
        let kinds: Vec<_> = sources.iter().map(Source::kind).collect();
        return Err(format!("{kind} is no source of identity.{}: it has {}", part.as_str(), kinds.join(", ")));
    }
    let accepted = |issuers: &[Box<str>]| issuers.is_empty() || issuers.iter().any(|accepted| **accepted == *issuer);
    if !named.iter().any(|source| source.issuers().map_or(issuer.is_empty(), accepted)) {
        let issuers: Vec<&str> =
            named.iter().filter_map(|source| source.issuers()).flatten().map(|name| &**name).collect();
        return Err(match issuers.as_slice() {
            [] => format!("{kind} has no issuer: leave out --{}-issuer", part.as_str()),
            issuers => format!("say --{}-issuer: {kind} counts only from {}", part.as_str(), issuers.join(", ")),
        });
    }
    let value = named.iter().find_map(|source| source.value_of(text, is_integer)).ok_or_else(|| {
        format!("{kind} yields no such number: it has to say integers: true, and numbers are 0 to 9007199254740991")
    })?;
    Ok(Some(Evidence { kind, issuer, value }))
}

/// Without a name: the limits that count by subject, since the others are shared with other subjects.
fn chosen_limits(policy: &Policy, name: Option<&str>) -> Result<Vec<usize>, String> {
    let places = policy.limits.iter().enumerate();
    let chosen: Vec<usize> = match name {
        Some(name) => places.filter(|(_, limit)| limit.name.as_str() == name).map(|(place, _)| place).collect(),
        None => places.filter(|(_, limit)| limit.per.contains(&Part::Subject)).map(|(place, _)| place).collect(),
    };
    if chosen.is_empty() {
        let names: Vec<_> = policy.limits.iter().map(|limit| limit.name.as_str()).collect();
        return Err(format!(
            "say --limit: one of {} (a limit that is not per subject is shared, so it is never chosen silently)",
            names.join(", ")
        ));
    }
    Ok(chosen)
}
