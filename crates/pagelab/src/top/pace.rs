//! What top may cost: a share of one processor, whatever it watches.
//!
//! CPU time is money. It is earned by waiting, at [`SHARE`] of the time that passes, and spent by frames. Each frame takes what it
//! needs for the system, the list of processes and the drawing; where that is more than half of what an interval earns, the
//! interval is lengthened. What is left is for looks at processes: where there is not enough, their rows grow old, which they show.

/// The share of one processor that it costs at most, below the hundredth that is promised: starting costs something too.
const SHARE: f64 = 0.007;
/// The promise, in words.
pub const PROMISE: &str = "1 % of a processor";
/// CPU time in seconds that is there when it starts: the first frames look at what there is.
const START_S: f64 = 0.12;
/// CPU time in seconds that is kept at most: nothing is looked at in a burst after a long idle time.
const MOST_KEPT_S: f64 = 0.15;
/// The part of an interval's earnings that the frame itself may take.
const FRAME_PART: f64 = 0.5;

/// The account.
#[derive(Clone, Debug)]
pub struct Pace {
    asked_s: f64,
    every_s: f64,
    frame_s: f64,
    /// CPU time that may be spent; below zero after a process that cost more than expected.
    kept_s: f64,
}

impl Pace {
    /// With an interval that was asked for.
    pub fn new(asked_s: f64) -> Pace {
        Pace { asked_s, every_s: asked_s, frame_s: 0.0, kept_s: START_S }
    }

    /// Seconds from one frame to the next.
    pub fn every_s(&self) -> f64 {
        self.every_s
    }

    /// Seconds that were asked for.
    pub fn asked_s(&self) -> f64 {
        self.asked_s
    }

    /// CPU time of the last frame, without looks at processes.
    pub fn frame_s(&self) -> f64 {
        self.frame_s
    }

    /// Time passed, in seconds.
    pub fn waited(&mut self, seconds: f64) {
        self.kept_s = (self.kept_s + seconds * SHARE).min(MOST_KEPT_S);
    }

    /// Whether a process may be looked at that is expected to cost so much. One that costs more than can ever be kept is looked
    /// at when all is there that can be: it makes a debt, which is paid before anything else is looked at.
    pub fn affords(&self, expected_s: f64) -> bool {
        self.kept_s >= expected_s.min(MOST_KEPT_S)
    }

    /// A look at a process took so much CPU time.
    pub fn looked(&mut self, cpu_s: f64) {
        self.kept_s -= cpu_s;
    }

    /// A frame took so much CPU time, without looks at processes. The interval is that which can be paid for.
    pub fn drew(&mut self, cpu_s: f64) {
        self.kept_s -= cpu_s;
        // The first frame reads code and files that later ones find in memory; it does not speak for them.
        let usual_s = if self.frame_s > 0.0 { (self.frame_s + cpu_s) / 2.0 } else { cpu_s };
        self.frame_s = usual_s;
        self.every_s = self.asked_s.max(usual_s / (SHARE * FRAME_PART));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches processes that cost so much each, for so long, by a clock of its own; the share of a processor that it cost, and
    /// how often each was looked at.
    fn watch(pace: &mut Pace, frame_s: f64, looks_s: &[f64], until_s: f64) -> (f64, Vec<u32>) {
        let (mut now_s, mut spent_s) = (0.0, 0.0);
        let mut looks = vec![0; looks_s.len()];
        let mut next = 0;
        while now_s < until_s {
            for _ in 0..looks_s.len() {
                if !pace.affords(looks_s[next]) {
                    break;
                }
                pace.looked(looks_s[next]);
                spent_s += looks_s[next];
                looks[next] += 1;
                next = (next + 1) % looks_s.len();
            }
            pace.drew(frame_s);
            spent_s += frame_s;
            pace.waited(pace.every_s());
            now_s += pace.every_s();
        }
        (spent_s / now_s, looks)
    }

    #[test]
    fn it_costs_less_than_a_hundredth_whatever_it_watches() {
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
        assert_eq!(cheap.every_s(), 2.0, "rows grow old instead");
        let mut dear = Pace::new(2.0);
        watch(&mut dear, 0.04, &[], 1_000.0);
        assert!((dear.every_s() * SHARE * FRAME_PART - 0.04).abs() < 1e-9, "{} s", dear.every_s());
        // And shortened again.
        watch(&mut dear, 0.001, &[], 1_000.0);
        assert_eq!(dear.every_s(), 2.0);
    }

    #[test]
    fn the_first_frame_looks_at_what_there_is() {
        let mut pace = Pace::new(2.0);
        let looks = (0..200).take_while(|_| {
            let affords = pace.affords(0.0005);
            pace.looked(0.0005);
            affords
        });
        assert_eq!(looks.count(), 200);
    }
}
