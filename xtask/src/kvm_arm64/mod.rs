//! `cargo xtask kvm-arm64`: measures KVM's eager splitting on arm64 with the kernel's own code. It compares three kernels: Linux
//! without changes, Linux with a walk that skips levels, and Linux with a walk that also skips children. Each kernel is built from
//! source and run in QEMU, whose clock counts instructions.

mod counts;
mod kept;
mod measure;
mod published;
mod record;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use measure::{Bench, Memory};
use published::Published;
use record::Record;

use crate::cache::cache;
use crate::dist::Target;
use crate::linux::{Granule, KernelBuild, Linux, Patch, RELEASE, UNCHANGED};

const USAGE: &str = "usage: cargo xtask kvm-arm64 [--granule SIZE] [--bytes SIZE] [--gigabytes COUNT] [--release NAME] [--again] [--build]
                         [--limit MINUTES] [--program FILE] | --page
  --granule SIZE   base pages of the kernels: 4K, 16K or 64K; default: 4K
  --bytes SIZE     logged memory, for base pages and for THP; default: 256M, or the THP block if it is larger
  --gigabytes COUNT
                   logged pages of 1G, if base pages are 4K; default: 1
  --release NAME   build the newest Linux of this Debian release; default: trixie
  --again          fetch a newer one, if there is one
  --build          only build the kernels
  --limit MINUTES  end a guest that takes longer; default: 120
  --program FILE   use this arm64 pagelab, for example one that `cargo xtask dist` made, instead of building it
  --page           only rewrite the page from the stored measurements
The first build takes about 15 minutes on two processors, and each guest several more. Results are stored in docs/evidence.";

const SKIP_LEVELS: Patch = Patch { name: "skip-levels.patch", text: include_str!("../../kvm-arm64/skip-levels.patch") };
const SKIP_CHILDREN: Patch =
    Patch { name: "skip-children.patch", text: include_str!("../../kvm-arm64/skip-children.patch") };
const COUNT: Patch = Patch { name: "count.patch", text: include_str!("../../kvm-arm64/count.patch") };

/// A kernel that is measured, and the patches that change it.
#[derive(Debug)]
pub struct Variant {
    pub name: &'static str,
    patches: &'static [Patch],
    /// The name and the patches of the same kernel with counters.
    counting: (&'static str, &'static [Patch]),
}

/// All variants. The first is the one with which the others are compared.
pub const VARIANTS: [Variant; 3] = [
    Variant { name: UNCHANGED, patches: &[], counting: ("as-it-is-counting", &[COUNT]) },
    Variant { name: "skip-levels", patches: &[SKIP_LEVELS], counting: ("skip-levels-counting", &[SKIP_LEVELS, COUNT]) },
    Variant {
        name: "skip-children",
        patches: &[SKIP_LEVELS, SKIP_CHILDREN],
        counting: ("skip-children-counting", &[SKIP_LEVELS, SKIP_CHILDREN, COUNT]),
    },
];

/// The parsed command line.
#[derive(Debug)]
struct Arguments {
    granule: Granule,
    bytes: Option<u64>,
    gigabytes: u64,
    release: String,
    again: bool,
    only_build: bool,
    limit: Duration,
    program: Option<PathBuf>,
}

/// Builds and measures the kernels, and stores the results.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if words == ["--page"] {
        return exit_code(kept::show(root));
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("xtask: kvm-arm64: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    exit_code(measure(root, &arguments))
}

fn exit_code(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: kvm-arm64: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn measure(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let linux = Linux::open(&arguments.release, &cache()?.join("pagelab"), arguments.again)?;
    let target = Target::named("arm64")?;
    let mut images = Vec::new();
    for variant in &VARIANTS {
        let granule = arguments.granule;
        let of = |(variant, patches)| linux.image(KernelBuild { target, granule, variant, options: "", patches });
        images.push((of((variant.name, variant.patches))?, of(variant.counting)?));
    }
    for (plain, counting) in &images {
        println!("{}\n{}", plain.path.display(), counting.path.display());
    }
    if arguments.only_build {
        return Ok(());
    }
    let memory = Memory::of(arguments.granule, arguments.bytes, arguments.gigabytes)?;
    let bench = Bench::prepare(root, arguments.granule, memory, arguments.limit, arguments.program.as_deref())?;
    let mut record = Record::begin(root, &bench, linux.package())?;
    for (variant, (plain, counting)) in VARIANTS.iter().zip(&images) {
        let counted = bench.counts(variant.counting.0, &counting.path)?;
        record.add(variant.name, bench.instructions(variant.name, &plain.path)?, counted);
    }
    let text = report::section(&record, &Published::read(root)?);
    println!("{text}");
    kept::keep(root, record)
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        granule: Granule::K4,
        bytes: None,
        gigabytes: 1,
        release: RELEASE.to_owned(),
        again: false,
        only_build: false,
        limit: Duration::from_secs(7200),
        program: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} expects a value"));
        match word.as_str() {
            "--granule" => arguments.granule = Granule::named(value()?)?,
            "--bytes" => arguments.bytes = Some(size(value()?)?),
            "--gigabytes" => {
                let count: Option<u64> = value()?.parse().ok().filter(|count| (1..=1024).contains(count));
                arguments.gigabytes = count.ok_or("--gigabytes expects a number from 1 to 1024")?;
            }
            "--release" => arguments.release = value()?.clone(),
            "--again" => arguments.again = true,
            "--build" => arguments.only_build = true,
            "--limit" => {
                let minutes: Option<u64> = value()?.parse().ok().filter(|minutes| *minutes > 0);
                let minutes = minutes.ok_or("--limit expects a number of minutes above 0")?;
                arguments.limit = Duration::from_secs(minutes.saturating_mul(60));
            }
            "--program" => arguments.program = Some(PathBuf::from(value()?)),
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    Ok(arguments)
}

/// The bytes of a size that is given in whole M or G.
fn size(text: &str) -> Result<u64, String> {
    let of = |unit: char, shift: u32| -> Option<u64> {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        (1..=1 << 20).contains(&count).then_some(count << shift)
    };
    of('M', 20)
        .or_else(|| of('G', 30))
        .ok_or_else(|| format!("--bytes expects a size such as 256M or 4G, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, String> {
        parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn reads_the_requested_options() {
        let given =
            parsed(&["--granule", "64K", "--bytes", "4G", "--gigabytes", "2", "--build", "--limit", "9"]).unwrap();
        assert_eq!((given.granule, given.bytes, given.gigabytes), (Granule::K64, Some(4 << 30), 2));
        assert!(given.only_build);
        assert_eq!((given.limit.as_secs(), given.release.as_str()), (540, "trixie"));
        for wrong in [
            &["--bytes", "512"][..],
            &["--bytes", "0G"],
            &["--gigabytes", "0"],
            &["--granule", "8K"],
            &["--limit", "0"],
            &["--x"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert!(parsed(&["--program"]).unwrap_err().contains("--program expects a value"));
    }

    #[test]
    fn a_variant_is_the_one_before_it_and_more() {
        for pair in VARIANTS.windows(2) {
            assert!(pair[1].patches.starts_with(pair[0].patches) && pair[1].patches.len() > pair[0].patches.len());
        }
        for variant in &VARIANTS {
            assert_eq!(variant.counting.1.split_last(), Some((&COUNT, variant.patches)));
        }
        for patch in [SKIP_LEVELS, SKIP_CHILDREN, COUNT] {
            assert!(patch.text.starts_with("SPDX-License-Identifier: GPL-2.0-only\n"), "{}", patch.name);
        }
    }
}
