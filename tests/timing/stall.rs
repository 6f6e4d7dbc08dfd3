//! How long this machine lets a thread wait that only wants to wake after a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// On top of every promised bound.
const SLACK: Duration = Duration::from_millis(50);

pub struct StallProbe {
    done: Arc<AtomicBool>,
    longest_us: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl StallProbe {
    pub fn start() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let longest_us = Arc::new(AtomicU64::new(0));
        let (ending, longest) = (Arc::clone(&done), Arc::clone(&longest_us));
        let thread = thread::spawn(move || {
            let nap = Duration::from_millis(1);
            while !ending.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(nap);
                let late = asleep.elapsed().saturating_sub(nap);
                longest.fetch_max(late.as_micros().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { done, longest_us, thread: Some(thread) }
    }

    /// The longest stall so far.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Ordering::Relaxed))
    }

    /// `promised` with the slack and the stall of this run.
    pub fn bound(&self, promised: Duration) -> Duration {
        promised + SLACK + self.longest()
    }
}

impl Drop for StallProbe {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only measures; a panic in it would already have been shown.
            let _ = thread.join();
        }
    }
}
