//! [`ExaminationBudget`]: how much time examinations of memory may take, which is a small share of the measured time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The share of a trial's time so far that the examinations of one kind may take; beyond it only the ends of processes are
/// examined. Examinations are not limited while nothing is timed, and where all memory is to be examined.
const SHARE_OF_TIME: f64 = 0.005;
/// The time that is allowed in any case: without it short trials would examine nothing.
const MIN_ALLOWANCE: Duration = Duration::from_millis(2);

/// The purpose of an examination; each kind has a share of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExaminationPurpose {
    /// Memory that a call is about to give back.
    Unmap,
    /// The end of a process other than the root.
    Child,
}

/// The time that examinations took, and whether there is time left.
pub struct ExaminationBudget<'a> {
    began: Instant,
    unmaps: Duration,
    children: Duration,
    /// Time of examinations while nothing was timed.
    untimed: Duration,
    /// Whether the client of a server is currently timed; absent where the traced program itself is timed.
    timed: Option<&'a AtomicBool>,
    /// Whether every examination is made, however long it takes.
    pub is_unlimited: bool,
}

impl<'a> ExaminationBudget<'a> {
    /// The budget of a trial that begins now. A server frees much of its memory when it ends; its client is timed only while
    /// `timed` is set.
    pub fn new(timed: Option<&'a AtomicBool>, is_unlimited: bool) -> ExaminationBudget<'a> {
        let (unmaps, children, untimed) = Default::default();
        ExaminationBudget { began: Instant::now(), unmaps, children, untimed, timed, is_unlimited }
    }

    /// Records that the program starts now.
    pub fn begins(&mut self) {
        self.began = Instant::now();
    }

    /// Whether one more examination of a kind is within its share of time.
    pub fn allows(&self, kind: ExaminationPurpose) -> bool {
        let spent = match kind {
            ExaminationPurpose::Unmap => self.unmaps,
            ExaminationPurpose::Child => self.children,
        };
        self.is_unlimited
            || !self.is_timed()
            || spent < MIN_ALLOWANCE
            || spent.as_secs_f64() < SHARE_OF_TIME * self.began.elapsed().as_secs_f64()
    }

    /// Charges an examination to its kind, or to the untimed ones if nothing is timed.
    pub fn charge(&mut self, since: Instant, kind: ExaminationPurpose) {
        *match (self.is_timed(), kind) {
            (false, _) => &mut self.untimed,
            (true, ExaminationPurpose::Unmap) => &mut self.unmaps,
            (true, ExaminationPurpose::Child) => &mut self.children,
        } += since.elapsed();
    }

    /// Whether time is being measured now.
    pub fn is_timed(&self) -> bool {
        self.timed.is_none_or(|timed| timed.load(Ordering::SeqCst))
    }

    /// Time of examinations while the client of a server was timed, in seconds.
    pub fn timed_s(&self) -> f64 {
        (self.unmaps + self.children).as_secs_f64()
    }

    /// Time of examinations while nothing was timed, in seconds.
    pub fn untimed_s(&self) -> f64 {
        self.untimed.as_secs_f64()
    }
}
