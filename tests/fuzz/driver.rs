//! Runs the cases of one target until its time is over, and says how to repeat the one that failed.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// How many targets share the time.
const TARGETS: u32 = 7;
/// All targets together, unless a setting says otherwise.
const SECONDS: u64 = 28;
/// An input that takes longer, three times in a row, hangs its target: once may be the machine's doing.
const LONGEST: Duration = Duration::from_secs(1);

/// Random numbers (SplitMix64): the same for the same seed, everywhere.
pub struct Random(u64);

impl Random {
    fn new(seed: u64, case: u64) -> Self {
        Self(seed ^ case.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a size");
        usize::try_from(self.next() % end).expect("below a size")
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// One of `choices`, of which there is at least one.
    pub fn one_of<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }

    pub fn word(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }
}

/// Tries `check` with what `make` makes, case after case. A case that panics or takes too long ends the run.
#[track_caller]
pub fn run<T: Debug>(target: &str, mut make: impl FnMut(&mut Random) -> T, mut check: impl FnMut(&T)) {
    let seed = setting("TALLYGATE_FUZZ_SEED").unwrap_or(1);
    let seconds = setting("TALLYGATE_FUZZ_SECONDS").unwrap_or(SECONDS);
    let only = setting("TALLYGATE_FUZZ_CASE");
    let (start, time) = (Instant::now(), Duration::from_secs(seconds) / TARGETS);
    let mut case = only.unwrap_or(0);
    loop {
        let input = make(&mut Random::new(seed, case));
        let mut took = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| check(&input)));
            took = took.min(began.elapsed());
            if let Err(panic) = outcome {
                tell(target, seed, case, &input);
                resume_unwind(panic);
            }
            if took <= LONGEST {
                break;
            }
        }
        if took > LONGEST {
            tell(target, seed, case, &input);
            panic!("{target}: case {case} took {took:?}");
        }
        case += 1;
        if only.is_some() || start.elapsed() >= time {
            break;
        }
    }
    println!("{target}: {case} cases of seed {seed} in {:?}", start.elapsed());
    assert!(case > 20 || only.is_some(), "{target}: {case} cases are too few to tell anything");
}

fn tell(target: &str, seed: u64, case: u64, input: &impl Debug) {
    eprintln!("{target}: case {case} fails, with the input\n{input:?}");
    eprintln!("again: TALLYGATE_FUZZ_SEED={seed} TALLYGATE_FUZZ_CASE={case} cargo test --test fuzz {target}");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no whole number: {text}")))
}
