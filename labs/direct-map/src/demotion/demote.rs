//! Splits leaves of the running host's direct map.
//!
//! One secret page splits the leaf that maps it, so one page in every frame of the next larger leaf is enough: some dozen pages
//! to get 2M leaves, one page in 512 to get 4K. The pages are spread by holding memory between them ([`super::plug`]): less after
//! a page in a new frame, more after a page in a known frame. /proc/self/pagemap gives the frame of a page, /proc/meminfo the
//! remaining leaves. Everything that is held is given back at the end, and the leaves stay split.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use host::admit::Privilege;
use host::direct_map::{Availability, Changes, Leaves, Marker, Remainder, availability, changes, leaves};
use host::{Host, HostError};
use lease::{Lease, LeaseError};
use policy::Unsupported;
use policy::size::{PageSize, format_bytes};

use super::goal::{Goal, Progress, Stopped};
use super::mark::{self, MarkError};
use super::reserve;
use super::secret::SecretError;
use super::splitting::{BeginError, LIMITED_HELD_BYTES, Splitting};

/// The result of a demotion.
#[derive(Debug)]
pub struct Demotion {
    pub before: Leaves,
    /// The leaves afterwards; absent where they can no longer be read, which a warning reports.
    pub after: Option<Leaves>,
    /// Splits and collapses of the whole system during the demotion; absent where they can no longer be read.
    pub changes: Option<Vec<Changes>>,
    /// Peak of secret memory in bytes; none is left.
    pub secret_bytes: u64,
    /// Peak of held memory in bytes; none is left.
    pub held_bytes: u64,
    /// Number of rounds over memory.
    pub rounds: u32,
    /// Duration in seconds.
    pub elapsed_s: f64,
    /// Why the demotion ended.
    pub stopped: Stopped,
    /// What uses the memory that held no secret page; absent where that is not known, and with a limit.
    pub remainder: Option<Remainder>,
    /// The marker by which later results mention the demotion; absent where there was nothing to split, so that no page was taken
    /// and nothing marked.
    pub marker: Option<Marker>,
    /// Problems, one sentence each.
    pub warnings: Vec<String>,
}

/// Why nothing was demoted.
#[derive(Debug, thiserror::Error)]
pub enum DemotionError {
    #[error("{0}")]
    Unsupported(Unsupported),
    /// Secret memory is not available.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Something is being measured, or the lease is not available.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The marker could not be written.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<BeginError> for DemotionError {
    fn from(error: BeginError) -> DemotionError {
        match error {
            BeginError::Secret(error) => error.into(),
            BeginError::Host(error) => error.into(),
        }
    }
}

/// Splits leaves of the running host until the goal is reached or no progress is possible. It holds the `lease` on system settings
/// for that time, so no trial of root runs in the meantime, and no other demotion. After an error nothing was changed. A later stop
/// is reported in [`Demotion::stopped`].
pub fn demote(
    host: &Host,
    goal: Goal,
    lease: impl FnOnce() -> Result<Lease, LeaseError>,
    listener: &mut dyn FnMut(&Progress),
) -> Result<Demotion, DemotionError> {
    // Reports an impossible goal before any wait. Checked again after it, because another demotion may have run meanwhile.
    possible(host, goal)?;
    let mut lease = lease()?;
    let before = possible(host, goal)?;
    let changes_before = changes(host)?;
    let began = Instant::now();
    let larger = larger(host, goal.leaf).map_err(DemotionError::Unsupported)?;
    // `Splitting::new` fails if secret memory is unavailable, before the boot is marked. It allocates no page.
    let mut splitting = Splitting::new(host, goal, larger, before.clone())?;
    let mut warnings = Vec::new();
    let (stopped, mut marker) = match splitting.stop() {
        Some(stopped) => (stopped, None),
        None => {
            let marker = mark(host, goal.leaf)?;
            // Only base-page leaves need pages of the reserve: for large leaves one page in each of a few frames is enough.
            if goal.limit_bytes.is_none() && goal.leaf == host.page_sizes().base {
                warnings.extend(reserve::lower(host, &mut lease));
            }
            (splitting.run(listener), Some(marker))
        }
    };
    let mut spent = splitting.finish();
    spent.warnings.append(&mut warnings);
    spent.warnings.extend(reserve::put_back(lease));
    // A limited demotion splits too little to be recorded.
    if let Some(marker) = marker.as_mut().filter(|_| goal.limit_bytes.is_none()) {
        let recorded = mark::record_split(marker, host.root().path(), larger, spent.split_bytes);
        spent.warnings.extend(recorded.err().map(|error| error.to_string()));
    }
    spent.warnings.extend(marker.as_ref().and_then(|_| mark::unseen_elsewhere()));
    let mut known = |what: &str, error: String| spent.warnings.push(format!("{what} is not known: {error}"));
    let after = leaves(host).map_err(|why| known("what became of the leaves", why.to_string())).ok();
    let changes = changes(host).map_err(|error| known("how many leaves were split", error.to_string())).ok();
    Ok(Demotion {
        before,
        after,
        changes: changes.map(|after| since(&changes_before, &after)),
        secret_bytes: spent.secret_bytes,
        held_bytes: spent.held_bytes,
        rounds: spent.rounds,
        elapsed_s: began.elapsed().as_secs_f64(),
        stopped,
        remainder: spent.remainder,
        marker,
        warnings: spent.warnings,
    })
}

