//! What a server had counted that was killed or hangs: it wrote each count to its append-only file before it answered.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::wait::wait_for;

const FOLDER: &str = "appendonlydir";

pub struct Remains {
    dir: PathBuf,
}

impl Remains {
    /// Noted while `server` lives.
    pub fn of(server: &RedisServer) -> Self {
        let Value::Array(setting) = server.run(&["CONFIG", "GET", "dir"]) else { panic!("CONFIG GET answers a list") };
        Self { dir: setting[1].text().into() }
    }

    /// Every counter by its key, as another server reads a copy of the file.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let copy = TempDir::with_prefix("tallygate-remains-").expect("a temporary folder");
        let to = copy.path().join(FOLDER);
        fs::create_dir(&to).expect("a temporary folder");
        for file in fs::read_dir(self.dir.join(FOLDER)).expect("an append-only file was asked for") {
            let file = file.expect("an entry");
            fs::copy(file.path(), to.join(file.file_name())).expect("a file can be copied");
        }
        let dir = copy.path().display().to_string();
        let reader = RedisServer::start_with(|| ["--appendonly", "yes", "--dir", &dir].map(str::to_owned).to_vec());
        wait_for("the file to be read", Duration::from_secs(10), || reader.info("persistence", "loading") == 0);
        reader.counters()
    }
}
