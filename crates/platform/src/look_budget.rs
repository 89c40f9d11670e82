//! How much time looks at memory may take: a small share of what is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Looking at what is unmapped may take this share of a trial's time so far; then only ends are seen. It
/// may take its time while nothing is timed, and where all is to be seen.
const SHARE_OF_TIME: f64 = 0.005;
/// Looking costs at least about this much: without it short trials would see nothing.
const FREE_OF_CHARGE: Duration = Duration::from_millis(2);

/// What a look is for; each kind has its own share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory that a call is about to give back.
    Unmap,
    /// The end of a process that is not the root.
    Child,
}

/// The time that looks took, and whether there is more.
pub struct LookBudget<'a> {
    began: Instant,
    unmaps: Duration,
    children: Duration,
    /// What looks took while nothing was timed.
    untimed: Duration,
    /// Whether the client of a server is being timed at this moment; absent where the traced program is.
    timed: Option<&'a AtomicBool>,
    /// Whether every look is taken, whatever time it takes.
    pub is_unlimited: bool,
}

impl<'a> LookBudget<'a> {
    /// The budget of a trial that begins now. A server, whose client is timed only while `timed` is set, frees much of its
    /// memory when it ends.
    pub fn new(timed: Option<&'a AtomicBool>, is_unlimited: bool) -> LookBudget<'a> {
        let (unmaps, children, untimed) = Default::default();
        LookBudget { began: Instant::now(), unmaps, children, untimed, timed, is_unlimited }
    }

    /// The program starts now.
    pub fn begins(&mut self) {
        self.began = Instant::now();
    }

    /// Whether one more look of a kind is within its share of time.
    pub fn allows(&self, kind: Kind) -> bool {
        let looked = match kind {
            Kind::Unmap => self.unmaps,
            Kind::Child => self.children,
        };
        self.is_unlimited
            || !self.is_timed()
            || looked < FREE_OF_CHARGE
            || looked.as_secs_f64() < SHARE_OF_TIME * self.began.elapsed().as_secs_f64()
    }

    /// Charges a look to its kind, unless it cost nothing that is measured.
    pub fn charge(&mut self, since: Instant, kind: Kind) {
        *match (self.is_timed(), kind) {
            (false, _) => &mut self.untimed,
            (true, Kind::Unmap) => &mut self.unmaps,
            (true, Kind::Child) => &mut self.children,
        } += since.elapsed();
    }

    /// Whether what happens now is part of the measured time.
    pub fn is_timed(&self) -> bool {
        self.timed.is_none_or(|timed| timed.load(Ordering::SeqCst))
    }

    /// What looks took while the client of a server was timed, in seconds.
    pub fn timed_s(&self) -> f64 {
        (self.unmaps + self.children).as_secs_f64()
    }

    /// What looks took while nothing was timed, in seconds.
    pub fn untimed_s(&self) -> f64 {
        self.untimed.as_secs_f64()
    }
}
