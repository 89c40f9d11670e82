//! `compare --explain`: how much of an arm's change of user time comes from reach, and how much from placement, as
//! sentences and a table.

pub(crate) mod document;

use policy::Granularity;
use policy::cause::Cause;
use policy::verdict::Holding;
use policy::{Admission, Unsupported};
use study::comparison::Comparison;
use study::metric::names;
use study::stats::{self, ArmAnalysis, Parts, Share};
use study::trial::Arm;

use crate::figure;
use crate::text::printable;

/// Maximum share of memory that may become large later than at its first touch, without a reservation in the sentence.
const MAX_LATE_RATIO: f64 = 0.1;
/// The control arm with the policy's frames is proven if it has at least this share of the policy's own coverage.
const PROVEN_SHARE: f64 = 0.9;

/// An arm whose effect is split, its control arm with the frames, and the analysis with the parts.
pub(crate) struct Explained<'a> {
    comparison: &'a Comparison,
    pub arm: usize,
    frames: usize,
    analysis: &'a ArmAnalysis,
}

/// The arms whose effects are split, or could not be split.
pub(crate) fn explained(comparison: &Comparison) -> Vec<Explained<'_>> {
    let Some(analysis) = &comparison.analysis else { return Vec::new() };
    let of_arm = |arm: usize| {
        let frames = comparison.design.frames_of(arm)?;
        Some(Explained { comparison, arm, frames, analysis: analysis.arms.get(arm)? })
    };
    comparison.design.compared().filter(|arm| *arm != comparison.design.baseline).filter_map(of_arm).collect()
}

/// One sentence for each arm whose effect is split. Empty without `--explain`.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    explained(comparison).iter().filter_map(Explained::sentence).collect()
}

/// Over how many blocks of physical memory each arm's frames are scattered: `base 750 (33), thp 34 (33)`. Only anonymous memory is
/// counted, so arms with hugetlb pages are left out.
pub fn scatter(comparison: &Comparison) -> Option<String> {
    let block = comparison.machine.page_sizes.pmd?;
    let is_hugetlb = |arm: &Arm| matches!(arm.policy.granularity, Granularity::Hugetlb(_));
    let arms = comparison.design.arms.iter().enumerate().filter(|(_, arm)| !is_hugetlb(arm));
    let of_arm = |(index, arm): (usize, &Arm)| {
        let [blocks, least] = scatter_of(comparison, index)?;
        Some(format!("{} {blocks:.0} ({least:.0})", printable(&arm.label)))
    };
    let blocks: Vec<String> = arms.filter_map(of_arm).collect();
    (!blocks.is_empty()).then(|| {
        format!("blocks of {block} of physical memory that have its pages (fewest possible): {}", blocks.join(", "))
    })
}

/// Medians of the number of blocks that hold an arm's memory, and of the smallest number that could hold it.
pub(crate) fn scatter_of(comparison: &Comparison, arm: usize) -> Option<[f64; 2]> {
    let [blocks, least] = [names::FRAME_BLOCKS, names::MIN_FRAME_BLOCKS].map(|name| median(comparison, arm, name));
    Some([blocks?, least?])
}

/// The median of an observation over the counted trials of an arm.
fn median(comparison: &Comparison, arm: usize, metric: &str) -> Option<f64> {
    let trials = stats::counted_trials(comparison, arm);
    stats::median(&mut trials.iter().filter_map(|record| record.value(metric)).collect::<Vec<f64>>())
}

