//! The structure of machine files, for deserialisation. Unknown keys are refused.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A figure with its provenance, which is the key of a source or the reason for an assumption.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "expected a figure: { is = VALUE, source = KEY } or { is = VALUE, assumed = WHY }"
)]
pub struct Cited<T> {
    pub is: T,
    pub source: Option<String>,
    pub assumed: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub schema: String,
    pub name: String,
    pub processor: String,
    pub architecture: String,
    pub formats: Cited<Vec<String>>,
    pub cpus: Option<Cited<Vec<String>>>,
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    pub tlb: Vec<Tlb>,
    #[serde(default)]
    pub walk_cache: Vec<WalkCache>,
    pub walker: Walker,
    pub stage2: Option<Stage2>,
    pub kernel_costs: Option<KernelCosts>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    pub name: String,
    pub level: u8,
    pub serves: Vec<String>,
    pub holds: Cited<Vec<String>>,
    pub entries: Cited<u32>,
    pub ways: Cited<u32>,
    pub replacement: Cited<String>,
    pub coalesces: Option<Cited<String>>,
    pub coalescing_needs: Option<Cited<String>>,
    pub hit_cycles: Cited<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCache {
    pub level: u8,
    pub entries: Cited<u32>,
    pub ways: Cited<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walker {
    pub walkers: Cited<u32>,
    pub memory_cycles: Cited<u32>,
    #[serde(default)]
    pub cache: Vec<LineCache>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCache {
    pub name: String,
    pub lines: Cited<u32>,
    pub ways: Cited<u32>,
    pub cycles: Cited<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage2 {
    pub format: Cited<String>,
    pub page: Cited<String>,
    pub tlb_entries: Cited<u32>,
    pub tlb_ways: Cited<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    pub fault_cycles: Cited<u32>,
    pub copy_4k_cycles: Cited<u32>,
    pub zeroing: Vec<Zeroing>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zeroing {
    pub page: String,
    pub cycles: Cited<u32>,
}
