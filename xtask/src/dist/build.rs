//! One build: its flags, its environment, and the record of the tools that made it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::commit::{self, Commit};
use super::compiler::Compiler;
use super::target::Target;

/// The level of optimisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Profile {
    /// Full optimisation.
    Release,
    /// Less optimisation, so that programs for tests in guests build in less than ten minutes.
    Guest,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Guest => "guest",
        }
    }
}

/// What is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Artifact {
    /// The program, linked statically.
    Program,
    /// The recorder's plugin, which QEMU loads.
    Plugin,
}

impl Artifact {
    fn package(self) -> &'static str {
        match self {
            Artifact::Program => "pagelab",
            Artifact::Plugin => "qemu-plugin",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Artifact::Program => "pagelab",
            Artifact::Plugin => "libpagelab_qemu_plugin.so",
        }
    }
}

/// Builds a part in a target directory of its own, and returns the file. The file is stripped and contains no path of this
/// machine.
pub fn build(
    root: &Path,
    target: &Target,
    compiler: &Compiler,
    (part, profile, commit): (Artifact, Profile, &Commit),
    place: &Path,
) -> Result<PathBuf, String> {
    let linker = target.compiler()?;
    let mut command = crate::cargo(root);
    command.args(["build", "--locked", "--quiet", "--package", part.package(), "--profile", profile.name()]);
    command.args(["--target", target.triple, "--target-dir"]).arg(place);
    if compiler.builds_library {
        command.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
    }
    if let Some(rustc) = &compiler.rustc {
        command.env("RUSTC", rustc);
    }
    let paths = paths(root, compiler, place);
    let variable = target.triple.replace('-', "_");
    command.env("CARGO_ENCODED_RUSTFLAGS", flags(part, &paths).join("\x1f"));
    command.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), linker);
    command.env(format!("CC_{variable}"), linker);
    command.env(format!("CFLAGS_{variable}"), prefixes("-ffile-prefix-map=", &paths).join(" "));
    command.env("SOURCE_DATE_EPOCH", commit.time_s.to_string());
    command.env(commit::VARIABLE, commit.text());
    println!("==> cargo build --target {} --package {} ({})", target.triple, part.package(), profile.name());
    crate::command::succeed(&mut command).map_err(|problem| format!("cargo build: {problem}"))?;
    Ok(place.join(target.triple).join(profile.name()).join(part.file()))
}

/// The record of a build: the tools and sources with which the parts are made, one per line.
pub fn record(root: &Path, target: &Target, compiler: &Compiler, commit: &Commit) -> Result<String, String> {
    let mut record = compiler.version(root)?;
    let _ = writeln!(record, "standard library: {}", compiler.library);
    let _ = writeln!(record, "linker: {}", version(target.compiler()?)?);
    let _ = writeln!(record, "commit: {}{}", commit.name, if commit.changed { " with changes" } else { "" });
    Ok(record)
}

/// Directories of this machine, each with the path that replaces it in the program.
fn paths(root: &Path, compiler: &Compiler, place: &Path) -> Vec<(PathBuf, &'static str)> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let library = compiler.sysroot.clone();
    // rustc applies the last prefix that matches, so a directory comes before the directories inside it.
    vec![(root.to_path_buf(), "/pagelab"), (place.to_path_buf(), "/target"), (cargo, "/cargo"), (library, "/rust")]
}

fn flags(part: Artifact, paths: &[(PathBuf, &'static str)]) -> Vec<String> {
    let mut flags = prefixes("--remap-path-prefix=", paths);
    let others = ["-Cstrip=symbols", "-Clink-arg=-Wl,--build-id=none"];
    flags.extend(others.map(str::to_owned));
    // QEMU has a C library of its own, so it cannot load a plugin that has a static one.
    flags.push(format!("-Ctarget-feature={}crt-static", if part == Artifact::Program { '+' } else { '-' }));
    flags
}

fn prefixes(option: &str, paths: &[(PathBuf, &'static str)]) -> Vec<String> {
    paths.iter().map(|(path, name)| format!("{option}{}={name}", path.display())).collect()
}

/// The first line of a program's `--version` output.
fn version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directory_of_this_machine_is_left_in_the_program() {
        let compiler =
            Compiler { rustc: None, library: String::new(), builds_library: false, sysroot: PathBuf::from("/s") };
        let paths = paths(Path::new("/src/pagelab"), &compiler, Path::new("/src/pagelab/target/dist"));
        let flags = super::flags(Artifact::Program, &paths);
        let at = |flag: &str| flags.iter().position(|one| one == flag).unwrap_or_else(|| panic!("{flag}: {flags:?}"));
        let outer = at("--remap-path-prefix=/src/pagelab=/pagelab");
        assert!(outer < at("--remap-path-prefix=/src/pagelab/target/dist=/target"), "the last that fits is taken");
        at("--remap-path-prefix=/s=/rust");
        at("-Ctarget-feature=+crt-static");
        assert!(super::flags(Artifact::Plugin, &paths).contains(&"-Ctarget-feature=-crt-static".to_owned()));
    }
}
