//! From raw samples to conclusions: ratios within blocks, intervals, outcomes and warnings.

mod analysis;
pub(crate) mod answers;
mod best;
mod blocks;
pub mod boots;
mod distribution;
mod holding;
mod max_t;
pub(crate) mod median;
mod normal;
mod outcome;
mod paired;
mod rank_sum;
mod remedies;
pub(crate) mod result;
mod signed_rank;
mod tracer_cost;
mod trend;
mod unpaired;
mod warnings;

pub use analysis::{analyse, is_precise};
pub use answers::too_slow;
pub use holding::{deciding, holding};
pub use paired::{PairedRatio, paired_ratio};
pub use result::{Analysis, ArmAnalysis, Effect, Outcome, TracerCost, Warning};
pub use trend::Trend;
pub use unpaired::unpaired_ratio;
pub use warnings::DEMOTED_SHARE;

pub(crate) use normal::quantile as normal_quantile;
