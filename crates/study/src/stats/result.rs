//! What the trials of a comparison say, as plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::signed_rank::Centre;
use policy::size::PageSize;

/// What the trials of a comparison say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The metric that decides.
    pub primary: String,
    /// Index of the baseline arm.
    pub baseline: usize,
    /// Complete blocks that count.
    pub blocks: u32,
    /// One for each arm of the design, in its order.
    pub arms: Vec<ArmAnalysis>,
    /// What a careful reader would object to, with remedies.
    pub warnings: Vec<Warning>,
}

impl Analysis {
    /// The arm that beats the baseline and every other arm in the running, if there is one.
    pub fn winner(&self) -> Option<usize> {
        self.arms.iter().position(|arm| arm.outcome == Outcome::Better { best: true } && arm.tied.is_empty())
    }

    /// The arms that are better than the baseline and that no arm in the running beats: the winner
    /// alone, or those that are tied best.
    pub fn best(&self) -> Vec<usize> {
        let best = |arm: &usize| self.arms[*arm].outcome == Outcome::Better { best: true };
        (0..self.arms.len()).filter(best).collect()
    }
}

/// What the trials say about one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmAnalysis {
    /// Medians of each metric over the blocks that count.
    pub medians: BTreeMap<String, f64>,
    /// The change of each metric against the baseline; empty for the baseline itself.
    pub effects: BTreeMap<String, Effect>,
    /// What follows.
    pub outcome: Outcome,
    /// What the tracer's stops cost it, for the metrics of [`crate::comparison::Design::headline_metrics`]; empty where no bare arm shows it.
    pub tracer_cost: BTreeMap<String, TracerCost>,
    /// Filled where the outcome is `Better { best: true }`: the other arms that are in the running and
    /// that this arm does not beat. The best arm without ties is the winner.
    pub tied: Vec<usize>,
}

/// A change against the baseline, as a ratio of the metric's values: 0.9 means 10 % less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Blocks in which both arms have the metric.
    pub blocks: u32,
    /// Hodges-Lehmann estimate of the ratio.
    pub ratio: f64,
    /// Lower end of the arm's own interval (signed-rank, at [`crate::comparison::Design::level`]); absent with too few
    /// blocks.
    pub low: Option<f64>,
    /// Upper end of the arm's own interval; absent with too few blocks.
    pub high: Option<f64>,
    /// p value corrected for all arms together (max-T over sign flips of blocks); a claim needs at most
    /// [`crate::comparison::Design::level`].
    pub p_adjusted: Option<f64>,
}

impl Effect {
    /// From the logarithms of the ratios of so many blocks, without a p value.
    pub(super) fn of(blocks: usize, centre: &Centre) -> Effect {
        Effect {
            blocks: blocks as u32,
            ratio: centre.estimate.exp(),
            low: centre.interval.map(|(low, _)| low.exp()),
            high: centre.interval.map(|(_, high)| high.exp()),
            p_adjusted: None,
        }
    }
}

/// What the tracer's stops cost an arm, as ratios of a metric's values: 1.02 means 2 % more for them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracerCost {
    /// Against the bare arm, which has no tracer.
    pub of_bare: Effect,
    /// Against what the stops cost the baseline: the change that this arm would show if its policy did nothing. Absent where
    /// it stops as the baseline does, and so for the baseline itself.
    pub bound: Option<Effect>,
}

