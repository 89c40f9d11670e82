//! `cargo xtask base-pages`: builds Linux for arm64 with base pages of 4K, 16K and 64K from one source, and runs a study of the
//! same programs on all three kernels.

mod redis;
mod system;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cache::cache;
use crate::dist::Target;
use crate::linux::{Granule, KernelBuild, Linux, RELEASE, UNCHANGED};

const USAGE: &str = "usage: cargo xtask base-pages [--again] [--build] [--full] [--program FILE]
  --again          ask Debian for newer sources and packages
  --build          only build the kernels and the system, and print their paths
  --full           the full size of the study; default: the quick size
  --program FILE   put this static arm64 pagelab into the system, for example one that `cargo xtask dist` made, instead of building it
The first build takes half an hour on two processors. The report is written to docs/evidence/base-pages.md.";

/// The study, with placeholders for paths that differ between machines.
const STUDY: &str = include_str!("../../base-pages/study.toml");
/// The page of the book with the study's report.
const PAGE: &str = "docs/evidence/base-pages.md";

/// The parsed command line.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    again: bool,
    only_build: bool,
    is_full: bool,
    program: Option<PathBuf>,
}

/// Builds, runs the study, and writes its page.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("xtask: base-pages: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run_study(root, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: base-pages: {problem}");
            ExitCode::FAILURE
        }
    }
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

fn run_study(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let root = &root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let cache = cache()?.join("pagelab");
    let system = system::make(root, &cache, arguments.again, arguments.program.as_deref())?;
    println!("{}", system.display());
    let linux = Linux::open(RELEASE, &cache, arguments.again)?;
    let target = Target::named("arm64")?;
    let mut images = PathBuf::new();
    for granule in Granule::ALL {
        let image = linux.image(KernelBuild { target, granule, variant: UNCHANGED, patches: &[] })?;
        println!("{}", image.path.display());
        images = image.path.parent().map(Path::to_path_buf).unwrap_or_default();
    }
    if arguments.only_build {
        return Ok(());
    }
    let place = root.join("target/base-pages");
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let file = place.join("base-pages.toml");
    let text = STUDY.replace("@IMAGES@", &images.to_string_lossy()).replace("@SYSTEM@", &system.to_string_lossy());
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    crate::command::succeed(crate::cargo(root).args([
        "build",
        "--quiet",
        "--package",
        "pagelab",
        "--package",
        "qemu-plugin",
    ]))?;
    redis::record(&root.join("target/debug"), &system, &place)?;
    let study = |verb: &str| {
        let mut pagelab = Command::new(root.join("target/debug/pagelab"));
        pagelab.current_dir(&place).args(["study", verb, "base-pages.toml", "--store", "results.sqlite"]);
        pagelab.args(["--size", if arguments.is_full { "full" } else { "quick" }]);
        pagelab
    };
    // A row without a result appears in the report with its reason.
    let ran = crate::command::succeed(&mut study("run"));
    let mail = study("report").arg("--mail").output().map_err(|error| format!("pagelab study report: {error}"))?;
    if !mail.status.success() {
        return Err(format!("pagelab study report: {}", String::from_utf8_lossy(&mail.stderr).trim()));
    }
    let (date, commit) = crate::command::stamp(root);
    let page = page(&String::from_utf8_lossy(&mail.stdout), linux.package(), &date, &commit);
    fs::write(root.join(PAGE), page).map_err(|error| format!("{PAGE}: {error}"))?;
    println!("{PAGE}");
    ran.map_err(|problem| {
        format!("{PAGE} is written, and not all of its rows have a result (pagelab study run: {problem})")
    })
}

/// The text of the page: how the study was made, and the report in the form of a mail.
fn page(mail: &str, package: &str, date: &str, commit: &str) -> String {
    format!(
        "# Base pages of 4K, 16K and 64K on one Linux\n\n\
         `cargo xtask base-pages` writes this page. It builds Linux for arm64 three times from {package}, with base pages of 4K, 16K and 64K and \
         the same small configuration. Each kernel boots in QEMU's emulation of a processor. All three run the same files: a static pagelab, and \
         Redis of Debian with its libraries. The report also shows the model's prediction for the same programs on a Neoverse N1.\n\n\
         **Emulated: no time.** QEMU's clock advances by one nanosecond per instruction. `instructions` counts the instructions of the \
         program and of the kernel on its behalf, whether or not they miss a cache or a TLB. Faults and bytes come from the kernel. \
         `map_instructions` and similar figures are the mean of one call, including what interrupts it: under a policy that advises \
         mappings, pagelab also stops the program there. Compare them between kernels under `base`, not between policies.\n\n\
         A kernel with base pages other than 4K does not have folios of every size: the cell of an unsupported policy states the \
         reason. `base-16k`, `base-64k` and `contig-64k` are policies of model machines.\n\n\
         *When:* {date}. *Commit:* {commit}. *Command:* `cargo xtask base-pages`.\n\n```\n{}\n```\n",
        mail.trim_end()
    )
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
    fn the_study_names_every_size_of_base_pages() {
        for granule in Granule::ALL {
            assert!(STUDY.contains(&format!("@IMAGES@/{granule}-{UNCHANGED}\"")), "{granule}");
        }
        assert!(STUDY.contains(&format!("trace = \"{}\"", redis::TRACE)));
        assert_eq!(STUDY.matches("sysroot = \"@SYSTEM@\"").count(), Granule::ALL.len());
    }
}
