//! Studies of kernels that are built from one source for them: `cargo xtask base-pages` and `cargo xtask contpte`. The kernels boot in
//! QEMU with the same programs, and the report of the study is a page of the book.

mod redis;
mod system;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cache::cache;
use crate::dist::Target;
use crate::linux::{Granule, KernelBuild, Linux, RELEASE, UNCHANGED};

/// A study, and the kernels that it compares.
pub struct KernelStudy {
    /// The name of the task, of the study, and of its page in docs/evidence.
    name: &'static str,
    /// The file of the study. `images` and `system`, next to it, are links to the kernels and to the system.
    study: &'static str,
    kernels: &'static [StudiedKernel],
    /// Whether the study reads a trace of Redis.
    has_redis_trace: bool,
    title: &'static str,
    /// What the page is about, before the report. `@PACKAGE@` is the source package.
    introduction: &'static str,
}

/// A kernel for arm64.
struct StudiedKernel {
    granule: Granule,
    variant: &'static str,
    /// Lines of its configuration that follow those of all kernels.
    options: &'static str,
}

/// Base pages of 4K, 16K and 64K.
pub const BASE_PAGES: KernelStudy = KernelStudy {
    name: "base-pages",
    study: include_str!("../../kernel-studies/base-pages.toml"),
    kernels: &[
        StudiedKernel { granule: Granule::K4, variant: UNCHANGED, options: "" },
        StudiedKernel { granule: Granule::K16, variant: UNCHANGED, options: "" },
        StudiedKernel { granule: Granule::K64, variant: UNCHANGED, options: "" },
    ],
    has_redis_trace: true,
    title: "Base pages of 4K, 16K and 64K on one Linux",
    introduction: include_str!("../../kernel-studies/base-pages.md"),
};

/// Contiguous PTEs, in the kernel or not. Without CONFIG_EXPERT the option cannot be switched off, so both kernels have it.
pub const CONTPTE: KernelStudy = KernelStudy {
    name: "contpte",
    study: include_str!("../../kernel-studies/contpte.toml"),
    kernels: &[
        StudiedKernel {
            granule: Granule::K4,
            variant: "contpte-off",
            options: "CONFIG_EXPERT=y\nCONFIG_BUG=y\n# CONFIG_ARM64_CONTPTE is not set\n",
        },
        StudiedKernel {
            granule: Granule::K4,
            variant: "contpte-on",
            options: "CONFIG_EXPERT=y\nCONFIG_BUG=y\nCONFIG_ARM64_CONTPTE=y\n",
        },
    ],
    has_redis_trace: false,
    title: "Contiguous PTEs, off and on",
    introduction: include_str!("../../kernel-studies/contpte.md"),
};

/// The parsed command line.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    again: bool,
    only_build: bool,
    is_full: bool,
    program: Option<PathBuf>,
}

