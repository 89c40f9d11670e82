//! [`find`] finds the modules that a kernel needs before it can mount the host's files. It searches them and their dependencies
//! near the image, and returns them in the order in which they can be loaded.
//!
//! A package that is unpacked but not installed has no `modules.dep` (depmod makes it). The dependencies of a module are therefore
//! read from the module: `depends=` in its section `.modinfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::file;
use crate::image::Image;

/// What a guest needs: the PCI bus, the host's files, an overlay over them, and the port. For each: the module's name as in
/// `modules.builtin`, and the option of the kernel's configuration that enables it.
const NEEDED: [(&str, &str); 5] = [
    ("virtio_pci", "CONFIG_VIRTIO_PCI"),
    ("9pnet_virtio", "CONFIG_NET_9P_VIRTIO"),
    ("9p", "CONFIG_9P_FS"),
    ("overlay", "CONFIG_OVERLAY_FS"),
    ("virtio_console", "CONFIG_VIRTIO_CONSOLE"),
];

/// The file name extensions of compressed modules, and the programs that decompress them to standard output.
const PACKED: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];

/// Directories of a kernel build tree that contain no modules but many other files.
const SKIPPED_DIRECTORIES: [&str; 5] = [".git", "Documentation", "tools", "source", "build"];

/// A module that is ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Name of the module, such as `9pnet_virtio`.
    pub name: String,
    /// Decompressed content of its file.
    pub content: Vec<u8>,
}

/// Why a kernel cannot mount the host's files.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// A required module is neither built in nor present.
    #[error(
        "{}: no {name} in this kernel: it is neither built in nor a module in {}; build it with {option}=y or =m",
        image.display(), place.display()
    )]
    Lacks {
        image: PathBuf,
        /// Name of the module.
        name: String,
        /// The option of the kernel's configuration that enables it.
        option: String,
        /// The directory that was searched for modules.
        place: PathBuf,
    },
    /// There are neither modules nor a list of built-in ones.
    #[error(
        "{}: no modules of {release} next to it: expected lib/modules/{release} in a directory above it, or the tree that it was built in; \
         unpack the image's package whole, or run `make modules_install INSTALL_MOD_PATH=DIRECTORY` and put the image there",
        image.display()
    )]
    NoPlace { image: PathBuf, release: String },
    /// A module or a list of modules cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    #[error("{}: it cannot be unpacked by {program}: {what}", path.display())]
    Packed {
        /// Path of the file.
        path: PathBuf,
        /// The program that decompresses it.
        program: &'static str,
        /// The error message of that program.
        what: String,
    },
}

/// The modules that a guest with this kernel loads, each after its dependencies.
pub fn find(image: &Image) -> Result<Vec<Module>, ModulesError> {
    let no_place = || ModulesError::NoPlace { image: image.path.clone(), release: image.release.clone() };
    let place = place(image).ok_or_else(no_place)?;
    let mut found = ModuleSearch::begin(&place)?;
    for (name, option) in NEEDED {
        found.take(name).map_err(|wrong| match wrong {
            TakeError::Lacks(lacking) => ModulesError::Lacks {
                image: image.path.clone(),
                option: if lacking == name { option.to_owned() } else { format!("{option}, with all that it needs,") },
                name: lacking,
                place: place.clone(),
            },
            TakeError::Error(error) => error,
        })?;
    }
    Ok(found.order)
}

/// The modules with these names, with their dependencies and in the order in which they can be loaded. Built-in modules and names
/// of modules that this kernel does not have are left out.
pub fn find_existing(image: &Image, names: &[&str]) -> Result<Vec<Module>, ModulesError> {
    let Some(place) = place(image) else { return Ok(Vec::new()) };
    let mut found = ModuleSearch::begin(&place)?;
    for name in names {
        match found.take(name) {
            Err(TakeError::Error(error)) => return Err(error),
            Ok(()) | Err(TakeError::Lacks(_)) => {}
        }
    }
    Ok(found.order)
}

/// The directory with the modules of an image: `lib/modules/RELEASE` in a directory above the image, or the tree in which it was
/// built.
fn place(image: &Image) -> Option<PathBuf> {
    let above = || image.path.ancestors().skip(1);
    let installed = above().flat_map(|place| ["lib/modules", "usr/lib/modules"].map(|below| place.join(below)));
    let mut installed = installed.map(|modules| modules.join(&image.release));
    let built = || above().find(|place| place.join("modules.builtin").is_file() && place.join(".config").is_file());
    // A kernel built here and not installed is newer than an installed one with the same release.
    built().map(Path::to_owned).or_else(|| installed.find(|modules| modules.join("modules.builtin").is_file()))
}

