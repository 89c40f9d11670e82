//! One build of Linux: the configuration, make, and the image, which is stored with a list of its inputs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::needs;
use super::source::Source;
use super::{Granule, KernelBuild};
use crate::cache::{Work, put};
use crate::dist::Target;

/// The part of the configuration that every kernel has.
const COMMON: &str = include_str!("../../linux/common.config");
/// For each architecture, Debian's name of it, Linux's name of it, and the part of the configuration that only it has.
const CONFIGURATIONS: [(&str, &str, &str); 2] = [
    ("arm64", "arm64", include_str!("../../linux/arm64.config")),
    ("riscv64", "riscv", include_str!("../../linux/riscv64.config")),
];

/// Programs that a build needs besides the compiler, and their packages.
const TOOLS: [(&str, &str); 6] =
    [("make", "make"), ("gcc", "gcc"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("perl", "perl-base")];

/// The list of built-in modules, by its name in Linux.
const MODULES: &str = "modules.builtin";

/// A kernel image.
#[derive(Debug)]
pub struct Image {
    pub path: PathBuf,
    /// The package of the kernel's source, with its version.
    pub package: String,
}

/// A kernel to build, and all its inputs.
pub struct Order<'a> {
    source: &'a Source,
    wanted: KernelBuild<'a>,
    /// Linux's name of the architecture.
    architecture: &'static str,
    fragment: String,
    /// The inputs of the image, as text. An existing image with the same inputs is used again.
    inputs: String,
    images: PathBuf,
    /// The name of the image's file.
    name: String,
}

impl<'a> Order<'a> {
    /// The order for a kernel from this source. Images are stored below `place`.
    pub fn new(place: &Path, source: &'a Source, wanted: KernelBuild<'a>) -> Result<Order<'a>, String> {
        let (architecture, common) = configuration(wanted.target, wanted.granule)?;
        let fragment = common + wanted.options;
        let inputs = inputs(source, &fragment, &compiler(wanted.target)?, wanted);
        let name = format!("{}-{}", pages_of(wanted), wanted.variant);
        Ok(Order { source, wanted, architecture, fragment, inputs, images: place.join("images"), name })
    }

    /// The existing image, if it was built from the same inputs.
    pub fn existing_image(&self) -> Option<Image> {
        let path = self.images.join(&self.name);
        let is_same = fs::read_to_string(self.images.join(self.note())).is_ok_and(|text| text == self.inputs);
        let has_modules = is_same && self.modules().is_some_and(|list| list.is_file());
        (has_modules && path.is_file()).then(|| Image { path, package: self.source.package.clone() })
    }

    /// The path of the list of built-in modules. It is expected in `lib/modules/RELEASE` above an image.
    fn modules(&self) -> Option<PathBuf> {
        let release = fs::read_to_string(self.images.join(format!("{}.release", self.name))).ok()?;
        Some(self.images.join("lib/modules").join(release.trim()).join(MODULES))
    }

    /// Builds the image. In each place only one kernel is built at a time.
    pub fn make(&self, place: &Path) -> Result<Image, String> {
        let work = Work::begin(place)?;
        for (tool, package) in TOOLS {
            needs(tool, package)?;
        }
        fs::create_dir_all(&self.images).map_err(|error| format!("cannot make {}: {error}", self.images.display()))?;
        self.source.patch(self.wanted.patches, &work)?;
        let build = place.join(format!("build-{}", pages_of(self.wanted)));
        fs::create_dir_all(&build).map_err(|error| format!("cannot make {}: {error}", build.display()))?;
        self.configure(&build, &work)?;
        println!("==> make Image of {} ({})", self.source.package, self.name);
        let mut make = self.command(&build);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        make.arg(format!("-j{processors}")).arg(format!("LOCALVERSION=-{}", self.name)).arg("Image");
        crate::command::succeed(&mut make).map_err(|problem| format!("make Image ({}): {problem}", self.name))?;
        let _ = fs::remove_file(self.images.join(self.note()));
        let (new, partial) = (build.join("arch").join(self.architecture).join("boot/Image"), work.path.join("Image"));
        let kept = fs::copy(&new, &partial).and_then(|_| fs::rename(&partial, self.images.join(&self.name)));
        kept.map_err(|error| format!("cannot store {}: {error}", new.display()))?;
        self.keep_modules(&build, &work)?;
        put(&self.images, &self.note(), self.inputs.as_bytes(), &work)?;
        self.existing_image().ok_or_else(|| format!("{} is missing after the build", self.name))
    }

    /// Stores the list of built-in modules, the kernel's release and its configuration.
    fn keep_modules(&self, build: &Path, work: &Work) -> Result<(), String> {
        let read =
            |file: &str| fs::read(build.join(file)).map_err(|error| format!("{}: {error}", build.join(file).display()));
        put(&self.images, &format!("{}.release", self.name), &read("include/config/kernel.release")?, work)?;
        let list = self.modules().ok_or_else(|| format!("{} has no release", self.name))?;
        let place = list.parent().unwrap_or(&self.images);
        fs::create_dir_all(place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        let release = place.file_name().unwrap_or_default().to_string_lossy();
        put(&self.images, &format!("config-{release}"), &read(".config")?, work)?;
        put(place, MODULES, &read(MODULES)?, work)
    }

    /// The name of the file that lists the inputs of the image.
    fn note(&self) -> String {
        format!("{}.made-of", self.name)
    }

    /// Configures a build: the options of the fragment and as few others as possible.
    fn configure(&self, build: &Path, work: &Work) -> Result<(), String> {
        let file = work.path.join("fragment");
        fs::write(&file, &self.fragment).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut make = self.command(build);
        make.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &file);
        crate::command::succeed(&mut make).map_err(|problem| format!("make allnoconfig: {problem}"))?;
        let path = build.join(".config");
        let made = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let missing_options = missing_options(&self.fragment, &made);
        if missing_options.is_empty() {
            return Ok(());
        }
        let package = &self.source.package;
        Err(format!("{package} lacks these options or their dependencies: {}", missing_options.join(", ")))
    }

    /// The command `make` for this build, which does not depend on the programs of this machine.
    fn command(&self, build: &Path) -> Command {
        let mut make = Command::new("make");
        make.args(["--silent", "-C"]).arg(&self.source.tree).arg(format!("O={}", build.display()));
        make.arg(format!("ARCH={}", self.architecture));
        let target = self.wanted.target;
        if !target.is_here() {
            make.arg(format!("CROSS_COMPILE={}", target.gcc.trim_end_matches("gcc")));
        }
        // These variables make the image independent of this machine, the user and the date.
        let variables = [("USER", "pagelab"), ("HOST", "pagelab"), ("TIMESTAMP", "1970-01-01"), ("VERSION", "1")];
        make.envs(variables.map(|(name, value)| (format!("KBUILD_BUILD_{name}"), value)));
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
        make
    }
}

