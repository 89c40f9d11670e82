//! Prints periodic inspections (*looks*) as rows, one below the other ([`Rows`]), with a sparkline of the share of
//! large pages in the last looks.

use std::time::Duration;

use policy::PageSizes;
use policy::cause::Cause;
use policy::census::Census;
use policy::inspect::{Summary, Totals};
use policy::size::format_bytes;

use crate::failure::Failure;
use crate::output::{Reader, print_update, terminal_width};
use crate::short::{count, fitted, seconds, share};
use crate::sizes::{Class, Sizes};

/// The number of looks that the sparkline shows.
const SPARKS: usize = 16;

/// What a row shows of one look.
pub struct Figures<'a> {
    census: &'a Census,
    resident_bytes: u64,
    could_be_larger_bytes: u64,
    first_cause: Option<&'a Cause>,
    is_partial: bool,
    /// The number of processes, if the look is at a set of processes.
    processes: Option<u64>,
}

impl<'a> Figures<'a> {
    pub fn of_process(summary: &'a Summary) -> Figures<'a> {
        Figures {
            census: &summary.census,
            resident_bytes: summary.resident_bytes,
            could_be_larger_bytes: summary.could_be_larger_bytes,
            first_cause: summary.first_cause.as_ref().map(|(cause, _)| cause),
            is_partial: !summary.partial.is_empty(),
            processes: None,
        }
    }

    /// The figures of a set of processes. `uninspected`: the number of further processes that could not be inspected.
    pub fn of_set(totals: &'a Totals, uninspected: u64) -> Figures<'a> {
        Figures {
            census: &totals.census,
            resident_bytes: totals.resident_bytes(),
            could_be_larger_bytes: totals.could_be_larger_bytes,
            first_cause: totals.first_cause().map(|(cause, _)| cause),
            is_partial: totals.partial + uninspected > 0,
            processes: Some(totals.processes),
        }
    }
}

/// The rows of a series of looks.
pub struct Rows {
    page_sizes: PageSizes,
    /// For each of the last looks, the share of PMD and larger leaves.
    large: Vec<f64>,
}

impl Rows {
    pub fn new(page_sizes: PageSizes) -> Rows {
        Rows { page_sizes, large: Vec::new() }
    }

    /// Prints a look; the first one below a title and a heading. Returns whether standard output has a reader.
    pub fn print(
        &mut self,
        title: impl Fn() -> String,
        figures: &Figures,
        elapsed: Duration,
    ) -> Result<Reader, Failure> {
        if self.large.is_empty() {
            print_update(&format!("{}\n{}", title(), self.heading(figures)), false)?;
        }
        let row = self.row(figures, elapsed.as_secs_f64());
        print_update(&fitted(&row, row.chars().count().min(terminal_width()), false), false)
    }

    fn heading(&self, figures: &Figures) -> String {
        let (base, pmd) = (self.page_sizes.base.to_string(), self.pmd());
        format!(
            "{:>8}{} {:>8} {base:>5}{} {pmd:>5} {:>6} {:>9}  {:<SPARKS$}  why not",
            "time",
            processes(figures, "processes"),
            "resident",
            self.contiguous("cont"),
            "folios",
            "could be",
            format!("{pmd} so far")
        )
    }

    /// A cell of the column for contiguous entries. Empty if there is no such column, because the kernel has no pools of
    /// these sizes.
    fn contiguous(&self, text: &str) -> String {
        let PageSizes { base, pmd, hugetlb, .. } = &self.page_sizes;
        let has_column = hugetlb.iter().any(|size| size > base && pmd.is_some_and(|pmd| *size < pmd));
        if has_column { format!(" {:>5}", text) } else { String::new() }
    }

    fn pmd(&self) -> String {
        self.page_sizes.pmd.map_or("large".to_string(), |pmd| pmd.to_string())
    }

    /// A row: the time, and the memory by leaf. Leaves of PMD size and larger share one column.
    fn row(&mut self, figures: &Figures, elapsed_s: f64) -> String {
        let sizes = Sizes::of(figures.census);
        let of = |class| sizes.share(class, &self.page_sizes);
        let large = of(Class::Pmd).unwrap_or(0.0) + of(Class::Larger).unwrap_or(0.0);
        let (base, contiguous) = (of(Class::Base), of(Class::Contiguous));
        self.large.push(large);
        let cell = |ratio: Option<f64>| ratio.map_or("-".to_string(), share);
        let unknown = if sizes.total_bytes() == 0 { "-" } else { "?" };
        let cause = figures.first_cause.map(Cause::describe).unwrap_or_default();
        let partial = if figures.is_partial { " (partial)" } else { "" };
        format!(
            "{:>8}{} {:>8} {:>5}{} {:>5} {:>6} {:>9}  {:<SPARKS$}  {}{partial}",
            time(elapsed_s),
            figures.processes.map(|count| processes(figures, &count.to_string())).unwrap_or_default(),
            format_bytes(figures.resident_bytes),
            cell(base),
            self.contiguous(&cell(contiguous)),
            share(large),
            sizes.folio_share().map_or(unknown.to_string(), share),
            format_bytes(figures.could_be_larger_bytes),
            sparkline(&self.large),
            results::printable(&cause)
        )
        .trim_end()
        .to_string()
    }
}

/// A cell of the column for the number of processes. Empty for a single process, which has no such column.
fn processes(figures: &Figures, text: &str) -> String {
    if figures.processes.is_some() { format!(" {text:>9}") } else { String::new() }
}

fn time(elapsed_s: f64) -> String {
    if elapsed_s < 1000.0 { seconds(elapsed_s) } else { format!("{} s", count(elapsed_s)) }
}

/// The last shares as block characters, from 0% to 100%.
fn sparkline(shares: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let last = &shares[shares.len().saturating_sub(SPARKS)..];
    let block = |share: &f64| BLOCKS[(share.clamp(0.0, 1.0) * (BLOCKS.len() - 1) as f64).round() as usize];
    last.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use policy::census::{Backing, Folio, Mapping};
    use policy::inspect::Process;
    use policy::size::PageSize;

    use super::*;

    fn summary(base_mib: u64, large_mib: u64, folio: Folio) -> Summary {
        let mut census = Census::default();
        let mut add =
            |leaf, folio, mib: u64| census.add(Mapping { backing: Backing::Anonymous, leaf, folio }, mib << 20);
        add(PageSize::K4, folio, base_mib);
        add(PageSize::M2, Folio::Whole(PageSize::M2), large_mib);
        Summary {
            process: Process::default(),
            census,
            resident_bytes: (base_mib + large_mib) << 20,
            could_be_larger_bytes: base_mib << 20,
            bloat_bytes: 0,
            first_cause: (base_mib > 0).then_some((Cause::NotAdvised, 1)),
            partial: Vec::new(),
        }
    }

    #[test]
    fn each_look_is_a_row_with_a_sparkline_of_the_last_looks() {
        let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![], hugetlb: vec![] };
        let mut rows = Rows::new(page_sizes);
        let whole = Folio::Whole(PageSize::K4);
        let text = [
            rows.heading(&Figures::of_process(&summary(1, 0, whole))),
            rows.row(&Figures::of_process(&summary(100, 0, whole)), 0.0),
            rows.row(&Figures::of_process(&summary(50, 50, whole)), 2.0),
            rows.row(&Figures::of_process(&summary(1, 99, Folio::Unknown)), 4.02),
            rows.row(&Figures::of_process(&summary(0, 100, whole)), 1234.0),
            rows.row(&Figures::of_process(&summary(0, 0, whole)), 1300.0),
        ];
        let golden = "
    time resident    4K    2M folios  could be  2M so far         why not
    0 ms     100M  100%    0%     0%      100M  ▁                 not advised, and the kernel gives the size to advised memory only
     2 s     100M   50%   50%     0%       50M  ▁▅                not advised, and the kernel gives the size to advised memory only
     4 s     100M    1%   99%      ?        1M  ▁▅█               not advised, and the kernel gives the size to advised memory only
 1.23k s     100M    0%  100%     0%         0  ▁▅██
 1.30k s        0     -    0%      -         0  ▁▅██▁";
        assert_eq!(format!("\n{}", text.join("\n")), golden, "{}", text.join("\n"));
        assert_eq!(sparkline(&[1.0; 40]).chars().count(), SPARKS);
    }
}
