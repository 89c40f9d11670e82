//! Debian's kernels for guests ([`Kernel`]), fetched once and kept in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cache::{Work, put};
use crate::debian::{Archive, unpack_file, unpack_matching};
use crate::dist::Target;
use crate::linux::{Granule, KernelBuild, Linux, UNCHANGED};

/// The directory of modules, relative to a root directory.
const MODULES: &str = "lib/modules";

/// Patterns for the modules to unpack: those that a guest of `compare --kernel` loads, those of the check `capabilities` (disks,
/// file systems and zram), the dependencies of both, and the list of built-in modules.
const MODULE_PATTERNS: [&str; 19] = [
    "*/modules.builtin",
    "*/kernel/arch/*/lib/*",
    "*/kernel/crypto/*",
    "*/kernel/drivers/block/virtio_blk.ko*",
    "*/kernel/drivers/block/zram/*",
    "*/kernel/drivers/char/virtio_console.ko*",
    "*/kernel/drivers/virtio/*",
    "*/kernel/fs/9p/*",
    "*/kernel/fs/btrfs/*",
    "*/kernel/fs/ext4/*",
    "*/kernel/fs/fscache/*",
    "*/kernel/fs/jbd2/*",
    "*/kernel/fs/mbcache.ko*",
    "*/kernel/fs/netfs/*",
    "*/kernel/fs/overlayfs/*",
    "*/kernel/fs/xfs/*",
    "*/kernel/lib/*",
    "*/kernel/mm/zsmalloc.ko*",
    "*/kernel/net/9p/*",
];

/// The file in which the patterns are stored with which a kernel's modules were unpacked.
const PATTERNS_FILE: &str = "module-patterns";

/// An entry of `guests.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    pub name: String,
    /// Debian's name of the guest's architecture.
    pub architecture: String,
    /// The Debian release that has the kernel.
    pub release: String,
    /// The package that depends on the newest kernel of the release.
    pub package: Option<String>,
    /// The guest's memory in QEMU's syntax, if it is not the default.
    pub memory: Option<String>,
    /// The base page size of a kernel that is built from the release's source, if there is no package or it cannot be fetched.
    pub built: Option<Granule>,
    /// Whether CI runs this guest.
    #[serde(default)]
    pub in_ci: bool,
}

/// All guests, in the order of the table.
///
/// # Panics
/// `guests.toml` is invalid, which a test finds.
pub fn all() -> Vec<Guest> {
    #[derive(Deserialize)]
    struct File {
        guest: Vec<Guest>,
    }
    let file: File = toml::from_str(include_str!("guests.toml")).expect("guests.toml is valid");
    file.guest
}

/// A kernel image, and its origin.
#[derive(Debug)]
pub struct Kernel {
    pub image: PathBuf,
    /// The package of the image, or of the source from which the image is built, with its version.
    pub package: String,
}

/// The kernel of a guest. It is fetched or built if it is missing. If `again` is true, the newest kernel is fetched.
pub fn fetch(guest: &Guest, target: &'static Target, cache: &Path, again: bool) -> Result<Kernel, String> {
    let (granule, because) = match (&guest.package, guest.built) {
        (None, Some(granule)) => (granule, String::new()),
        (_, built) => match (fetch_package(guest, target, cache, again), built) {
            (Err(problem), Some(granule)) => (granule, in_place_of_package(&problem)),
            (outcome, _) => return outcome,
        },
    };
    let wanted = KernelBuild { target, granule, variant: UNCHANGED, options: "", patches: &[] };
    let image = Linux::open(&guest.release, cache, again)?.image(wanted)?;
    Ok(Kernel { image: image.path, package: format!("{}, base pages of {granule}{because}", image.package) })
}

/// Why a built kernel replaces the one from the package. The text becomes part of the kernel's displayed name.
fn in_place_of_package(problem: &str) -> String {
    let first_line = problem.lines().next().unwrap_or_default();
    format!(", with a small configuration, in place of the package's kernel: {first_line}")
}