impl Explained<'_> {
    fn label(&self) -> String {
        printable(&self.comparison.design.arms[self.arm].label)
    }

    /// The parts; `None` if no block has all arms.
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.analysis.parts.as_ref()
    }

    /// `thp takes 13.7 % less user time: 4.6 (3.1 to 6.0) by reach, 9.1 (7.3 to 10.9) by placement of frames; system time is
    /// unchanged`
    fn sentence(&self) -> Option<String> {
        let parts = self.analysis.parts.as_ref()?;
        let mut clauses = vec![format!("{}{}", self.whole(parts), self.split(parts))];
        clauses.push(self.system(parts));
        clauses.extend(self.reservations());
        Some(clauses.join("; ") + ".")
    }

    fn whole(&self, parts: &Parts) -> String {
        let (label, user) = (self.label(), parts.user);
        let percent = user.ratio.abs() * 100.0;
        if user.is_shown() {
            let word = if user.ratio < 0.0 { "less" } else { "more" };
            return format!("{label} takes {percent:.1} % {word} user time");
        }
        match user.low {
            Some(_) => format!("a change of {label}'s user time is not shown ({})", open_range(user)),
            None => format!("{label} has too few blocks to say how its user time changes"),
        }
    }

    /// `: 4.6 (3.1 to 6.0) by reach, ...`, or why the change has no parts.
    fn split(&self, parts: &Parts) -> String {
        if let Some(why) = self.unseparated() {
            return format!("; {why}");
        }
        let (Some(reach), Some(placement)) = (reach_as_printed(parts), parts.placement) else {
            return "; its parts are not known, because no trial of its frames counts".into();
        };
        let sign = if parts.user.is_shown() && parts.user.ratio > 0.0 { 1.0 } else { -1.0 };
        format!(": {}, {}", part(reach, sign, "reach"), part(placement, sign, "placement of frames"))
    }

    /// Why reach and placement are not separated; `None` if they are.
    fn unseparated(&self) -> Option<String> {
        if let Some(Unsupported { reason, .. }) = self.unsupported() {
            let reason = printable(reason);
            let is_mthp = matches!(self.granularity(), Granularity::Mthp(_));
            let is_shown = self.analysis.parts.as_ref().is_some_and(|parts| parts.user.is_shown());
            return Some(if is_mthp && is_shown && self.comparison.machine.arch == "x86_64" {
                format!("all of it is by placement of frames, or by entries that the processor coalesces: {reason}")
            } else {
                format!("reach and placement are not separated: {reason}")
            });
        }
        let (own, frames) = (self.coverage(self.arm)?, self.coverage(self.frames)?);
        (self.holding(self.frames) != Some(Holding::Unknown) && frames < PROVEN_SHARE * own).then(|| {
            format!(
                "reach and placement are not separated: base-page entries over whole folios mapped {} of the memory in the \
                 control arm, and the policy's own pages {} of it",
                figure::share(frames),
                figure::share(own)
            )
        })
    }

    fn system(&self, parts: &Parts) -> String {
        let Some(system) = parts.system else {
            return "system time is not known, because most trials used none".into();
        };
        if system.is_within(self.comparison.design.band_ratio) {
            return "system time is unchanged".into();
        }
        let sign = system.ratio.signum();
        // The interval is symmetric, so its lower end can be below -100 %, which no time can reach.
        let bounded = if sign < 0.0 { Share { low: system.low.map(|low| low.max(-1.0)), ..system } } else { system };
        let (near, far) = ends(bounded, sign);
        let word = if system.ratio < 0.0 { "less" } else { "more" };
        if !system.is_shown() {
            return format!("a change of system time is not shown ({})", open_range(system));
        }
        format!(
            "system time is {:.1} % {word} ({near} to {far}), by faults and zeroing{}",
            system.ratio.abs() * 100.0,
            self.faults()
        )
    }

    /// `, 33.1k faults instead of 120k`
    fn faults(&self) -> String {
        let baseline = self.comparison.design.own_baseline(self.arm);
        let [own, other] = [self.arm, baseline].map(|arm| median(self.comparison, arm, names::MINOR_FAULTS));
        let count = |value| figure::short(value, study::metric::Unit::Count);
        own.zip(other)
            .map(|(own, other)| format!(", {} faults instead of {}", count(own), count(other)))
            .unwrap_or_default()
    }

    /// What limits the claim about the parts.
    fn reservations(&self) -> Vec<String> {
        if self.unsupported().is_some() {
            return Vec::new();
        }
        let unproven = (self.holding(self.frames) == Some(Holding::Unknown)).then(|| {
            format!("that the control arm has whole folios behind base-page entries is not proven: {}", self.unproven())
        });
        let late = median(self.comparison, self.frames, names::LATE_LEAVES_RATIO).filter(|late| *late > MAX_LATE_RATIO);
        let late = late.map(|late| {
            format!(
                "reach is at least that: {} of the control arm's memory still had its leaves when it was looked at, because the \
                 program maps and frees memory faster than its leaves are split",
                figure::share(late)
            )
        });
        let is_split =
            self.unseparated().is_none() && self.analysis.parts.as_ref().is_some_and(|parts| parts.placement.is_some());
        let guest = self.comparison.machine.hypervisor.as_ref().filter(|_| is_split).map(|name| {
            format!(
                "in this virtual machine ({}) placement includes how the hypervisor maps the frames",
                printable(name)
            )
        });
        unproven.into_iter().chain(late).chain(guest).collect()
    }

    /// Why the verdict on the control arm with the frames is unknown.
    fn unproven(&self) -> &'static str {
        let causes = self.verdicts(self.frames).flat_map(|verdict| &verdict.causes);
        let is_hidden = causes.map(|share| &share.cause).any(|cause| *cause == Cause::FoliosInvisible);
        if is_hidden {
            "folios are visible to root alone"
        } else {
            "too little of its memory was seen before it was given back (--prove-all)"
        }
    }

    fn granularity(&self) -> Granularity {
        self.comparison.design.arms[self.arm].policy.granularity
    }

    fn unsupported(&self) -> Option<&Unsupported> {
        match self.comparison.admissions.get(self.frames) {
            Some(Admission::Unsupported(why)) => Some(why),
            _ => None,
        }
    }

    fn verdicts(&self, arm: usize) -> impl Iterator<Item = &policy::verdict::Verdict> {
        stats::counted_trials(self.comparison, arm).into_iter().map(|record| &record.verdict)
    }

    fn holding(&self, arm: usize) -> Option<Holding> {
        stats::holding(self.verdicts(arm))
    }

    fn coverage(&self, arm: usize) -> Option<f64> {
        stats::deciding(self.verdicts(arm))?.coverage_ratio()
    }

    /// The cells of a table: user time, reach, placement, system time, each in per cent.
    pub fn cells(&self) -> Option<[String; 4]> {
        let parts = self.analysis.parts.as_ref()?;
        let is_split = self.unseparated().is_none();
        let cell = |share: Option<Share>| share.map_or_else(|| "not known".to_owned(), in_full);
        let [reach, placement] = [reach_as_printed(parts), parts.placement].map(|part| cell(part.filter(|_| is_split)));
        Some([in_full(parts.user), reach, placement, cell(parts.system)])
    }
}

