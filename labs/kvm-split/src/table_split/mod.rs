//! `pagelab table split`: the cost of KVM's eager page splitting of stage 2, and the savings of its variants.

pub mod experiment;
pub mod report;

use std::io::IsTerminal;

use crate::split::{Backing, Mode, Slot, Variant, chunk_sizes};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::named::Named;
use paging::{Format, InputAddress};

use experiment::{Case, Measured, measure};
use verbs::lab::Failure;
use verbs::lab::parse_number;
use verbs::lab::size;
use verbs::lab::{FormatName, parse_format};
use verbs::lab::{print, terminal_width};

/// Arguments of `pagelab table split`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Split {
    /// Translation granules, with 40 bits of IPA, which is KVM's default
    #[arg(long, value_name = "GRANULE", value_enum, value_delimiter = ',', default_value = "4k,16k,64k")]
    granule: Vec<GranuleName>,
    /// One stage 2 format instead of granules, for other sizes of IPA: arm64-s2-4k-48
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_format, conflicts_with = "granule")]
    format: Option<FormatName>,
    /// Bytes of the memory slot
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_number)]
    bytes: u64,
    /// What the host backs the slot with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "pages,block,1g")]
    backing: Vec<BackingName>,
    /// Variants of the walk; vanilla is always measured too
    #[arg(long, value_enum, value_delimiter = ',', default_value = "vanilla,skip-level3,skip-children")]
    variant: Vec<VariantName>,
    /// When the slot is split
    #[arg(long, value_enum, value_delimiter = ',', default_value = "enable,clear")]
    mode: Vec<ModeName>,
    /// The most bytes that one walk splits: a block size of the granule; default: the largest
    #[arg(long, value_name = "SIZE", value_parser = parse_number)]
    chunk: Option<u64>,
    /// How often each variant is measured, after one more round that is discarded
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
The algorithm is that of arch/arm64/kvm in Linux 6.12. It works on real entries in pagelab's own tables. \
The counts are exact. The times are those of one thread on this machine, without KVM's locks, guests and TLBs. \
So compare the variants with each other, and not the milliseconds with those of a kernel.";

/// A granule by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GranuleName {
    /// 4K pages, 2M and 1G blocks
    #[value(name = "4k")]
    K4,
    /// 16K pages, 32M blocks
    #[value(name = "16k")]
    K16,
    /// 64K pages, 512M blocks
    #[value(name = "64k")]
    K64,
}

/// What backs a slot, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackingName {
    /// Base pages: nothing is left to split
    Pages,
    /// PMD-size pages, THP or hugetlb: 2M, 32M or 512M
    #[value(alias = "thp", alias = "blocks")]
    Block,
    /// 1G hugetlb pages; with the granules 16k and 64k KVM has no larger block than PMD size
    #[value(name = "1g", alias = "hugetlb")]
    Gigabyte,
}

/// A variant by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VariantName {
    /// Linux 6.12: every entry is visited, new ones too
    Vanilla,
    /// The RFC of May 2026: the visitor's return value skips the rest of a table
    SkipReturn,
    /// The series of June 2026: entries of pages are never read
    SkipLevel3,
    /// The same, and tables that were just built down to pages are not entered
    SkipChildren,
}

/// When a slot is split, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// When dirty logging is switched on, all of it
    Enable,
    /// When the dirty log is cleared, 64 pages at a time
    Clear,
}

/// Maximum size of a slot: its tables take 4G with 4K pages.
const MAX_BYTES: u64 = 2 << 40;