fn fetch_package(guest: &Guest, target: &Target, cache: &Path, again: bool) -> Result<Kernel, String> {
    let place = cache.join("kernels").join(&guest.name);
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let work = Work::begin(&place)?;
    let (image, package) = (place.join("linux"), place.join("package"));
    let is_here = image.is_file() && package.is_file();
    if again || !is_here || !has_modules(&place) {
        match replace(guest, target, cache, &place, &work) {
            Err(problem) if is_here => println!("{problem}; using the kernel that was fetched before"),
            outcome => outcome?,
        }
    }
    let package = fs::read_to_string(&package).map_err(|error| format!("{}: {error}", package.display()))?;
    Ok(Kernel { image, package })
}

/// Whether the modules of a kernel and the list of its built-in modules are present, unpacked with the current
/// patterns.
fn has_modules(place: &Path) -> bool {
    if fs::read_to_string(place.join(PATTERNS_FILE)).ok() != Some(MODULE_PATTERNS.join("\n")) {
        return false;
    }
    let versions = fs::read_dir(place.join(MODULES)).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("modules.builtin")).any(|list| list.is_file())
}

fn replace(guest: &Guest, target: &Target, cache: &Path, place: &Path, work: &Work) -> Result<(), String> {
    let archive = Archive::open(cache, &guest.release, target.architecture, false)?;
    // The cached lists may name a package that has been removed from the archive; then the lists are fetched again.
    let fetched = |archive: &Archive| -> Result<Fetched, String> {
        let Packages { image, others, version } = packages(archive, guest)?;
        let others = others.iter().map(|package| archive.fetch(package, work)).collect::<Result<_, _>>()?;
        Ok(Fetched { image: archive.fetch(&image, work)?, others, version })
    };
    let Fetched { image: file, others, version } = match fetched(&archive) {
        Ok(found) => found,
        Err(problem) => {
            println!("{problem}; the lists may be old");
            fetched(&Archive::open(cache, &guest.release, target.architecture, true)?)?
        }
    };
    let image = work.path.join("linux");
    unpack_file(&file, &format!("./boot/vmlinuz-{version}"), &image)
        .or_else(|_| unpack_file(&file, &format!("./usr/lib/modules/{version}/vmlinuz"), &image))?;
    let modules = work.path.join("modules");
    let configuration = work.path.join("configuration");
    for file in others.iter().chain([&file]) {
        unpack_matching(file, &MODULE_PATTERNS, &modules)?;
        unpack_matching(file, &CONFIGURATION_PATTERNS, &configuration)?;
    }
    let _ = fs::remove_file(place.join("package"));
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for file in others.iter().chain([&file]) {
        fs::remove_file(file).ok();
    }
    let cannot = |error| format!("cannot make {}: {error}", place.display());
    fs::rename(&image, place.join("linux")).map_err(cannot)?;
    put_modules(&modules, &version, place).map_err(cannot)?;
    put_configuration(&configuration, &version, place).map_err(cannot)?;
    put(place, PATTERNS_FILE, MODULE_PATTERNS.join("\n").as_bytes(), work)?;
    put(place, "package", name.as_bytes(), work)
}

/// Moves the modules of a package to the place, relative to the image, where `pagelab compare --kernel` searches for them.
fn put_modules(unpacked: &Path, version: &str, place: &Path) -> std::io::Result<()> {
    let all = place.join(MODULES);
    let _ = fs::remove_dir_all(&all);
    fs::create_dir_all(&all)?;
    let from = unpacked.join(MODULES).join(version);
    let from = if from.is_dir() { from } else { unpacked.join("usr").join(MODULES).join(version) };
    fs::rename(from, all.join(version))
}

/// Where packages put the configuration of their kernel.
const CONFIGURATION_PATTERNS: [&str; 2] = ["./boot/config-*", "./usr/lib/modules/*/config"];

