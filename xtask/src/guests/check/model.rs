//! Checks what programs do to memory on a guest's kernel against the prediction of the model.

use serde_json::Value;
use validation::lab::{Figures, trials};

use super::number;
use crate::guests::transcript::CheckOutput;

/// The policies that are compared for a base page size in bytes, each by its name in the guest and its name in the model. For
/// base pages of 64K the model has no larger folios.
pub fn policies(page: u64) -> &'static [(&'static str, &'static str)] {
    match page {
        65536 => &[("base", "base-64k")],
        _ => &[("base", "base"), ("mthp-64k", "mthp-64k"), ("thp", "thp")],
    }
}
/// The suffix of the name under which a simulation is in the output.
pub const SIMULATED: &str = ".sim";
/// Properties of the kernel that are determined before the programs run: the key in a file for `sim --linux`, and the command that
/// prints the value.
const KERNEL_PROPERTIES: [(&str, &str); 3] =
    [("pt_reclaim", "reclaims"), ("reuses_large_folios", "reuses"), ("vdso_pages", "vdso")];
/// The program that does nothing.
pub const NOTHING: &str = "nothing";
/// The allowed relative difference of figures, and a number of faults or pages that is always allowed.
const TOLERANCE: f64 = 0.02;
const FEW: u64 = 2;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let page = number(part, "page")?;
    let programs = part.ran.iter().filter_map(|ran| ran.name.strip_suffix(SIMULATED)).filter(|name| *name != NOTHING);
    // Some programs are written for base pages of 4K, and fail with other base pages.
    let (programs, failing): (Vec<&str>, Vec<&str>) =
        programs.partition(|name| page == 4096 || part.output(name).is_ok());
    let (mut compared, mut same, mut off) = (0, 0, Vec::new());
    for policy in policies(page) {
        let start = figures(part, NOTHING, *policy)?;
        let launch = start.0.faults.saturating_sub(start.1.faults);
        for program in &programs {
            let (kernel, model) = figures(part, program, *policy)?;
            let rows = [
                ("faults", kernel.faults.saturating_sub(launch), model.faults, FEW),
                ("bytes as asked", kernel.covered_bytes, model.covered_bytes, FEW * page),
                ("bytes of tables", kernel.table_bytes, model.table_bytes, 0),
            ];
            for (what, kernel, model, few) in rows {
                compared += 1;
                let apart = kernel.abs_diff(model);
                same += usize::from(apart == 0);
                if apart > few && apart as f64 > TOLERANCE * kernel.max(model) as f64 {
                    off.push(format!("{program} under {}: {what} {kernel}, and the model says {model}", policy.0));
                }
            }
        }
    }
    let mut all = format!("{} programs: {same} of {compared} figures are the same", programs.len());
    let properties: Vec<String> =
        kernel_properties(part)?.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if !properties.is_empty() {
        all.push_str(&format!(" ({})", properties.join(", ")));
    }
    if !failing.is_empty() {
        all.push_str(&format!(" (programs for 4K that fail with this page: {})", failing.join(", ")));
    }
    if off.is_empty() && compared > 0 {
        return Ok(format!("{all}, all within 2 %"));
    }
    Err(format!("{all}, {} are not within 2 %: {}", off.len(), off.join("; ")))
}

/// The properties of this kernel that are passed to the model, with the keys of its file.
pub fn kernel_properties(part: &CheckOutput) -> Result<Vec<(&'static str, String)>, String> {
    let is_there = |name: &str| part.ran.iter().any(|ran| ran.name == name);
    let determined = KERNEL_PROPERTIES.into_iter().filter(|(_, name)| is_there(name));
    determined.map(|(key, name)| Ok((key, part.output(name)?.trim().to_owned()))).collect()
}

/// The figures of a program, measured under a policy and predicted by the model under the corresponding policy.
fn figures(part: &CheckOutput, program: &str, (policy, modelled): (&str, &str)) -> Result<(Figures, Figures), String> {
    let document = |name: &str| -> Result<Value, String> {
        serde_json::from_str(part.output(name)?).map_err(|error| format!("{name}: expected JSON: {error}"))
    };
    let measured =
        trials(&document(program)?, policy).map_err(|problem| format!("{program} under {policy}: {problem}"))?;
    let simulations = document(&format!("{program}{SIMULATED}"))?;
    let simulations =
        simulations["traces"][0]["simulations"].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let simulated = simulations.iter().find(|one| one["policy"] == modelled).and_then(Figures::simulated);
    let both = measured.into_iter().next().zip(simulated);
    both.ok_or_else(|| format!("{program} under {policy}: no figures"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    fn compared(faults: f64) -> String {
        let of = |policy: &str| {
            let faults = serde_json::json!({ "metric": "minor_faults", "value": faults });
            let tables = serde_json::json!({ "metric": "page_table_seen_bytes", "value": 8192.0 });
            let verdict = serde_json::json!({ "holding": "held", "concerned_bytes": 4096, "covered_bytes": 4096 });
            serde_json::json!({ "label": policy, "counted": true, "observations": [faults, tables], "verdict": verdict })
        };
        let arm = |policy: &str| serde_json::json!({ "label": policy, "admission": {}, "outcome": { "outcome": "measured" } });
        let names = || policies(4096).iter().map(|(policy, _)| *policy);
        let (arms, trials): (Vec<Value>, Vec<Value>) = (names().map(arm).collect(), names().map(of).collect());
        serde_json::json!({ "arms": arms, "trials": trials }).to_string()
    }

    fn simulated(faults: u64) -> String {
        let verdict = serde_json::json!({ "holding": "held", "concerned_bytes": 4096, "covered_bytes": 4096 });
        let of = |policy: &str| {
            serde_json::json!({ "policy": policy, "stopped": null, "faults": faults, "process_table_bytes": 8192,
                                "verdict": verdict })
        };
        let all: Vec<Value> = [4096, 65536].into_iter().flat_map(policies).map(|(_, policy)| of(policy)).collect();
        serde_json::json!({ "traces": [{ "simulations": all }] }).to_string()
    }

    #[test]
    fn subtracts_the_start_of_every_program() {
        let guest = |page: &str, faults: u64| {
            judge(&part(vec![
                ran("page", page),
                ran("reclaims", "true"),
                ran("nothing", &compared(60.0)),
                ran("holes", &compared(1050.0)),
                ran("nothing.sim", &simulated(10)),
                ran("holes.sim", &simulated(faults)),
            ]))
        };
        assert_eq!(
            guest("4096", 1000).unwrap(),
            "1 programs: 9 of 9 figures are the same (pt_reclaim = true), all within 2 %"
        );
        assert_eq!(
            guest("4096", 1010).unwrap(),
            "1 programs: 6 of 9 figures are the same (pt_reclaim = true), all within 2 %"
        );
        assert_eq!(
            guest("65536", 1000).unwrap(),
            "1 programs: 3 of 3 figures are the same (pt_reclaim = true), all within 2 %"
        );
        let off = guest("4096", 1100).unwrap_err();
        assert!(off.contains("3 are not within 2 %: holes under base: faults 1000, and the model says 1100"), "{off}");
    }
}
