//! `cargo xtask truth --limits`: compares `pagelab limits TRACE` with `pagelab limits -- COMMAND` on the running kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::bench::Bench;
use super::programs::{self, Program};
use super::tools::{self, Tools};

/// The policies that are compared.
const POLICIES: [&str; 4] = ["default", "base", "thp", "mthp-64k"];
/// The file with the value that `default` has on this kernel.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Two peaks agree within this ratio, or within a page of the policy.
const TOLERANCE: f64 = 0.02;
/// The kernel charges in batches of 64 base pages on each processor (`MEMCG_CHARGE_BATCH`).
const BATCH_BYTES: u64 = 64 * 4096;
/// With this share of the modelled peak as limit, the program has to be killed.
const TOO_SMALL: f64 = 0.9;

/// A program under a policy.
struct Cell {
    policy: &'static str,
    /// Peak of anonymous and shared memory with page tables.
    measured_bytes: f64,
    modelled_bytes: f64,
    /// The kernel's other memory at the peak.
    kernel_bytes: f64,
    /// The smallest limit with which the program ended as it should, and the largest that was too small.
    smallest_limit_bytes: f64,
    too_small_bytes: f64,
    modelled_limit_bytes: f64,
}

/// What is charged in advance, at most.
fn batches_bytes() -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (BATCH_BYTES * processors as u64) as f64
}

impl Cell {
    fn page_bytes(&self) -> f64 {
        match self.policy {
            "base" => 4096.0,
            "mthp-64k" => (64 << 10) as f64,
            _ => (2 << 20) as f64,
        }
    }

    fn peaks_agree(&self) -> bool {
        let off_bytes = (self.measured_bytes - self.modelled_bytes).abs();
        off_bytes <= (TOLERANCE * self.measured_bytes).max(self.page_bytes())
    }

    /// Whether the model is right that the program lives with the modelled limit.
    fn is_right_above(&self) -> bool {
        self.smallest_limit_bytes <= self.modelled_limit_bytes + batches_bytes()
    }

    /// Whether the model is right that the program is killed far below the modelled peak. Under THP the kernel gives smaller pages
    /// where a large one cannot be charged, so the model makes no such claim.
    fn is_right_below(&self) -> Option<bool> {
        let claims = matches!(self.policy, "base");
        claims.then_some(self.too_small_bytes >= TOO_SMALL * self.modelled_bytes)
    }
}

/// Prints the table. Returns whether all programs could be measured.
pub fn run(root: &Path, tools: &Tools, names: &[String]) -> Result<bool, String> {
    let (kernel, commit) = tools::provenance(root);
    println!("{kernel}, pagelab {commit}, {}\n", tools::today());
    println!("| program | policy | peak measured | modelled | smallest limit measured | modelled | other kernel |");
    println!("|---|---|---|---|---|---|---|");
    let (mut cells, mut skipped) = (Vec::new(), Vec::new());
    for program in programs::named(names)?.iter().filter(|program| is_simple(program)) {
        match of_program(program, tools) {
            Ok(found) => {
                found.iter().for_each(|cell| println!("{}", line(&program.name, cell)));
                cells.extend(found);
            }
            Err(why) => skipped.push(format!("not in the table: {}: {why}", program.name)),
        }
    }
    summarize(&cells);
    skipped.iter().for_each(|line| println!("{line}"));
    Ok(skipped.is_empty())
}

/// Whether a program can be run many times without preparation: `limits` runs it about ten times under each policy.
fn is_simple(program: &Program) -> bool {
    program.input.is_none() && program.prepare.is_none() && program.user.is_none()
}

fn of_program(program: &Program, tools: &Tools) -> Result<Vec<Cell>, String> {
    let bench = Bench::new(program, tools).map_err(|why| why.to_string())?;
    let trace = bench.lab.directory.join("limits.trace");
    let trace_word = trace.display().to_string();
    run_pagelab(tools, &bench, &[&["record", "-o", &trace_word, "--"], &words(&bench)[..]].concat())?;
    let enabled = fs::read_to_string(ENABLED).unwrap_or_default();
    let enabled = enabled.split(['[', ']']).nth(1).unwrap_or("never").to_owned();
    let modelled_name = |policy: &str| match policy {
        "default" => format!("default+{enabled}"),
        other => other.to_owned(),
    };
    let modelled: Vec<String> = POLICIES.iter().map(|policy| modelled_name(policy)).collect();
    let modelled = run_pagelab(tools, &bench, &["limits", "-p", &modelled.join(","), "--json", &trace_word])?;
    let policies = POLICIES.join(",");
    let measured =
        run_pagelab(tools, &bench, &[&["limits", "-p", &policies, "--json", "--"], &words(&bench)[..]].concat())?;
    let of = |document: &Value, name: &str| {
        document["policies"].as_array()?.iter().find(|one| one["policy"] == name).cloned()
    };
    let cell = |policy: &'static str| {
        let measured = of(&measured, policy).ok_or("no measured figures")?;
        let modelled = of(&modelled, &modelled_name(policy)).ok_or("no modelled figures")?;
        let number =
            |value: &Value, what: &str| value.as_f64().ok_or_else(|| format!("{policy}: no {what}: {measured}"));
        let at_peak = |key: &str| number(&measured["at_peak"][key], key);
        let tables_bytes = at_peak("tables_bytes")?;
        Ok(Cell {
            policy,
            measured_bytes: at_peak("anonymous_bytes")? + at_peak("shmem_bytes")? + tables_bytes,
            modelled_bytes: number(&modelled["charged_peak_bytes"], "modelled peak")?,
            kernel_bytes: at_peak("kernel_bytes")? - tables_bytes,
            smallest_limit_bytes: number(&measured["limit_bytes"], "limit")?,
            too_small_bytes: measured["too_small_bytes"].as_f64().unwrap_or(0.0),
            modelled_limit_bytes: number(&modelled["limit_bytes"], "modelled limit")?,
        })
    };
    POLICIES.into_iter().map(cell).collect()
}

