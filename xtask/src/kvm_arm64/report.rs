//! The page about measurements of KVM's eager split ([`page`]): instructions, savings, counts, and the cost of an
//! event.

use std::fmt::Write;

use super::VARIANTS;
use super::counts::Counts;
use super::measure::{Memory, Phase};
use super::published::Published;
use super::record::{Kernel, Record};
use crate::linux::Granule;

/// The names of each backing: in a run, on the page, and in the study.
const BACKINGS: [(&str, &str, &str); 3] =
    [("base", "pages", "pages"), ("thp", "THP", "thp"), ("hugetlb-1g", "1G", "1g")];

/// A row of the table of instructions: a sum of phases, minus another phase.
struct Row {
    name: &'static str,
    /// The phases whose instructions are added up.
    added: &'static [&'static str],
    /// The phase whose instructions are subtracted.
    subtracted: Option<&'static str>,
    /// The name of the row in the study, if it has one.
    studied: Option<&'static str>,
}

const ROWS: [Row; 6] = [
    Row { name: "enable", added: &["enable"], subtracted: None, studied: Some("enable") },
    Row { name: "enable, nothing split", added: &["protect"], subtracted: None, studied: None },
    Row { name: "the split in it alone", added: &["enable"], subtracted: Some("protect"), studied: Some("split") },
    Row { name: "clear, first", added: &["clear"], subtracted: None, studied: None },
    Row { name: "clear, second", added: &["clear again"], subtracted: None, studied: None },
    Row { name: "clear, both", added: &["clear", "clear again"], subtracted: None, studied: Some("clear") },
];

/// The number of bytes that one `DC ZVA` zeroes, which is the study's event `zeroed_line`.
const LINE_BYTES: f64 = 64.0;

/// The whole page.
pub fn page(records: &[Record], published: &Published) -> String {
    let mut text = "# Eager splitting on KVM's own code

`cargo xtask kvm-arm64` writes this page. It builds Linux for arm64 from Debian's source three times: as it is; with a walk that does \
                    not descend into levels that have nothing to split; and with a walk that also does not enter tables that it has just \
                    built. The changes are patches of this project (`xtask/kvm-arm64`). They follow an idea that was published for KVM, \
                    but not its code. Each kernel runs in QEMU's emulation of a processor with EL2. There its KVM runs `pagelab \
                    workload kvm-dirty-log`.

**Emulated: no time.** QEMU's clock advances by one nanosecond per instruction. So these are instructions of whole calls: KVM's walks, \
                    what is around them, and what interrupts them. They reflect no cache miss, no TLB miss, and no barrier that \
                    waits. Cache lines of tables that are read from memory, invalidations on other processors and locks cost time \
                    that these figures leave out. On hardware a walk may save more or less by that much.
"
    .to_owned();
    for record in records {
        text.push('\n');
        text.push_str(&section(record, published));
    }
    text
}

/// The section of one measurement.
pub fn section(record: &Record, published: &Published) -> String {
    let Record { granule, source, compiler, emulator, commit, date, .. } = record;
    let mut text = format!("## Base pages of {granule}\n\n");
    let Memory { bytes, gigabyte_bytes } = record.memory;
    let [bytes, gigabytes] = [size(bytes), size(gigabyte_bytes)];
    let of_1g = if *granule == Granule::K4 { format!(", {gigabytes} of pages of 1G") } else { String::new() };
    let _ = writeln!(
        text,
        "*What:* {bytes} of base pages, {bytes} of THP{of_1g}; split in chunks of {}. *Kernel:* {}, {compiler}, xtask/linux (common.config, arm64.config). *Where:* {emulator}, one processor, \
        `-icount shift=0,sleep=off`. *When:* {date}. *Commit of the program:* {commit}. *Command:* `cargo xtask kvm-arm64 --granule {granule} \
        --bytes {bytes} --gigabytes {}`.\n",
        size(record.chunk_bytes),
        source.replace('_', " "),
        gigabyte_bytes >> 30
    );
    text.push_str("Instructions, and the share saved against the kernel as it is:\n\n");
    text.push_str(&phases(record, published));
    text.push_str(
        "\nA cycle lasts from enabling the log until large leaves map the memory again. These are first cycles.",
    );
    if second_cycles_take_more(record) {
        text.push_str(
            " A second cycle with THP in the same guest takes more in `clear`, in every kernel: RCU then frees the tables that the first \
             cycle has removed, and interrupts what is measured.",
        );
    }
    text.push_str(
        "\n\nEnabling the log fills KVM's cache of free tables. With base pages nothing is taken from it.\n\n",
    );
    text.push_str("What the same kernels counted in `enable`, with counters added to them (`count.patch`):\n\n");
    text.push_str(&counts(record));
    let blocks = if *granule == Granule::K4 { "THP and 1G" } else { "THP" };
    let _ = writeln!(
        text,
        "\nInstructions divided by counts, from base pages with and without levels skipped, and from {blocks} with levels skipped:\n"
    );
    text.push_str(&events(record, published));
    text
}

