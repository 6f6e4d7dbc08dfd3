//! What this user may do, asked before a connection is used and without writing anything.
//!
//! The script lists every command that the algorithms' scripts send and asks the server whether the user may send it on a
//! key of ours (`redis.acl_check_cmd`, Redis 7.0). So a missing permission is found at connect, not by a half-made charge.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::connection::ask;
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

/// The commands of the scripts in `lua/`, each with arguments of the right number. A test holds this list against the scripts.
const COMMANDS: [&[&str]; 11] = [
    &["GET", "$KEY"],
    &["PEXPIRETIME", "$KEY"],
    &["SET", "$KEY", "1", "PXAT", "1"],
    &["INCRBY", "$KEY", "1"],
    &["ZRANGE", "$KEY", "0", "0", "WITHSCORES"],
    &["ZCARD", "$KEY"],
    &["ZCOUNT", "$KEY", "0", "1"],
    &["ZADD", "$KEY", "1", "1"],
    &["ZREMRANGEBYSCORE", "$KEY", "0", "1"],
    &["PEXPIREAT", "$KEY", "1"],
    &["TIME"],
];

/// How those scripts are called.
const CALL: &[&str] = &["EVALSHA", "0000000000000000000000000000000000000000", "1", "$KEY"];

/// What else a node of a Cluster is sent.
pub const CLUSTER: [&[&str]; 3] = [&["ASKING"], &["CLUSTER", "SLOTS"], &["CLUSTER", "INFO"]];

/// What checks do without, less well: the script's text is sent each time, a replica is found by the first check.
pub const COMFORT: [&[&str]; 2] = [&["SCRIPT", "LOAD", "x"], &["ROLE"]];

/// What no check does without.
pub fn needed() -> Vec<&'static [&'static str]> {
    COMMANDS.into_iter().chain([CALL]).collect()
}

/// ARGV: for each command the number of its words, then the words. Reply: which of the commands are denied, from 0.
const SCRIPT: &str = "#!lua flags=no-writes
local denied, at, place = {}, 1, 0
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  if not redis.acl_check_cmd(unpack(ARGV, at + 1, at + count)) then denied[#denied + 1] = place end
  at, place = at + 1 + count, place + 1
end
return denied
";

/// The names of those of `commands` that this user may not send on keys that begin with `prefix`.
pub async fn denied(
    wire: &MultiplexedConnection,
    prefix: &str,
    commands: &[&[&str]],
    limit: Duration,
) -> Result<Vec<String>, StoreError> {
    let key = format!("{prefix}:self-test:v0:{}", "0".repeat(64));
    let mut command = Cmd::new();
    command.arg("EVAL").arg(SCRIPT).arg(0);
    for words in commands {
        command.arg(words.len());
        for word in *words {
            command.arg(if *word == "$KEY" { key.as_str() } else { *word });
        }
    }
    let malformed = || StoreError::new(FailureClass::Malformed, "the self-test does not answer a list of places");
    let Value::Array(places) = ask(wire, &command, limit).await? else { return Err(malformed()) };
    let name = |place: Value| match place {
        Value::Int(place) => usize::try_from(place).ok().and_then(|place| commands.get(place)).map(|words| name(words)),
        _ => None,
    };
    places.into_iter().map(|place| name(place).ok_or_else(malformed)).collect()
}

/// As ACL rules write it.
fn name(words: &[&str]) -> String {
    match words {
        [group @ ("SCRIPT" | "CLUSTER"), command, ..] => format!("{group}|{command}"),
        [command, ..] => (*command).to_owned(),
        [] => String::new(),
    }
}

/// An error that names what is missing, if anything is.
pub async fn run(wire: &MultiplexedConnection, prefix: &str, limit: Duration) -> Result<(), StoreError> {
    let denied = denied(wire, prefix, &needed(), limit).await?;
    if denied.is_empty() {
        return Ok(());
    }
    let what = format!("the Redis user may not send {} on keys {prefix}:*", denied.join(", "));
    Err(StoreError::new(FailureClass::Permission, what))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_of_the_scripts_is_asked_about() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        let mut sent = BTreeSet::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for piece in text.split("call('").skip(1) {
                sent.insert(piece.split('\'').next().unwrap().to_owned());
            }
        }
        let asked: BTreeSet<String> = COMMANDS.iter().map(|words| words[0].to_owned()).collect();
        assert_eq!(asked, sent);
    }

    #[test]
    fn commands_are_named_as_acl_rules_name_them() {
        assert_eq!(name(COMFORT[0]), "SCRIPT|LOAD");
        assert_eq!(name(CALL), "EVALSHA");
    }
}