/// The names of the built-in modules.
fn built_in(place: &Path) -> Result<BTreeSet<String>, ModulesError> {
    let path = place.join("modules.builtin");
    let text = fs::read_to_string(&path).map_err(|error| ModulesError::Unreadable { path, error })?;
    Ok(text.lines().filter_map(|line| name_of(Path::new(line))).collect())
}

/// All module files below a directory, by the name of the module.
fn files(place: &Path) -> Result<BTreeMap<String, PathBuf>, ModulesError> {
    let mut all = BTreeMap::new();
    let mut left = vec![place.to_owned()];
    while let Some(directory) = left.pop() {
        let unreadable = |error| ModulesError::Unreadable { path: directory.clone(), error };
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let is_directory = entry.file_type().map_err(unreadable)?.is_dir();
            match name_of(&entry.path()) {
                _ if is_directory && SKIPPED_DIRECTORIES.iter().any(|name| entry.file_name() == *name) => {}
                _ if is_directory => left.push(entry.path()),
                Some(name) => drop(all.insert(name, entry.path())),
                None => {}
            }
        }
    }
    Ok(all)
}

/// The name of a module, from the path of its file: `9pnet_virtio` of `net/9p/9pnet_virtio.ko.xz`.
fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, packed) = file.split_once(".ko")?;
    let is_packed = |ending: &str| PACKED.iter().any(|(one, _)| *one == ending);
    (packed.is_empty() || packed.strip_prefix('.').is_some_and(is_packed)).then(|| name.replace('-', "_"))
}

/// The state of the search.
struct ModuleSearch {
    built_in: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    seen: BTreeSet<String>,
    order: Vec<Module>,
}

enum TakeError {
    /// The module does not exist.
    Lacks(String),
    Error(ModulesError),
}

impl ModuleSearch {
    fn begin(place: &Path) -> Result<ModuleSearch, ModulesError> {
        Ok(ModuleSearch { built_in: built_in(place)?, files: files(place)?, seen: BTreeSet::new(), order: Vec::new() })
    }

    /// Adds a module, after its dependencies.
    fn take(&mut self, name: &str) -> Result<(), TakeError> {
        if self.built_in.contains(name) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self.files.get(name).cloned().ok_or_else(|| TakeError::Lacks(name.to_owned()))?;
        let content = unpacked(&path).map_err(TakeError::Error)?;
        for other in depends(&content) {
            self.take(&other)?;
        }
        self.order.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

/// The decompressed content of a module.
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

/// The dependencies that a module declares (`depends=virtio,virtio_ring` in its section .modinfo, whose strings end with a zero
/// byte).
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

    /// A directory with an image and with modules, each with its dependencies.
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
    fn loads_modules_after_their_dependencies_and_skips_built_in_ones() {
        let (_kept, image) = kernel(&ALL, "kernel/drivers/char/virtio_console.ko\n");
        let names: Vec<String> = find(&image).unwrap().into_iter().map(|module| module.name).collect();
        assert_eq!(names, ["virtio_ring", "virtio_pci", "9pnet", "9pnet_virtio", "9p", "overlay"]);
    }

    #[test]
    fn modules_that_do_not_exist_are_left_out_on_request() {
        let (_kept, image) = kernel(&ALL, "kernel/fs/ext4/ext4.ko\n");
        let names = |wanted: &[&str]| {
            let found = find_existing(&image, wanted).unwrap();
            found.into_iter().map(|module| module.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["ext4", "xfs", "9p"]), ["9pnet", "9p"]);
    }

    #[test]
    fn names_a_missing_feature_with_its_kernel_option() {
        let (_kept, image) = kernel(&ALL[..5], "");
        let error = find(&image).unwrap_err().to_string();
        assert!(error.contains("no overlay in this kernel") && error.contains("CONFIG_OVERLAY_FS=y"), "{error}");
        let (_kept, image) = kernel(&[("virtio_pci.ko", "virtio_ring")], "");
        let error = find(&image).unwrap_err().to_string();
        assert!(error.contains("no virtio_ring") && error.contains("CONFIG_VIRTIO_PCI, with all"), "{error}");
        let image = Image { path: "/nowhere/vmlinuz".into(), ..image };
        assert!(find(&image).unwrap_err().to_string().contains("no modules of 6.1.0 next to it"));
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