/// The compiler's version, which is one of the build's inputs.
fn compiler(target: &Target) -> Result<String, String> {
    let program = target.compiler()?;
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// Linux's name of an architecture, and its configuration.
fn configuration(target: &Target, granule: Granule) -> Result<(&'static str, String), String> {
    let known = CONFIGURATIONS.iter().find(|(debian, ..)| *debian == target.architecture);
    let (_, linux, own) = known.ok_or_else(|| format!("there is no configuration of Linux for {}", target.triple))?;
    let pages = match (*linux, granule) {
        ("arm64", granule) => format!("CONFIG_ARM64_{granule}_PAGES=y\n"),
        (_, Granule::K4) => String::new(),
        (linux, granule) => return Err(format!("Linux for {linux} has no base pages of {granule}")),
    };
    Ok((linux, format!("{own}{COMMON}{pages}")))
}

/// The base page size in the name of a kernel, preceded by the architecture unless that is arm64, the only one that
/// supports several sizes.
fn pages_of(wanted: KernelBuild) -> String {
    match wanted.target.architecture {
        "arm64" => wanted.granule.to_string(),
        other => format!("{other}-{}", wanted.granule),
    }
}

/// The lines of a fragment that are missing from the configuration that was made from the fragment. An option that is switched off
/// has a line too.
fn missing_options<'a>(fragment: &'a str, made: &str) -> Vec<&'a str> {
    let is_off = |line: &str| line.starts_with("# CONFIG_") && line.ends_with(" is not set");
    let options = fragment.lines().filter(|line| line.starts_with("CONFIG_") || is_off(line));
    options.filter(|option| !made.lines().any(|line| line == *option)).collect()
}

/// All inputs of an image.
fn inputs(source: &Source, fragment: &str, compiler: &str, wanted: KernelBuild) -> String {
    let patches = wanted.patches.iter().map(|patch| patch.text);
    [source.package.as_str(), compiler, fragment].into_iter().chain(patches).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::Patch;

    #[test]
    fn missing_options_are_reported() {
        let fragment = "# why\nCONFIG_A=y\nCONFIG_B=2\n";
        assert_eq!(missing_options(fragment, "CONFIG_A=y\nCONFIG_B=2\nCONFIG_C=y\n"), Vec::<&str>::new());
        assert_eq!(missing_options(fragment, "CONFIG_A=yes\n# CONFIG_B is not set\n"), ["CONFIG_A=y", "CONFIG_B=2"]);
        let off = "# CONFIG_A is not set\n";
        assert_eq!(missing_options(off, off), Vec::<&str>::new());
        assert_eq!(missing_options(off, "CONFIG_A=y\n"), ["# CONFIG_A is not set"]);
    }

    #[test]
    fn inputs_contain_source_configuration_compiler_and_patches() {
        let source = Source { package: "linux-source-1_2".into(), tree: PathBuf::new(), originals: PathBuf::new() };
        let patches = [Patch { name: "x", text: "one" }, Patch { name: "y", text: "two" }];
        let target = Target::named("arm64").unwrap();
        let of = |patches| {
            let wanted = KernelBuild { target, granule: Granule::K16, variant: "v", options: "", patches };
            inputs(&source, &configuration(target, wanted.granule).unwrap().1, "gcc 1", wanted)
        };
        let all = [of(&patches), of(&patches[..1]), of(&[])];
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert!(all[0].contains("linux-source-1_2") && all[0].contains("CONFIG_ARM64_16K_PAGES=y"));
    }

    #[test]
    fn an_architecture_has_its_own_configuration_and_the_common_one() {
        let of = |architecture: &str, granule| configuration(Target::named(architecture).unwrap(), granule);
        let (name, options) = of("riscv64", Granule::K4).unwrap();
        assert!(name == "riscv" && options.contains("CONFIG_RISCV_ISA_SVNAPOT=y"));
        assert!(options.contains("CONFIG_TRANSPARENT_HUGEPAGE=y") && !options.contains("ARM64"));
        assert_eq!(of("arm64", Granule::K64).unwrap().0, "arm64");
        assert_eq!(of("riscv64", Granule::K64).unwrap_err(), "Linux for riscv has no base pages of 64K");
        assert!(of("amd64", Granule::K4).unwrap_err().contains("no configuration"));
    }
}
