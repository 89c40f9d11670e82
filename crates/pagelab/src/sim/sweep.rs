//! Misses of every LRU geometry: `pagelab sim --geometry`, and the curves of `pagelab sim`.

use std::collections::HashSet;
use std::path::Path;

use model::geometry::sweep;
use results::grid::plain;
use results::simulation::{Geometry, Per, Sweep, rate_in_words};
use serde_json::{Value, json};
use study::size::format_bytes;
use trace::{Block, Header, Reader};

use super::{about, bar, header, notes, opened};
use crate::failure::Failure;

/// log2 of the page sizes: 4K, 16K, 64K, 2M and 32M.
const PAGE_SHIFTS: [u32; 5] = [12, 14, 16, 21, 25];
/// The ways that tables for the terminal show; JSON and HTML have all.
const SHOWN_WAYS: [u32; 6] = [1, 2, 4, 8, 12, 15];

/// A trace, swept.
pub struct Swept {
    /// For showing.
    pub sweep: Sweep,
    /// Accesses.
    pub accesses: u64,
    /// Runs.
    pub runs: u64,
    /// Instructions, if the trace counts them.
    pub instructions: Option<u64>,
    /// Parts of the file that could not be used.
    pub damage: Vec<String>,
    /// The trace was cut off.
    pub cut_off: bool,
    /// Processes that were forked, whose traces are not looked at.
    pub forks: u64,
    /// What the trace says of itself.
    header: Header,
}

impl Swept {
    /// What must be known to read the figures.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = notes::parts(&self.header).into_iter().collect();
        notes.extend(notes::filtered(&self.header));
        notes.extend(notes::incomplete(self.cut_off, &[], &self.damage));
        notes.extend(self.limits());
        notes
    }

    /// What the figures of geometries and curves do not say.
    pub fn limits(&self) -> Vec<String> {
        let shared = (!self.header.columns.addresses).then(|| notes::shared("geometries and curves are of TLBs that"));
        shared.into_iter().chain(self.alone()).collect()
    }

    /// Says that the first process is not all that was recorded.
    fn alone(&self) -> Option<String> {
        let forked = match self.forks {
            0 => return None,
            1 => "1 process that was forked has a trace of its own".to_owned(),
            forks => format!("{forks} processes that were forked have traces of their own"),
        };
        Some(format!(
            "geometries, curves and footprints are of the first process alone: the {forked}, FILE.PID, which can be given"
        ))
    }
}

/// Sweeps a trace.
pub fn swept(file: &Path, threads: usize) -> Result<Swept, Failure> {
    let bar = bar(file, "every geometry");
    let swept = sweep(opened(file, &bar)?, &PAGE_SHIFTS, threads);
    bar.finish_and_clear();
    let swept = swept.map_err(|error| about(file, error))?;
    let geometry = |of: &model::geometry::GeometryMisses| Geometry {
        page_bytes: of.page_bytes,
        sets: of.sets,
        ways: of.ways,
        misses: of.misses,
    };
    let mut geometries: Vec<Geometry> = swept.geometries.iter().map(geometry).collect();
    geometries.sort_unstable();
    let per = Per::of(swept.instructions, swept.runs);
    Ok(Swept {
        sweep: Sweep { per, geometries, footprints: footprints(file)? },
        accesses: swept.accesses,
        runs: swept.runs,
        instructions: swept.instructions,
        damage: swept.damage,
        cut_off: swept.cut_off,
        forks: swept.forks,
        header: header(file)?,
    })
}

/// Bytes of all pages that are ever touched, by page size: 4K to 1G.
fn footprints(file: &Path) -> Result<Vec<(u64, u64)>, Failure> {
    let mut reader =
        Reader::new(opened(file, &indicatif::ProgressBar::hidden())?).map_err(|error| about(file, error))?;
    let mut pages: HashSet<u64> = HashSet::new();
    while let Some(block) = reader.next_block().map_err(|error| about(file, error))? {
        if let Block::Runs { chunk, .. } = block {
            pages.extend(&chunk.pages);
        }
    }
    let bytes = |shift: u32| {
        let whole: HashSet<u64> = pages.iter().map(|page| page >> (shift - trace::PAGE_SHIFT)).collect();
        (1 << shift, (whole.len() as u64) << shift)
    };
    Ok(trace::SHIFTS.map(bytes).to_vec())
}

