//! One build: flags, environment, and the record of what it was made with.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::compiler::Compiler;
use super::target::Target;

/// How much the compiler does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Profile {
    /// All that it can.
    Release,
    /// Less: what is tested in guests must not take ten minutes to build.
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

/// A program that was built.
#[derive(Debug)]
pub struct Built {
    /// The file.
    pub program: PathBuf,
    /// What it was made with, in lines.
    pub record: String,
}

/// Builds the program below a directory of its own. It is linked statically, stripped, and names no directory of this machine.
///
/// # Errors
/// No linker for the target, no commit, a build that failed.
pub fn build(
    root: &Path,
    target: &Target,
    compiler: &Compiler,
    profile: Profile,
    place: &Path,
) -> Result<Built, String> {
    let linker = target.compiler()?;
    let commit = git(root, &["log", "-1", "--format=%H %ct"])?;
    let (commit, epoch) = commit.trim().split_once(' ').ok_or("git log says no commit")?;
    let mut command = crate::cargo(root);
    command.args(["build", "--locked", "--quiet", "--package", "pagelab", "--profile", profile.name()]);
    command.args(["--target", target.triple, "--target-dir"]).arg(place);
    if compiler.builds_library {
        command.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
    }
    if let Some(rustc) = &compiler.rustc {
        command.env("RUSTC", rustc);
    }
    let paths = paths(root, compiler, place);
    let variable = target.triple.replace('-', "_");
    command.env("CARGO_ENCODED_RUSTFLAGS", flags(&paths).join("\x1f"));
    command.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), linker);
    command.env(format!("CC_{variable}"), linker);
    command.env(format!("CFLAGS_{variable}"), prefixes("-ffile-prefix-map=", &paths).join(" "));
    command.env("SOURCE_DATE_EPOCH", epoch);
    println!("==> cargo build --target {} ({})", target.triple, profile.name());
    crate::command::succeed(&mut command).map_err(|problem| format!("cargo build: {problem}"))?;
    let program = place.join(target.triple).join(profile.name()).join("pagelab");
    let mut record = compiler.version(root)?;
    let _ = writeln!(record, "standard library: {}", compiler.library);
    let _ = writeln!(record, "linker: {}", version(linker)?);
    let changed = if git(root, &["status", "--porcelain", "-uno"])?.is_empty() { "" } else { " with changes" };
    let _ = writeln!(record, "commit: {commit}{changed}");
    Ok(Built { program, record })
}

/// Directories of this machine, and what stands in their place in the program.
fn paths(root: &Path, compiler: &Compiler, place: &Path) -> Vec<(PathBuf, &'static str)> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let library = compiler.sysroot.clone();
    // The last one that fits is taken: first what holds the others.
    vec![(root.to_path_buf(), "/pagelab"), (place.to_path_buf(), "/target"), (cargo, "/cargo"), (library, "/rust")]
}

fn flags(paths: &[(PathBuf, &'static str)]) -> Vec<String> {
    let mut flags = prefixes("--remap-path-prefix=", paths);
    let others = ["-Ctarget-feature=+crt-static", "-Cstrip=symbols", "-Clink-arg=-Wl,--build-id=none"];
    flags.extend(others.map(str::to_owned));
    flags
}

fn prefixes(option: &str, paths: &[(PathBuf, &'static str)]) -> Vec<String> {
    paths.iter().map(|(path, name)| format!("{option}{}={name}", path.display())).collect()
}

/// The first line of what a program says of its version.
fn version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directory_of_this_machine_is_left_in_the_program() {
        let compiler =
            Compiler { rustc: None, library: String::new(), builds_library: false, sysroot: PathBuf::from("/s") };
        let paths = paths(Path::new("/src/pagelab"), &compiler, Path::new("/src/pagelab/target/dist"));
        let flags = flags(&paths);
        let at = |flag: &str| flags.iter().position(|one| one == flag).unwrap_or_else(|| panic!("{flag}: {flags:?}"));
        let outer = at("--remap-path-prefix=/src/pagelab=/pagelab");
        assert!(outer < at("--remap-path-prefix=/src/pagelab/target/dist=/target"), "the last that fits is taken");
        at("--remap-path-prefix=/s=/rust");
        at("-Ctarget-feature=+crt-static");
    }
}
