//! Merges the causes of several trials into one list.

use policy::cause::{Cause, CauseShare};

use crate::trial::TrialRecord;

/// The causes of several trials: bytes are averaged per trial, the largest first; causes without bytes come last. System counters
/// are summed.
pub fn causes(trials: &[&TrialRecord]) -> Vec<CauseShare> {
    let mut shares: Vec<CauseShare> = Vec::new();
    for share in trials.iter().flat_map(|record| &record.verdict.causes) {
        match shares.iter_mut().position(|known| merge_counts(&mut known.cause, &share.cause)) {
            Some(at) => {
                let known = shares[at].bytes.or(share.bytes.and(Some(0)));
                shares[at].bytes = known.map(|sum| sum.saturating_add(share.bytes.unwrap_or(0)));
            }
            None => shares.push(share.clone()),
        }
    }
    for share in &mut shares {
        share.bytes = share.bytes.map(|bytes| bytes / trials.len() as u64);
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

/// Whether the two are the same cause. If they are, adds the counts of `other` to `sum`.
fn merge_counts(sum: &mut Cause, other: &Cause) -> bool {
    match (sum, other) {
        (Cause::AllocationFellBack { counter, times }, Cause::AllocationFellBack { counter: same, times: more })
            if counter == same =>
        {
            *times += more;
            true
        }
        // Trials differ in the number of refused requests, and in the pages that the pool has at that time.
        (
            Cause::PoolRequestRefused { call, size, errno, times, pages, .. },
            Cause::PoolRequestRefused { call: other, size: same, errno: error, times: more, pages: most, .. },
        ) if (*call, *size, *errno) == (*other, *same, *error) => {
            *times = (*times).max(*more);
            *pages = (*pages).max(*most);
            true
        }
        (one, two) => one == two,
    }
}