/// Reach, rounded so that the printed parts add up to the printed total.
fn reach_as_printed(parts: &Parts) -> Option<Share> {
    let tenths = |share: Share| (share.ratio * 1000.0).round();
    let ratio = (tenths(parts.user) - tenths(parts.placement?)) / 1000.0;
    parts.reach.map(|reach| Share { ratio, ..reach })
}

/// `4.6 (3.1 to 6.0) by reach`; `reach is not shown (-0.3 to 1.2)`. A positive part has the direction of the total
/// change.
fn part(share: Share, sign: f64, name: &str) -> String {
    let (near, far) = ends(share, sign);
    match (share.is_shown(), share.low) {
        (true, _) => format!("{} ({near} to {far}) by {name}", percent(share.ratio * sign)),
        (false, Some(_)) => format!("{name} is not shown ({near} to {far})"),
        (false, None) => format!("{name} is not shown (too few blocks)"),
    }
}

/// `-13.7 (-15.0 to -12.3)`
fn in_full(share: Share) -> String {
    let (low, high) = ends(share, 1.0);
    match share.low {
        Some(_) => format!("{} ({low} to {high})", percent(share.ratio)),
        None => percent(share.ratio),
    }
}

/// Both bounds in per cent, each multiplied by `sign`, the smaller first.
pub(crate) fn ends(share: Share, sign: f64) -> (String, String) {
    let bounds = [share.low, share.high].map(|bound| bound.unwrap_or(f64::NAN) * sign);
    (percent(bounds[0].min(bounds[1])), percent(bounds[0].max(bounds[1])))
}

/// `33.3 % less to 1.3 % more`: the interval of a change that is not shown.
fn open_range(share: Share) -> String {
    let end = |bound: Option<f64>| {
        let bound = bound.unwrap_or(f64::NAN);
        format!("{} % {}", percent(bound.abs()), if bound < 0.0 { "less" } else { "more" })
    };
    format!("{} to {}", end(share.low), end(share.high))
}

/// A ratio in per cent. Zero never gets a sign.
pub(crate) fn percent(ratio: f64) -> String {
    let text = format!("{:.1}", ratio * 100.0);
    if text == "-0.0" { "0.0".into() } else { text }
}
