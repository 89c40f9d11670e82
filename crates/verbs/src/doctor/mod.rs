//! `pagelab doctor`: lists what this machine allows, what it lacks, and how to fix that.

use clap::Args;
use host::Host;
use host::admit::{self, DoctorLine, Fact, Suitability, Terms};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{print, terminal_width};
use crate::sim::machines;
use policy::held_files::FilesWithMemory;
use policy::inspect::Pool;
use policy::size::PageSize;
use results::grid::plain;
use results::{held_files, inspection};

/// Arguments of `pagelab doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Runs `pagelab doctor`.
pub fn run(arguments: &Doctor) -> Result<(), Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let terms = Terms::of_this_process(&host, tracer::try_tracing);
    let (lines, mut facts) = (admit::doctor_lines(&host, &terms), admit::facts(&host, &terms));
    facts.push(model_machine());
    let base = host.page_sizes().base;
    let (files, pools) = ([census::hugetlb_files(), census::tmpfs_files(base)], host.pools().map_err(Failure::input)?);
    let text = if arguments.json {
        format!("{:#}", document(&lines, &facts, &pools, &files))
    } else {
        text(&lines, &facts, &files, base)
    };
    print(&text, arguments.json)
}

/// The model machine that describes this processor.
fn model_machine() -> Fact {
    const NAME: &str = "model machine";
    let cpu = match machines::host_cpu() {
        Ok(cpu) => cpu,
        Err(failure) => {
            let (value, meaning) = ("unknown".to_owned(), failure.to_string());
            return Fact { name: NAME, value, meaning, suitability: Suitability::Limited };
        }
    };
    let name = machines::of_cpu(&cpu).map(|machine| machine.name);
    let meaning = match &name {
        Some(name) => format!("describes this processor: `pagelab sim -m {name}`, `pagelab sim chase`"),
        None => "none describes this processor: write a file for `pagelab sim -m FILE.toml`".to_owned(),
    };
    Fact { name: NAME, value: name.unwrap_or_else(|| "none".to_owned()), meaning, suitability: Suitability::Neutral }
}

fn text(lines: &[DoctorLine], facts: &[Fact], [hugetlb, tmpfs]: &[FilesWithMemory; 2], base: PageSize) -> String {
    let policies = lines.iter().map(|line| {
        let how = std::iter::once(line.how.clone()).chain(line.notes.iter().map(|note| format!("({note})")));
        [line.policy.to_string(), state(line).to_string(), needs_first(line, how.collect::<Vec<_>>().join(" "))]
    });
    let facts = facts.iter().map(|fact| {
        let mark = if fact.suitability == Suitability::Limited { "!" } else { "" };
        [fact.name.to_string(), format!("{mark}{}", fact.value), fact.meaning.clone()]
    });
    let policies = plain(["policy", "here", "how"], policies, terminal_width());
    let facts = plain(["fact", "value", "what it means"], facts, terminal_width());
    let width = terminal_width();
    let files = [held_files::hugetlb_table(hugetlb, width), held_files::tmpfs_table(tmpfs, base, width)];
    let files: String = files.iter().filter(|table| !table.is_empty()).map(|table| format!("\n\n{table}")).collect();
    format!("{policies}\n\n{facts}{files}\n\n! limits what can be measured or seen here")
}

fn state(line: &DoctorLine) -> &'static str {
    if line.needs.is_some() { "unsupported" } else { "available" }
}

fn needs_first(line: &DoctorLine, how: String) -> String {
    match &line.needs {
        Some(needs) => format!("{needs}; {how}"),
        None => how,
    }
}

fn document(
    lines: &[DoctorLine],
    facts: &[Fact],
    pools: &[Pool],
    [hugetlb, tmpfs]: &[FilesWithMemory; 2],
) -> serde_json::Value {
    let policies = lines.iter().map(|line| {
        json!({
            "policy": line.policy.to_string(),
            "available": line.needs.is_none(),
            "needs": line.needs,
            "how": line.how,
            "notes": line.notes,
        })
    });
    let facts = facts.iter().map(|fact| {
        let suitability = match fact.suitability {
            Suitability::Good => "good",
            Suitability::Limited => "limited",
            Suitability::Neutral => "neutral",
        };
        json!({ "name": fact.name, "value": fact.value, "meaning": fact.meaning, "state": suitability })
    });
    json!({
        "schema": "pagelab.doctor/1",
        "policies": policies.collect::<Vec<_>>(),
        "facts": facts.collect::<Vec<_>>(),
        "pools": pools.iter().map(inspection::json::pool).collect::<Vec<_>>(),
        "hugetlb_files": held_files::json(hugetlb),
        "tmpfs_files": held_files::json(tmpfs),
    })
}
