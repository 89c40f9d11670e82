//! Model machines: which were asked for, and what `pagelab list machines` says about them.

use model::machine::{self, Architecture, Figure, Ground, Machine};
use serde_json::{Value, json};

use crate::failure::Failure;

/// The machines that were named: built-in ones, or files.
pub fn chosen(names: &[String]) -> Result<Vec<Machine>, Failure> {
    names.iter().map(|name| named(name)).collect()
}

fn named(name: &str) -> Result<Machine, Failure> {
    if !name.ends_with(".toml") {
        return machine::built_in(name).map_err(Failure::input);
    }
    let text = std::fs::read_to_string(name).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    machine::read(name, &text).map_err(Failure::input)
}

/// The machine that stands for an architecture where none was named.
pub fn for_architecture(architecture: &str) -> Result<Machine, Failure> {
    let known = Architecture::ALL.into_iter().find(|known| known.name() == architecture);
    let name = match known {
        Some(Architecture::Arm64) => "neoverse-n1",
        Some(Architecture::RiscV64) => "rva23",
        // Imported traces do not say where they come from.
        Some(Architecture::X86_64) | None => "cascade-lake",
    };
    machine::built_in(name).map_err(Failure::input)
}

fn assumed(figure: &&Figure) -> bool {
    matches!(figure.ground, Ground::Assumed(_))
}

/// Name, processor, TLBs and how much of it is sourced, for every machine of the program.
pub fn described() -> Result<Vec<[String; 5]>, Failure> {
    let mut rows = Vec::new();
    for (name, _) in machine::BUILT_IN {
        let machine = machine::built_in(name).map_err(Failure::input)?;
        let level = |level| {
            let tlbs = machine.tlbs.iter().filter(|tlb| tlb.level == level);
            tlbs.map(|tlb| format!("{} {}", tlb.name, tlb.entries())).collect::<Vec<_>>().join(", ")
        };
        let assumed = machine.figures.iter().filter(assumed).count();
        let grounds = format!("{} sourced, {assumed} assumed", machine.figures.len() - assumed);
        rows.push([name.to_owned(), machine.processor.clone(), level(1), level(2), grounds]);
    }
    Ok(rows)
}

/// A model machine for `pagelab list machines --json`: every figure with what vouches for it.
pub fn document(name: &str) -> Result<Value, Failure> {
    Ok(of(&machine::built_in(name).map_err(Failure::input)?))
}

/// A machine with every figure and what vouches for it.
pub fn of(machine: &Machine) -> Value {
    let figures: Vec<Value> = machine.figures.iter().map(figure_document).collect();
    let assumed = machine.figures.iter().filter(assumed).count();
    json!({
        "name": machine.name,
        "processor": machine.processor,
        "arch": machine.architecture.name(),
        "table_formats": machine.formats.iter().map(|format| &format.name).collect::<Vec<_>>(),
        "sourced_figures": machine.figures.len() - assumed,
        "assumed_figures": assumed,
        "figures": figures,
    })
}

fn figure_document(figure: &Figure) -> Value {
    match &figure.ground {
        Ground::Source(source) => json!({ "key": figure.key, "is": figure.value, "source": source }),
        Ground::Assumed(why) => json!({ "key": figure.key, "is": figure.value, "assumed": why }),
    }
}
