//! Changes between arms other than the baseline: variants under the other policies, and policies within the other
//! variants.

use std::collections::BTreeSet;

use policy::Policy;
use study::comparison::Comparison;

use crate::figure::{self, Change};
use crate::rows::{self, Row};
use crate::text::printable;

/// A part of a comparison with variants, as a comparison of its own with its own baseline.
pub(crate) struct Part {
    /// What the part compares: `variants under thp`, `policies within new`.
    pub of: String,
    /// The part. Each arm's label is only what distinguishes it within the part.
    pub slice: Comparison,
}

/// The parts whose baseline is not the comparison's own; empty if there is only one policy, or no variant.
pub(crate) fn parts(comparison: &Comparison) -> Vec<Part> {
    let design = &comparison.design;
    let Some(baseline) = design.arms.get(design.baseline) else { return Vec::new() };
    let policies: BTreeSet<&Policy> = design.compared().map(|arm| &design.arms[arm].policy).collect();
    if policies.len() < 2 {
        return Vec::new();
    }
    let mut seen: Vec<&Policy> = vec![&baseline.policy];
    let mut parts: Vec<Part> = Vec::new();
    for policy in design.compared().map(|arm| &design.arms[arm].policy) {
        if seen.contains(&policy) {
            continue;
        }
        seen.push(policy);
        parts.extend(comparison.under(policy).map(|slice| Part { of: format!("variants under {policy}"), slice }));
    }
    let own = baseline.variant.as_ref().map(|variant| &variant.name);
    for variant in design.variants().into_iter().filter(|variant| Some(&variant.name) != own) {
        let slice = comparison.within(&variant.name);
        parts.extend(slice.map(|slice| Part { of: format!("policies within {}", variant.name), slice }));
    }
    parts
}

impl Part {
    /// The rows other than the part's baseline.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let baseline = self.slice.design.baseline;
        rows::rows(&self.slice).into_iter().filter(move |row| row.index != baseline)
    }

    /// One line per arm: `variants under thp: new against old: wall time -3.1 % (-3.4 % to -2.8 %), better`.
    pub fn lines(&self) -> Vec<String> {
        let metric = rows::primary(&self.slice);
        let baseline = rows::baseline_label(&self.slice);
        let line = |row: Row<'_>| {
            let change = row.effect(metric).map(Change::of).map(|change| {
                let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
                format!("{} {}{range}, ", figure::title(metric), change.estimate())
            });
            let (of, change) = (printable(&self.of), change.unwrap_or_default());
            format!("{of}: {} against {baseline}: {change}{}", row.label(), row.outcome())
        };
        self.rows().map(line).collect()
    }
}

/// The build of each variant: its name, its command line with its variables, and the hash of its program.
pub(crate) fn builds(comparison: &Comparison) -> Vec<[String; 3]> {
    let variants = comparison.design.variants().into_iter();
    let build = |variant: &study::variant::Variant| {
        let words = variant.variables.iter().chain(&variant.command).cloned().collect::<Vec<String>>();
        let fragmented =
            variant.fragmented.map(|request| format!(" (free memory fragmented to {} %)", request.percent));
        let command = crate::text::command_line(&words) + &fragmented.unwrap_or_default();
        let hash = variant.sha256.as_ref().map(|hash| hash.chars().take(12).collect());
        [printable(&variant.name), printable(&command), hash.unwrap_or_else(|| "unknown".to_owned())]
    };
    variants.map(build).collect()
}