impl KernelStudy {
    /// Builds the kernels, runs the study, and writes its page.
    pub fn run(&self, root: &Path, words: &[String]) -> ExitCode {
        if words.iter().any(|word| word == "--help") {
            println!("{}", self.usage());
            return ExitCode::SUCCESS;
        }
        let arguments = match parse(words) {
            Ok(arguments) => arguments,
            Err(problem) => {
                eprintln!("xtask: {}: {problem}\n{}", self.name, self.usage());
                return ExitCode::from(2);
            }
        };
        match self.build_and_study(root, &arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("xtask: {}: {problem}", self.name);
                ExitCode::FAILURE
            }
        }
    }

    fn usage(&self) -> String {
        format!(
            "usage: cargo xtask {} [--again] [--build] [--full] [--program FILE]
  --again          ask Debian for newer sources and packages
  --build          only build the kernels and the system, and print their paths
  --full           the full size of the study; default: the quick size
  --program FILE   put this static arm64 pagelab into the system, for example one that `cargo xtask dist` made, instead of building it
The first build of a kernel takes ten minutes on two processors. The report is written to {}.",
            self.name,
            self.page()
        )
    }

    /// The page of the book with the study's report.
    fn page(&self) -> String {
        format!("docs/evidence/{}.md", self.name)
    }

    fn build_and_study(&self, root: &Path, arguments: &Arguments) -> Result<(), String> {
        let root = &root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
        let cache = cache()?.join("pagelab");
        let system = system::make(root, &cache, arguments.again, arguments.program.as_deref())?;
        println!("{}", system.display());
        let linux = Linux::open(RELEASE, &cache, arguments.again)?;
        let target = Target::named("arm64")?;
        let mut images = PathBuf::new();
        for &StudiedKernel { granule, variant, options } in self.kernels {
            let image = linux.image(KernelBuild { target, granule, variant, options, patches: &[] })?;
            println!("{}", image.path.display());
            images = image.path.parent().map(Path::to_path_buf).unwrap_or_default();
        }
        if arguments.only_build {
            return Ok(());
        }
        let place = root.join("target").join(self.name);
        fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        let name = format!("{}.toml", self.name);
        let file = place.join(&name);
        link(&images, &place.join("images"))?;
        link(&system, &place.join("system"))?;
        fs::write(&file, self.study).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        let packages = ["build", "--quiet", "--package", "pagelab", "--package", "qemu-plugin"];
        crate::command::succeed(crate::cargo(root).args(packages))?;
        if self.has_redis_trace {
            redis::record(&root.join("target/debug"), &system, &place)?;
        }
        // The report has the paths and the command as they are given, so neither names a directory of this machine.
        let path = std::env::join_paths([root.join("target/debug")].into_iter().chain(path_directories()));
        let path = path.map_err(|error| format!("PATH: {error}"))?;
        let study = |verb: &str| {
            let mut pagelab = Command::new("pagelab");
            pagelab.env("PATH", &path).current_dir(&place).args(["study", verb, &name, "--store", "results.sqlite"]);
            pagelab.args(["--size", if arguments.is_full { "full" } else { "quick" }]);
            pagelab
        };
        // A row without a result appears in the report with its reason.
        let ran = crate::command::succeed(&mut study("run"));
        let mail = study("report").arg("--mail").output().map_err(|error| format!("pagelab study report: {error}"))?;
        if !mail.status.success() {
            return Err(format!("pagelab study report: {}", String::from_utf8_lossy(&mail.stderr).trim()));
        }
        let stamp = crate::command::stamp(root);
        let text = self.page_text(&String::from_utf8_lossy(&mail.stdout), linux.package(), &stamp);
        let page = self.page();
        fs::write(root.join(&page), text).map_err(|error| format!("{page}: {error}"))?;
        println!("{page}");
        ran.map_err(|problem| {
            format!("{page} is written, and not all of its rows have a result (pagelab study run: {problem})")
        })
    }

    /// The text of the page: how the study was made, and the report in the form of a mail.
    fn page_text(&self, mail: &str, package: &str, (date, commit): &(String, String)) -> String {
        format!(
            "# {}\n\n{}\n\n*When:* {date}. *Commit:* {commit}. *Command:* `cargo xtask {}`.\n\n```\n{}\n```\n",
            self.title,
            self.introduction.replace("@PACKAGE@", package).trim_end(),
            self.name,
            mail.trim_end()
        )
    }
}

/// Makes a symbolic link, in place of an older one.
fn link(target: &Path, at: &Path) -> Result<(), String> {
    let _ = fs::remove_file(at);
    symlink(target, at).map_err(|error| format!("cannot link {}: {error}", at.display()))
}

/// The directories of PATH.
fn path_directories() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--again" => arguments.again = true,
            "--build" => arguments.only_build = true,
            "--full" => arguments.is_full = true,
            "--program" => arguments.program = Some(words.next().ok_or("--program expects a file")?.into()),
            word => return Err(format!("unknown argument {word:?}")),
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_or_reported() {
        let parsed = |words: &[&str]| parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parsed(&[]), Ok(Arguments::default()));
        let all = parsed(&["--again", "--build", "--full", "--program", "/x"]).unwrap();
        assert!(all.again && all.only_build && all.is_full && all.program == Some("/x".into()));
        assert!(parsed(&["--program"]).unwrap_err().contains("expects a file"));
        assert!(parsed(&["--quick"]).unwrap_err().contains("--quick"));
    }

    #[test]
    fn a_study_names_each_of_its_kernels() {
        for one in [BASE_PAGES, CONTPTE] {
            for StudiedKernel { granule, variant, .. } in one.kernels {
                assert!(one.study.contains(&format!("\"images/{granule}-{variant}\"")), "{granule} {variant}");
            }
            assert!(one.study.contains(&format!("name = \"{}\"", one.name)));
            assert_eq!(one.study.contains(&format!("trace = \"{}\"", redis::TRACE)), one.has_redis_trace);
            assert_eq!(one.study.matches("sysroot = \"system\"").count(), one.kernels.len());
        }
    }

    #[test]
    fn the_page_names_the_source_and_the_commit() {
        let text = CONTPTE.page_text("the mail\n", "linux-source-6.12", &("2026-01-01".into(), "abc".into()));
        assert!(
            text.starts_with("# Contiguous PTEs, off and on\n") && text.contains("from linux-source-6.12"),
            "{text}"
        );
        assert!(text.ends_with("*Commit:* abc. *Command:* `cargo xtask contpte`.\n\n```\nthe mail\n```\n"), "{text}");
    }
}
