//! A child process whose output is kept, and which never outlives its owner.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wait::poll;

pub struct Process {
    child: Child,
    stdout: Capture,
    stderr: Capture,
}

impl Process {
    /// Starts `command` without input. Panics if that is impossible.
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = Capture::follow(child.stdout.take());
        let stderr = Capture::follow(child.stderr.take());
        Self { child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Sends a signal by name: `TERM`, `HUP`, `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.pid())]).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot send {name} to process {}", self.pid());
    }

    /// How it ended, if it has.
    pub fn exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours can be waited for")
    }

    /// How it ended; panics with its output if it has not within `within`.
    #[track_caller]
    pub fn wait_exit(&mut self, within: Duration) -> ExitStatus {
        match poll(within, || self.exit()) {
            Some(status) => status,
            None => panic!("still running after {within:?}; it wrote:\n{}{}", self.stdout(), self.stderr()),
        }
    }

    /// Waits for its end as [`wait_exit`](Self::wait_exit) does, and for everything that it wrote.
    #[track_caller]
    pub fn finish(mut self, within: Duration) -> Finished {
        let status = self.wait_exit(within);
        Finished { code: status.code(), stdout: self.stdout.whole(), stderr: self.stderr.whole() }
    }

    /// Kills it at once and waits for its end.
    pub fn kill(&mut self) {
        // Either may fail only because the process has gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that has ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// `None` where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A pipe, read to its end by a thread so that the writer never blocks.
struct Capture {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Capture {
    fn follow(pipe: Option<impl Read + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&kept);
        let mut pipe = pipe.expect("the pipe was asked for");
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut chunk) {
                writer.lock().unwrap_or_else(PoisonError::into_inner).extend(&chunk[..length]);
            }
        });
        Self { kept, reader: Some(reader) }
    }

    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader only reads");
        }
        self.text()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether such a server is there, by its name.
pub fn is_there(name: &str) -> bool {
    std::env::var_os(variable(name)).is_some() || root().join(".parts/bin").join(name).is_file()
}

/// The environment variable that names an own one: redis-server-8.2 is TALLYGATE_REDIS_SERVER_8_2.
pub fn variable(name: &str) -> String {
    format!("TALLYGATE_{}", name.to_uppercase().replace(['-', '.'], "_"))
}

/// A server that `make parts` fetches, or the one that the environment variable names.
pub fn part(name: &str, variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| root().join(".parts/bin").join(name), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `make parts`, or set {variable} to your own", path.display());
    path
}
