//! Merges the stores of two boots of a guest on this machine, with the program that ran in the guest.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::check::boots::{BOOTS, REPORT};
use super::stage::{BootOutput, Stage};
use super::transcript::{CheckOutput, CommandOutput};

/// The time limit of the study's quick size; the longer limit that replaces it here follows.
const QUICK_TIME: &str = "max_time = \"15s\"";
const LONGER_TIME: &str = "max_time = \"3m\"";

/// The study of both boots. Its quick size is meant for real processors, and an emulated processor takes longer for a
/// block.
pub fn study() -> String {
    include_str!("../../../studies/direct-map.toml").replace(QUICK_TIME, LONGER_TIME)
}

/// Appends the report over both stores to the output of the guest. `pagelab` is the guest's program, which can run on this
/// machine only if the guest has the same architecture.
pub fn report(pagelab: &Path, outputs: &mut [(Stage, BootOutput)]) -> Result<(), String> {
    let parts: Vec<&CheckOutput> =
        outputs.iter().flat_map(|(_, output)| &output.parts).filter(|part| part.check == "boots").collect();
    if parts.iter().all(|part| part.ran.is_empty()) {
        return Ok(());
    }
    let place = std::env::temp_dir().join(format!("pagelab-guest-boots-{}", std::process::id()));
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let made = make_report(pagelab, &place, &parts);
    let _ = fs::remove_dir_all(&place);
    let (output, error, code) = match made {
        Ok(document) => (document, String::new(), 0),
        Err(problem) => (String::new(), problem, 1),
    };
    let last = outputs.iter_mut().rev().flat_map(|(_, output)| &mut output.parts).find(|part| part.check == "boots");
    let ran = CommandOutput { name: REPORT.to_owned(), output, error, code: Some(code) };
    last.into_iter().for_each(|part| part.ran.push(ran.clone()));
    Ok(())
}

fn make_report(pagelab: &Path, place: &Path, parts: &[&CheckOutput]) -> Result<String, String> {
    let (merged, file) = (place.join("merged.sqlite"), place.join("direct-map.toml"));
    fs::write(&file, study()).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let mut merge = Command::new(pagelab);
    merge.args(["study", "merge", "--store"]).arg(&merged);
    for boot in BOOTS {
        let name = format!("store.{boot}");
        let text = parts
            .iter()
            .find_map(|part| part.output(&name).ok())
            .ok_or_else(|| format!("the guest printed no {name}"))?;
        let packed = place.join(format!("{boot}.base64"));
        let store = place.join(format!("{boot}.sqlite"));
        fs::write(&packed, text).map_err(|error| format!("cannot write {}: {error}", packed.display()))?;
        let unpack = format!("base64 -d <'{}' | gzip -dc >'{}'", packed.display(), store.display());
        output(Command::new("sh").args(["-c", &unpack]))?;
        merge.arg(store);
    }
    output(&mut merge)?;
    let mut report = Command::new(pagelab);
    report.args(["study", "report"]).arg(&file).args(["--size", "quick", "--json", "--store"]).arg(&merged);
    output(&mut report)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_processor_has_more_time() {
        assert!(study().contains(LONGER_TIME) && !study().contains(QUICK_TIME));
        assert!(study().contains("name = \"direct-map\""));
    }
}
