//! Arguments of `pagelab study run` and `merge` for Slurm.

use clap::{Args, ValueEnum};

/// Where a study is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On this machine
    #[default]
    Here,
    /// On nodes of Slurm: each workload is a task of a job array. A further job merges their results
    Slurm,
}

/// Where the rows of a study are run, and which.
#[derive(Clone, Debug, Args)]
pub struct Where {
    /// Where to run the missing parts
    #[arg(long, value_enum, default_value = "here", conflicts_with = "task")]
    pub on: On,
    /// Run only this task of the array (`--on slurm --dry-run` lists them), on this node's own disk. Its results become
    /// a shard next to the store
    #[arg(long, value_name = "N", conflicts_with_all = ["dry_run", "only"])]
    pub task: Option<usize>,
}
