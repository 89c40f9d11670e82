//! From raw samples to conclusions: ratios within blocks, intervals, outcomes and warnings.

mod analysis;
pub(crate) mod answers;
mod best;
mod blocks;
pub mod boots;
mod causes;
mod curve;
mod distribution;
mod gain_share;
mod holding;
mod log_error;
mod max_t;
pub(crate) mod median;
pub(crate) mod next_block;
mod normal;
mod outcome;
mod paired;
mod parts;
mod rank_sum;
mod remedies;
mod signed_rank;
pub(crate) mod student;
mod tracer_cost;
mod trend;
mod unpaired;
mod warnings;

pub use crate::result::{
    Analysis, ArmAnalysis, Curve, CurvePoint, Effect, Enough, GainShare, LinePoint, Outcome, Parts, Share, TracerCost,
    Warning,
};
pub use analysis::analyse;
pub use answers::{accepted, too_slow};
pub use blocks::{counted_trials, log_ratios};
pub use causes::causes;
pub use holding::{deciding, holding};
pub use log_error::LogError;
pub use median::median;
pub use next_block::unsettled;
pub use normal::quantile as normal_quantile;
pub use paired::{PairedRatio, paired_ratio};
pub use student::quantile as student_quantile;
pub use trend::Trend;
pub use unpaired::unpaired_ratio;
pub use warnings::DEMOTED_SHARE;
