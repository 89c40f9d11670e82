//! The modules that a kernel needs before it has the host's files: found beside its image, with what they depend on, in the order in
//! which they can be loaded.
//!
//! A package that is unpacked and not installed has no `modules.dep` (depmod makes it), so what a module depends on is read from
//! itself: `depends=` in its section `.modinfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::file;
use crate::image::Image;

/// What a guest needs: the bus, the host's files, memory above them, the port. A name as `modules.builtin` has it, and the option of the
/// kernel's configuration that gives it.
const NEEDED: [(&str, &str); 5] = [
    ("virtio_pci", "CONFIG_VIRTIO_PCI"),
    ("9pnet_virtio", "CONFIG_NET_9P_VIRTIO"),
    ("9p", "CONFIG_9P_FS"),
    ("overlay", "CONFIG_OVERLAY_FS"),
    ("virtio_console", "CONFIG_VIRTIO_CONSOLE"),
];

/// How modules are compressed, and what unpacks them to standard output.
const PACKED: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];

/// Directories that hold no modules and much else, in a tree in which a kernel was built.
const PASSED_OVER: [&str; 5] = [".git", "Documentation", "tools", "source", "build"];

/// A module, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name: `9pnet_virtio`.
    pub name: String,
    /// Its file's content, unpacked.
    pub content: Vec<u8>,
}

/// Why a kernel cannot have the host's files.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// What is needed is neither built in nor there as a module.
    #[error(
        "{}: no {name} in this kernel: it is neither built in nor a module in {}; build it with {option}=y or =m",
        image.display(), place.display()
    )]
    Lacks {
        /// The image.
        image: PathBuf,
        /// The module.
        name: String,
        /// The option of the kernel's configuration.
        option: String,
        /// Where modules were looked for.
        place: PathBuf,
    },
    /// There are no modules, and nothing that says what is built in.
    #[error(
        "{}: no modules of {release} beside it: expected lib/modules/{release} in a directory above it, or the tree that it was built in; \
         unpack the image's package whole, or run `make modules_install INSTALL_MOD_PATH=DIRECTORY` and put the image there",
        image.display()
    )]
    NoPlace {
        /// The image.
        image: PathBuf,
        /// Its release.
        release: String,
    },
    /// A file of them cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A compressed module cannot be unpacked.
    #[error("{}: it cannot be unpacked by {program}: {what}", path.display())]
    Packed {
        /// The file.
        path: PathBuf,
        /// What unpacks it.
        program: &'static str,
        /// What it said.
        what: String,
    },
}

/// The modules that a guest with this kernel loads, each after those that it depends on.
///
/// # Errors
/// [`ModulesError`].
pub fn find(image: &Image) -> Result<Vec<Module>, ModulesError> {
    let no_place = || ModulesError::NoPlace { image: image.path.clone(), release: image.release.clone() };
    let place = place(image).ok_or_else(no_place)?;
    let mut found =
        Found { built_in: built_in(&place)?, files: files(&place)?, seen: BTreeSet::new(), order: Vec::new() };
    for (name, option) in NEEDED {
        found.take(name).map_err(|wrong| match wrong {
            Wrong::Lacks(lacking) => ModulesError::Lacks {
                image: image.path.clone(),
                option: if lacking == name { option.to_owned() } else { format!("{option}, with all that it needs,") },
                name: lacking,
                place: place.clone(),
            },
            Wrong::Error(error) => error,
        })?;
    }
    Ok(found.order)
}

/// Where the modules of an image are: `lib/modules/RELEASE` in a directory above it, or the tree in which it was built.
fn place(image: &Image) -> Option<PathBuf> {
    let above = || image.path.ancestors().skip(1);
    let installed = above().flat_map(|place| ["lib/modules", "usr/lib/modules"].map(|below| place.join(below)));
    let mut installed = installed.map(|modules| modules.join(&image.release));
    let built = || above().find(|place| place.join("modules.builtin").is_file() && place.join(".config").is_file());
    // A kernel that was built here and installed nowhere is newer than one of the same release that was.
    built().map(Path::to_owned).or_else(|| installed.find(|modules| modules.join("modules.builtin").is_file()))
}

/// The names of what is built in.
fn built_in(place: &Path) -> Result<BTreeSet<String>, ModulesError> {
    let path = place.join("modules.builtin");
    let text = fs::read_to_string(&path).map_err(|error| ModulesError::Unreadable { path, error })?;
    Ok(text.lines().filter_map(|line| name_of(Path::new(line))).collect())
}

/// The modules below a directory by name.
fn files(place: &Path) -> Result<BTreeMap<String, PathBuf>, ModulesError> {
    let mut all = BTreeMap::new();
    let mut left = vec![place.to_owned()];
    while let Some(directory) = left.pop() {
        let unreadable = |error| ModulesError::Unreadable { path: directory.clone(), error };
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let is_directory = entry.file_type().map_err(unreadable)?.is_dir();
            match name_of(&entry.path()) {
                _ if is_directory && PASSED_OVER.iter().any(|name| entry.file_name() == *name) => {}
                _ if is_directory => left.push(entry.path()),
                Some(name) => drop(all.insert(name, entry.path())),
                None => {}
            }
        }
    }
    Ok(all)
}

