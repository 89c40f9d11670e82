//! The file format of a study ([`Wire`]) and of a suite ([`WireSuite`]), for deserialisation. Unknown keys are refused.

use std::collections::BTreeMap;

use policy::size::parse_bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::counted::{WireCounted, WireSaving};

/// Schema name and version of study files.
pub const SCHEMA: &str = "pagelab.study/1";

/// Schema name and version of suite files.
pub const SUITE_SCHEMA: &str = "pagelab.suite/1";

/// A study's file.
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
    pub(super) counted: Option<WireCounted>,
    #[serde(default)]
    pub(super) series: Vec<WireSeries>,
    #[serde(default)]
    pub(super) boots: BTreeMap<String, WireBoot>,
    pub(super) form: Option<WireForm>,
    /// The fragmentation of free memory; several values are compared.
    #[serde(default)]
    pub(super) fragmented: Several,
    /// Whether every run gets its own session.
    #[serde(default)]
    pub(super) own_session: bool,
    /// Whether effects are split into their parts.
    #[serde(default)]
    pub(super) explain: bool,
    /// Variants of every workload that defines none itself.
    #[serde(default)]
    pub(super) variants: BTreeMap<String, WireVariant>,
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

/// Size of a suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSuiteSize {
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
}

/// A study's selection from a suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireUse {
    pub name: String,
    #[serde(default)]
    pub only: Vec<String>,
    #[serde(default)]
    pub without: Vec<String>,
}

/// An input that is created once.
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

/// Size of a study.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSize {
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
    /// Workloads that this size leaves out, or variants of a workload: `boot, 1M`.
    #[serde(default)]
    pub without: Vec<String>,
    pub blocks: Option<u32>,
    pub min_blocks: Option<u32>,
    /// Boots of each guest.
    pub boots: Option<u32>,
    pub precision: Option<String>,
    pub max_time: Option<String>,
    pub trial_time: Option<String>,
    /// Instructions of each thread to record.
    #[serde(default, deserialize_with = "instructions")]
    pub recorded: Option<u64>,
    /// Memory sizes of small machines.
    #[serde(default, deserialize_with = "sizes")]
    pub memory_sizes: Vec<u64>,
}

/// A text or a list of texts.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Several {
    One(String),
    Many(Vec<String>),
}

impl Default for Several {
    fn default() -> Several {
        Several::Many(Vec::new())
    }
}

impl Several {
    pub fn all(&self) -> &[String] {
        match self {
            Several::One(one) => std::slice::from_ref(one),
            Several::Many(all) => all,
        }
    }
}

/// A count above 0: a number, or a text with k, M or G for 10^3, 10^6 or 10^9.
fn instructions<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = Value::deserialize(from)?.to_string();
    let factors = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let scaled = factors.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (digits, factor) = scaled.unwrap_or((&text, 1));
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor)).filter(|count| *count > 0);
    let expected = "expected a count of instructions above 0, such as 400000000 or \"400M\"";
    count.map(Some).ok_or_else(|| D::Error::custom(format!("{expected}, found {text:?}")))
}

/// Memory sizes, ascending.
fn sizes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let sizes =
        texts.iter().map(|text| parse_bytes(text)).collect::<Result<Vec<u64>, _>>().map_err(D::Error::custom)?;
    if sizes.is_sorted_by(|one, next| one < next) {
        Ok(sizes)
    } else {
        Err(D::Error::custom(format!("expected ascending sizes, found {}", texts.join(", "))))
    }
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
    pub expected: Option<String>,
    #[serde(default)]
    pub check_output: bool,
    #[serde(default)]
    pub prove_all: bool,
    pub hugetlb_pool: Option<String>,
    pub trace: Option<String>,
    /// The command to record, if it uses another size than the measured command.
    pub recorded: Option<Vec<String>>,
    /// Instructions of each thread, or processor of a machine, to skip before recording.
    #[serde(default, deserialize_with = "instructions")]
    pub skipped: Option<u64>,
    #[serde(default)]
    pub variants: BTreeMap<String, WireVariant>,
}

/// A build, arguments, an environment or a degree of memory fragmentation. Absent keys default to the workload's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireVariant {
    #[serde(default)]
    pub baseline: bool,
    /// Placeholder values that override those of the size.
    #[serde(default)]
    pub values: BTreeMap<String, Value>,
    pub command: Option<Vec<String>>,
    pub server: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub expected: Option<String>,
    pub fragmented: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WirePublished {
    pub what: String,
    pub workload: Option<String>,
    /// The suite with whose mean the figure is compared.
    pub suite: Option<String>,
    pub policy: Option<String>,
    pub boot: Option<String>,
    pub variant: Option<String>,
    pub metric: Option<String>,
    pub change: Option<String>,
    /// A share of wins, instead of a change.
    pub wins: Option<String>,
    pub source: String,
    /// Why the figure here may differ.
    pub differs: Option<String>,
    /// The saving of counted work to which the figure refers.
    pub counted: Option<WireSaving>,
}

/// A series of sizes: the bytes for each size, derived and measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSeries {
    pub name: String,
    pub what: String,
    pub sizes: Vec<String>,
    /// The largest measured size; absent: all sizes are measured.
    pub measured: Option<String>,
    pub layouts: Vec<String>,
    pub source: String,
    /// Additional words on the command line of the workload that measures the series.
    #[serde(default)]
    pub options: Vec<String>,
}

/// The form of the origin's table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireForm {
    pub source: String,
    /// Metrics in addition to the primary one.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Why the figures here may differ.
    pub differs: Option<String>,
    #[serde(default)]
    pub row: Vec<WireFormRow>,
}

/// A configuration in the origin's table, which is one of its rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireFormRow {
    pub name: String,
    pub workload: String,
    pub policy: String,
    /// Rank in the origin's order.
    pub place: Option<u32>,
    /// Published change against the first row.
    pub change: Option<String>,
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
    pub build: Option<String>,
    pub host: Option<String>,
    pub image: Option<String>,
    pub cmdline: Option<String>,
    /// For a guest, the memory that it is given; for a boot of the host, the memory that it must have.
    pub memory: Option<String>,
    /// The leaf size that maps nine tenths of the direct map, or `mixed`.
    pub leaves: Option<String>,
    /// Whether the direct map was split since boot.
    #[serde(default)]
    pub demoted: bool,
    #[serde(default)]
    pub icount: bool,
    /// Root directory of the system whose files a guest uses.
    pub sysroot: Option<String>,
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
