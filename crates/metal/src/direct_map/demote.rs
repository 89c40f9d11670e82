//! Splitting the leaves of the running host's direct map.
//!
//! One secret page splits the leaf that maps it, so one page in every frame of the next larger leaf is
//! enough: some dozen pages for 2M leaves, one page in 512 for 4K. They are spread by what is held between
//! them ([`Plug`]): after a page in a new frame less, after a page in a known frame more. Which frame a page
//! is, /proc/self/pagemap tells; which leaves are left, /proc/meminfo. Everything that is held is given back
//! at the end, and the leaves stay split.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use study::comparison::Unsupported;
use study::size::{PageSize, format_bytes};

use super::plug::Plug;
use super::secret::{Secret, SecretError};
use super::{Changes, Leaves, Marker, MarkerError, Source, Standing, leaves, standing, status};
use crate::admit::Privilege;
use crate::host::{Host, HostError};
use crate::signals;

/// Memory that is left to others, beyond what the kernel keeps free for itself (MemAvailable has that taken
/// off, mm/show_mem.c `si_mem_available`): this share of all, and never less than [`LEAST_LEFT_BYTES`].
const LEFT_RATIO: f64 = 1.0 / 64.0;
/// As above.
const LEAST_LEFT_BYTES: u64 = 64 << 20;
/// With a limit, what is held at most: the limit is for trying it out.
const LIMITED_HELD_BYTES: u64 = 256 << 20;
/// Rounds over all memory; between them the kernel moves what is in use.
const MOST_ROUNDS: u32 = 4;
/// A round that adds less than this share of the direct map is the last one.
const LEAST_ROUND_RATIO: f64 = 0.005;
/// How often the leaves are looked at: reading counters costs as much as dozens of pages.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The same where all page tables must be dumped for it.
const DUMP_INTERVAL: Duration = Duration::from_secs(2);

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The leaf that is to map memory.
    pub leaf: PageSize,
    /// The share of the direct map that is enough.
    pub ratio: f64,
    /// Bytes of larger leaves to split at most, rounded up to a whole leaf; absent: no limit.
    pub limit_bytes: Option<u64>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The leaves now.
    pub leaves: &'a Leaves,
    /// Secret memory now.
    pub secret_bytes: u64,
    /// Held memory now.
    pub held_bytes: u64,
    /// The round, counted from 1.
    pub round: u32,
}

/// Why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The share that was asked for is reached.
    Goal,
    /// The limit that was asked for is reached.
    Limit,
    /// What larger leaves are left lies in memory that is in use.
    InUse {
        /// Memory that was left available.
        available_bytes: u64,
    },
    /// No whole leaf came up in what a limited demotion may hold.
    NoneFound,
    /// The kernel refused; what was split stays split.
    Refused {
        /// What it said.
        reason: String,
    },
    /// A signal arrived.
    Interrupted {
        /// Its number.
        signal: i32,
    },
}

/// What a demotion did.
#[derive(Clone, Debug)]
pub struct Demotion {
    /// The leaves before.
    pub before: Leaves,
    /// The leaves afterwards.
    pub after: Leaves,
    /// Splits and collapses of the whole system meanwhile.
    pub changes: Vec<Changes>,
    /// Secret memory at its peak; none is left.
    pub secret_bytes: u64,
    /// Held memory at its peak; none is left.
    pub held_bytes: u64,
    /// Rounds over memory.
    pub rounds: u32,
    /// What it took.
    pub elapsed_s: f64,
    /// Why it ended.
    pub stopped: Stopped,
    /// The mark that tells later results of it.
    pub marker: Marker,
}

