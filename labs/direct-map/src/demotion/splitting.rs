//! [`Splitting`], the loop of a demotion: take a secret page ([`super::secret`]), which splits the leaf that maps it; hold
//! memory, so that the next page comes from another leaf; check the leaves; and repeat.

use std::time::{Duration, Instant};
use std::{fs, io};

use host::direct_map::{Leaves, Remainder, Source, leaves};
use host::{Host, HostError};
use policy::Unsupported;
use policy::size::{PageSize, format_bytes};
use tracer::signals;

use super::available::{Available, READ_INTERVAL};
use super::frames::{self, Frames};
use super::goal::{Goal, Progress, Stopped};
use super::pace::Pace;
use super::plug::HeldMemory;
use super::secret::{SecretError, SecretPages};
use super::shortage::{Shortage, take_with_retries};

/// Memory that is left to other programs in addition to what the kernel keeps free for itself (MemAvailable already excludes
/// that, mm/show_mem.c `si_mem_available`): this share of all memory, and at least [`MIN_LEFT_BYTES`].
const LEFT_RATIO: f64 = 1.0 / 64.0;
/// The minimum of the memory that is left to other programs.
const MIN_LEFT_BYTES: u64 = 64 << 20;
/// The most memory that a demotion with a limit holds; a limit is for trying a demotion out.
pub(super) const LIMITED_HELD_BYTES: u64 = 256 << 20;
/// The most rounds over all memory; between rounds the kernel moves memory that is in use.
const MAX_ROUNDS: u32 = 4;
/// A round that adds less than this share of the direct map is the last.
const MIN_ROUND_RATIO: f64 = 0.005;
/// The interval between checks of the leaves where all page tables must be dumped.
const DUMP_INTERVAL: Duration = Duration::from_secs(2);
/// Whether a limit may be reached, according to the last check and the frames that got a secret page since: each page splits
/// at most one leaf.
fn may_be_reached(limit_bytes: Option<u64>, split_bytes: u64, unseen_frames: u64, frame_bytes: u64) -> bool {
    let most_bytes = unseen_frames.saturating_mul(frame_bytes).saturating_add(split_bytes);
    limit_bytes.is_some_and(|limit| most_bytes >= limit)
}

/// The current progress of a demotion.
struct Now {
    split_bytes: u64,
    secret_bytes: u64,
    held_bytes: u64,
    available_bytes: u64,
    left_bytes: u64,
}

impl Now {
    /// Why this progress ends the demotion, if it does.
    fn stops(&self, goal: &Goal, leaves: &Leaves) -> Option<Stopped> {
        if goal.limit_bytes.is_some_and(|limit| self.split_bytes.max(self.secret_bytes) >= limit) {
            Some(Stopped::Limit)
        } else if leaves.ratio(goal.leaf) >= goal.ratio {
            Some(Stopped::Goal)
        } else if leaves.above(goal.leaf) == 0 {
            Some(Stopped::NoneLarger)
        } else if goal.limit_bytes.is_some() && self.held_bytes >= LIMITED_HELD_BYTES {
            Some(Stopped::NoneFound)
        } else if self.available_bytes <= self.left_bytes {
            Some(Stopped::InUse { available_bytes: self.available_bytes })
        } else {
            None
        }
    }
}

/// Why splitting cannot continue.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Page(#[from] Shortage),
    #[error("no more memory can be held: {0}")]
    Held(#[source] io::Error),
    #[error(transparent)]
    Available(#[from] HostError),
    #[error("the leaves can no longer be read: {0}")]
    Leaves(Unsupported),
}

/// A running demotion.
pub(super) struct Splitting<'a> {
    host: &'a Host,
    goal: Goal,
    /// The leaf size to be split.
    larger: PageSize,
    first: Leaves,
    leaves: Leaves,
    checked_at: Instant,
    /// Number of frames that got their first secret page since the leaves were last checked.
    unseen_frames: u64,
    available: Available<Box<dyn FnMut() -> Result<u64, HostError> + 'a>>,
    secret: SecretPages,
    held_memory: HeldMemory,
    /// Bytes of held memory that were released because the kernel had no page. They stay free, so that the demotion ends.
    short_bytes: u64,
    /// Frames of the next larger leaf that held a secret page.
    frames: Frames,
    pace: Pace,
    round: u32,
    held_peak_bytes: u64,
    warnings: Vec<String>,
}

