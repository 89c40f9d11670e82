//! Runs `pagelab compare --kernel --sysroot` on this machine, with the guest's kernel and a system that contains only the guest's
//! pagelab.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::check::sysroot::{CHECK, COMPARISON, WORKLOAD};
use super::stage::{BootOutput, Stage};
use super::transcript::CommandOutput;

/// Appends the output of a comparison with a sysroot to the output of the guest. `pagelab` is the guest's program.
pub fn compare(root: &Path, kernel: &Path, pagelab: &Path, outputs: &mut [(Stage, BootOutput)]) -> Result<(), String> {
    let parts = outputs.iter_mut().flat_map(|(_, output)| &mut output.parts);
    let Some(part) = parts.into_iter().find(|part| part.check == CHECK && !part.ran.is_empty()) else {
        return Ok(());
    };
    let program = super::model::build(root)?.join("pagelab");
    let place = std::env::temp_dir().join(format!("pagelab-guest-system-{}", std::process::id()));
    let made = system(&place, pagelab).map_err(|error| format!("cannot make {}: {error}", place.display()));
    let mut compare = Command::new(program);
    compare.arg("compare").arg("--kernel").arg(kernel).arg("--sysroot").arg(&place).arg("--store");
    compare.arg(place.join("results.sqlite")).args(["--icount", "--boots", "1", "--min-blocks", "1", "--memory", "1G"]);
    compare.args(["-p", "base,thp", "--json", "--metric", "touch_ns=touch_mean_ns=([0-9.]+)", "--"]).args(WORKLOAD);
    let ran = made.map(|()| compare.output()).map(|output| match output {
        Ok(output) => CommandOutput {
            name: COMPARISON.to_owned(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            error: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        },
        Err(error) => CommandOutput {
            name: COMPARISON.to_owned(),
            error: error.to_string(),
            code: Some(1),
            ..CommandOutput::default()
        },
    });
    let _ = fs::remove_dir_all(&place);
    part.ran.push(ran?);
    Ok(())
}

/// Makes a system that contains only pagelab.
fn system(place: &Path, pagelab: &Path) -> std::io::Result<()> {
    let program = place.join("usr/bin/pagelab");
    fs::create_dir_all(place.join("usr/bin"))?;
    fs::create_dir_all(place.join("tmp"))?;
    fs::copy(pagelab, &program)?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
}
