//! Variants of a workload: builds, arguments, environments and ages of memory that are measured beside each other.

use std::collections::BTreeMap;

use super::DefinitionError;
use super::wire::{Value, Wire, WireVariant, WireWorkload};

/// A variant of a workload, with its placeholders filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name, unique in its workload.
    pub name: String,
    /// The command, or with a server the client.
    pub command: Vec<String>,
    /// What is recorded for model machines, where that is not the command.
    pub recorded: Option<Vec<String>>,
    /// The server's command line.
    pub server: Option<String>,
    /// All variables of its environment, those of the workload too.
    pub env: BTreeMap<String, String>,
    /// Its answer.
    pub expected: Option<String>,
    /// How free memory is fragmented, as `compare --fragmented` takes it.
    pub fragmented: Option<String>,
}

impl Variant {
    /// What makes it another one than others.
    fn runs(&self) -> impl Ord + '_ {
        (&self.command, &self.server, &self.env, &self.fragmented)
    }
}

/// The name of a row of one variant: `sort, patched`.
pub fn row_name(workload: &str, variant: &str) -> String {
    format!("{workload}, {variant}")
}

/// The variants that all workloads of a study have: those that it names, or one for each way in which memory is fragmented, the
/// first of which is the baseline.
pub(super) fn of_study(wire: &Wire) -> Result<BTreeMap<String, WireVariant>, DefinitionError> {
    let is_axis = wire.fragmented.all().len() > 1;
    let has_own = wire.workload.iter().any(|workload| !workload.variants.is_empty());
    if is_axis && (has_own || !wire.variants.is_empty()) {
        return Err(DefinitionError::FragmentedTwice);
    }
    let variant = |(at, wish): (usize, &String)| {
        let fragmented = Some(wish.clone()).filter(|wish| !is_fresh(wish));
        let name = fragmented.as_ref().map_or_else(|| "fresh".to_owned(), |wish| format!("{wish} fragmented"));
        (name, WireVariant { baseline: at == 0, fragmented, ..WireVariant::default() })
    };
    if is_axis {
        Ok(wire.fragmented.all().iter().enumerate().map(variant).collect())
    } else {
        Ok(wire.variants.clone())
    }
}

/// How memory is fragmented in all variants, where the study has one way for it.
pub(super) fn of_all(wire: &Wire) -> Option<String> {
    match wire.fragmented.all() {
        [one] if !is_fresh(one) => Some(one.clone()),
        _ => None,
    }
}

/// Whether memory stays as it is.
pub(super) fn is_fresh(wish: &str) -> bool {
    wish.trim_end_matches('%') == "0"
}

/// The variants of a workload as its file has them, the baseline first: its own, or those of the study.
pub(super) fn ordered<'a>(
    wire: &'a WireWorkload,
    of_study: &'a BTreeMap<String, WireVariant>,
) -> Result<Vec<(&'a String, &'a WireVariant)>, DefinitionError> {
    let variants = if wire.variants.is_empty() { of_study } else { &wire.variants };
    let baselines = variants.values().filter(|variant| variant.baseline).count();
    let wrong = |what| DefinitionError::Variants { workload: wire.name.clone(), what };
    match (variants.len(), baselines) {
        (0, _) => {}
        (1, _) => return Err(wrong("one variant alone is compared with nothing; name another one")),
        (_, 1) => {}
        (_, 0) => return Err(wrong("none is the baseline; write `baseline = true` into one of them")),
        (_, _) => return Err(wrong("several are the baseline; the others are compared with one")),
    }
    let mut ordered: Vec<(&String, &WireVariant)> = variants.iter().collect();
    ordered.sort_by_key(|(_, variant)| !variant.baseline);
    Ok(ordered)
}

/// The values of placeholders, with those of a variant over them.
pub(super) fn values(of_all: &BTreeMap<String, String>, variant: &WireVariant) -> BTreeMap<String, String> {
    let own = variant.values.iter().map(|(name, value): (&String, &Value)| (name.clone(), value.to_string()));
    of_all.clone().into_iter().chain(own).collect()
}

/// Refuses variants of which two run the same.
pub(super) fn different(workload: &str, variants: &[Variant]) -> Result<(), DefinitionError> {
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