/// Whether, with THP, the second cycle took at least a twentieth more in `clear` than the first cycle on every kernel.
fn second_cycles_take_more(record: &Record) -> bool {
    let is_clear = |phase: &&Phase| phase.backing == "thp" && phase.name == "clear";
    let takes_more =
        |kernel: &Kernel| match kernel.phases.iter().find(is_clear).map(|phase| phase.instructions.as_slice()) {
            Some([first, second, ..]) => *second as f64 > 1.05 * *first as f64,
            _ => false,
        };
    !record.kernels.is_empty() && record.kernels.iter().all(takes_more)
}

fn phases(record: &Record, published: &Published) -> String {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    let mut text = format!("| calls | memory | {} |", names[0]);
    names[1..].iter().for_each(|name| {
        let _ = write!(text, " {name} | saved |");
    });
    text.push_str(" published, skipping levels | with children |\n|---|---|---:|");
    text.push_str(&"---:|---:|".repeat(names.len() - 1));
    text.push_str("---|---|\n");
    for Row { name: row, added, subtracted, studied: phase } in ROWS {
        for (backing, shown, studied) in BACKINGS {
            let of = |kernel: &Kernel| {
                let sum: Option<f64> = added.iter().map(|name| kernel.instructions(backing, name)).sum();
                Some(sum? - subtracted.map_or(Some(0.0), |name| kernel.instructions(backing, name))?)
            };
            let values: Option<Vec<f64>> = record.kernels.iter().map(of).collect();
            let Some((first, others)) = values.as_deref().and_then(<[f64]>::split_first) else { continue };
            let _ = write!(text, "| {row} | {shown} | {} |", whole(*first));
            for value in others {
                let _ = write!(text, " {} | {:.1} % |", whole(*value), 100.0 * (1.0 - value / first));
            }
            let [levels, children] =
                ["skip-level3", "skip-children"].map(|variant| published.of(phase, studied, variant));
            let _ = writeln!(text, " {levels} | {children} |");
        }
    }
    text
}

fn counts(record: &Record) -> String {
    let mut text =
        "| memory | kernel | entries visited | entries built | tables built | blocks split, each with an invalidation |\n\
                    |---|---|---:|---:|---:|---:|\n"
            .to_owned();
    for (backing, shown, _) in BACKINGS {
        for kernel in &record.kernels {
            let Some(counts) = counted(kernel, backing) else { continue };
            let Counts { split_visits, built_entries, tables, blocks } = counts;
            let variant = &kernel.variant;
            let _ = writeln!(text, "| {shown} | {variant} | {split_visits} | {built_entries} | {tables} | {blocks} |");
        }
    }
    text
}

fn counted(kernel: &Kernel, backing: &str) -> Option<Counts> {
    kernel.counted.iter().find(|one| one.backing == backing).map(|one| one.counts)
}

