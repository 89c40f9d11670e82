//! Variants of a workload: builds, arguments, environments and degrees of memory fragmentation that are compared with each other.

use std::collections::BTreeMap;

use super::DefinitionError;
use super::wire::{Value, Wire, WireVariant, WireWorkload};

/// A variant of a workload, with its placeholders filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name, unique within the workload.
    pub name: String,
    /// The command; with a server, the client.
    pub command: Vec<String>,
    /// The command recorded for model machines, if it differs from `command`.
    pub recorded: Option<Vec<String>>,
    /// Command line of the server.
    pub server: Option<String>,
    /// All environment variables, including those of the workload.
    pub env: BTreeMap<String, String>,
    /// The expected answer.
    pub expected: Option<String>,
    /// The fragmentation of free memory, in the syntax of `compare --fragmented`.
    pub fragmented: Option<String>,
}

impl Variant {
    /// The properties in which variants may differ. Variants with equal properties run the same.
    fn runs(&self) -> impl Ord + '_ {
        (&self.command, &self.server, &self.env, &self.fragmented)
    }
}

/// The name of the row of one variant: `sort, patched`.
pub fn row_name(workload: &str, variant: &str) -> String {
    format!("{workload}, {variant}")
}

/// The variants that apply to all workloads of a study: the named ones, or one for each value of `fragmented`, of which
/// the first is the baseline.
pub(super) fn study_variants(wire: &Wire) -> Result<BTreeMap<String, WireVariant>, DefinitionError> {
    let is_axis = wire.fragmented.all().len() > 1;
    let has_own = wire.workload.iter().any(|workload| !workload.variants.is_empty());
    if is_axis && (has_own || !wire.variants.is_empty()) {
        return Err(DefinitionError::FragmentedTwice);
    }
    let variant = |(at, requested): (usize, &String)| {
        let fragmented = Some(requested.clone()).filter(|requested| !is_fresh(requested));
        let name = fragmented.as_ref().map_or_else(|| "fresh".to_owned(), |percent| format!("{percent} fragmented"));
        (name, WireVariant { baseline: at == 0, fragmented, ..WireVariant::default() })
    };
    if is_axis {
        Ok(wire.fragmented.all().iter().enumerate().map(variant).collect())
    } else {
        Ok(wire.variants.clone())
    }
}

/// The fragmentation of memory in all variants, if the study has a single value for it.
pub(super) fn common_fragmentation(wire: &Wire) -> Option<String> {
    match wire.fragmented.all() {
        [one] if !is_fresh(one) => Some(one.clone()),
        _ => None,
    }
}

/// Whether the requested fragmentation leaves memory unchanged.
pub(super) fn is_fresh(requested: &str) -> bool {
    requested.trim_end_matches('%') == "0"
}

/// The variants of a workload in its file, the baseline first: its own, or those of the study.
pub(super) fn ordered<'a>(
    wire: &'a WireWorkload,
    of_study: &'a BTreeMap<String, WireVariant>,
) -> Result<Vec<(&'a String, &'a WireVariant)>, DefinitionError> {
    let variants = if wire.variants.is_empty() { of_study } else { &wire.variants };
    let baselines = variants.values().filter(|variant| variant.baseline).count();
    let wrong = |what| DefinitionError::Variants { workload: wire.name.clone(), what };
    match (variants.len(), baselines) {
        (0, _) => {}
        (1, _) => return Err(wrong("one variant alone is no comparison; name another one")),
        (_, 1) => {}
        (_, 0) => return Err(wrong("none is the baseline; write `baseline = true` into one of them")),
        (_, _) => return Err(wrong("several are the baseline; mark only one")),
    }
    let mut ordered: Vec<(&String, &WireVariant)> = variants.iter().collect();
    ordered.sort_by_key(|(_, variant)| !variant.baseline);
    Ok(ordered)
}

/// Placeholder values, overridden by those of a variant.
pub(super) fn values(of_all: &BTreeMap<String, String>, variant: &WireVariant) -> BTreeMap<String, String> {
    let own = variant.values.iter().map(|(name, value): (&String, &Value)| (name.clone(), value.to_string()));
    of_all.clone().into_iter().chain(own).collect()
}

/// Refuses two variants that run the same.
pub(super) fn check_distinct(workload: &str, variants: &[Variant]) -> Result<(), DefinitionError> {
    let mut seen = BTreeMap::new();
    for other in variants {
        if let Some(one) = seen.insert(other.runs(), other) {
            return Err(DefinitionError::SameVariant {
                workload: workload.to_owned(),
                one: one.name.clone(),
                other: other.name.clone(),
            });
        }
    }
    Ok(())
}
