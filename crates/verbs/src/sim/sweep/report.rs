//! Formats sweeps as tables and heat maps for the terminal, and as JSON.

use std::path::Path;

use model::tlb_geometry::MAX_WAYS;
use policy::size::format_bytes;
use results::grid::{of_columns, plain};
use results::simulation::{SmallestTlb, Sweep, TlbGeometry, rate_in_words};
use serde_json::{Value, json};

use super::super::swept::{Swept, footprint_documents};
use super::chosen::{Range, describe_range};
use crate::table::describe::grouped;

/// If there are more numbers of ways than this, a table shows only some of them. JSON and HTML have all.
const MAX_COLUMNS: usize = 6;
/// The numbers of ways that a table then shows, in addition to the fewest and the most.
const SHOWN_WAYS: [u32; MAX_COLUMNS] = [1, 2, 4, 8, 12, 15];
/// Like [`SHOWN_WAYS`], but for more than 16 ways.
const SHOWN_OF_MANY: [u32; MAX_COLUMNS] = [1, 4, 8, 16, 32, 64];

/// The document of a trace in `pagelab.sim-sweep/1`.
pub fn document(file: &Path, swept: &Swept) -> Value {
    let geometry = |of: &TlbGeometry| json!({ "page_bytes": of.page_bytes, "sets": of.sets, "ways": of.ways, "misses": of.misses });
    json!({
        "file": file.display().to_string(),
        "provenance": "modelled",
        "accesses": swept.accesses,
        "runs": swept.runs,
        "instructions": swept.instructions,
        "cut_off": swept.cut_off,
        "damage": swept.damage,
        "complete": !swept.cut_off && swept.damage.is_empty(),
        "notes": swept.notes(),
        "geometries": swept.sweep.geometries.iter().map(geometry).collect::<Vec<_>>(),
        "footprints": footprint_documents(&swept.sweep),
    })
}

/// The text of all traces for the terminal.
pub fn texts(all: &[(&Path, Swept)], width: usize) -> String {
    all.iter().map(|(file, swept)| text(file, swept, width)).collect::<Vec<_>>().join("\n\n")
}

/// The text of one trace: which TLB each page size needs, and for each page size a table and a heat map with one row per number of sets
/// and one column per number of ways.
fn text(file: &Path, swept: &Swept, width: usize) -> String {
    let sweep = &swept.sweep;
    let unit = sweep.per.unit();
    let mut lines = vec![format!("{}: {} accesses in {} runs\n", file.display(), swept.accesses, swept.runs)];
    lines.push(results::fold(
        &format!(
            "entries that a single-level LRU TLB needs for few misses per 1000 {unit}: sets times ways of the smallest one {}; modelled",
            searched(sweep)
        ),
        width,
        0,
    ));
    lines.push(needed(sweep, width));
    lines.extend(swept.notes().iter().map(|note| results::fold(note, width, 2)));
    lines.push(String::new());
    let of_tables = format!("misses per 1000 {unit}; denser cells have more, on a logarithmic scale");
    lines.push(results::fold(&of_tables, width, 0));
    lines.extend(sweep.page_sizes().into_iter().map(|page_bytes| of_size(sweep, page_bytes, width)));
    lines.join("\n")
}

/// `with 1 to 2048 sets, in powers of two, and 1 to 15 ways`: the geometries of which [`needed`] shows the smallest.
fn searched(sweep: &Sweep) -> String {
    let range = |of: fn(&TlbGeometry) -> u32| {
        let all = || sweep.geometries.iter().map(of);
        Range { least: all().min().unwrap_or_default(), most: all().max().unwrap_or_default() }
    };
    let (sets, ways) = (range(|geometry| geometry.sets), range(|geometry| geometry.ways));
    let steps = if sets.least == sets.most { "" } else { ", in powers of two," };
    format!("with {}{steps} and {}", describe_range(sets, "set"), describe_range(ways, "way"))
}

/// The rates of misses for which [`needed`] has columns.
const MAX_RATES: [f64; 3] = [10.0, 1.0, 0.1];

