//! The root file system of the guests ([`make`]): a static pagelab and busybox, and Redis with its libraries, unpacked from
//! Debian's packages without configuring them.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::cache::Work;
use crate::debian::{Archive, merged, unpack_among};
use crate::dist::{self, Compiler, Target};
use crate::guests::initrd;
use crate::linux::RELEASE;

/// The packages in the system, in addition to pagelab and busybox. Their dependencies are added.
const PACKAGES: [&str; 3] = ["base-files", "redis-server", "redis-tools"];
/// Directories that a guest uses as mount points or writes to.
const EMPTY: [&str; 7] = ["dev", "proc", "root", "run", "sys", "tmp", "var/tmp"];
/// Names of programs that no package contains; each becomes a link to busybox.
const BUSYBOX_LINKS: [&str; 4] = ["sh", "ip", "true", "sleep"];

/// Makes the system if it is missing, or, if `again` is true, from newer packages. Puts pagelab into it, and returns its
/// directory.
pub fn make(root: &Path, cache: &Path, again: bool, given: Option<&Path>) -> Result<PathBuf, String> {
    let target = Target::named("arm64")?;
    let pagelab = match given {
        Some(program) => program.to_path_buf(),
        None => dist::for_guests(root, target, &Compiler::find(root, target, cache, again)?)?,
    };
    let busybox = initrd::busybox(cache, target, again)?;
    let place = cache.join("systems");
    let cannot = |error: io::Error| format!("cannot make {}: {error}", place.display());
    fs::create_dir_all(&place).map_err(cannot)?;
    let work = Work::begin(&place)?;
    let system = place.join("arm64");
    if again || !system.is_dir() {
        let archive = Archive::open(cache, RELEASE, "arm64", again)?;
        let packages = archive.fetch_all(&PACKAGES, &work)?;
        let new = work.path.join("system");
        merged(&new).map_err(cannot)?;
        EMPTY.iter().try_for_each(|name| fs::create_dir_all(new.join(name))).map_err(cannot)?;
        packages.iter().try_for_each(|package| unpack_among(package, &new))?;
        let _ = fs::remove_dir_all(&system);
        fs::rename(&new, &system).map_err(cannot)?;
    }
    let programs = system.join("usr/bin");
    put(&busybox, &programs.join("busybox")).map_err(cannot)?;
    for name in BUSYBOX_LINKS {
        match symlink("busybox", programs.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
            _ => {}
        }
    }
    put(&pagelab, &programs.join("pagelab")).map_err(cannot)?;
    Ok(system)
}

/// Replaces a program atomically, so that a guest that has the old file open keeps the old content.
fn put(program: &Path, at: &Path) -> io::Result<()> {
    let new = at.with_extension("new");
    fs::copy(program, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(new, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    #[test]
    fn a_program_is_put_in_place_of_another_and_directories_are_linked() {
        let scratch = Scratch::new("system");
        let root = scratch.0.join("system");
        merged(&root).unwrap();
        fs::write(root.join("bin/pagelab"), "old").unwrap();
        let program = scratch.0.join("program");
        fs::write(&program, "new").unwrap();
        put(&program, &root.join("usr/bin/pagelab")).unwrap();
        assert_eq!(fs::read_to_string(root.join("bin/pagelab")).unwrap(), "new");
        assert_eq!(fs::metadata(root.join("bin/pagelab")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(root.join("usr/bin")).unwrap().count(), 1);
    }
}