/// The resources that a demotion used; all are given back by now.
pub(super) struct Spent {
    pub secret_bytes: u64,
    pub held_bytes: u64,
    pub rounds: u32,
    /// Bytes in frames of the larger leaf that held a secret page.
    pub split_bytes: u64,
    /// The use of the other memory while everything was held; absent where it is not known, which a warning reports.
    pub remainder: Option<Remainder>,
    /// Problems, one sentence each.
    pub warnings: Vec<String>,
}

/// Why a demotion could not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl<'a> Splitting<'a> {
    /// Prepares everything; nothing is split yet. `first` are the current leaves, `larger` is the leaf size to be split.
    pub fn new(host: &'a Host, goal: Goal, larger: PageSize, first: Leaves) -> Result<Splitting<'a>, BeginError> {
        let base_bytes = host.page_sizes().base.bytes();
        let mut warnings = Vec::new();
        let memory = frames::memory(host).unwrap_or_else(|error| {
            warnings.push(format!("the location of memory is not known: {error}; shares are bounds by counters alone"));
            Vec::new()
        });
        let ask: Box<dyn FnMut() -> Result<u64, HostError> + 'a> = Box::new(|| host.available_bytes());
        Ok(Splitting {
            host,
            goal,
            larger,
            leaves: first.clone(),
            first,
            checked_at: Instant::now(),
            unseen_frames: 0,
            available: Available::new(ask)?,
            secret: SecretPages::new(base_bytes as usize)?,
            held_memory: HeldMemory::new(),
            short_bytes: 0,
            frames: Frames::new(larger.bytes(), memory),
            pace: Pace::new(larger.bytes(), base_bytes),
            round: 1,
            held_peak_bytes: 0,
            warnings,
        })
    }

    /// Why there is nothing to do, or nothing more.
    pub fn stop(&mut self) -> Option<Stopped> {
        let left_bytes = self.left_bytes();
        let available_bytes = match self.available.bytes(left_bytes) {
            Ok(bytes) => bytes,
            Err(error) => return Some(Stopped::Refused { reason: error.to_string() }),
        };
        let now = Now {
            split_bytes: self.split_bytes(),
            secret_bytes: self.secret.bytes(),
            held_bytes: self.held_memory.bytes(),
            available_bytes,
            left_bytes,
        };
        let interrupted = signals::arrived().map(|signal| Stopped::Interrupted { signal });
        let none_larger = || self.frames.are_all_hit().then_some(Stopped::NoneLarger);
        interrupted.or_else(|| now.stops(&self.goal, &self.leaves)).or_else(none_larger)
    }

    /// Splits until something stops it.
    pub fn run(&mut self, listener: &mut dyn FnMut(&Progress)) -> Stopped {
        self.raise_oom_score();
        loop {
            let began_with = self.leaves.of(self.goal.leaf);
            let stopped = self.run_round(listener);
            let added = self.leaves.of(self.goal.leaf).saturating_sub(began_with) as f64;
            let is_worth_it = added >= MIN_ROUND_RATIO * self.leaves.total_bytes() as f64;
            if !matches!(stopped, Stopped::InUse { .. }) || !is_worth_it || self.round == MAX_ROUNDS {
                return stopped;
            }
            self.release_held_memory();
            self.round += 1;
        }
    }

    /// Gives all memory back, after the use of the remaining memory has been determined.
    pub fn finish(mut self) -> Spent {
        let remainder = self.remainder();
        if self.short_bytes > 0 {
            let bytes = format_bytes(self.short_bytes);
            self.warnings.push(format!(
                "the kernel ran short of pages, so {bytes} of held memory was released early and kept free: leaves there may \
                 not be split"
            ));
        }
        Spent {
            secret_bytes: self.secret.bytes(),
            held_bytes: self.held_peak_bytes.max(self.held_memory.bytes()),
            rounds: self.round,
            split_bytes: self.frames.split_bytes(),
            remainder,
            warnings: self.warnings,
        }
    }

    /// What uses the memory without a secret page. `None` for a demotion with a limit, if the addresses of memory are not
    /// known, and after an interruption, when the user should not have to wait.
    fn remainder(&mut self) -> Option<Remainder> {
        let is_complete = self.goal.limit_bytes.is_none() && self.frames.split_bytes() > 0;
        if !is_complete || signals::arrived().is_some() {
            return None;
        }
        let page_bytes = self.host.page_sizes().base.bytes();
        let read = Remainder::of(self.host.root(), page_bytes, self.frames.missed());
        let unknown = |error| self.warnings.push(format!("who uses the remaining memory is not known: {error}"));
        read.map_err(unknown).ok()
    }

    /// Lets the OOM killer choose this process if memory runs out nevertheless. Held memory is in no resident set, so the OOM
    /// killer would otherwise choose other processes first.
    fn raise_oom_score(&mut self) {
        self.write("/proc/self/oom_score_adj", "1000", "should memory run out, another process may be killed");
    }

    /// Gives back held memory but not the secret pages, and lets the kernel move memory that is in use, so that other frames
    /// become free.
    fn release_held_memory(&mut self) {
        self.held_peak_bytes = self.held_peak_bytes.max(self.held_memory.bytes());
        self.held_memory = HeldMemory::new();
        self.write("/proc/sys/vm/compact_memory", "1", "what is in use was not moved between the rounds");
    }

    /// Writes a file that helps but is not necessary.
    #[expect(clippy::disallowed_methods, reason = "a file of /proc/sys")]
    fn write(&mut self, file: &str, value: &str, otherwise: &str) {
        if let Err(error) = fs::write(file, value) {
            self.warnings.push(format!("{file} does not take {value}: {error}; {otherwise}"));
        }
    }

    /// Makes one pass over the available memory.
    fn run_round(&mut self, listener: &mut dyn FnMut(&Progress)) -> Stopped {
        loop {
            if let Some(stopped) = self.stop() {
                return stopped;
            }
            if let Err(reason) = self.step().and_then(|()| self.check_leaves()) {
                return Stopped::Refused { reason: reason.to_string() };
            }
            listener(&Progress {
                leaves: &self.leaves,
                secret_bytes: self.secret.bytes(),
                held_bytes: self.held_memory.bytes(),
                round: self.round,
            });
        }
    }

    /// Takes one secret page, and holds memory until the next.
    fn step(&mut self) -> Result<(), Refused> {
        let base_bytes = self.host.page_sizes().base.bytes();
        let frame = self.take()?;
        self.available.take(base_bytes);
        let is_new = self.frames.hit(frame * base_bytes);
        self.unseen_frames += u64::from(is_new);
        self.leaves.record_split(self.larger, self.frames.split_bytes());
        self.pace.record(is_new);
        let mut bytes = self.pace.bytes;
        while bytes > 0 && signals::arrived().is_none() && self.may_hold_more()? {
            let grown = self.held_memory.grow(bytes).map_err(Refused::Held)?;
            self.available.take(grown);
            bytes = bytes.saturating_sub(grown.max(1));
        }
        Ok(())
    }

    /// Takes a secret page; releases held memory if necessary.
    fn take(&mut self) -> Result<u64, Shortage> {
        self.held_peak_bytes = self.held_peak_bytes.max(self.held_memory.bytes());
        let (secret, held_memory, short_bytes) = (&mut self.secret, &mut self.held_memory, &mut self.short_bytes);
        take_with_retries(
            || secret.take(),
            || {
                let freed = held_memory.shrink();
                *short_bytes += freed;
                freed
            },
        )
    }

    fn may_hold_more(&mut self) -> Result<bool, HostError> {
        let left_bytes = self.left_bytes();
        let is_limited = self.goal.limit_bytes.is_some() && self.held_memory.bytes() >= LIMITED_HELD_BYTES;
        let available_bytes = self.available.bytes(left_bytes)?;
        Ok(!is_limited && available_bytes > left_bytes)
    }

    /// Checks the leaves from time to time, and whenever a limit may be reached.
    fn check_leaves(&mut self) -> Result<(), Refused> {
        let interval = match self.leaves.source {
            Source::Ptdump => DUMP_INTERVAL,
            Source::Meminfo => READ_INTERVAL,
        };
        let at_limit =
            may_be_reached(self.goal.limit_bytes, self.split_bytes(), self.unseen_frames, self.larger.bytes());
        if self.checked_at.elapsed() < interval && !at_limit {
            return Ok(());
        }
        self.leaves = leaves(self.host).map_err(Refused::Leaves)?;
        self.leaves.record_split(self.larger, self.frames.split_bytes());
        (self.checked_at, self.unseen_frames) = (Instant::now(), 0);
        Ok(())
    }

    /// Bytes of larger leaves that were split, according to the last check.
    fn split_bytes(&self) -> u64 {
        self.first.above(self.goal.leaf).saturating_sub(self.leaves.above(self.goal.leaf))
    }

    fn left_bytes(&self) -> u64 {
        let all = self.leaves.total_bytes() as f64;
        MIN_LEFT_BYTES.max((all * LEFT_RATIO) as u64) + self.short_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::size::PageSize;
    use std::collections::BTreeMap;

    #[test]
    fn a_limit_is_looked_for_before_it_can_be_passed() {
        let (frame, limit) = (2 << 20, Some(6 << 20));
        assert!(!may_be_reached(limit, 0, 2, frame), "two leaves are less");
        assert!(may_be_reached(limit, 0, 3, frame));
        assert!(!may_be_reached(limit, 2 << 20, 1, frame));
        assert!(may_be_reached(limit, 2 << 20, 2, frame));
        assert!(may_be_reached(Some(1), 0, 1, frame), "a limit is rounded up to a whole leaf");
        assert!(!may_be_reached(None, u64::MAX, u64::MAX, frame));
    }

    #[test]
    fn a_demotion_ends_for_what_it_says() {
        let leaves = |k4: u64, m2: u64| Leaves {
            bytes: BTreeMap::from([(PageSize::K4, k4 << 20), (PageSize::M2, m2 << 20)]),
            contiguous_bytes: BTreeMap::new(),
            boot_bytes: BTreeMap::new(),
            split_bytes: BTreeMap::new(),
            memory_bytes: Some(1000 << 20),
            source: Source::Meminfo,
        };
        let goal = |limit_bytes| Goal { leaf: PageSize::K4, ratio: 0.9, limit_bytes };
        let now = |split_bytes, held_bytes, available_bytes| Now {
            split_bytes,
            secret_bytes: 4096,
            held_bytes,
            available_bytes,
            left_bytes: 64 << 20,
        };
        let begun = now(0, 0, 1 << 30);
        let some = leaves(100, 900);
        assert_eq!(begun.stops(&goal(None), &some), None);
        assert_eq!(begun.stops(&goal(Some(0)), &some), Some(Stopped::Limit));
        assert_eq!(now(2 << 20, 0, 1 << 30).stops(&goal(Some(2 << 20)), &some), Some(Stopped::Limit));
        assert_eq!(begun.stops(&goal(Some(2 << 20)), &leaves(950, 50)), Some(Stopped::Goal), "also with a limit");
        let larger = Goal { leaf: PageSize::M2, ..goal(None) };
        assert_eq!(begun.stops(&larger, &leaves(200, 800)), Some(Stopped::NoneLarger), "a goal that is not reached");
        assert_eq!(now(0, LIMITED_HELD_BYTES, 1 << 30).stops(&goal(Some(2 << 20)), &some), Some(Stopped::NoneFound));
        assert_eq!(now(0, LIMITED_HELD_BYTES, 1 << 30).stops(&goal(None), &some), None);
        assert_eq!(now(0, 0, 9).stops(&goal(None), &some), Some(Stopped::InUse { available_bytes: 9 }));
    }
}
