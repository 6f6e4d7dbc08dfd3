//! The store's clock, bounded from this side, so that a command can carry its own deadline.
//!
//! A command that timed out here may still be read there later. Each reply tells the store's time, which bounds the
//! offset between the two clocks: with the command sent at *a* and answered at *b* (monotonic),
//! `store - b <= offset <= store + 1 us - a`. The largest lower bound turns our deadline into the store's
//! milliseconds, on the early side: it only ever refuses a little too soon, by about the quickest round trip.

/// How fast a clock may drift: the bounds widen by this with age.
const DRIFT_PER_MILLION: i64 = 200;

/// Bounds of `store clock - our clock`, in microseconds. Our clock is any monotonic one.
#[derive(Debug, Clone, Copy)]
pub struct ClockBounds {
    low: i64,
    high: i64,
    /// When the bounds were last aged, by our clock.
    at: i64,
}

impl ClockBounds {
    /// From the first reply: its store time, and when the command was sent and answered.
    pub fn new(sent: i64, received: i64, store: i64) -> Self {
        Self { low: store - received, high: store + 1 - sent, at: received }
    }

    /// Takes one more reply in. When the bounds cross, one of the clocks stepped: the newest reply rules.
    pub fn learn(&mut self, sent: i64, received: i64, store: i64) {
        let newest = Self::new(sent, received, store);
        let drift = self.drift(received);
        let merged = Self {
            low: newest.low.max(self.low - drift),
            high: newest.high.min(self.high + drift),
            at: received.max(self.at),
        };
        *self = if merged.low <= merged.high { merged } else { newest };
    }

    /// The last millisecond of the store's clock that surely lies before `deadline` (our clock).
    pub fn not_after_ms(&self, deadline: i64) -> i64 {
        (deadline + self.low - self.drift(deadline)).div_euclid(1000) - 1
    }

    fn drift(&self, now: i64) -> i64 {
        (now - self.at).max(0) * DRIFT_PER_MILLION / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_later_on_the_stores_clock_than_here() {
        // The store is 1,000,000,000 us ahead; the round trip took 400 us.
        let bounds = ClockBounds::new(5_000, 5_400, 1_000_005_100);
        let not_after = bounds.not_after_ms(205_000);
        assert_eq!(not_after, 1_000_203); // 1,000,205.0 ms, less 0.34 ms of round trip, floored, less one
        let latest_us = (not_after + 1) * 1000 - 1; // `now` is floored in the script
        assert!(latest_us - 1_000_000_000 < 205_000);
    }

    #[test]
    fn many_replies_narrow_the_bounds() {
        let mut bounds = ClockBounds::new(0, 1000, 1_000_500);
        bounds.learn(2000, 2100, 1_002_050);
        assert_eq!((bounds.low, bounds.high), (999_950, 1_000_051));
    }

    #[test]
    fn a_clock_that_stepped_either_way_rules_from_its_first_reply() {
        for step in [-60_000_000, 60_000_000] {
            let mut bounds = ClockBounds::new(0, 100, 1_000_050);
            bounds.learn(1000, 1100, 1_001_050 + step);
            assert_eq!((bounds.low, bounds.high), (999_950 + step, 1_000_051 + step));
        }
    }

    #[test]
    fn bounds_age_by_200_ppm() {
        let bounds = ClockBounds::new(0, 0, 0);
        assert_eq!(bounds.not_after_ms(1_000_000_000), 1_000_000 - 200 - 1);
    }
}
