//! One build: the configuration, make, and the image that is kept with what it was made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::source::Source;
use super::{Granule, Wanted};
use crate::cache::{Work, put};
use crate::dist::Target;
use crate::test::packages::is_in_path;

/// What every kernel has, whatever its base pages.
const CONFIGURATION: &str = include_str!("../../linux/arm64.config");

/// Programs that a build takes besides the compiler, and the packages that bring them.
const TOOLS: [(&str, &str); 6] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl-base"),
];

/// A kernel's image.
#[derive(Debug)]
pub struct Image {
    /// The file.
    pub path: PathBuf,
    /// The package of its source, with its version.
    pub package: String,
}

/// The place where kernels of one source are built, one at a time.
pub struct Workshop {
    place: PathBuf,
    work: Work,
}

impl Workshop {
    /// Waits for another build to end.
    ///
    /// # Errors
    /// What cannot be made, and why.
    pub fn enter(place: &Path) -> Result<Workshop, String> {
        Ok(Workshop { place: place.to_path_buf(), work: Work::begin(place)? })
    }

    /// The image of a kernel.
    ///
    /// # Errors
    /// No tool, a patch that does not fit, a lost option, a build that failed.
    pub fn image(&self, source: &Source, wanted: Wanted) -> Result<Image, String> {
        let target = Target::named("arm64")?;
        let compiler = compiler(target)?;
        let images = self.place.join("images");
        fs::create_dir_all(&images).map_err(|error| format!("cannot make {}: {error}", images.display()))?;
        let name = format!("{}-{}", wanted.granule, wanted.variant);
        let image = Image { path: images.join(&name), package: source.package.clone() };
        let fragment = fragment(wanted.granule);
        let made_of = made_of(source, &fragment, &compiler, wanted);
        let note = format!("{name}.made-of");
        let is_same = fs::read_to_string(images.join(&note)).is_ok_and(|text| text == made_of);
        if is_same && image.path.is_file() {
            return Ok(image);
        }
        for (tool, package) in TOOLS {
            needs(tool, package)?;
        }
        source.patch(wanted.patches, &self.work)?;
        let build = self.place.join(format!("build-{}", wanted.granule));
        fs::create_dir_all(&build).map_err(|error| format!("cannot make {}: {error}", build.display()))?;
        self.configure(source, &build, &fragment, target)?;
        println!("==> make Image of {} ({name})", source.package);
        let mut make = make(source, &build, target);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        make.arg(format!("-j{processors}")).arg(format!("LOCALVERSION=-{name}")).arg("Image");
        crate::command::succeed(&mut make).map_err(|problem| format!("make Image ({name}): {problem}"))?;
        let _ = fs::remove_file(images.join(&note));
        let (new, partial) = (build.join("arch/arm64/boot/Image"), self.work.path.join("Image"));
        let kept = fs::copy(&new, &partial).and_then(|_| fs::rename(&partial, &image.path));
        kept.map_err(|error| format!("cannot keep {}: {error}", new.display()))?;
        put(&images, &note, made_of.as_bytes(), &self.work)?;
        Ok(image)
    }

    /// Configures a build: what the fragment says, and nothing else that can be left out.
    fn configure(&self, source: &Source, build: &Path, fragment: &str, target: &Target) -> Result<(), String> {
        let file = self.work.path.join("fragment");
        fs::write(&file, fragment).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut make = make(source, build, target);
        make.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &file);
        crate::command::succeed(&mut make).map_err(|problem| format!("make allnoconfig: {problem}"))?;
        let path = build.join(".config");
        let made = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lost = lost(fragment, &made);
        if lost.is_empty() {
            return Ok(());
        }
        Err(format!("{} has no such options, or not what they depend on: {}", source.package, lost.join(", ")))
    }
}

/// Whether a program is there.
///
/// # Errors
/// It is not; which package brings it.
pub fn needs(tool: &str, package: &str) -> Result<(), String> {
    if is_in_path(tool) { Ok(()) } else { Err(format!("needs {tool}; apt-get install {package}")) }
}

/// The compiler's own words of its version; what is built changes with it.
fn compiler(target: &Target) -> Result<String, String> {
    let program = target.compiler()?;
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

fn make(source: &Source, build: &Path, target: &Target) -> Command {
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(&source.tree).arg(format!("O={}", build.display())).arg("ARCH=arm64");
    if !target.is_here() {
        make.arg(format!("CROSS_COMPILE={}", target.gcc.trim_end_matches("gcc")));
    }
    // Nothing of this machine is in the image, and it does not change with the day.
    let said = [("USER", "pagelab"), ("HOST", "pagelab"), ("TIMESTAMP", "1970-01-01"), ("VERSION", "1")];
    make.envs(said.map(|(name, value)| (format!("KBUILD_BUILD_{name}"), value)));
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    make
}

fn fragment(granule: Granule) -> String {
    format!("{CONFIGURATION}CONFIG_ARM64_{granule}_PAGES=y\n")
}

/// Lines of a fragment that are not in the configuration that was made of it.
fn lost<'a>(fragment: &'a str, made: &str) -> Vec<&'a str> {
    let options = fragment.lines().filter(|line| line.starts_with("CONFIG_"));
    options.filter(|option| !made.lines().any(|line| line == *option)).collect()
}

/// All that an image depends on.
fn made_of(source: &Source, fragment: &str, compiler: &str, wanted: Wanted) -> String {
    let patches = wanted.patches.iter().map(|patch| patch.text);
    [source.package.as_str(), compiler, fragment].into_iter().chain(patches).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::Patch;

    #[test]
    fn options_that_were_lost_are_named() {
        let fragment = "# why\nCONFIG_A=y\nCONFIG_B=2\n";
        assert_eq!(lost(fragment, "CONFIG_A=y\nCONFIG_B=2\nCONFIG_C=y\n"), Vec::<&str>::new());
        assert_eq!(lost(fragment, "CONFIG_A=yes\n# CONFIG_B is not set\n"), ["CONFIG_A=y", "CONFIG_B=2"]);
    }

    #[test]
    fn an_image_is_of_its_source_configuration_compiler_and_patches() {
        let source = Source { package: "linux-source-1_2".into(), tree: PathBuf::new(), originals: PathBuf::new() };
        let patches = [Patch { name: "x", text: "one" }, Patch { name: "y", text: "two" }];
        let of = |patches| {
            let wanted = Wanted { granule: Granule::K16, variant: "v", patches };
            made_of(&source, &fragment(wanted.granule), "gcc 1", wanted)
        };
        let all = [of(&patches), of(&patches[..1]), of(&[])];
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert!(all[0].contains("linux-source-1_2") && all[0].contains("CONFIG_ARM64_16K_PAGES=y"));
    }

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        assert_eq!(needs("sh", "dash"), Ok(()));
        assert_eq!(needs("no-such-program", "a-package").unwrap_err(), "needs no-such-program; apt-get install a-package");
    }
}
