//! [`Session`]: the host's settings during a run. It leases and restores the settings that each policy needs.

use std::time::Duration;

use host::admit::{self, Lowering, Privilege, Terms};
use host::{Host, HostError};
use lease::{Hold, Holder, Lease, LeaseError, Share, Written};
use policy::{Admission, Unsupported};
use policy::{Granularity, Policy};
use tracer::signals;

use super::error::PlatformError;
use super::khugepaged::KhugepagedHold;

/// Memory of the pool beyond the observed need of a program, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

/// The interval between reports while waiting.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Receives a description of the lease holder that this process waits for, and how many processes wait before it.
/// Receives a description of the holder, and how much longer this process waits.
type OnWait = Box<dyn Fn(&Holder, Duration)>;

/// Applies policies to the host, one after the other.
pub struct Session {
    host: Host,
    terms: Terms,
    lease: Option<Lease>,
    share: Option<Share>,
    khugepaged: Option<KhugepagedHold>,
    hugetlb_pool_bytes: Option<u64>,
    seen_need_bytes: u64,
    patience: Duration,
    on_wait: OnWait,
}

impl Session {
    /// A session on a host. Nothing is changed yet.
    pub fn new(host: Host) -> Session {
        Session {
            terms: Terms::of_this_process(&host, tracer::try_tracing),
            host,
            lease: None,
            share: None,
            khugepaged: None,
            hugetlb_pool_bytes: None,
            seen_need_bytes: 0,
            patience: Duration::ZERO,
            on_wait: Box::new(|_, _| {}),
        }
    }

    /// Sets the size of the hugetlb pool, where the user decides it.
    pub fn with_hugetlb_pool(mut self, bytes: Option<u64>) -> Session {
        self.hugetlb_pool_bytes = bytes;
        self
    }

    /// Holds khugepaged still once the lease is held.
    pub fn with_khugepaged_held(mut self) -> Result<Session, Unsupported> {
        self.khugepaged = Some(KhugepagedHold::of(&self.host, &self.terms)?);
        Ok(self)
    }

