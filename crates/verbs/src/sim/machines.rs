//! Finds model machines by name or file, and describes them for `pagelab list machines`.

use std::path::Path;

use host::Host;
use model::machine::{self, Architecture, Figure, Machine, Provenance};
use results::{input, simulation as page};
use serde_json::{Value, json};

use super::host_machine;
use crate::failure::Failure;

/// The machines that these names denote, without duplicates: built-in machines, files, or this host.
pub fn chosen(names: &[String]) -> Result<Vec<Machine>, Failure> {
    let mut all: Vec<(&str, Machine)> = Vec::new();
    for name in names {
        let machine = named(name)?;
        match all.iter().find(|(_, known)| known.name == machine.name) {
            Some((_, known)) if *known == machine => {}
            Some((first, _)) => {
                let both = format!("{first} and {name} are two machines with the same name, {:?}", machine.name);
                return Err(Failure::Input(format!("{both}; change the key `name` of one of them")));
            }
            None => all.push((name, machine)),
        }
    }
    Ok(all.into_iter().map(|(_, machine)| machine).collect())
}

/// Notes on this host, if `host` is among the names.
pub fn host_notes(names: &[String]) -> Result<Vec<String>, Failure> {
    if names.iter().any(|name| name == host_machine::NAME) {
        Ok(host_machine::of_this_host()?.notes)
    } else {
        Ok(Vec::new())
    }
}

/// A machine by its name or file, or this host.
pub fn named(name: &str) -> Result<Machine, Failure> {
    if name == host_machine::NAME {
        return Ok(host_machine::of_this_host()?.machine);
    }
    if !name.ends_with(".toml") {
        return machine::built_in(name).map_err(Failure::input);
    }
    let path = Path::new(name);
    let text = input::read_definition(path).map_err(|error| Failure::about(path, error))?;
    machine::read(name, &text).map_err(Failure::input)
}

/// The file of a built-in machine.
pub fn file(name: &str) -> Result<String, Failure> {
    if name == host_machine::NAME || name.ends_with(".toml") {
        return Err(Failure::Input(format!(
            "--toml prints the file of a built-in machine, and {name} is none; pagelab list machines shows them"
        )));
    }
    machine::built_in_file(name).map(|text| text.trim_end().to_owned()).map_err(Failure::input)
}

/// The default machine for an architecture.
pub fn for_architecture(architecture: &str) -> Result<Machine, Failure> {
    let known = Architecture::ALL.into_iter().find(|known| known.name() == architecture);
    let name = match known {
        Some(Architecture::Arm64) => "neoverse-n1",
        Some(Architecture::RiscV64) => "rva23",
        // An imported trace does not record its architecture; it gets the x86-64 default too.
        Some(Architecture::X86_64) | None => "cascade-lake",
    };
    machine::built_in(name).map_err(Failure::input)
}

/// This host's processor, in the form that [`Machine::is_cpu`] takes; empty if /proc/cpuinfo does not identify it.
pub fn host_cpu() -> Result<String, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    Ok(host.processor().map_err(Failure::input)?.id)
}

/// The built-in machine that describes a processor, if one does.
pub fn of_cpu(cpu: &str) -> Option<Machine> {
    machine::BUILT_IN.iter().filter_map(|(name, _)| machine::built_in(name).ok()).find(|machine| machine.is_cpu(cpu))
}

fn assumed(figure: &&Figure) -> bool {
    matches!(figure.provenance, Provenance::Assumed(_))
}

/// A note on how many of the machine's figures are assumed; `None` if none is.
pub fn assumed_note(machine: &Machine) -> Option<String> {
    let (all, assumed) = (machine.figures.len(), machine.figures.iter().filter(assumed).count());
    (assumed > 0).then(|| format!("{assumed} of {all} figures of {} are assumed", machine.name))
}

/// One row per built-in machine: name, processor, TLBs, and the share of figures that have a source.
pub fn built_in_rows() -> Result<Vec<[String; 5]>, Failure> {
    let mut rows = Vec::new();
    for (name, _) in machine::BUILT_IN {
        let machine = machine::built_in(name).map_err(Failure::input)?;
        let level = |level| {
            let tlbs = machine.tlbs.iter().filter(|tlb| tlb.level == level);
            tlbs.map(|tlb| format!("{} {}", tlb.name, tlb.entries())).collect::<Vec<_>>().join(", ")
        };
        let assumed = machine.figures.iter().filter(assumed).count();
        let provenance = format!("{} sourced, {assumed} assumed", machine.figures.len() - assumed);
        rows.push([name.to_owned(), machine.processor.clone(), level(1), level(2), provenance]);
    }
    Ok(rows)
}

/// Every figure with its value and its source.
pub fn figures(machine: &Machine) -> Vec<[String; 3]> {
    let provenance = |provenance: &Provenance| match provenance {
        Provenance::Source(source) => source.clone(),
        Provenance::Assumed(why) => format!("assumed: {why}"),
    };
    let row = |figure: &Figure| [figure.key.clone(), figure.value.clone(), provenance(&figure.provenance)];
    machine.figures.iter().map(row).collect()
}

/// A model machine for `pagelab list machines --json`: every figure with its source.
pub fn document(name: &str) -> Result<Value, Failure> {
    Ok(of(&machine::built_in(name).map_err(Failure::input)?))
}

/// A machine as JSON, with the source of every figure.
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

/// A machine for a page, with the source of every figure.
pub fn shown(machine: &Machine) -> page::Machine {
    let figure = |figure: &Figure| page::MachineFigure {
        key: figure.key.clone(),
        value: figure.value.clone(),
        provenance: match &figure.provenance {
            Provenance::Source(source) => page::Provenance::Source(source.clone()),
            Provenance::Assumed(why) => page::Provenance::Assumed(why.clone()),
        },
    };
    page::Machine {
        name: machine.name.clone(),
        processor: machine.processor.clone(),
        figures: machine.figures.iter().map(figure).collect(),
    }
}

fn figure_document(figure: &Figure) -> Value {
    match &figure.provenance {
        Provenance::Source(source) => json!({ "key": figure.key, "is": figure.value, "source": source }),
        Provenance::Assumed(why) => json!({ "key": figure.key, "is": figure.value, "assumed": why }),
    }
}
