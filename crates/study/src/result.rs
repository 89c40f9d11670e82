//! [`Analysis`]: the result of a comparison's trials, as plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use policy::size::PageSize;

/// The result of a comparison's trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The primary metric.
    pub primary: String,
    /// Index of the baseline arm.
    pub baseline: usize,
    /// Number of blocks that count; an arm that was dropped or finished early has fewer.
    pub blocks: u32,
    /// One result per arm of the design, in the design's order.
    pub arms: Vec<ArmAnalysis>,
    /// Objections that a careful reader would raise, with remedies.
    pub warnings: Vec<Warning>,
}

impl Analysis {
    /// The arm that beats the baseline and every rival, if there is one.
    pub fn winner(&self) -> Option<usize> {
        self.arms.iter().position(|arm| arm.outcome == Outcome::Better { best: true } && arm.tied.is_empty())
    }

    /// The arms that are better than the baseline and that no rival beats: the winner, or those that are tied best.
    pub fn best(&self) -> Vec<usize> {
        let best = |arm: &usize| self.arms[*arm].outcome == Outcome::Better { best: true };
        (0..self.arms.len()).filter(best).collect()
    }
}

/// The result for one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmAnalysis {
    /// Medians of all metrics over the blocks that count.
    pub medians: BTreeMap<String, f64>,
    /// The change of each metric against the baseline; empty for the baseline itself.
    pub effects: BTreeMap<String, Effect>,
    /// The conclusion.
    pub outcome: Outcome,
    /// The cost of the tracer's stops, for the metrics of [`crate::comparison::Design::headline_metrics`]; empty without a bare
    /// arm.
    pub tracer_cost: BTreeMap<String, TracerCost>,
    /// For the outcome `Better { best: true }`: the rivals that this arm does not beat. The best arm without ties is the
    /// winner.
    pub tied: Vec<usize>,
    /// Its share of the best arm's gain; absent for that arm itself, for a loss, if no gain is shown, and if the interval is
    /// unbounded.
    pub gain_share: Option<GainShare>,
    /// Its change of user time by TLB reach and by the placement of frames; absent unless the design is explained
    /// ([`crate::comparison::Design::with_frames`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// Its gain as a function of the share of memory that is large; absent unless the design has shares
    /// ([`crate::comparison::Design::with_shares`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
}

/// An arm's share of another arm's gain in the primary metric: 0.6 means 6 % if the other gains 10 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GainShare {
    /// Index of the other arm: of the best arms, the arm that gains most.
    pub of: usize,
    /// The ratio of the two reported gains.
    pub ratio: f64,
    /// Lower bound of its interval, at [`crate::comparison::Design::level`].
    pub low: f64,
    /// Upper bound of its interval.
    pub high: f64,
}

/// A change as a share of the baseline's value: -0.1 means 10 % less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The estimate.
    pub ratio: f64,
    /// Lower bound of its interval, at [`crate::comparison::Design::level`]; absent with too few blocks.
    pub low: Option<f64>,
    /// Upper bound of its interval.
    pub high: Option<f64>,
}

impl Share {
    /// Whether the interval excludes zero.
    pub fn is_shown(&self) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// Whether the interval is inside a band around zero.
    pub fn is_within(&self, band_ratio: f64) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| low > -band_ratio && high < band_ratio)
    }
}

/// The change that an arm makes, and its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Number of blocks that have the arm, its frames and the baseline.
    pub blocks: u32,
    /// The whole change of user time.
    pub user: Share,
    /// The part of it by TLB reach; absent without an arm of [`crate::role::Role::Frames`].
    pub reach: Option<Share>,
    /// The part of it by the placement of frames.
    pub placement: Option<Share>,
    /// The change of system time, by faults and zeroing, as a share of the baseline's median, because a trial may have used no
    /// system time. Absent if that median is zero.
    pub system: Option<Share>,
}

