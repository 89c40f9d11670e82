//! Limits the cost of `top` to a share of one processor, whatever it watches ([`Pace`]).
//!
//! CPU time is a budget. It accrues at [`SHARE`] of the elapsed time, and frames consume it. Each frame first pays for
//! reading the system, listing the processes and drawing. If that takes more than half of an interval's budget, the interval
//! becomes longer. The rest of the budget pays for inspections of processes. If the rest is too small, rows become stale and
//! are marked as stale.

/// The CPU time that `top` uses at most, as a share of one processor. It is below the promised 1 %, because starting costs
/// CPU time, too.
const SHARE: f64 = 0.007;
/// The promised limit, for messages.
pub const PROMISE: &str = "1 % of a processor";
/// The initial budget, in seconds of CPU time: the first frames inspect the existing processes.
const START_S: f64 = 0.12;
/// Maximum budget, in seconds of CPU time. It prevents a burst after a long idle time.
const MAX_BUDGET_S: f64 = 0.15;
/// The part of an interval's budget that a frame may use before the interval becomes longer.
const FRAME_PART: f64 = 0.5;

/// The budget of CPU time.
#[derive(Clone, Debug)]
pub struct Pace {
    requested_s: f64,
    every_s: f64,
    frame_s: f64,
    /// The remaining budget in seconds; negative after a process that cost more than expected.
    budget_s: f64,
}

impl Pace {
    /// The initial budget, with the requested interval.
    pub fn new(requested_s: f64) -> Pace {
        Pace { requested_s, every_s: requested_s, frame_s: 0.0, budget_s: START_S }
    }

    /// Seconds from one frame to the next.
    pub fn every_s(&self) -> f64 {
        self.every_s
    }

    /// The requested interval in seconds.
    pub fn requested_s(&self) -> f64 {
        self.requested_s
    }

    /// CPU seconds of a typical frame, without inspections of processes.
    pub fn frame_s(&self) -> f64 {
        self.frame_s
    }

    /// Adds the budget for `seconds` of elapsed time.
    pub fn accrue(&mut self, seconds: f64) {
        self.budget_s = (self.budget_s + seconds * SHARE).min(MAX_BUDGET_S);
    }

    /// Whether the budget allows inspecting a process with this expected cost. A process that costs more than the largest
    /// budget is inspected once the budget is full. That makes the budget negative, which delays further inspections.
    pub fn affords(&self, expected_s: f64) -> bool {
        self.budget_s >= expected_s.min(MAX_BUDGET_S)
    }

    /// Charges the CPU time of an inspection.
    pub fn charge_inspection(&mut self, cpu_s: f64) {
        self.budget_s -= cpu_s;
    }

    /// Charges the CPU time of a frame without inspections, and sets the interval that the budget allows.
    pub fn charge_frame(&mut self, cpu_s: f64) {
        self.budget_s -= cpu_s;
        // The first frame reads code and files that are cached later, so its cost is not typical.
        let usual_s = if self.frame_s > 0.0 { (self.frame_s + cpu_s) / 2.0 } else { cpu_s };
        self.frame_s = usual_s;
        self.every_s = self.requested_s.max(usual_s / (SHARE * FRAME_PART));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates, on a virtual clock, how `top` watches processes with these costs. Returns the share of a processor used,
    /// and how often each process was inspected.
    fn watch(pace: &mut Pace, frame_s: f64, looks_s: &[f64], until_s: f64) -> (f64, Vec<u32>) {
        let (mut now_s, mut spent_s) = (0.0, 0.0);
        let mut looks = vec![0; looks_s.len()];
        let mut next = 0;
        while now_s < until_s {
            for _ in 0..looks_s.len() {
                if !pace.affords(looks_s[next]) {
                    break;
                }
                pace.charge_inspection(looks_s[next]);
                spent_s += looks_s[next];
                looks[next] += 1;
                next = (next + 1) % looks_s.len();
            }
            pace.charge_frame(frame_s);
            spent_s += frame_s;
            pace.accrue(pace.every_s());
            now_s += pace.every_s();
        }
        (spent_s / now_s, looks)
    }

    #[test]
    fn top_costs_less_than_a_hundredth_whatever_it_watches() {
        for (frame_s, looks_s) in [
            (0.004, vec![0.0005; 200]),
            (0.004, vec![0.0005; 20_000]),
            (0.1, vec![0.001; 5_000]),
            (0.004, vec![2.0; 3]),
            (0.0, vec![10.0]),
            (5.0, vec![0.001; 10]),
        ] {
            let mut pace = Pace::new(2.0);
            let (share, looks) = watch(&mut pace, frame_s, &looks_s, 20_000.0);
            assert!(share < 0.01, "{share} with {frame_s} a frame");
            assert!(looks.iter().all(|times| *times > 0), "everything has its turn: {frame_s}, {looks:?}");
        }
    }

    #[test]
    fn the_interval_is_lengthened_only_where_a_frame_costs_too_much() {
        let mut cheap = Pace::new(2.0);
        watch(&mut cheap, 0.004, &[2.0; 3], 1_000.0);
        assert_eq!(cheap.every_s(), 2.0, "rows become stale instead");
        let mut dear = Pace::new(2.0);
        watch(&mut dear, 0.04, &[], 1_000.0);
        assert!((dear.every_s() * SHARE * FRAME_PART - 0.04).abs() < 1e-9, "{} s", dear.every_s());
        // When frames are cheap again, the interval becomes shorter again.
        watch(&mut dear, 0.001, &[], 1_000.0);
        assert_eq!(dear.every_s(), 2.0);
    }

    #[test]
    fn the_first_frame_inspects_the_existing_processes() {
        let mut pace = Pace::new(2.0);
        let looks = (0..200).take_while(|_| {
            let affords = pace.affords(0.0005);
            pace.charge_inspection(0.0005);
            affords
        });
        assert_eq!(looks.count(), 200);
    }
}
