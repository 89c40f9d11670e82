//! Drops the workloads, and the variants of workloads, that a size leaves out (`without`).

use std::collections::BTreeSet;

use super::names::Names;
use super::variant::row_name;
use super::{DefinitionError, Workload};

/// The workloads without those that `without` names, and without the variants that it names as rows (`boot, 1M`).
pub(super) fn remaining(all: &[Workload], without: &[String]) -> Result<Vec<Workload>, DefinitionError> {
    let names: Vec<String> = all.iter().flat_map(Workload::all_names).collect();
    let names: Names<'_> = names.iter().collect();
    without.iter().try_for_each(|name| names.check("without", name))?;
    let without: BTreeSet<&String> = without.iter().collect();
    let used = all.iter().filter(|workload| !without.contains(&workload.name));
    used.map(|workload| remaining_variants(workload, &without)).collect()
}

/// A workload without the variants that are left out. The baseline, which is the first, and one more must remain.
fn remaining_variants(workload: &Workload, without: &BTreeSet<&String>) -> Result<Workload, DefinitionError> {
    let is_left_out = |name: &String| without.contains(&row_name(&workload.name, name));
    let mut remaining = workload.clone();
    remaining.variants.retain(|variant| !is_left_out(&variant.name));
    let can_compare = remaining.variants.len() != 1 && remaining.variants.first() == workload.variants.first();
    let what = "a size leaves out the baseline, or all other variants; leave out the workload instead";
    can_compare.then_some(remaining).ok_or_else(|| DefinitionError::Variants { workload: workload.name.clone(), what })
}

#[cfg(test)]
mod tests {
    use super::super::{Size, Wire};
    use super::*;

    #[test]
    fn a_size_leaves_out_workloads_and_variants_with_their_published_figures() {
        let study = |without: &[&str]| {
            let values = |value: u32| serde_json::json!({ "values": { "n": value } });
            let mut first = values(1);
            first["baseline"] = true.into();
            let wire = serde_json::json!({
                "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
                "sizes": { "standard": { "without": without }, "full": {} },
                "workload": [
                    { "name": "boot", "command": ["boot", "{n}"], "variants": { "1M": first, "2M": values(2), "4M": values(4) } },
                    { "name": "own", "command": ["own"] },
                ],
                "published": [
                    { "what": "a", "workload": "boot, 4M", "policy": "thp", "change": "-3%", "source": "b" },
                    { "what": "b", "workload": "own", "policy": "thp", "change": "-3%", "source": "b" },
                ],
            });
            serde_json::from_value::<Wire>(wire).unwrap()
        };
        let rows = |without: &[&str], size: Size| {
            let definition = study(without).of_size(size).unwrap();
            let rows: Vec<String> = definition.workloads.iter().flat_map(Workload::row_names).collect();
            (rows.join("; "), definition.published.len())
        };
        assert_eq!(rows(&[], Size::Standard), ("boot, 1M; boot, 2M; boot, 4M; own".to_owned(), 2));
        assert_eq!(rows(&["boot, 4M"], Size::Standard), ("boot, 1M; boot, 2M; own".to_owned(), 1));
        assert_eq!(rows(&["boot"], Size::Standard), ("own".to_owned(), 1));
        assert_eq!(rows(&["boot, 4M"], Size::Full), ("boot, 1M; boot, 2M; boot, 4M; own".to_owned(), 2));
        let error = |without: &[&str]| study(without).of_size(Size::Standard).unwrap_err().to_string();
        assert!(error(&["boots"]).contains("without: there is no \"boots\""), "{}", error(&["boots"]));
        assert!(error(&["boot, 1M"]).contains("leaves out the baseline"), "{}", error(&["boot, 1M"]));
        assert!(error(&["boot, 2M", "boot, 4M"]).contains("all other variants"));
        assert!(error(&["boot", "own"]).contains("workload"), "{}", error(&["boot", "own"]));
    }
}