/// The gain of a policy as a function of the share of memory that is large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Number of blocks that have all arms of the curve.
    pub blocks: u32,
    /// The measured shares, ascending: first the baseline, then the shares between, then the policy.
    pub points: Vec<CurvePoint>,
    /// Points at equal distances on the straight lines between the points that count; empty without such lines.
    pub line: Vec<LinePoint>,
    /// The smallest share that brings nine tenths of the gain, or why there is none.
    pub enough: Enough,
}

/// A measured share of the memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Index of the arm.
    pub arm: usize,
    /// The requested share: the part of the memory that is in the arm's windows.
    pub asked_ratio: f64,
    /// The observed share: the arm's memory in large leaves relative to the policy's memory in large leaves, as the median over
    /// the blocks. Absent if no memory was seen.
    pub seen_ratio: Option<f64>,
    /// Whether the observed share is as requested, so that the point counts.
    pub is_as_asked: bool,
    /// The change of the primary metric.
    pub change: Share,
    /// The share of the policy's gain; absent for the ends and without a bounded interval.
    pub gain: Option<Share>,
}

/// A point of the line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinePoint {
    /// The share of the memory.
    pub share_ratio: f64,
    /// The change of the primary metric, with the interval that a measurement at this share would have.
    pub change: Share,
}

/// The smallest share of the memory that brings nine tenths of the gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "enough")]
pub enum Enough {
    /// A share is enough.
    Share {
        /// The share of the memory where the line reaches nine tenths.
        ratio: f64,
        /// The smallest share whose interval reaches nine tenths.
        low_ratio: f64,
        /// The smallest share whose interval is above nine tenths; 1 if there is none.
        high_ratio: f64,
    },
    /// Too few blocks have all arms.
    TooFewBlocks,
    /// The policy gains nothing, or less than twice the noise.
    GainTooSmall {
        /// The gain, as a ratio of the baseline's value; negative for a loss.
        gain_ratio: f64,
        /// Half the width of its interval.
        noise_ratio: f64,
    },
    /// No share between the ends was observed as requested.
    NothingBetween,
}

/// A change against the baseline, as a ratio of the metric's values: 0.9 means 10 % less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Number of blocks in which both arms have the metric.
    pub blocks: u32,
    /// Hodges-Lehmann estimate of the ratio.
    pub ratio: f64,
    /// Lower bound of the arm's own interval (signed-rank, at [`crate::comparison::Design::level`]); absent with too
    /// few blocks.
    pub low: Option<f64>,
    /// Upper bound of the arm's own interval; absent with too few blocks.
    pub high: Option<f64>,
    /// p value corrected for all arms together (max-T over sign flips of blocks); a claim needs at most
    /// [`crate::comparison::Design::level`].
    pub p_adjusted: Option<f64>,
}

/// The cost of the tracer's stops for an arm, as ratios of a metric's values: 1.02 means that they add 2 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracerCost {
    /// The cost relative to the bare arm, which has no tracer.
    pub of_bare: Effect,
    /// The cost relative to that of the baseline's stops: the change that this arm would show if its policy did nothing. Absent
    /// if the arm stops as often as the baseline, and for the baseline itself.
    pub bound: Option<Effect>,
}

/// The conclusion about the effect of requesting an arm's policy. The verdicts tell how much of the memory got its pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    Baseline,
    /// Better than the baseline: chance does not explain the change, and the estimate is outside the practical band.
    Better {
        /// Whether no rival beats it; [`ArmAnalysis::tied`] lists the rivals that it does not beat.
        best: bool,
    },
    /// Worse than the baseline, by the same rule.
    Worse,
    /// The interval is inside the practical band: the difference does not matter.
    Equivalent,
    /// The noise is too large to decide.
    Undecided {
        /// Estimated number of blocks needed, from the noise seen so far; absent if that is unknown.
        blocks_needed: Option<u32>,
    },
    /// There are figures, but the tracer's stops could have caused the change, or hidden one.
    WithinTracerCost,
    /// The policy cannot be applied here.
    Unsupported,
    /// The command failed or gave a different answer under this policy.
    WrongAnswer {
        /// The difference, as a sentence.
        message: String,
    },
    /// A trial exceeded the time limit of a trial and was ended.
    TooSlow {
        /// The trial and the limit, as a sentence.
        message: String,
    },
    /// None of the arm's trials counts.
    NotMeasured,
    /// The arm is a control, which is not compared as a policy.
    Control,
}