/// The cost of each kind of event: instructions divided by the number of events.
fn events(record: &Record, published: &Published) -> String {
    let [Some(plain), Some(levels)] = [0, 1].map(|index| record.kernels.get(index)) else { return String::new() };
    let split = |kernel: &Kernel, backing: &str| {
        Some(kernel.instructions(backing, "enable")? - kernel.instructions(backing, "protect")?)
    };
    let count = |kernel: &Kernel, backing: &str, field: fn(Counts) -> u64| {
        counted(kernel, backing).map(|all| field(all) as f64)
    };
    let minus = |one: Option<f64>, other: Option<f64>| Some(one? - other?);
    let times = |one: Option<f64>, other: Option<f64>| Some(one? * other?);
    let over = |one: Option<f64>, other: Option<f64>| Some(one? / other.filter(|count| *count > 0.0)?);
    let visits = |kernel| count(kernel, "base", |all| all.split_visits);
    let built = |backing| count(levels, backing, |all| all.built_entries);
    let Record { granule, chunk_bytes, memory, .. } = record;
    let block_bytes = granule.block_bytes();
    let cached = chunk_bytes / block_bytes + if *granule == Granule::K4 { chunk_bytes >> 30 } else { 0 };

    let skipped = minus(visits(plain), visits(levels));
    let visit = over(minus(split(plain, "base"), split(levels, "base")), skipped);
    // With base pages and skipped levels, only this work is left: tables are put into the cache, and not used.
    let filling = minus(split(levels, "base"), times(visit, visits(levels)));
    let entry = |backing| over(minus(split(levels, backing), filling), built(backing));
    // The cost of splitting THP blocks, minus the cost of writing as many entries. The second is measured where a block of 1G
    // is replaced by a table that has all these entries.
    let of_entries = times(entry("hugetlb-1g"), built("thp"));
    let besides_entries = minus(minus(split(levels, "thp"), filling), of_entries);
    let pages = memory.bytes as f64 / granule.page_bytes() as f64;
    // If a single table was needed, its cost cannot be separated from other work that is done once and that has no cost
    // in the study.
    let (table, of_table) = match cached {
        1 => (
            "the one table that is allocated and zeroed for the cache, with all else that the split does once",
            String::new(),
        ),
        _ => (
            "a table that is allocated and zeroed for the cache",
            published.cost(&[("table", 1.0), ("zeroed_line", granule.page_bytes() as f64 / LINE_BYTES)]),
        ),
    };
    let rows = [
        ("an entry that the split visits", visit, published.cost(&[("split_visit", 1.0)])),
        (
            "an entry that loses its write permission",
            over(plain.instructions("base", "protect"), Some(pages)),
            published.cost(&[("protect_visit", 1.0), ("protect_change", 1.0)]),
        ),
        (table, over(filling, Some(cached as f64)), of_table),
        ("an entry that is built, of THP", entry("thp"), published.cost(&[("built_entry", 1.0)])),
        ("an entry that is built, of 1G", entry("hugetlb-1g"), published.cost(&[("built_entry", 1.0)])),
        (
            "a block of THP without its entries: visited, broken, invalidated (a small difference of large numbers)",
            over(besides_entries, count(levels, "thp", |all| all.blocks)),
            published.cost(&[("split_visit", 1.0), ("split_block", 1.0)]),
        ),
    ];
    let mut text = "| event | instructions | the study `stage2-split` takes |\n|---|---:|---|\n".to_owned();
    for (event, instructions, studied) in rows {
        if let Some(instructions) = instructions {
            let _ = writeln!(text, "| {event} | {instructions:.1} | {studied} |");
        }
    }
    text
}

/// A number with thousands separators.
fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","))
}

fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{}G", bytes >> 30) } else { format!("{}M", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::measure::Counted;
    use super::*;

    fn kernel(variant: &str, split: u64, visits: u64) -> Kernel {
        let phase = |name: &str, count: u64| Phase {
            backing: "base".into(),
            name: name.into(),
            instructions: vec![count, count],
        };
        let phases = vec![
            phase("protect", 2_000_000),
            phase("enable", 2_000_000 + split),
            phase("clear", 9),
            phase("clear again", 9),
        ];
        let counts = Counts { split_visits: visits, ..Counts::default() };
        let counted = vec![Counted { backing: "base".into(), counts }];
        Kernel { variant: variant.into(), phases, counted }
    }

    fn record() -> Record {
        Record {
            granule: Granule::K4,
            memory: Memory { bytes: 256 << 20, gigabyte_bytes: 1 << 30 },
            chunk_bytes: 1 << 30,
            source: "linux-source-6.12_1_all".into(),
            compiler: "gcc 1".into(),
            emulator: "QEMU 7".into(),
            commit: "abc".into(),
            date: "2026-01-02".into(),
            kernels: vec![kernel("as-it-is", 10_000_000, 200_100), kernel("skip-levels", 1_000_000, 100)],
        }
    }

    fn study() -> Published {
        let text = "[[counted.cost]]\nevent = \"split_visit\"\ninstructions = [49, 51.5]\n\
                    [[published]]\nwhat = \"Some machine\"\nchange = \"-35.5%\"\n\
                    counted = { phase = \"enable\", backing = \"pages\", variant = \"skip-level3\" }\n";
        toml::from_str(text).unwrap()
    }

    #[test]
    fn shows_measured_savings_next_to_published_ones() {
        let text = section(&record(), &study());
        assert!(
            text.contains("| enable | pages | 12,000,000 | 3,000,000 | 75.0 % | 35.5 % Some machine |  |"),
            "{text}"
        );
        assert!(text.contains("| the split in it alone | pages | 10,000,000 | 1,000,000 | 90.0 % |  |  |"), "{text}");
        assert!(text.contains("| pages | as-it-is | 200100 | 0 | 0 | 0 |"), "{text}");
        assert!(text.contains("| an entry that the split visits | 45.0 | 49 to 51.5 |"), "{text}");
        assert!(!text.contains("THP: "), "what was not measured has no row: {text}");
        assert!(page(&[record()], &study()).contains("**Emulated: no time.**"));
    }

    #[test]
    fn second_cycles_are_named_where_they_take_more_on_every_kernel() {
        let mut record = record();
        let says = |record: &Record| section(record, &study()).contains("A second cycle with THP");
        let clear = |instructions| Phase { backing: "thp".into(), name: "clear".into(), instructions };
        record.kernels[0].phases.push(clear(vec![100, 130]));
        assert!(!says(&record), "the other kernel has none");
        record.kernels[1].phases.push(clear(vec![100, 104]));
        assert!(!says(&record), "a second cycle there takes as much");
        record.kernels[1].phases.last_mut().unwrap().instructions = vec![100, 120];
        assert!(says(&record));
    }

    #[test]
    fn omits_what_a_granule_lacks() {
        let of_16k = Record { granule: Granule::K16, chunk_bytes: 32 << 20, ..record() };
        let text = section(&of_16k, &study());
        assert!(
            !text.contains("1G with levels skipped") && section(&record(), &study()).contains("1G with levels skipped")
        );
        let table = text.lines().find(|line| line.contains("the one table")).unwrap();
        assert!(table.ends_with("|  |"), "{table}");
    }

    #[test]
    fn the_study_of_this_project_has_figures_for_the_rows() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let published = Published::read(root).unwrap();
        for (_, _, studied) in BACKINGS {
            for phase in ROWS.iter().filter_map(|row| row.studied) {
                assert!(!published.of(Some(phase), studied, "skip-level3").is_empty(), "{phase} {studied}");
            }
        }
        for event in ["split_visit", "protect_visit", "protect_change", "built_entry", "split_block", "table"] {
            assert_ne!(published.cost(&[(event, 1.0)]), "a time", "{event}");
        }
        // The cost of a 4K table is 608.5, which is shown as a range of whole numbers.
        assert_eq!(published.cost(&[("table", 1.0), ("zeroed_line", 4096.0 / LINE_BYTES)]), "608 to 609");
    }

    #[test]
    fn numbers_are_written_in_groups() {
        assert_eq!([0.0, 999.6, 1234567.0, -1234.0].map(whole), ["0", "1,000", "1,234,567", "-1,234"]);
    }
}