/// Runs `pagelab table split`.
pub fn run(arguments: &Split) -> Result<(), Failure> {
    if arguments.bytes > MAX_BYTES {
        let (requested, most) = (size(arguments.bytes.into()), size(MAX_BYTES.into()));
        return Err(Failure::Input(format!("--bytes {requested}: expected at most {most}, whose tables take 4G")));
    }
    let cases = cases(arguments)?;
    let variants = variants(arguments);
    let bar = progress(cases.len());
    let mut measured: Vec<Measured> = Vec::new();
    for case in cases {
        bar.set_message(case.title());
        measured
            .push(measure(case, &variants, arguments.rounds).map_err(|error| Failure::Input(case.explain(&error)))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let text = if arguments.json {
        format!("{:#}", report::document(arguments.bytes, arguments.rounds, &measured))
    } else {
        report::text(arguments.bytes, arguments.rounds, &measured, terminal_width())
    };
    print(&text, arguments.json)
}

fn progress(cases: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(cases as u64) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{elapsed:>5} {pos}/{len} {bar:24} {wide_msg}");
    bar.set_style(style.expect("the template is well formed"));
    bar
}

fn formats(arguments: &Split) -> Result<Vec<Arm64Stage2>, Failure> {
    let granule = |name: &GranuleName| match name {
        GranuleName::K4 => Granule::K4,
        GranuleName::K16 => Granule::K16,
        GranuleName::K64 => Granule::K64,
    };
    match &arguments.format {
        None => Ok(arguments.granule.iter().map(|name| Arm64Stage2::new(granule(name), 40)).collect()),
        Some(FormatName { named: Named::Arm64Stage2(format), .. }) => Ok(vec![*format]),
        Some(FormatName { name, .. }) => Err(Failure::Input(format!(
            "--format {name}: expected a stage 2 format of arm64, such as arm64-s2-4k-48; KVM splits no others eagerly"
        ))),
    }
}

fn cases(arguments: &Split) -> Result<Vec<Case>, Failure> {
    let mut cases: Vec<Case> = Vec::new();
    for format in formats(arguments)? {
        let chunk_bytes = chunk(arguments, format)?;
        for backing in arguments.backing.iter().map(backing) {
            for mode in arguments.mode.iter().map(mode) {
                let slot = Slot { ipa: SLOT_IPA, bytes: arguments.bytes };
                let case = Case { format, slot, backing, mode, chunk_bytes };
                // If KVM has no blocks of 1G, this backing gives the same case as another one.
                if !cases.iter().any(|other| other.is_same(&case)) {
                    cases.push(case);
                }
            }
        }
    }
    Ok(cases)
}

/// The guest-physical start of memory on QEMU's machine `virt`.
const SLOT_IPA: InputAddress = InputAddress(1 << 30);

fn chunk(arguments: &Split, format: Arm64Stage2) -> Result<u64, Failure> {
    let sizes = chunk_sizes(format.granule());
    match arguments.chunk {
        None => Ok(sizes.last().copied().unwrap_or_default()),
        Some(bytes) if sizes.contains(&bytes) => Ok(bytes),
        Some(bytes) => {
            let offered: Vec<String> = sizes.iter().map(|bytes| size((*bytes).into())).collect();
            let (bytes, page) = (size(bytes.into()), size(format.geometry().page_bytes().into()));
            let offered = offered.join(", ");
            Err(Failure::Input(format!("--chunk {bytes}: with the granule {page} KVM offers {offered}")))
        }
    }
}

fn variants(arguments: &Split) -> Vec<Variant> {
    let mut variants = vec![Variant::Vanilla];
    for name in &arguments.variant {
        let variant = match name {
            VariantName::Vanilla => Variant::Vanilla,
            VariantName::SkipReturn => Variant::SkipByReturn,
            VariantName::SkipLevel3 => Variant::SkipPages,
            VariantName::SkipChildren => Variant::SkipPagesAndChildren,
        };
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    variants
}

fn backing(name: &BackingName) -> Backing {
    match name {
        BackingName::Pages => Backing::Pages,
        BackingName::Block => Backing::Blocks,
        BackingName::Gigabyte => Backing::Gigabyte,
    }
}

fn mode(name: &ModeName) -> Mode {
    match name {
        ModeName::Enable => Mode::Enable,
        ModeName::Clear => Mode::Clear,
    }
}

/// The name of a variant on the command line.
pub fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Vanilla => "vanilla",
        Variant::SkipByReturn => "skip-return",
        Variant::SkipPages => "skip-level3",
        Variant::SkipPagesAndChildren => "skip-children",
    }
}