/// An objection that a careful reader would raise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "warning")]
pub enum Warning {
    /// The metric drifted with time, by this ratio from the first block to the last.
    Drift {
        /// Last block relative to the first.
        ratio: f64,
    },
    /// The samples of an arm form two groups.
    Bimodal {
        /// Index of the arm.
        arm: usize,
        /// Centre of the lower group, in the metric's unit.
        low: f64,
        /// Centre of the upper group, in the same unit.
        high: f64,
    },
    /// Samples far from the rest; they are kept.
    Outliers {
        /// Index of the arm.
        arm: usize,
        /// Number of outliers.
        count: u32,
        /// Number of samples.
        of: u32,
    },
    /// The baseline's policy was not held, or not provably: every change is relative to something other than the label of the
    /// baseline says.
    BaselineNotHeld,
    /// The A/A arm differs from the baseline although both are the same.
    AaDiffers {
        /// Index of the arm.
        arm: usize,
    },
    /// Trials were rejected because a setting changed during them.
    Rejected {
        /// Number of rejected trials.
        count: u32,
        /// Path of one of the settings.
        path: String,
    },
    /// The tracer's stops cost a noticeable share of the arm's time, as its bare arm shows.
    TracerCost {
        /// Index of the arm.
        arm: usize,
        /// Its time with the stops relative to its time without them.
        ratio: f64,
    },
    /// The tracer stopped tasks of the tree for a noticeable share of their time. Used for comparisons without a bare arm.
    TracerLoad {
        /// Index of the arm.
        arm: usize,
        /// Time in stops relative to wall time.
        ratio: f64,
    },
    /// The wall time includes inspections of memory, which have no limit with [`crate::comparison::Design::prove_all`].
    InspectionInWallTime {
        /// Index of the arm.
        arm: usize,
        /// Time of these inspections relative to wall time.
        ratio: f64,
    },
    /// pagelab itself split a noticeable part of the kernel's direct map in this boot, before or during the measurement.
    DirectMapDemoted {
        /// The smallest leaf into which it was demoted.
        leaf: PageSize,
        /// The largest share of the direct map that was in leaves of at most this size; absent where the kernel does not count
        /// them.
        ratio: Option<f64>,
    },
    /// The machine is a guest that reports free memory to its hypervisor, which takes it: large pages are faulted in twice.
    FreeMemoryReported {
        /// The smallest block that is reported.
        block: PageSize,
        /// Id of the stored comparison that first gave this warning for the host; this warning then only refers to that
        /// comparison.
        explained_by: Option<i64>,
    },
    /// The command's first process ends while others continue, like a daemon.
    FirstProcessEnds {
        /// CPU time of the processes that outlive the first, relative to that of the tree.
        ratio: f64,
        /// Whether CPU time therefore replaces wall time as the primary metric.
        cpu_decides: bool,
    },
    /// All runs took nearly the same wall time, and a throughput that the program prints differs: the program may run for a fixed time.
    FixedTime {
        /// Median wall time of the runs, in seconds.
        wall_s: f64,
        /// The metric that differs.
        metric: String,
    },
    /// Processes share memory to which no policy applies.
    SharedMemory {
        /// The largest shared memory of a process, in bytes.
        bytes: u64,
        /// Memory of the tree to which policies apply, in bytes.
        concerned_bytes: u64,
    },
    /// Runs are so short that starting the process dominates.
    ShortRuns {
        /// Median wall time of the baseline, in seconds.
        wall_s: f64,
    },
}