/// Why nothing was demoted.
#[derive(Debug, thiserror::Error)]
pub enum DemotionError {
    /// It is not possible in this boot.
    #[error("{0}")]
    Unsupported(Unsupported),
    /// No secret memory.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The mark could not be made.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Splits leaves of the running host until the goal is reached or it goes no further.
///
/// # Errors
/// [`DemotionError`]: nothing was changed then. What stops it later is in [`Demotion::stopped`].
pub fn demote(host: &Host, goal: Goal, listener: &mut dyn FnMut(&Progress)) -> Result<Demotion, DemotionError> {
    let before = possible(host, goal)?;
    let changes = status(host)?.changes;
    let began = Instant::now();
    let frame_bytes = larger(host, goal.leaf).map_err(DemotionError::Unsupported)?.bytes();
    // Whether there is secret memory is known before the boot is marked, and no page is taken before it is.
    let secret = Secret::new(host.geometry().base.bytes() as usize)?;
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let marker = Marker::mark(host.root(), &host.machine()?.boot_id, goal.leaf, now_unix_s)?;
    first_to_go();
    let mut splitting = Splitting {
        host,
        goal,
        frame_bytes,
        first: before.clone(),
        leaves: before.clone(),
        looked: Instant::now(),
        secret,
        plug: Plug::new(),
        frames: BTreeSet::new(),
        pace: Pace::new(frame_bytes, host.geometry().base.bytes()),
        round: 1,
        held_peak_bytes: 0,
    };
    let stopped = splitting.run(listener);
    let Splitting { secret, plug, round, held_peak_bytes, .. } = splitting;
    let (secret_bytes, held_bytes) = (secret.bytes(), held_peak_bytes.max(plug.bytes()));
    drop((secret, plug));
    let after = leaves(host).unwrap_or_else(|_| before.clone());
    let changes = since(&changes, &status(host)?.changes);
    let elapsed_s = began.elapsed().as_secs_f64();
    Ok(Demotion { before, after, changes, secret_bytes, held_bytes, rounds: round, elapsed_s, stopped, marker })
}

/// The leaves, where splitting them can lead to the goal.
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
    match standing(goal.leaf, host) {
        Standing::Now if goal.limit_bytes.is_none() && found.ratio(goal.leaf) >= goal.ratio => {
            let share = found.ratio(goal.leaf) * 100.0;
            refuse(
                format!("{share:.1} % of the direct map lie in leaves of {} already", goal.leaf),
                "nothing needs to be done",
            )
        }
        Standing::OtherBoot(why) | Standing::Unknown(why) => Err(DemotionError::Unsupported(why)),
        Standing::Now | Standing::ByDemotion(_) => Ok(found),
    }
}

/// The next larger leaf.
fn larger(host: &Host, leaf: PageSize) -> Result<PageSize, Unsupported> {
    let sizes = host.geometry().direct_map_leaves();
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

/// Should memory run out all the same, it is this process that is killed: held memory is nobody's resident
/// set, so others would go before it.
fn first_to_go() {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}

/// How much to hold between two secret pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    bytes: u64,
    least: u64,
    most: u64,
}

impl Pace {
    /// Half a frame is never too far: the next page lies in the same or in the next one.
    fn new(frame_bytes: u64, page_bytes: u64) -> Pace {
        Pace { bytes: page_bytes, least: page_bytes, most: (frame_bytes / 2).max(page_bytes) }
    }

    /// A page came from a new frame, or from one that is known already.
    fn tell(&mut self, is_new: bool) {
        let bytes = if is_new { self.bytes / 2 } else { self.bytes * 2 };
        self.bytes = bytes.clamp(self.least, self.most);
    }
}

struct Splitting<'a> {
    host: &'a Host,
    goal: Goal,
    frame_bytes: u64,
    first: Leaves,
    leaves: Leaves,
    looked: Instant,
    secret: Secret,
    plug: Plug,
    /// Frames of the next larger leaf that a secret page was in.
    frames: BTreeSet<u64>,
    pace: Pace,
    round: u32,
    held_peak_bytes: u64,
}