/// One row per page size: all touched pages, and the smallest TLBs.
fn needed(sweep: &Sweep, width: usize) -> String {
    let smallest = |page_bytes: u64, max_rate: f64| match sweep.smallest(page_bytes, max_rate) {
        SmallestTlb::Entries(entries) => grouped(entries),
        SmallestTlb::AtMost(entries) if entries > 1 => format!("<= {}", grouped(entries)),
        SmallestTlb::AtMost(entries) => grouped(entries),
        SmallestTlb::MoreThan(entries) => format!("> {}", grouped(entries)),
        SmallestTlb::FirstTouches => "first touches".to_owned(),
    };
    let sizes = sweep.page_sizes();
    let rows = sizes.iter().map(|size| {
        let touched = sweep.footprints.iter().find(|(known, _)| known == size).map(|(_, bytes)| bytes / size);
        let [many, some, few] = MAX_RATES.map(|max_rate| smallest(*size, max_rate));
        [format_bytes(*size), touched.map_or(String::new(), grouped), many, some, few]
    });
    let table = plain(["pages of", "touched", "at most 10", "at most 1", "at most 0.1"], rows, width);
    let has = |is: fn(&SmallestTlb) -> bool| {
        sizes.iter().any(|size| MAX_RATES.iter().any(|rate| is(&sweep.smallest(*size, *rate))))
    };
    let can_grow = sweep.geometries.iter().all(|geometry| geometry.ways < MAX_WAYS);
    let first_touches = has(|smallest| *smallest == SmallestTlb::FirstTouches)
        .then_some("first touches: the first access to each page is a miss, and these are more");
    let beyond = (can_grow && has(|smallest| matches!(smallest, SmallestTlb::MoreThan(_))))
        .then(|| format!("larger TLBs: --ways 1..{MAX_WAYS}"));
    let remarks = first_touches.map(str::to_owned).into_iter().chain(beyond);
    std::iter::once(table).chain(remarks).collect::<Vec<_>>().join("\n")
}

fn of_size(sweep: &Sweep, page_bytes: u64, width: usize) -> String {
    let (mut sets, mut ways): (Vec<u32>, Vec<u32>) =
        sweep.of_size(page_bytes).map(|geometry| (geometry.sets, geometry.ways)).unzip();
    for axis in [&mut sets, &mut ways] {
        axis.sort_unstable();
        axis.dedup();
    }
    let shown = shown(&ways);
    let heading = |ways: &u32| format!("{ways} {}", if *ways == 1 { "way" } else { "ways" });
    let header: Vec<String> = std::iter::once("sets".to_owned()).chain(shown.iter().map(heading)).collect();
    let rows = sets.iter().map(|sets| {
        let cell = |ways: &u32| {
            let found = sweep.of_size(page_bytes).find(|of| (of.sets, of.ways) == (*sets, *ways));
            found.map_or(String::new(), |found| rate_in_words(sweep.per.rate(found.misses)))
        };
        std::iter::once(sets.to_string()).chain(shown.iter().map(cell)).collect()
    });
    let table = of_columns(&header, rows, width);
    let hidden = ways.len() - shown.len();
    let hidden = if hidden == 0 { String::new() } else { format!(" ({hidden} more numbers of ways: --json)") };
    let shading = sweep.shading(page_bytes);
    format!("\npages of {}{hidden}\n{table}\n\n{}", format_bytes(page_bytes), shading.trim_end())
}

/// The numbers of ways that a table shows: all, or else the fewest, the most, and common ones.
fn shown(ways: &[u32]) -> Vec<u32> {
    if ways.len() <= MAX_COLUMNS {
        return ways.to_vec();
    }
    let ends = [ways.first(), ways.last()];
    let usual = if ways.last() > Some(&16) { SHOWN_OF_MANY } else { SHOWN_WAYS };
    ways.iter().filter(|ways| usual.contains(ways) || ends.contains(&Some(ways))).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_table_has_few_ways_and_both_ends() {
        let all: Vec<u32> = (1..=15).collect();
        assert_eq!(shown(&all), [1, 2, 4, 8, 12, 15]);
        assert_eq!(shown(&all[2..8]), [3, 4, 5, 6, 7, 8]);
        assert_eq!(shown(&all[2..9]), [3, 4, 8, 9]);
        assert_eq!(shown(&all[7..8]), [8]);
        let many: Vec<u32> = (1..=128).collect();
        assert_eq!(shown(&many), [1, 4, 8, 16, 32, 64, 128]);
        assert_eq!(shown(&many[19..48]), [20, 32, 48]);
    }
}