/// The name of a module by its file: `9pnet_virtio` of `net/9p/9pnet_virtio.ko.xz`.
fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, packed) = file.split_once(".ko")?;
    let is_packed = |ending: &str| PACKED.iter().any(|(one, _)| *one == ending);
    (packed.is_empty() || packed.strip_prefix('.').is_some_and(is_packed)).then(|| name.replace('-', "_"))
}

/// What has been found so far.
struct Found {
    built_in: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    seen: BTreeSet<String>,
    order: Vec<Module>,
}

enum Wrong {
    /// There is no such module.
    Lacks(String),
    Error(ModulesError),
}

impl Found {
    /// Takes a module, and before it what it depends on.
    fn take(&mut self, name: &str) -> Result<(), Wrong> {
        if self.built_in.contains(name) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self.files.get(name).cloned().ok_or_else(|| Wrong::Lacks(name.to_owned()))?;
        let content = unpacked(&path).map_err(Wrong::Error)?;
        for other in depends(&content) {
            self.take(&other)?;
        }
        self.order.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

/// A module's content.
fn unpacked(path: &Path) -> Result<Vec<u8>, ModulesError> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let Some((_, program)) = PACKED.iter().find(|(one, _)| *one == ending) else {
        return file::read(path).map_err(|error| ModulesError::Unreadable { path: path.to_owned(), error });
    };
    let packed = |what: String| ModulesError::Packed { path: path.to_owned(), program, what };
    let output = Command::new(program).arg("-dc").arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| packed(error.to_string()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(packed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// What a module says that it depends on (`depends=virtio,virtio_ring` in its section .modinfo, whose texts end with a zero).
fn depends(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = content.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let text = &content[at + KEY.len()..];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = String::from_utf8_lossy(&text[..end]);
    text.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Architecture;

    /// A directory with an image, and modules with what each depends on.
    fn kernel(modules: &[(&str, &str)], built_in: &str) -> (tempfile::TempDir, Image) {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("lib/modules/6.1.0/kernel");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.parent().unwrap().join("modules.builtin"), built_in).unwrap();
        for (name, depends) in modules {
            fs::write(place.join(name), format!("ELF\0license=GPL\0depends={depends}\0retpoline=Y\0")).unwrap();
        }
        let path = directory.path().join("boot/vmlinuz");
        (directory, Image { path, architecture: Architecture::X86_64, release: "6.1.0".into() })
    }

    const ALL: [(&str, &str); 6] = [
        ("virtio-pci.ko", "virtio-ring"),
        ("virtio_ring.ko", ""),
        ("9pnet_virtio.ko", "9pnet,virtio_ring"),
        ("9pnet.ko", ""),
        ("9p.ko", "9pnet"),
        ("overlay.ko", ""),
    ];

    #[test]
    fn modules_come_after_what_they_depend_on_and_what_is_built_in_is_not_loaded() {
        let (_kept, image) = kernel(&ALL, "kernel/drivers/char/virtio_console.ko\n");
        let names: Vec<String> = find(&image).unwrap().into_iter().map(|module| module.name).collect();
        assert_eq!(names, ["virtio_ring", "virtio_pci", "9pnet", "9pnet_virtio", "9p", "overlay"]);
    }

    #[test]
    fn what_a_kernel_lacks_is_named_with_the_option_that_gives_it() {
        let (_kept, image) = kernel(&ALL[..5], "");
        let error = find(&image).unwrap_err().to_string();
        assert!(error.contains("no overlay in this kernel") && error.contains("CONFIG_OVERLAY_FS=y"), "{error}");
        let (_kept, image) = kernel(&[("virtio_pci.ko", "virtio_ring")], "");
        let error = find(&image).unwrap_err().to_string();
        assert!(error.contains("no virtio_ring") && error.contains("CONFIG_VIRTIO_PCI, with all"), "{error}");
        let image = Image { path: "/nowhere/vmlinuz".into(), ..image };
        assert!(find(&image).unwrap_err().to_string().contains("no modules of 6.1.0 beside it"));
    }

    #[test]
    fn a_module_that_cannot_be_unpacked_is_named() {
        let (kept, image) = kernel(&[("virtio_pci.ko.gz", "")], "");
        let error = find(&image).unwrap_err().to_string();
        assert!(error.contains("virtio_pci.ko.gz: it cannot be unpacked by gzip"), "{error}");
        drop(kept);
    }

    #[test]
    fn names_are_those_of_files_of_modules() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("a/virtio-pci.ko.zst").as_deref(), Some("virtio_pci"));
        assert_eq!((name("a/x.ko.cmd"), name("a/x.kook"), name("a/x.o")), (None, None, None));
    }
}
