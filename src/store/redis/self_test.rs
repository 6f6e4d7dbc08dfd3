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
pub const COMMANDS: [&[&str]; 11] = [
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

/// ARGV: for each command the number of its words, then the words. Reply: the names that are denied.
const SCRIPT: &str = "#!lua flags=no-writes
local denied, at = {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  if not redis.acl_check_cmd(unpack(ARGV, at + 1, at + count)) then denied[#denied + 1] = ARGV[at + 1] end
  at = at + 1 + count
end
return denied
";

/// The names of the commands that this user may not send on keys that begin with `prefix`.
pub async fn denied(wire: &MultiplexedConnection, prefix: &str, limit: Duration) -> Result<Vec<String>, StoreError> {
    let key = format!("{prefix}:self-test:v0:{}", "0".repeat(64));
    let mut command = Cmd::new();
    command.arg("EVAL").arg(SCRIPT).arg(0);
    for words in COMMANDS {
        command.arg(words.len());
        for word in words {
            command.arg(if *word == "$KEY" { key.as_str() } else { *word });
        }
    }
    let Value::Array(names) = ask(wire, &command, limit).await? else {
        return Err(StoreError::new(FailureClass::Malformed, "the self-test does not answer a list"));
    };
    let name = |value| if let Value::BulkString(name) = value { String::from_utf8(name).ok() } else { None };
    Ok(names.into_iter().filter_map(name).collect())
}

/// An error that names what is missing, if anything is.
pub async fn run(wire: &MultiplexedConnection, prefix: &str, limit: Duration) -> Result<(), StoreError> {
    let denied = denied(wire, prefix, limit).await?;
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
}
