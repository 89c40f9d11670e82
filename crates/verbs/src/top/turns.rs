//! Decides which processes `top` inspects next ([`order`]).

/// A process that may be inspected, with what determines its turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Seconds since the last inspection. If there was none, since the process was first listed.
    pub waited_s: f64,
    /// Whether the process has never been inspected.
    pub is_new: bool,
    /// Whether its faults or its resident memory have changed since the last inspection.
    pub has_changed: bool,
    /// Whether the kernel has split or collapsed large pages of any process since the last inspection.
    pub split_or_collapsed: bool,
    /// The process's resident memory.
    pub resident_bytes: u64,
}

/// Seconds after which a process is inspected again even if there is no sign of a change.
const REST_S: f64 = 60.0;

/// The indexes of processes to inspect, in order: first those that are new or have changed; then those that the kernel may
/// have changed; then those last inspected `REST_S` ago or earlier. Within each group the longest wait comes first, so that
/// no process starves, and of equal waits the largest process.
pub fn order(known: &[Candidate]) -> Vec<usize> {
    let mut due: Vec<(usize, u8)> =
        known.iter().enumerate().filter_map(|(place, one)| Some((place, rank(one)?))).collect();
    due.sort_by(|(a, rank_a), (b, rank_b)| {
        let (a, b) = (&known[*a], &known[*b]);
        let waited = b.waited_s.total_cmp(&a.waited_s);
        rank_a.cmp(rank_b).then(waited).then(b.resident_bytes.cmp(&a.resident_bytes))
    });
    due.into_iter().map(|(place, _)| place).collect()
}

fn rank(known: &Candidate) -> Option<u8> {
    match known {
        Candidate { is_new: true, .. } | Candidate { has_changed: true, .. } => Some(0),
        Candidate { split_or_collapsed: true, .. } => Some(1),
        Candidate { waited_s, .. } if *waited_s >= REST_S => Some(2),
        Candidate { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTING: Candidate =
        Candidate { waited_s: 5.0, is_new: false, has_changed: false, split_or_collapsed: false, resident_bytes: 1 };

    #[test]
    fn processes_that_did_not_change_are_skipped() {
        assert_eq!(order(&[RESTING; 200]), [0; 0]);
    }

    #[test]
    fn the_longest_waiting_process_comes_first_then_the_largest() {
        let new = |waited_s, resident_bytes| Candidate { waited_s, is_new: true, resident_bytes, ..RESTING };
        let moved = |waited_s| Candidate { waited_s, has_changed: true, ..RESTING };
        let known = [
            Candidate { waited_s: REST_S, ..RESTING },
            Candidate { split_or_collapsed: true, ..RESTING },
            moved(2.0),
            RESTING,
            moved(4.0),
            new(3.0, 1),
            new(3.0, 9),
            new(0.0, 100),
        ];
        assert_eq!(order(&known), [4, 6, 5, 2, 7, 1, 0]);
    }
}