/// A trace of `pagelab.sim-geometry/1`.
pub fn document(file: &str, swept: &Swept) -> Value {
    let geometry =
        |of: &Geometry| json!({ "page_bytes": of.page_bytes, "sets": of.sets, "ways": of.ways, "misses": of.misses });
    json!({
        "file": file,
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

fn footprint_documents(sweep: &Sweep) -> Vec<Value> {
    let document = |(page_bytes, bytes): &(u64, u64)| json!({ "page_bytes": page_bytes, "touched_bytes": bytes });
    sweep.footprints.iter().map(document).collect()
}

/// The curves of a trace of `pagelab.sim/1`.
pub fn curves_document(sweep: &Sweep) -> Value {
    let curve = |size: &u64| {
        let point = |(entries, misses): &(u64, u64)| json!({ "entries": entries, "misses": misses });
        let points: Vec<Value> = sweep.curve(*size).iter().map(point).collect();
        json!({ "page_bytes": size, "points": points })
    };
    json!({
        "misses": sweep.page_sizes().iter().map(curve).collect::<Vec<_>>(),
        "footprints": footprint_documents(sweep),
    })
}

/// The curves as a table for the terminal: a row for each number of entries, a column for each page size.
pub fn curves_text(sweep: &Sweep, width: usize) -> String {
    let curves: Vec<Vec<(u64, u64)>> = PAGE_SHIFTS.iter().map(|shift| sweep.curve(1 << shift)).collect();
    let entries: Vec<u64> = curves.first().into_iter().flatten().map(|(entries, _)| *entries).collect();
    let rows = entries.iter().map(|entries| {
        let mut cells = curves.iter().map(|curve| {
            let found = curve.iter().find(|(other, _)| other == entries);
            found.map_or(String::new(), |(_, misses)| rate_in_words(sweep.per.rate(*misses)))
        });
        let mut next = || cells.next().unwrap_or_default();
        [entries.to_string(), next(), next(), next(), next(), next()]
    });
    let misses = plain(["entries", "4K", "16K", "64K", "2M", "32M"], rows, width);
    let sizes = sweep.footprints.iter().map(|(size, bytes)| [format_bytes(*size), format_bytes(*bytes)]);
    format!(
        "LRU TLBs of one level, up to 8 entries fully associative and then of 8 ways, if all pages had one size: misses per \
         1000 {}; modelled\n{misses}\n\nall pages that are ever touched\n{}",
        sweep.per.unit(),
        plain(["pages of", "take"], sizes, width)
    )
}

/// A table and a heat map for each page size: rows are numbers of sets, columns numbers of ways.
pub fn text(file: &str, swept: &Swept, width: usize) -> String {
    let sweep = &swept.sweep;
    let unit = sweep.per.unit();
    let mut lines = vec![format!(
        "{file}: {} accesses in {} runs; misses per 1000 {unit} of LRU TLBs; the denser the more, by the logarithm; modelled",
        swept.accesses, swept.runs
    )];
    lines.extend(swept.notes().iter().map(|note| results::fold(note, width, 2)));
    for shift in PAGE_SHIFTS.into_iter().filter(|shift| sweep.of_size(1 << shift).next().is_some()) {
        let mut sets: Vec<u32> = sweep.of_size(1 << shift).map(|geometry| geometry.sets).collect();
        sets.dedup();
        let rows = sets.iter().map(|sets| {
            let cell = |ways: u32| {
                let found = sweep.of_size(1 << shift).find(|of| (of.sets, of.ways) == (*sets, ways));
                found.map_or(String::new(), |found| rate_in_words(sweep.per.rate(found.misses)))
            };
            let [one, two, four, eight, twelve, fifteen] = SHOWN_WAYS.map(cell);
            [sets.to_string(), one, two, four, eight, twelve, fifteen]
        });
        let header = ["sets", "1 way", "2 ways", "4 ways", "8 ways", "12 ways", "15 ways"];
        let (size, shading) = (format_bytes(1 << shift), sweep.shading(1 << shift));
        lines.push(format!("\npages of {size}\n{}\n\n{}", plain(header, rows, width), shading.trim_end()));
    }
    lines.join("\n")
}
