//! Records the guests' programs on this machine under QEMU's user-mode emulation, and simulates the traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::check::model::{NOTHING, SIMULATED, kernel_properties, policies};
use super::initrd::Programs;
use super::programs::PROGRAMS;
use super::stage::{BootOutput, Stage};
use super::transcript::{CheckOutput, CommandOutput};
use crate::command::is_in_path;
use crate::dist::Target;

/// Appends to the output of the guest the simulation of each program, or why there is none.
pub fn simulate(root: &Path, target: &Target, programs: &Programs, outputs: &mut [(Stage, BootOutput)]) {
    let parts = outputs.iter_mut().flat_map(|(_, output)| &mut output.parts);
    let Some(part) = parts.into_iter().find(|part| part.check == "model" && !part.ran.is_empty()) else { return };
    if let Err(error) = simulate_all(root, target, programs, part) {
        let name = format!("{NOTHING}{SIMULATED}");
        part.ran.push(CommandOutput { name, output: String::new(), error, code: Some(1) });
    }
}

fn simulate_all(root: &Path, target: &Target, programs: &Programs, part: &mut CheckOutput) -> Result<(), String> {
    let page: u64 = part.output("page")?.trim().parse().unwrap_or(0);
    let machine = match (target.architecture, page) {
        ("arm64", 4096 | 65536) => "neoverse-n1",
        ("arm64", 16384) => "apple-m1",
        ("riscv64", 4096) => "rva23",
        (architecture, page) => return Err(format!("there is no model machine for {architecture} and {page}")),
    };
    let emulator = format!("qemu-{}", target.triple.split(['-', 'g']).next().unwrap_or_default());
    if !is_in_path(&emulator) {
        part.ran.clear();
        part.needs.push(format!("{emulator} on this machine (apt-get install qemu-user)"));
        return Ok(());
    }
    let keys = kernel_properties(part)?.into_iter().map(|(key, value)| format!("{key} = {value}\n"));
    let linux: String = ["schema = \"pagelab.linux/1\"\n".to_owned()].into_iter().chain(keys).collect();
    let directory = build(root)?;
    for (name, words) in PROGRAMS {
        let (output, error, code) = match record_and_simulate(&directory, machine, &linux, page, &programs.here(words))
        {
            Ok(document) => (document, String::new(), 0),
            Err(problem) => (String::new(), problem, 1),
        };
        part.ran.push(CommandOutput { name: format!("{name}{SIMULATED}"), output, error, code: Some(code) });
    }
    Ok(())
}

/// Builds pagelab for this machine and its recorder, and returns their directory.
pub fn build(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = crate::cargo(root);
    cargo.args(["build", "--quiet", "--package", "pagelab", "--package", "qemu-plugin"]);
    crate::command::succeed(&mut cargo).map_err(|problem| format!("cargo build: {problem}"))?;
    Ok(root.join("target/debug"))
}

/// Records a program, and simulates it on a kernel with the properties in a file for `sim --linux`. Returns the document
/// of `pagelab sim`.
fn record_and_simulate(
    directory: &Path,
    machine: &str,
    linux: &str,
    page: u64,
    words: &[String],
) -> Result<String, String> {
    let pagelab = directory.join("pagelab");
    let place = std::env::temp_dir().join(format!("pagelab-guest-trace-{}", std::process::id()));
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let (trace, file) = (place.join("trace"), place.join("linux.toml"));
    fs::write(&file, linux).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let mut record = Command::new(&pagelab);
    // Without this variable, QEMU reports this machine's page size to programs.
    record.env("QEMU_PAGESIZE", page.to_string());
    record.args(["record", "--no-native-run", "--output"]).arg(&trace);
    record.arg("--plugin").arg(directory.join("libpagelab_qemu_plugin.so")).arg("--").args(words);
    let mut sim = Command::new(&pagelab);
    let policies: Vec<&str> = policies(page).iter().map(|(_, modelled)| *modelled).collect();
    sim.arg("sim")
        .arg(&trace)
        .args(["--machine", machine, "--policy", &policies.join(","), "--json", "--linux"])
        .arg(&file);
    let document = output(&mut record).and_then(|_| output(&mut sim));
    let _ = fs::remove_dir_all(&place);
    document
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
