//! Whose turn it is: which processes are looked at next.

/// What is known of a process when turns are given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Seconds since it was looked at; absent where it never was.
    pub age_s: Option<f64>,
    /// Whether its faults or its resident memory have changed since.
    pub moved: bool,
    /// Whether the kernel has split or collapsed large pages of whatever process since.
    pub reshaped: bool,
    /// Its resident bytes.
    pub resident_bytes: u64,
}

/// After so many seconds a process is looked at again although nothing says that its memory changed.
const REST_S: f64 = 60.0;

/// The processes whose turn it is, by their places, in the order in which they are looked at: those that never were, the largest
/// first; those that moved; those that the kernel may have changed; those that have rested. Of each the one first that has
/// waited longest.
pub fn order(known: &[Known]) -> Vec<usize> {
    let mut due: Vec<(usize, u8)> =
        known.iter().enumerate().filter_map(|(place, one)| Some((place, rank(one)?))).collect();
    due.sort_by(|(a, rank_a), (b, rank_b)| {
        let (a, b) = (&known[*a], &known[*b]);
        let waited = b.age_s.unwrap_or(0.0).total_cmp(&a.age_s.unwrap_or(0.0));
        rank_a.cmp(rank_b).then(waited).then(b.resident_bytes.cmp(&a.resident_bytes))
    });
    due.into_iter().map(|(place, _)| place).collect()
}

fn rank(known: &Known) -> Option<u8> {
    match known {
        Known { age_s: None, .. } => Some(0),
        Known { moved: true, .. } => Some(1),
        Known { reshaped: true, .. } => Some(2),
        Known { age_s: Some(age_s), .. } if *age_s >= REST_S => Some(3),
        Known { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTING: Known = Known { age_s: Some(5.0), moved: false, reshaped: false, resident_bytes: 1 };

    #[test]
    fn what_did_not_change_is_left_alone() {
        assert_eq!(order(&[RESTING; 200]), [0; 0]);
    }

    #[test]
    fn new_ones_come_first_then_those_that_changed_and_the_oldest_of_each() {
        let new = |resident_bytes| Known { age_s: None, resident_bytes, ..RESTING };
        let moved = |age_s| Known { age_s: Some(age_s), moved: true, ..RESTING };
        let known = [
            Known { age_s: Some(REST_S), ..RESTING },
            Known { reshaped: true, ..RESTING },
            moved(2.0),
            RESTING,
            moved(4.0),
            new(1),
            new(9),
        ];
        assert_eq!(order(&known), [6, 5, 4, 2, 1, 0]);
    }
}