    /// How long to wait for another pagelab's lease, and the callback during the wait.
    pub fn with_patience(mut self, patience: Duration, on_wait: impl Fn(&Holder, Duration) + 'static) -> Session {
        self.patience = patience;
        self.on_wait = Box::new(on_wait);
        self
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Whether the policy is available here.
    pub fn admit(&self, policy: &Policy) -> Admission {
        admit::admit(policy, &self.host, &self.terms.clone().with_pool(self.hugetlb_pool_bytes))
    }

    /// Records how much memory the program needed, for the size of the pool.
    pub fn note_need(&mut self, bytes: u64) {
        self.seen_need_bytes = self.seen_need_bytes.max(bytes);
    }

    /// Restores every setting and keeps the lease: no policy is in force, neither of this process nor of another pagelab. If
    /// khugepaged is held, waits until it is asleep.
    pub fn restore_under_lease(&mut self) -> Result<(), PlatformError> {
        match &mut self.lease {
            Some(lease) => {
                lease.apply(self.khugepaged.iter().flat_map(KhugepagedHold::pairs))?;
                self.settle()
            }
            None => self.keep_others_out(),
        }
    }

    /// Changes the host's settings to those of the policy and restores every other setting. If the kernel gave a pool none of the
    /// requested pages, returns the reason: the settings are in force nevertheless, and the program gets other memory.
    pub fn apply(&mut self, policy: &Policy) -> Result<Option<Unsupported>, PlatformError> {
        // What a policy needs is decided on the original settings.
        self.restore_under_lease()?;
        let lowering = self.lower(policy)?;
        if lowering.settings.is_empty() {
            return self.settle().map(|()| None);
        }
        let lease = match &mut self.lease {
            Some(lease) => lease,
            none => none.insert(wait_for_lease(self.patience, &self.on_wait)?),
        };
        let still: Vec<(&str, &str)> = self.khugepaged.iter().flat_map(KhugepagedHold::pairs).collect();
        let taken = lease.apply(still.into_iter().chain(lowering.pairs()))?;
        self.settle()?;
        Ok(match (policy.granularity, taken.into_iter().find(|taken| *taken != Written::InFull)) {
            // A pool that is too small is used as it is: the verdict reports what the program did not get.
            (Granularity::Hugetlb(size), Some(Written::Granted { asked, got: 0 })) => {
                Some(admit::not_granted(size, asked, 0))
            }
            _ => None,
        })
    }

    /// Gives settings these values and restores every other one, for a program that runs without a policy.
    pub fn apply_settings(&mut self, settings: &[(String, String)]) -> Result<(), PlatformError> {
        self.restore_under_lease()?;
        if settings.is_empty() {
            return Ok(());
        }
        let lease = match &mut self.lease {
            Some(lease) => lease,
            none => none.insert(wait_for_lease(self.patience, &self.on_wait)?),
        };
        let pairs = settings.iter().map(|(path, value)| (path.as_str(), value.as_str()));
        let taken = lease.apply(pairs)?;
        match taken.into_iter().find_map(|taken| match taken {
            Written::Granted { asked, got } => Some((asked, got)),
            Written::InFull => None,
        }) {
            Some((asked, got)) => Err(PlatformError::PoolTooSmall { asked, got }),
            None => Ok(()),
        }
    }

    /// As [`Session::apply`], for a program that is not measured: if the policy needs no change of settings, other such programs
    /// may run at the same time, and nothing is written.
    pub fn apply_alongside_others(&mut self, policy: &Policy) -> Result<Option<Unsupported>, PlatformError> {
        if self.terms.privilege != Privilege::Root {
            return self.apply(policy);
        }
        let mut lowered = Ok(());
        let must_change = || match self.lower(policy) {
            Ok(lowering) => !lowering.settings.is_empty(),
            Err(error) => {
                lowered = Err(error);
                false
            }
        };
        match wait(self.patience, &self.on_wait, |on_wait| Hold::acquire(self.patience, on_wait, must_change)) {
            Ok(Hold::Share(share)) => {
                self.share = Some(share);
                return lowered.map(|()| None);
            }
            Ok(Hold::Lease(lease)) => self.lease = Some(*lease),
            // Where no lease is possible, no other process has a lease; a policy that needs a lease reports the reason.
            Err(error) if error.is_lease_impossible() => {}
            Err(error) => return Err(error.into()),
        }
        self.apply(policy)
    }

    /// The settings that the policy needs on the host in its current state.
    fn lower(&self, policy: &Policy) -> Result<Lowering, PlatformError> {
        let terms = self.terms.clone().with_pool(self.pool_bytes()?);
        admit::lower(policy, &self.host, &terms).map_err(|why| PlatformError::Unsupported(policy.clone(), why))
    }

    /// Waits until khugepaged sleeps, if it is held.
    fn settle(&self) -> Result<(), PlatformError> {
        self.khugepaged.as_ref().map_or(Ok(()), KhugepagedHold::settle)
    }

    /// The current settings may be those of another pagelab, which will restore them at some time. So every policy waits for the
    /// lease, even if it changes nothing; this includes base, whose trials are rejected when a setting changes during them.
    /// Without root other processes cannot be kept out; then only the rejection remains.
    fn keep_others_out(&mut self) -> Result<(), PlatformError> {
        if self.terms.privilege != Privilege::Root {
            return Ok(());
        }
        match wait_for_lease(self.patience, &self.on_wait) {
            Ok(lease) => {
                let lease = self.lease.insert(lease);
                return self.khugepaged.iter().try_for_each(|khugepaged| khugepaged.begin(lease));
            }
            // Where no lease is possible, no other process has a lease; a policy that needs a lease reports the reason.
            Err(error) if error.is_lease_impossible() && self.khugepaged.is_none() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Uses a lease that this process has already.
    pub fn with_lease(self, lease: Option<Lease>) -> Session {
        Session { lease, ..self }
    }

    /// Restores every setting, and gives the lease to the caller: no other process can take it in between.
    pub fn hand_over(&mut self) -> Result<Option<Lease>, PlatformError> {
        let Some(mut lease) = self.lease.take() else { return Ok(None) };
        lease.apply(std::iter::empty())?;
        Ok(Some(lease))
    }

    /// Restores every setting, and reports those that could not be restored.
    pub fn finish(&mut self) -> Result<(), PlatformError> {
        self.share = None;
        let Some(lease) = self.lease.take() else { return Ok(()) };
        let report = lease.restore()?;
        if report.has_failed() { Err(PlatformError::NotRestored(report.to_string())) } else { Ok(()) }
    }

    /// The user's size of the pool, or one and a half times the observed need of the program plus a little; `None` lets the
    /// lowering choose.
    fn pool_bytes(&self) -> Result<Option<u64>, HostError> {
        let seen = (self.seen_need_bytes > 0).then(|| self.seen_need_bytes + self.seen_need_bytes / 2 + SPARE_BYTES);
        let (None, Some(seen)) = (self.hugetlb_pool_bytes, seen) else { return Ok(self.hugetlb_pool_bytes) };
        // Some programs map far more memory than exists.
        Ok(Some(seen.min(self.host.available_bytes()? / 2)))
    }
}

/// Waits for the lease on system settings for at most `patience`, or until a signal arrives. `on_wait` receives the
/// holder and the time that is left, at once and then every ten seconds.
pub fn wait_for_lease(patience: Duration, on_wait: impl Fn(&Holder, Duration)) -> Result<Lease, LeaseError> {
    wait(patience, on_wait, |on_wait| Lease::acquire(patience, on_wait))
}

/// Takes something that other processes may hold, or stops when a signal arrives. `on_wait` receives the holder and what is
/// left of `patience`, at once and then every ten seconds.
fn wait<T>(
    patience: Duration,
    on_wait: impl Fn(&Holder, Duration),
    take: impl FnOnce(&mut dyn FnMut(&Holder, Duration) -> bool) -> T,
) -> T {
    let mut next = Duration::ZERO;
    take(&mut |holder: &Holder, waited| {
        if waited >= next {
            on_wait(holder, patience.saturating_sub(waited));
            next = waited + REPORT_INTERVAL;
        }
        signals::arrived().is_none()
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_wait_is_reported_at_once_and_every_ten_seconds() {
        let (reports, lefts) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let holder = |in_front| Holder { in_front, ..Holder::this_process().unwrap() };
        wait(
            Duration::from_secs(30),
            |holder, left| {
                reports.borrow_mut().push(holder.to_string());
                lefts.borrow_mut().push(left.as_secs());
            },
            |on_wait| {
                for (waited_ms, in_front) in [(0, 2), (20, 2), (9_990, 2), (10_010, 1), (20_000, 1), (20_020, 0)] {
                    assert!(on_wait(&holder(in_front), Duration::from_millis(waited_ms)));
                }
            },
        );
        let reports = reports.into_inner();
        let ends: Vec<Option<&str>> = reports.iter().map(|report| Some(report.split_once("; ")?.1)).collect();
        assert_eq!(
            ends,
            [Some("2 other processes wait before this one"), Some("1 other process waits before this one"), None]
        );
        assert_eq!(lefts.into_inner(), [30, 19, 9]);
        assert!(reports[0].starts_with(&format!("by process {} (`", std::process::id())), "{reports:?}");
    }
}