impl Splitting<'_> {
    fn run(&mut self, listener: &mut dyn FnMut(&Progress)) -> Stopped {
        loop {
            let began_with = self.leaves.of(self.goal.leaf);
            let stopped = self.round(listener);
            let added = self.leaves.of(self.goal.leaf).saturating_sub(began_with) as f64;
            let is_worth_it = added >= LEAST_ROUND_RATIO * self.leaves.total_bytes() as f64;
            if !matches!(stopped, Stopped::InUse { .. }) || !is_worth_it || self.round == MOST_ROUNDS {
                return stopped;
            }
            self.let_go();
            self.round += 1;
        }
    }

    /// Gives everything back and lets the kernel move what is in use, so that other frames become free.
    fn let_go(&mut self) {
        self.held_peak_bytes = self.held_peak_bytes.max(self.plug.bytes());
        self.plug = Plug::new();
        let _ = fs::write("/proc/sys/vm/compact_memory", "1");
    }

    /// Goes through the memory that is available, once.
    fn round(&mut self, listener: &mut dyn FnMut(&Progress)) -> Stopped {
        loop {
            if let Some(stopped) = self.should_stop() {
                return stopped;
            }
            if let Err(reason) = self.step() {
                return Stopped::Refused { reason };
            }
            self.measure();
            listener(&Progress {
                leaves: &self.leaves,
                secret_bytes: self.secret.bytes(),
                held_bytes: self.plug.bytes(),
                round: self.round,
            });
        }
    }

    /// One secret page, and what is held until the next.
    fn step(&mut self) -> Result<(), String> {
        let frame = self.secret.take().map_err(|error| error.to_string())?;
        let is_new = self.frames.insert(frame * self.host.geometry().base.bytes() / self.frame_bytes);
        self.pace.tell(is_new);
        let mut left = self.pace.bytes;
        while left > 0 && signals::arrived().is_none() && self.available_bytes() > self.left_bytes() {
            let grown = self.plug.grow(left).map_err(|error| format!("no more memory can be held: {error}"))?;
            left = left.saturating_sub(grown.max(1));
        }
        Ok(())
    }

    fn should_stop(&self) -> Option<Stopped> {
        let split_bytes = self.first.above(self.goal.leaf).saturating_sub(self.leaves.above(self.goal.leaf));
        let taken_bytes = split_bytes.max(self.secret.bytes());
        let limit_bytes = self.goal.limit_bytes;
        let available_bytes = self.available_bytes();
        if let Some(signal) = signals::arrived() {
            Some(Stopped::Interrupted { signal })
        } else if limit_bytes.is_some_and(|limit| taken_bytes >= limit) {
            Some(Stopped::Limit)
        } else if self.leaves.ratio(self.goal.leaf) >= self.goal.ratio || self.leaves.above(self.goal.leaf) == 0 {
            Some(Stopped::Goal)
        } else if limit_bytes.is_some() && self.plug.bytes() >= LIMITED_HELD_BYTES {
            Some(Stopped::NoneFound)
        } else if available_bytes <= self.left_bytes() {
            Some(Stopped::InUse { available_bytes })
        } else {
            None
        }
    }

    fn measure(&mut self) {
        let interval = match self.leaves.source {
            Source::Ptdump => DUMP_INTERVAL,
            // A limit is not to be passed by.
            Source::Meminfo if self.goal.limit_bytes.is_some() => Duration::ZERO,
            Source::Meminfo => LOOK_INTERVAL,
        };
        if self.looked.elapsed() < interval {
            return;
        }
        if let Ok(leaves) = leaves(self.host) {
            self.leaves = leaves;
        }
        self.looked = Instant::now();
    }

    fn left_bytes(&self) -> u64 {
        let all = self.leaves.total_bytes() as f64;
        LEAST_LEFT_BYTES.max((all * LEFT_RATIO) as u64)
    }

    /// MemAvailable; nothing where it cannot be read, which stops the demotion.
    fn available_bytes(&self) -> u64 {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) << 10
    }
}

impl Stopped {
    /// Why it went no further, in one sentence.
    pub fn describe(&self) -> String {
        match self {
            Stopped::Goal => "the goal is reached".into(),
            Stopped::Limit => "the limit (--limit) is reached".into(),
            Stopped::InUse { available_bytes } => format!(
                "the other large leaves lie in memory that is in use or kept free ({} left available), or are counted \
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocator that gives frames in order: at most two or three pages of each are taken.
    #[test]
    fn pages_in_order_cost_few_secret_ones() {
        let (frame, page) = (2 << 20, 4096);
        let mut pace = Pace::new(frame, page);
        let (mut at, mut secret, mut frames) = (0u64, 0u64, BTreeSet::new());
        while at < 1000 * frame {
            secret += 1;
            pace.tell(frames.insert(at / frame));
            at += page + pace.bytes;
        }
        assert_eq!(frames.len(), 1000, "no frame is left out");
        assert!(secret < 4_000, "{secret}");
    }

    /// Where every page comes from a new frame, nothing is held between them.
    #[test]
    fn scattered_pages_are_taken_one_by_one() {
        let mut pace = Pace::new(2 << 20, 4096);
        (0..20).for_each(|_| pace.tell(false));
        assert_eq!(pace.bytes, 1 << 20);
        (0..20).for_each(|_| pace.tell(true));
        assert_eq!(pace.bytes, 4096);
    }
}