fn mark(host: &Host, leaf: PageSize) -> Result<Marker, DemotionError> {
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(mark::mark(host.root().path(), &host.machine()?.boot_id, leaf, now_unix_s)?)
}

/// The leaves, if splitting them can reach the goal.
fn possible(host: &Host, goal: Goal) -> Result<Leaves, DemotionError> {
    let refuse =
        |reason: String, remedy: &str| Err(DemotionError::Unsupported(Unsupported { reason, remedy: remedy.into() }));
    if !host.is_live() {
        return refuse("a captured tree has no direct map".into(), "run it on the host itself");
    }
    if Privilege::of_this_process() != Privilege::Root {
        return refuse("the direct map is split by root only".into(), "run it as root");
    }
    let found = leaves(host).map_err(DemotionError::Unsupported)?;
    larger(host, goal.leaf).map_err(DemotionError::Unsupported)?;
    match availability(goal.leaf, host) {
        Availability::Now if goal.limit_bytes.is_none() && found.ratio(goal.leaf) >= goal.ratio => {
            let share = found.share(goal.leaf);
            refuse(
                format!("{share} of the direct map is in leaves of {} already", goal.leaf),
                "nothing needs to be done",
            )
        }
        Availability::OtherBoot(why) | Availability::Unknown(why) => Err(DemotionError::Unsupported(why)),
        Availability::Now | Availability::ByDemotion(_) => Ok(found),
    }
}

/// The next larger leaf size.
fn larger(host: &Host, leaf: PageSize) -> Result<PageSize, Unsupported> {
    let sizes = host.page_sizes().direct_map_leaves();
    let smaller: Vec<String> = sizes.iter().rev().skip(1).rev().map(PageSize::to_string).collect();
    let at = sizes.iter().position(|size| *size == leaf);
    at.and_then(|at| sizes.get(at + 1)).copied().ok_or_else(|| Unsupported {
        reason: format!("leaves cannot be split to {leaf}"),
        remedy: format!("--to {}", smaller.join(" or ")),
    })
}

fn since(before: &[Changes], after: &[Changes]) -> Vec<Changes> {
    let less = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| Changes {
            leaf: after.leaf,
            splits: less(after.splits, before.splits),
            collapses: less(after.collapses, before.collapses),
        })
        .collect()
}

impl Stopped {
    /// The reason in one sentence.
    pub fn describe(&self) -> String {
        match self {
            Stopped::Goal => "the goal is reached".into(),
            Stopped::Limit => "the limit (--limit) is reached".into(),
            Stopped::NoneLarger => "no larger leaves are left to be split: the rest of the direct map is in smaller \
                                    leaves, or is counted twice since boot"
                .into(),
            Stopped::InUse { available_bytes } => format!(
                "the other large leaves map memory that is in use or kept free ({} left available), or are counted \
                 twice since boot; stop programs and try again",
                format_bytes(*available_bytes)
            ),
            Stopped::NoneFound => format!(
                "no whole leaf came up in the {} that a limited demotion holds: the memory that is free now was split before",
                format_bytes(LIMITED_HELD_BYTES)
            ),
            Stopped::Refused { reason } => reason.clone(),
            Stopped::Interrupted { signal } => {
                format!("interrupted by signal {signal}; what was split stays split until reboot")
            }
        }
    }
}
