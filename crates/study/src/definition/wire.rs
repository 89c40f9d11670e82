//! A study as its file has it. Unknown keys are refused.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The name and version of study files.
pub const SCHEMA: &str = "pagelab.study/1";

/// The name and version of suite files.
pub const SUITE_SCHEMA: &str = "pagelab.suite/1";

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// [`SCHEMA`].
    pub schema: String,
    pub(super) name: String,
    pub(super) question: String,
    pub(super) policies: Vec<String>,
    pub(super) baseline: Option<String>,
    #[serde(default)]
    pub(super) machines: Vec<String>,
    pub(super) primary: Option<String>,
    pub(super) model_primary: Option<String>,
    pub(super) band: Option<String>,
    pub(super) seed: Option<u64>,
    #[serde(default)]
    pub(super) sizes: BTreeMap<String, WireSize>,
    #[serde(default)]
    pub(super) suite: Vec<WireUse>,
    #[serde(default)]
    pub(super) input: Vec<WireInput>,
    #[serde(default)]
    pub(super) workload: Vec<WireWorkload>,
    #[serde(default)]
    pub(super) published: Vec<WirePublished>,
    #[serde(default)]
    pub(super) boots: BTreeMap<String, WireBoot>,
    #[serde(default)]
    pub(super) slurm: WireSlurm,
}

/// A suite's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireSuite {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) about: String,
    #[serde(default)]
    pub(super) sizes: BTreeMap<String, WireSuiteSize>,
    #[serde(default)]
    pub(super) input: Vec<WireInput>,
    #[serde(default)]
    pub(super) workload: Vec<WireWorkload>,
}

/// How much of a suite is run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSuiteSize {
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
}

/// What a study has of a suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireUse {
    pub name: String,
    #[serde(default)]
    pub only: Vec<String>,
    #[serde(default)]
    pub without: Vec<String>,
}

/// What is made once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireInput {
    pub name: String,
    pub package: Option<String>,
    #[serde(default)]
    pub needs: Vec<String>,
    #[serde(default)]
    pub command: Vec<String>,
    pub script: Option<String>,
    pub output: Option<String>,
}

/// How much is run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSize {
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
    pub blocks: Option<u32>,
    pub min_blocks: Option<u32>,
    pub precision: Option<String>,
    pub max_time: Option<String>,
    pub trial_time: Option<String>,
    /// Instructions of each thread that are recorded.
    pub recorded: Option<u64>,
}

/// A text or a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => write!(f, "{number}"),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireWorkload {
    pub name: String,
    pub stands_for: Option<String>,
    pub missing: Option<String>,
    pub package: Option<String>,
    #[serde(default)]
    pub needs: Vec<String>,
    pub user: Option<String>,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub axes: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub server: Option<String>,
    pub ready: Option<String>,
    pub prepare: Option<String>,
    pub input: Option<String>,
    #[serde(default)]
    pub metrics: Vec<String>,
    pub primary: Option<String>,
    pub answer: Option<String>,
    #[serde(default)]
    pub check_output: bool,
    #[serde(default)]
    pub prove_all: bool,
    pub hugetlb_pool: Option<String>,
    pub trace: Option<String>,
    /// What it is recorded with, where that is another size than what is measured.
    pub recorded: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WirePublished {
    pub what: String,
    pub workload: Option<String>,
    pub policy: Option<String>,
    pub boot: Option<String>,
    pub metric: Option<String>,
    pub change: Option<String>,
    /// A share of wins, in the place of a change.
    pub wins: Option<String>,
    pub source: String,
    /// Why a figure here can be another one.
    pub differs: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireBoot {
    #[serde(default)]
    pub baseline: bool,
    pub kernel: Option<String>,
    #[serde(default)]
    pub with: Vec<String>,
    #[serde(default)]
    pub without: Vec<String>,
    pub base_page: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSlurm {
    pub partition: Option<String>,
    pub constraint: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    pub reservation: Option<String>,
    pub time: Option<String>,
    pub concurrent: Option<u32>,
    pub model_cpus: Option<u32>,
}
