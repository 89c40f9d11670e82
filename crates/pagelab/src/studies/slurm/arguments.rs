//! Arguments of `pagelab study run` and `merge` for Slurm.

use clap::{Args, ValueEnum};

/// Where a study is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On this machine
    #[default]
    Here,
    /// On nodes that Slurm gives: a workload a task of a job array
    Slurm,
}

/// Where the rows of a study are run, and which.
#[derive(Clone, Debug, Args)]
pub struct Where {
    /// Submit what is missing as a job array, and a job that merges what its tasks leave
    #[arg(long, value_enum, default_value = "here", conflicts_with = "task")]
    pub on: On,
    /// Run this task of the array alone (`--on slurm --dry-run` lists them), on this node's own disk, and leave what it
    /// measured as a shard beside the store
    #[arg(long, value_name = "N", conflicts_with_all = ["dry_run", "only"])]
    pub task: Option<usize>,
}
