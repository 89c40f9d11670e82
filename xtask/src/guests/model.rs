//! Programs of guests as the model sees them: recorded on this machine under QEMU's emulation of a process, and simulated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::check::model::{POLICIES, SIMULATED};
use super::initrd::Programs;
use super::stage::{Said, Stage};
use super::transcript::Ran;
use crate::dist::Target;
use crate::test::packages::is_in_path;

/// The programs: what they are called, and their words in a guest.
pub const PROGRAMS: [(&str, &str); 11] = [
    ("nothing", "/programs/nothing"),
    ("advice", "/programs/advice"),
    ("holes", "/programs/holes"),
    ("kernel", "/programs/kernel"),
    ("layouts", "/programs/layouts"),
    ("parent_and_child", "/programs/parent_and_child"),
    ("mappings", "/programs/mappings 1"),
    ("toggles", "/programs/toggles 2000"),
    ("awk", "/bin/busybox awk -f /programs/hash.awk"),
    ("sort", "/bin/busybox sort /programs/lines"),
    ("bzip2", "/bin/busybox bzip2 -c /programs/lines"),
];

/// Where the sources of those lie that are compiled, by name.
pub fn sources(root: &Path) -> Vec<PathBuf> {
    let places = ["xtask/src/guests/programs", "crates/pagelab/tests/programs", "crates/pagelab/tests/torture"];
    let compiled = PROGRAMS.iter().filter(|(name, words)| words.starts_with(&format!("/programs/{name}")));
    let of =
        |name: &str| places.iter().map(|place| root.join(place).join(format!("{name}.c"))).find(|one| one.is_file());
    compiled.filter_map(|(name, _)| of(name)).collect()
}

/// What the programs read: a script, and lines to sort.
pub fn inputs() -> [(&'static str, Vec<u8>); 3] {
    let hash = "BEGIN { for (i = 0; i < 20000; i++) of[i * 7 % 20011] = i \" \" i * i; print of[7] }\n";
    let line = |number: u64| format!("{:08x} of {number}\n", number.wrapping_mul(2_654_435_761) as u32);
    let lines: String = (0..20_000).map(line).collect();
    let list: String = PROGRAMS.iter().map(|(name, words)| format!("{name} {words}\n")).collect();
    [("hash.awk", hash.into()), ("lines", lines.into_bytes()), ("list", list.into_bytes())]
}

/// Puts what the model says of each program behind what the guest has said of it.
///
/// # Errors
/// pagelab cannot be built, or has no machine like the guest.
pub fn simulate(root: &Path, target: &Target, programs: &Programs, said: &mut [(Stage, Said)]) -> Result<(), String> {
    let parts = said.iter_mut().flat_map(|(_, said)| &mut said.parts);
    let Some(part) = parts.into_iter().find(|part| part.check == "model" && !part.ran.is_empty()) else {
        return Ok(());
    };
    let machine = match (target.architecture, part.output("page")?.trim()) {
        ("arm64", "4096") => "neoverse-n1",
        ("arm64", "16384") => "apple-m1",
        ("riscv64", "4096") => "rva23",
        (architecture, page) => return Err(format!("there is no model machine for {architecture} and {page}")),
    };
    let emulator = format!("qemu-{}", target.triple.split(['-', 'g']).next().unwrap_or_default());
    if !is_in_path(&emulator) {
        part.ran.clear();
        part.needs.push(format!("{emulator} on this machine (apt-get install qemu-user)"));
        return Ok(());
    }
    let directory = build(root)?;
    for (name, words) in PROGRAMS {
        let (output, error, code) = match simulated(&directory, machine, &programs.here(words)) {
            Ok(document) => (document, String::new(), 0),
            Err(problem) => (String::new(), problem, 1),
        };
        part.ran.push(Ran { name: format!("{name}{SIMULATED}"), output, error, code: Some(code) });
    }
    Ok(())
}

/// pagelab for this machine and its recorder: their directory.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = crate::cargo(root);
    cargo.args(["build", "--quiet", "--package", "pagelab", "--package", "qemu-plugin"]);
    crate::command::succeed(&mut cargo).map_err(|problem| format!("cargo build: {problem}"))?;
    Ok(root.join("target/debug"))
}

/// Records a program and simulates it: the document of `pagelab sim`.
fn simulated(directory: &Path, machine: &str, words: &[String]) -> Result<String, String> {
    let pagelab = directory.join("pagelab");
    let place = std::env::temp_dir().join(format!("pagelab-guest-trace-{}", std::process::id()));
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let trace = place.join("trace");
    let mut record = Command::new(&pagelab);
    record.args(["record", "--output"]).arg(&trace);
    record.arg("--plugin").arg(directory.join("libpagelab_qemu_plugin.so")).arg("--").args(words);
    let mut sim = Command::new(&pagelab);
    sim.arg("sim").arg(&trace).args(["--machine", machine, "--policy", &POLICIES.join(","), "--json"]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_compiled_or_of_busybox() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let compiled: Vec<String> =
            sources(root).iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        for (name, words) in PROGRAMS {
            assert!(words.starts_with("/bin/busybox ") || compiled.contains(&name.to_owned()), "{name}");
        }
        let inputs = inputs();
        assert!(inputs.iter().all(|(_, content)| content.ends_with(b"\n")));
    }
}
