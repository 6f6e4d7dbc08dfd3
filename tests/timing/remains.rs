//! What a server that was killed had counted: it wrote each count to its append-only file before it answered.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::wait::wait_for;

pub struct Remains {
    folder: String,
}

impl Remains {
    /// Noted while `server` lives.
    pub fn of(server: &RedisServer) -> Self {
        let Value::Array(setting) = server.run(&["CONFIG", "GET", "dir"]) else { panic!("CONFIG GET answers a list") };
        Self { folder: setting[1].text() }
    }

    /// Every counter by its key, as another server reads them.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let reader =
            RedisServer::start_with(|| ["--appendonly", "yes", "--dir", &self.folder].map(str::to_owned).to_vec());
        let is_read = || reader.info("persistence", "loading") == 0;
        wait_for("the file to be read", Duration::from_secs(10), is_read);
        reader.counters()
    }
}
