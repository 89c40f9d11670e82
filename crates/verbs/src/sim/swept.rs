//! Misses of every LRU geometry of a trace, for `pagelab sim sweep` and the curves of `pagelab sim`.

use std::io::Read;
use std::path::Path;

use model::tlb_geometry::sweep;
use policy::size::format_bytes;
use results::fold;
use results::grid::plain;
use results::simulation::{Per, Sweep, TlbGeometry, rate_in_words};
use serde_json::{Value, json};
use trace::Header;

use super::trace_notes;
use crate::failure::Failure;

/// log2 of the default page sizes in bytes: 4K, 16K, 64K, 2M and 32M.
pub const PAGE_SHIFTS: [u32; 5] = [12, 14, 16, 21, 25];

/// The sweep of a trace.
pub struct Swept {
    /// The misses of each geometry, for reports.
    pub sweep: Sweep,
    /// The number of accesses in the trace.
    pub accesses: u64,
    /// The number of runs in the trace.
    pub runs: u64,
    /// The number of instructions, if the trace counts them.
    pub instructions: Option<u64>,
    /// Parts of the file that could not be used.
    pub damage: Vec<String>,
    /// Whether the trace was cut off.
    pub cut_off: bool,
    /// The number of processes that were forked, whose traces are not read.
    pub forks: u64,
    /// The program that the process executed at the end, whose trace is not read.
    pub executed: Option<String>,
    /// The header of the trace.
    pub header: Header,
}

impl Swept {
    /// All notes on the limits of the figures.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = trace_notes::parts(&self.header).into_iter().collect();
        notes.extend(trace_notes::filtered(&self.header));
        notes.extend(trace_notes::incomplete(self.cut_off, &[], &self.damage));
        notes.extend(self.limits());
        notes
    }

    /// Notes on what the figures for geometries and the curves leave out.
    pub fn limits(&self) -> Vec<String> {
        let shared =
            (!self.header.columns.addresses).then(|| trace_notes::shared("geometries and curves are of TLBs that"));
        shared.into_iter().chain(self.missing_parts()).collect()
    }

    /// Notes on parts of the recording that are not in the file.
    fn missing_parts(&self) -> Vec<String> {
        let forked = match self.forks {
            0 => None,
            1 => Some("1 forked process has its own trace, FILE.PID".to_owned()),
            forks => Some(format!("{forks} forked processes have their own traces, FILE.PID")),
        };
        let forked = forked.map(|forked| {
            format!(
                "geometries, curves and footprints are only of the first process: {forked}. Name that file to sweep it"
            )
        });
        let executed = self.executed.as_ref().map(|program| {
            format!(
                "geometries, curves and footprints end where the process executed {}. If that program was recorded, its trace \
                 is FILE.PID.execN",
                results::printable(program)
            )
        });
        forked.into_iter().chain(executed).collect()
    }
}

/// Sweeps the content of a trace file for pages of `1 << shift` bytes each and up to `ways` ways.
pub fn sweep_file(
    file: &Path,
    from: impl Read,
    page_shifts: &[u32],
    ways: u32,
    threads: usize,
) -> Result<Swept, Failure> {
    let swept = sweep(from, page_shifts, ways, threads).map_err(|error| Failure::about(file, error))?;
    let geometry = |of: &model::tlb_geometry::GeometryMisses| TlbGeometry {
        page_bytes: of.page_bytes,
        sets: of.sets,
        ways: of.ways,
        misses: of.misses,
    };
    let mut geometries: Vec<TlbGeometry> = swept.geometries.iter().map(geometry).collect();
    geometries.sort_unstable();
    let per = Per::of(swept.instructions, swept.runs);
    Ok(Swept {
        sweep: Sweep { per, geometries, footprints: swept.footprints },
        accesses: swept.accesses,
        runs: swept.runs,
        instructions: swept.instructions,
        damage: swept.damage,
        cut_off: swept.cut_off,
        forks: swept.forks,
        executed: swept.executed,
        header: swept.header,
    })
}

/// The touched bytes by page size, as JSON.
pub fn footprint_documents(sweep: &Sweep) -> Vec<Value> {
    let document = |(page_bytes, bytes): &(u64, u64)| json!({ "page_bytes": page_bytes, "touched_bytes": bytes });
    sweep.footprints.iter().map(document).collect()
}

/// The curves of a trace in `pagelab.sim/1`.
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

/// The curves as a table for the terminal: one row per number of entries, one column per page size.
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
    let caption = format!(
        "LRU TLBs of one level, up to 8 entries fully associative and then of 8 ways, if all pages had one size: misses per 1000 {}; \
         modelled. `pagelab sim sweep` has other numbers of ways, and the entries that few misses need",
        sweep.per.unit()
    );
    format!(
        "{}\n{misses}\n\nall touched pages\n{}",
        fold(&caption, width, 0),
        plain(["pages of", "take"], sizes, width)
    )
}
