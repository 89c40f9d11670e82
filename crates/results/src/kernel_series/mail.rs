//! The series as a mail: plain ASCII in 72 columns, with what a reviewer needs to repeat it.

use study::guest::Clock;
use study::kernel_series::{Change, Kernel, Pair, compared};

use super::Report;
use super::screen::{missing_lines, name_of, one_sided};
use super::words::{percent, unchanged, value};
use crate::capabilities::diff;
use crate::matrix::mail::layout::{Columns, WIDTH, command, fact, folded, item, paragraph};
use crate::text::ascii;

/// Columns for the name of a figure.
const NAME: usize = 24;

/// Renders the mail.
pub fn mail(report: &Report<'_>) -> String {
    let series = report.series;
    let pairs = compared(&series.kernels, &series.workloads);
    let mut text = paragraph(&summary(report, &pairs));
    for kernel in &series.kernels {
        text.push_str(&fact("Kernel", &facts(kernel)));
    }
    for sentence in report.configurations.iter().flatten() {
        text.push_str(&fact("Config", sentence));
    }
    text.push_str(&fact("Emulator", &format!("{}, one processor, counting instructions", series.emulator)));
    text.push_str(&fact("Command", ""));
    text = text + &command(&series.pagelab) + "\n";
    for pair in &pairs {
        text.push_str(&of_pair(pair));
    }
    let missing: String = missing_lines(&series.kernels).iter().map(|line| item(line)).collect();
    if !missing.is_empty() {
        text = text + &format!("No figures:\n{missing}\n");
    }
    text.push_str("Workloads:\n");
    for workload in &series.workloads {
        text = text + &item(&workload.name) + &command(&workload.command);
    }
    text.push('\n');
    if let Some(limits) = Clock::Instructions.limits() {
        text.push_str(&paragraph(limits));
    }
    text + paragraph(&format!("Made by pagelab {}.", report.version)).trim_end() + "\n"
}

fn summary(report: &Report<'_>, pairs: &[Pair<'_>]) -> String {
    let changes: usize = pairs.iter().map(|pair| pair.changes.len()).sum();
    let boots = report.series.kernels.iter().map(|kernel| kernel.boots.len()).max().unwrap_or(0);
    let of_boots = if boots == 1 { "1 boot".to_owned() } else { format!("{boots} boots") };
    let count = if changes == 1 { "1 figure".to_owned() } else { format!("{changes} figures") };
    let than = match boots {
        1 => format!("{count} differ; how far boots of one image differ is not known (--boots 2)"),
        _ => format!("{count} changed by more than boots of one image do"),
    };
    format!(
        "{} kernels, each compared with the one before it, in {of_boots} each: {than}.",
        report.series.kernels.len()
    )
}

fn facts(kernel: &Kernel) -> String {
    let words = if kernel.cmdline.is_empty() { String::new() } else { format!(", booted with {}", kernel.cmdline) };
    let memory = policy::size::format_bytes(kernel.memory_bytes);
    format!("{}, {}, {memory}{words}; {}, sha256 {}", name_of(kernel), kernel.architecture, kernel.image, kernel.hash)
}

fn of_pair(pair: &Pair<'_>) -> String {
    let mut text = folded(&format!("{} against {}:", name_of(pair.new), name_of(pair.old)), 4) + "\n";
    let figures = [("old", 14), ("new", 14), ("change", 10), ("bound", 10)];
    let table = Columns { name: NAME, figures: figures.map(|(head, width)| (head.to_owned(), width)).into() };
    if !pair.changes.is_empty() {
        text.push_str(&table.heads());
    }
    let mut workload = "";
    for change in &pair.changes {
        if workload != change.workload {
            workload = &change.workload;
            text.push_str(&format!("{workload}\n"));
        }
        text.push_str(&table.row(&format!("  {}", change.figure), &cells(change)));
    }
    text = text + &folded(&capitalised(&unchanged(pair)), 0) + ".\n";
    one_sided(pair).iter().for_each(|line| text.push_str(&item(line)));
    if let (Some(old), Some(new)) = (&pair.old.capabilities, &pair.new.capabilities) {
        text = text + "\nCapabilities that changed:\n" + &ascii(&diff::text(old, new, WIDTH)) + "\n";
    }
    text + "\n"
}

fn cells(change: &Change) -> Vec<String> {
    let [old, new] = [change.old, change.new].map(|one| value(&change.figure, one.median));
    vec![old, new, percent(change.ratio()), value(&change.figure, change.bound())]
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_mail_has_what_a_reviewer_needs_in_72_columns_of_ascii() {
        let series = sample::series();
        let configurations = vec![Some("6.12 against 6.1: HZ 250 -> 1000; other options that differ: 3.".to_owned())];
        let text = mail(&Report { series: &series, configurations, version: "1.2" });
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= WIDTH), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Kernel 6.1 (6.1.0-amd64), x86-64, 1G, booted with transparent_hugepage=never",
            "Config 6.12 against 6.1: HZ 250 -> 1000",
            "pagelab series --kernel 6.1=/boot/vmlinuz-6.1 -- sort 'a b'",
            "6.12 (6.12.0-amd64) against 6.1 (6.1.0-amd64):",
            "faults 12,005 13,000 +8.29 % 10",
            "no figure is a time",
            "swap-in: 6.1: this kernel has no zram",
        ] {
            assert!(words.contains(part), "{part} in {text}");
        }
    }
}
