//! The initial file system of a guest: pagelab, the modules, and the job.

use std::collections::BTreeSet;
use std::io;

use crate::cpio;
use crate::modules::Module;
use crate::own;
use crate::sysroot::Sysroot;

/// The directory of the modules. Their file names give the order in which they are loaded.
pub(crate) const MODULES: &str = "modules";
/// The file with the job.
pub(crate) const JOB: &str = "job";

/// Why the initial file system cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum InitrdError {
    #[error("the files of pagelab itself, which a guest begins with, cannot be read: {0}")]
    Own(#[from] io::Error),
}

/// Makes the initial file system of a guest that loads these modules and then runs this job ([`crate::first`]). With a `sysroot`,
/// the guest uses its files instead of the host's.
pub fn initrd(modules: &[Module], job: &[u8], sysroot: Option<&Sysroot>) -> Result<Vec<u8>, InitrdError> {
    let mut files: Vec<(String, Vec<u8>)> = own::files(sysroot)?.into_iter().collect();
    let numbered = modules.iter().enumerate();
    files.extend(numbered.map(|(at, module)| (format!("{MODULES}/{at:03}-{}", module.name), module.content.clone())));
    files.push((JOB.to_owned(), job.to_vec()));
    let directories: BTreeSet<String> = files.iter().flat_map(|(name, _)| above(name)).collect();
    let fixed = ["dev", "host", "memory", MODULES, "proc", "root", "sys"].map(str::to_owned);
    let directories: BTreeSet<String> = directories.into_iter().chain(fixed).collect();
    let mut entries: Vec<(&str, u32, &[u8])> =
        directories.iter().map(|name| (name.as_str(), 0o040_755, &[][..])).collect();
    entries.extend(files.iter().map(|(name, content)| (name.as_str(), 0o100_755, content.as_slice())));
    Ok(cpio::archive(&entries))
}

/// The parent directories of a file, the outermost first.
fn above(name: &str) -> impl Iterator<Item = String> {
    name.match_indices('/').map(|(at, _)| name[..at].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in an archive, in order.
    fn names(archive: &[u8]) -> Vec<String> {
        let (mut names, mut at) = (Vec::new(), 0);
        while archive.get(at..at + 6) == Some(b"070701") {
            let field = |from: usize| {
                let text = std::str::from_utf8(&archive[at + from..at + from + 8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (content_bytes, name_bytes) = (field(54), field(94));
            let name = &archive[at + 110..at + 110 + name_bytes - 1];
            names.push(String::from_utf8_lossy(name).into_owned());
            at = (at + 110 + name_bytes).next_multiple_of(4) + content_bytes.next_multiple_of(4);
        }
        names
    }

    #[test]
    fn directories_precede_their_files_and_modules_keep_their_order() {
        let module = |name: &str| Module { name: name.into(), content: b"ELF".to_vec() };
        let bytes = initrd(&[module("virtio"), module("9p")], b"{}", None).unwrap();
        let names = names(&bytes);
        let at = |name: &str| names.iter().position(|one| one == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
        assert!(at("modules") < at("modules/000-virtio") && at("modules/000-virtio") < at("modules/001-9p"));
        assert!(at("host") < at("pagelab") && at("job") < at("TRAILER!!!"));
    }
}
