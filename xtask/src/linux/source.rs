//! The kernel source ([`Source`]). It is fetched and unpacked once, and patched in place, so that make compiles only files
//! that have changed.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Patch;
use super::needs;
use crate::cache::{Work, put};
use crate::debian::{Archive, unpack_file};

/// The package that depends on the release's newest source.
const NEWEST: &str = "linux-source";
/// The disk space for the source and its builds, in bytes: 1.7 GB, and 0.3 GB for each base page size.
const NEEDED_BYTES: u64 = 4 << 30;

/// An unpacked source.
#[derive(Debug)]
pub struct Source {
    /// The package of the source, with its version.
    pub package: String,
    /// Path of the source tree.
    pub tree: PathBuf,
    /// The directory with the original versions of files that patches have changed.
    pub originals: PathBuf,
}

impl Source {
    /// The newest source of a release.
    pub fn fetch(release: &str, cache: &Path, place: &Path, again: bool) -> Result<Source, String> {
        fs::create_dir_all(place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        let (name, tree) = (place.join("package"), place.join("source"));
        let is_here = name.is_file() && tree.is_dir();
        if again || !is_here {
            let work = Work::begin(place)?;
            match replace(release, cache, place, &work) {
                Err(problem) if is_here => println!("{problem}; using the source that was fetched before"),
                outcome => outcome?,
            }
        }
        let package = fs::read_to_string(&name).map_err(|error| format!("{}: {error}", name.display()))?;
        Ok(Source { package, tree, originals: place.join("originals") })
    }

    /// Applies exactly these patches to the source of the package, and reverts all others. Files that are already correct are
    /// not touched.
    pub fn patch(&self, patches: &[Patch], work: &Work) -> Result<(), String> {
        let cannot = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("{path}: {error}")
        };
        let touched: BTreeSet<&str> = patches.iter().flat_map(|patch| files(patch.text)).collect();
        for file in &touched {
            let original = self.originals.join(file);
            if !original.is_file() {
                copy(&self.tree.join(file), &original).map_err(cannot(&original))?;
            }
        }
        let patched = work.path.join("patched");
        let all = below(&self.originals).map_err(cannot(&self.originals))?;
        for file in &all {
            copy(&self.originals.join(file), &patched.join(file)).map_err(cannot(file))?;
        }
        for patch in patches {
            apply(patch, &patched, &self.package)?;
        }
        for file in &all {
            let (new, there) = (patched.join(file), self.tree.join(file));
            let wanted = fs::read(&new).map_err(cannot(&new))?;
            if fs::read(&there).ok().as_ref() != Some(&wanted) {
                fs::write(&there, wanted).map_err(cannot(&there))?;
            }
        }
        fs::remove_dir_all(&patched)
            .or_else(|error| if all.is_empty() { Ok(()) } else { Err(error) })
            .map_err(cannot(&patched))
    }
}

/// Fetches the newest source and replaces the existing one, unless they are the same.
fn replace(release: &str, cache: &Path, place: &Path, work: &Work) -> Result<(), String> {
    for (tool, package) in [("xz", "xz-utils"), ("patch", "patch")] {
        needs(tool, package)?;
    }
    check_free_space(place)?;
    let of = |again| -> Result<(PathBuf, String), String> {
        let archive = Archive::open(cache, release, "arm64", again)?;
        let mut names = archive.dependencies(NEWEST)?.into_iter();
        let name = names.find(|name| name.starts_with("linux-source-"));
        let name = name.ok_or_else(|| format!("{NEWEST} of {} depends on no source", archive.name()))?;
        Ok((archive.fetch(&name, work)?, name))
    };
    // The cached lists may name a package that has been removed from the archive; then the lists are fetched again.
    let (file, name) = of(false).or_else(|problem| {
        println!("{problem}; the lists may be old");
        of(true)
    })?;
    let package = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if fs::read_to_string(place.join("package")).is_ok_and(|there| there == package) && place.join("source").is_dir() {
        return Ok(());
    }
    let (archive, tree) = (work.path.join("source.tar.xz"), work.path.join("source"));
    unpack_file(&file, &format!("./usr/src/{name}.tar.xz"), &archive)?;
    fs::create_dir(&tree).map_err(|error| format!("cannot make {}: {error}", tree.display()))?;
    println!("==> tar -x {name}.tar.xz");
    let mut tar = Command::new("tar");
    tar.args(["-x", "--strip-components=1", "-C"]).arg(&tree).arg("-f").arg(&archive);
    crate::command::succeed(&mut tar).map_err(|problem| format!("cannot unpack {name}: {problem}"))?;
    let cannot = |error: std::io::Error| format!("cannot make {}: {error}", place.display());
    let _ = fs::remove_file(place.join("package"));
    for old in ["source", "originals"] {
        fs::remove_dir_all(place.join(old)).or_else(absent).map_err(cannot)?;
    }
    fs::rename(&tree, place.join("source")).map_err(cannot)?;
    put(place, "package", package.as_bytes(), work)
}

fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Checks that the disk has space for a source and its builds.
fn check_free_space(place: &Path) -> Result<(), String> {
    let output = Command::new("df").args(["-B1", "--output=avail"]).arg(place).output();
    let output = output.map_err(|error| format!("cannot run df: {error}"))?;
    let free: u64 = free_bytes(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("df does not report the free space of {}", place.display()))?;
    if free >= NEEDED_BYTES {
        return Ok(());
    }
    let [free, needed] = [free, NEEDED_BYTES].map(|bytes| bytes >> 20);
    Err(format!(
        "expected {needed} MiB of free space in {} to unpack and build Linux, found {free} MiB",
        place.display()
    ))
}

fn free_bytes(printed: &str) -> Option<u64> {
    printed.lines().nth(1)?.trim().parse().ok()
}

/// The files that a patch changes.
fn files(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/"))
}

fn apply(patch: &Patch, directory: &Path, package: &str) -> Result<(), String> {
    let file = directory.join("patch");
    fs::write(&file, patch.text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = Command::new("patch");
    command.args(["--strip=1", "--forward", "--batch", "--no-backup-if-mismatch", "--directory"]).arg(directory);
    let output = command.arg("--input").arg(&file).output().map_err(|error| format!("cannot run patch: {error}"))?;
    let _ = fs::remove_file(&file);
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stdout).trim().replace('\n', " / ");
    Err(format!("{} does not apply to {package}; adapt it: {printed}", patch.name))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::copy(from, to).map(drop)
}

/// The files below a directory, relative to it; empty if it does not exist.
fn below(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(one) = left.pop() {
        let entries = match fs::read_dir(directory.join(&one)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = one.join(entry.file_name());
            if entry.file_type()?.is_dir() { &mut left } else { &mut found }.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    const PATCH: Patch =
        Patch { name: "x.patch", text: "Why.\n\n--- a/d/one\n+++ b/d/one\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n" };

    fn source(scratch: &Scratch, text: &str) -> Source {
        let tree = scratch.0.join("source");
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join("d/one"), text).unwrap();
        Source { package: "linux-source-1_2".into(), tree, originals: scratch.0.join("originals") }
    }

    #[test]
    fn patches_are_applied_and_reverted() {
        let scratch = Scratch::new("patches");
        let source = source(&scratch, "a\nb\n");
        let work = Work::begin(&scratch.0).unwrap();
        let text = || fs::read_to_string(source.tree.join("d/one")).unwrap();
        source.patch(&[], &work).unwrap();
        source.patch(&[PATCH], &work).unwrap();
        assert_eq!(text(), "a\nc\n");
        let when = || fs::metadata(source.tree.join("d/one")).unwrap().modified().unwrap();
        let before = when();
        source.patch(&[PATCH], &work).unwrap();
        assert_eq!((text().as_str(), when()), ("a\nc\n", before), "an unchanged file is not written");
        source.patch(&[], &work).unwrap();
        assert_eq!(text(), "a\nb\n");
    }

    #[test]
    fn the_error_of_a_patch_names_it_and_the_source() {
        let scratch = Scratch::new("misfit");
        let source = source(&scratch, "x\ny\n");
        let work = Work::begin(&scratch.0).unwrap();
        let problem = source.patch(&[PATCH], &work).unwrap_err();
        assert!(problem.contains("x.patch does not apply to linux-source-1_2"), "{problem}");
        assert_eq!(fs::read_to_string(source.tree.join("d/one")).unwrap(), "x\ny\n", "nothing was changed");
    }

    #[test]
    fn free_space_is_as_df_reports() {
        assert_eq!(free_bytes("Avail\n79975153664\n"), Some(79_975_153_664));
        assert_eq!(free_bytes("df: no such file"), None);
        assert!(check_free_space(Path::new("/proc")).unwrap_err().contains("0 MiB"));
    }
}