/// What is concluded about an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It is what the others are compared with.
    Baseline,
    /// Better than the baseline: chance does not explain the change, and the estimate lies outside the
    /// practical band.
    Better {
        /// No other arm in the running beats it; [`ArmAnalysis::tied`] says which it does not beat.
        best: bool,
    },
    /// Worse than the baseline, by the same rule.
    Worse,
    /// The interval lies inside the practical band: the difference does not matter.
    Equivalent,
    /// The noise does not let the question be answered.
    Undecided {
        /// Blocks that it would take, estimated from the noise seen so far; absent where even that is
        /// not known.
        blocks_needed: Option<u32>,
    },
    /// The figures are there, but the policy was not shown to be in force, so they say nothing about
    /// it. The verdicts say which: not held, held only partly, or not to be known.
    NotHeld,
    /// The figures are there, but the tracer's own stops could have made the change, or hidden one.
    WithinTracerCost,
    /// The policy could not be given here.
    Unsupported,
    /// The command failed or gave another answer under this policy.
    WrongAnswer {
        /// What differed.
        message: String,
    },
    /// A trial of it took longer than a trial may and was ended.
    TooSlow {
        /// Which, and how long it may take.
        message: String,
    },
    /// No trial of it counted.
    NotMeasured,
    /// It is no policy, but shows what the tracer costs ([`crate::control`]).
    Control,
}

/// Something that a careful reader would object to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "warning")]
pub enum Warning {
    /// The metric moved with time, by this ratio from the first block to the last.
    Drift {
        /// Last against first, as a ratio.
        ratio: f64,
    },
    /// The samples of an arm fall into two groups.
    Bimodal {
        /// Index of the arm.
        arm: usize,
        /// Centre of the lower group, in the metric's unit.
        low: f64,
        /// Centre of the upper group.
        high: f64,
    },
    /// Samples far from the rest; they are kept.
    Outliers {
        /// Index of the arm.
        arm: usize,
        /// How many.
        count: u32,
        /// Of how many.
        of: u32,
    },
    /// The baseline's own policy was not held, or not provably: every change is against something else
    /// than its label says.
    BaselineNotHeld,
    /// The A/A arm differs from the baseline although nothing differs.
    AaDiffers {
        /// Index of the arm.
        arm: usize,
    },
    /// Trials were rejected because a setting changed under them.
    Rejected {
        /// How many.
        count: u32,
        /// One of the settings.
        path: String,
    },
    /// The tracer's stops cost a noticeable share of the arm's time, as its bare arm shows.
    TracerCost {
        /// Index of the arm.
        arm: usize,
        /// Its time with the stops against its time without them, as a ratio.
        ratio: f64,
    },
    /// The tracer held tasks of the tree up for a noticeable share of their time. Of comparisons that have no bare arm.
    TracerLoad {
        /// Index of the arm.
        arm: usize,
        /// Time in stops against wall time.
        ratio: f64,
    },
    /// Looks at memory before it goes, which have no limit ([`crate::comparison::Design::prove_all`]), are within the wall time.
    LooksInWall {
        /// Index of the arm.
        arm: usize,
        /// Time of such looks against wall time.
        ratio: f64,
    },
    /// pagelab itself split a noticeable part of the kernel's direct map in this boot, before or while this was measured.
    DirectMapDemoted {
        /// The smallest leaf that it was demoted to.
        leaf: PageSize,
        /// The largest share of the direct map that was in leaves of at most this size; absent where the kernel does not count
        /// them.
        ratio: Option<f64>,
    },
    /// The machine is a guest whose free memory its hypervisor takes: large pages are faulted in twice.
    FreeMemoryReported {
        /// The smallest block that it may take.
        block: PageSize,
        /// The number of the stored comparison that first said so of this host: this one need not say it all again.
        said_by: Option<i64>,
    },
    /// The command's first process ends while others go on, as a daemon's does.
    FirstProcessEnds {
        /// CPU time of the processes that outlive the first, against that of the tree.
        ratio: f64,
        /// Whether CPU time decides because of that, and not the wall time that was to.
        cpu_decides: bool,
    },
    /// Processes share memory that no policy concerns.
    SharedMemory {
        /// The largest shared memory of a process.
        bytes: u64,
        /// Memory of the tree that policies concern.
        concerned_bytes: u64,
    },
    /// Runs are so short that starting the process dominates.
    ShortRuns {
        /// Median wall time of the baseline.
        wall_s: f64,
    },
}