/// Moves the configuration to the place, relative to the image, where `pagelab compare --kernel` searches for it. A package without a
/// configuration is no error; configurations are then not compared.
fn put_configuration(unpacked: &Path, version: &str, place: &Path) -> std::io::Result<()> {
    let name = format!("config-{version}");
    let places = [unpacked.join("boot").join(&name), unpacked.join("usr").join(MODULES).join(version).join("config")];
    places.iter().find(|file| file.is_file()).map_or(Ok(()), |file| fs::rename(file, place.join(&name)))
}

/// The packages of a kernel.
#[derive(Debug, PartialEq)]
struct Packages {
    /// The package with the image.
    image: String,
    /// The packages with the modules and with the list of built-in ones, if the image's package does not contain them.
    others: Vec<String>,
    /// The version of the kernel.
    version: String,
}

/// The files of these packages.
struct Fetched {
    image: PathBuf,
    others: Vec<PathBuf>,
    version: String,
}

fn packages(archive: &Archive, guest: &Guest) -> Result<Packages, String> {
    let package = guest.package.as_deref().ok_or_else(|| format!("{} has neither package nor built", guest.name))?;
    let dependencies = archive.dependencies(package)?;
    let image = dependencies.into_iter().find(|name| name.starts_with("linux-image-"));
    let image = image.ok_or_else(|| format!("{package} of {} depends on no kernel", archive.name()))?;
    let parts = archive.dependencies(&image)?;
    Ok(packages_of(image, &parts))
}

/// The packages into which a package `linux-image` is split. Newer ones are split: `linux-binary` contains the image,
/// `linux-modules` the modules, and a `linux-base` of the same version the list of built-in modules.
fn packages_of(image: String, dependencies: &[String]) -> Packages {
    let part = |beginning: &str| dependencies.iter().find(|name| name.starts_with(beginning)).cloned();
    let version = image.trim_start_matches("linux-image-").to_owned();
    let others = ["linux-modules-", "linux-base-"].into_iter().filter_map(part).collect();
    Packages { image: part("linux-binary-").unwrap_or(image), others, version }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_package_that_is_split_has_its_image_and_its_modules_in_others() {
        let dependencies = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let whole = packages_of("linux-image-6.12.1-arm64".into(), &dependencies(&["kmod", "linux-base"]));
        let packages = |image: &str, others: &[&str], version: &str| Packages {
            image: image.into(),
            others: dependencies(others),
            version: version.into(),
        };
        assert_eq!(whole, packages("linux-image-6.12.1-arm64", &[], "6.12.1-arm64"));
        let parts = dependencies(&["linux-base-7.2-arm64", "linux-binary-7.2-arm64", "linux-modules-7.2-arm64"]);
        let split = packages_of("linux-image-7.2-arm64".into(), &parts);
        assert_eq!(
            split,
            packages("linux-binary-7.2-arm64", &["linux-modules-7.2-arm64", "linux-base-7.2-arm64"], "7.2-arm64")
        );
    }

    #[test]
    fn guests_have_unique_names_and_known_architectures() {
        let guests = all();
        let names: BTreeSet<&str> = guests.iter().map(|guest| guest.name.as_str()).collect();
        assert_eq!(names.len(), guests.len());
        for guest in &guests {
            Target::named(&guest.architecture).unwrap();
            assert!(crate::guests::machine::Board::of(&guest.architecture, guest.built).is_some(), "{}", guest.name);
            assert!(guest.package.is_some() || guest.built.is_some(), "{}: neither package nor built", guest.name);
            let can_be_built = |granule| match guest.architecture.as_str() {
                "arm64" => true,
                "riscv64" => granule == Granule::K4,
                _ => false,
            };
            assert!(guest.built.is_none_or(can_be_built), "{}: no such kernel can be built", guest.name);
        }
        assert!(guests.iter().any(|guest| guest.in_ci));
    }

    #[test]
    fn a_kernel_in_place_of_another_says_why() {
        let warning = in_place_of_package("apt-get update: the lists are not signed\nmore of it");
        assert!(
            warning.ends_with("in place of the package's kernel: apt-get update: the lists are not signed"),
            "{warning}"
        );
    }
}