fn words(bench: &Bench) -> Vec<&str> {
    bench.command.iter().map(String::as_str).collect()
}

/// Runs pagelab in the directory and with the environment of a program, and returns the document that it prints, if any.
fn run_pagelab(tools: &Tools, bench: &Bench, words: &[&str]) -> Result<Value, String> {
    let library_path = bench.lab.directory.join("lib");
    let mut pagelab = Command::new(&tools.pagelab);
    pagelab.args(words).current_dir(&bench.lab.directory).stdin(Stdio::null()).env_clear();
    pagelab.envs(bench.launch.environment.iter().map(|(name, value)| (name, value)));
    pagelab.env("LD_LIBRARY_PATH", library_path).env("PAGELAB_QEMU_PLUGIN", PathBuf::from(&tools.plugin));
    let output = pagelab.output().map_err(|error| format!("pagelab: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("pagelab {}: {}", words[0], errors.lines().last().unwrap_or_default()));
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

fn line(program: &str, cell: &Cell) -> String {
    let size = |bytes: f64| format!("{:.2}M", bytes / f64::from(1 << 20));
    let marked = |text: String, is_right: bool| if is_right { text } else { format!("**{text}**") };
    let range = format!("{} to {}", size(cell.too_small_bytes), size(cell.smallest_limit_bytes));
    let is_right = cell.is_right_above() && cell.is_right_below() != Some(false);
    format!(
        "| {program} | {} | {} | {} | {range} | {} | {} |",
        cell.policy,
        size(cell.measured_bytes),
        marked(size(cell.modelled_bytes), cell.peaks_agree()),
        marked(size(cell.modelled_limit_bytes), is_right),
        size(cell.kernel_bytes)
    )
}

fn summarize(cells: &[Cell]) {
    let count = |is_right: &dyn Fn(&Cell) -> Option<bool>| {
        let all: Vec<bool> = cells.iter().filter_map(is_right).collect();
        format!("{} of {}", all.iter().filter(|one| **one).count(), all.len())
    };
    let mut kernel: Vec<f64> = cells.iter().map(|cell| cell.kernel_bytes).collect();
    kernel.sort_by(f64::total_cmp);
    println!(
        "\npeaks within {:.0} % or a page of the policy: {}",
        TOLERANCE * 100.0,
        count(&|cell| Some(cell.peaks_agree()))
    );
    println!(
        "the program lives with the modelled limit (and 256K a processor): {}",
        count(&|cell| Some(cell.is_right_above()))
    );
    println!("killed at {TOO_SMALL} of the modelled peak: {}", count(&Cell::is_right_below));
    if let (Some(median), Some(most)) = (kernel.get(kernel.len() / 2), kernel.last()) {
        println!("other memory of the kernel: median {:.0}K, at most {:.0}K", median / 1024.0, most / 1024.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: f64 = (1 << 20) as f64;

    fn cell(policy: &'static str, measured: f64, modelled: f64, limits: (f64, f64)) -> Cell {
        Cell {
            policy,
            measured_bytes: measured * M,
            modelled_bytes: modelled * M,
            kernel_bytes: 0.5 * M,
            smallest_limit_bytes: limits.1 * M,
            too_small_bytes: limits.0 * M,
            modelled_limit_bytes: (modelled + 0.5) * M,
        }
    }

    #[test]
    fn a_peak_may_differ_by_a_page_and_a_limit_may_be_smaller_under_thp() {
        assert!(cell("base", 100.0, 101.9, (99.0, 100.0)).peaks_agree());
        assert!(!cell("base", 10.0, 11.0, (9.0, 10.0)).peaks_agree());
        assert!(cell("thp", 10.0, 11.9, (9.0, 10.0)).peaks_agree());
        assert_eq!(cell("thp", 10.0, 10.0, (4.0, 5.0)).is_right_below(), None);
        assert_eq!(cell("base", 10.0, 10.0, (4.0, 5.0)).is_right_below(), Some(false));
        assert!(!cell("base", 10.0, 8.0, (9.8, 10.0)).is_right_above());
    }
}
