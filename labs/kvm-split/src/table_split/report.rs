//! Formats the results of `table split` as text and JSON.

use crate::split::{Backing, Counters, Mode, Variant};
use paging::Format;
use results::grid::plain;
use serde_json::{Value, json};
use study::stats::paired_ratio;

use super::experiment::{Measured, VariantTimes};
use super::variant_name;
use verbs::lab::{count, size};

const CONFIDENCE: f64 = 0.95;
/// Whether the measured code was built with optimisation.
const OPTIMISED: bool = !cfg!(debug_assertions);
/// A warning for builds without optimisation, whose times mean little.
pub const NOT_OPTIMISED: Option<&str> = if OPTIMISED {
    None
} else {
    Some("this pagelab was built without optimisation: its times mean little (cargo build --release)")
};

/// The saving of a variant relative to vanilla, as a ratio.
struct Saving {
    ratio: f64,
    interval: Option<(f64, f64)>,
}

fn saved(times: &[f64], vanilla: &[f64]) -> Option<Saving> {
    let found = paired_ratio(times, vanilla, CONFIDENCE)?;
    Some(Saving { ratio: 1.0 - found.ratio, interval: found.interval.map(|(low, high)| (1.0 - high, 1.0 - low)) })
}

/// The median; NaN if there are no times.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}

/// A breakdown of vanilla's time, in seconds.
struct Parts {
    reading_s: f64,
    building_s: f64,
    /// The rest of the time: calls of the visitor. `None` if the noise is larger than the rest.
    calling_s: Option<f64>,
}

impl Measured {
    fn vanilla(&self) -> &VariantTimes {
        &self.arms[0]
    }

    /// Breaks vanilla's time down. The time for building tables is that of the variant that reads the fewest entries.
    fn parts(&self) -> Option<Parts> {
        let least = self.arms.iter().skip(1).min_by_key(|arm| arm.counters.entries_read)?;
        let (all_s, reading_s) = (median(&self.vanilla().split_s), median(&self.reading_s));
        let building_s = median(&least.split_s);
        Some(Parts {
            reading_s,
            building_s,
            calling_s: Some(all_s - reading_s - building_s).filter(|rest_s| *rest_s > 0.0),
        })
    }
}

/// All results as text.
pub fn text(bytes: u64, rounds: u32, measured: &[Measured], width: usize) -> String {
    let first = format!(
        "stage 2 split of {}. Counts: entries read, calls of the visitor, entries built, tables, TLB invalidations, \
         cache lines; they are exact. Times are measured on this machine: medians of {}; saved \
         against vanilla, with its 95 % interval. They are those of pagelab's own tables. KVM also allocates and zeroes each table, \
         and waits for barriers and TLB invalidations, so a smaller share of its time is saved where it builds: \
         `pagelab study run stage2-split` weighs these counts with KVM's costs.",
        size(bytes.into()),
        count(rounds.into(), "interleaved round")
    );
    let mut parts = vec![results::fold(&first, width, 0)];
    parts.extend(NOT_OPTIMISED.map(str::to_string));
    parts.extend(measured.iter().map(|measured| case_text(measured, width)));
    if measured.iter().any(|measured| measured.arms.len() > 1) {
        let summary = "saved against vanilla, % of split and write-protecting walk together, as in published figures";
        parts.push(format!("{}\n{}", results::fold(summary, width, 0), summary_table(measured, width)));
    }
    parts.join("\n\n")
}

fn case_text(measured: &Measured, width: usize) -> String {
    let vanilla = measured.vanilla();
    let rows = measured.arms.iter().map(|arm| {
        let Counters { entries_read, callbacks, entries_built, tables, tlb_invalidations, cache_lines, .. } =
            arm.counters;
        let counts = [entries_read, callbacks, entries_built, tables, tlb_invalidations, cache_lines];
        let [read, calls, built, tables, tlbi, lines] = counts.map(|count| count.to_string());
        let saved = match arm.variant {
            Variant::Vanilla => "-".to_string(),
            _ => saved(&arm.split_s, &vanilla.split_s).map_or_else(|| "?".to_string(), |saved| saved.text()),
        };
        [
            variant_name(arm.variant).to_string(),
            read,
            calls,
            built,
            tables,
            tlbi,
            lines,
            ms(median(&arm.split_s)),
            saved,
        ]
    });
    let header = ["variant", "read", "calls", "built", "tables", "TLBIs", "lines", "ms", "saved %"];
    let mut lines = vec![measured.case.title(), plain(header, rows, width)];
    lines.extend(gain(measured).map(|gain| results::fold(&gain, width, 2)));
    lines.join("\n")
}

/// Text on the parts of vanilla's time: a variant can save at most the parts that it avoids.
fn gain(measured: &Measured) -> Option<String> {
    let Parts { reading_s, building_s, calling_s } = measured.parts()?;
    let all_s = median(&measured.vanilla().split_s);
    let share = |part_s: f64| format!("{} ms ({:.0} %)", ms(part_s), 100.0 * part_s / all_s);
    let protect = ms(median(&measured.vanilla().protect_s));
    let stays = match measured.vanilla().counters.entries_built {
        0 => "what is left without them",
        _ => "building, which no variant saves,",
    };
    Some(format!(
        "vanilla: reading entries {}, calling the visitor {}, {stays} {}; the write-protecting walk before it {protect} ms",
        share(reading_s),
        calling_s.map_or_else(|| "less than the noise".to_string(), share),
        share(building_s),
    ))
}

impl Saving {
    fn text(&self) -> String {
        let percent = |ratio: f64| format!("{:.1}", 100.0 * ratio);
        match self.interval {
            Some((low, high)) => format!("{} ({:.0} to {:.0})", percent(self.ratio), 100.0 * low, 100.0 * high),
            None => percent(self.ratio),
        }
    }
}

fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

fn backing_name(backing: Backing) -> &'static str {
    match backing {
        Backing::Pages => "pages",
        Backing::Blocks => "block",
        Backing::Gigabyte => "1g",
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enable => "enable",
        Mode::Clear => "clear",
    }
}

fn summary_table(measured: &[Measured], width: usize) -> String {
    let rows = measured.iter().flat_map(|measured| {
        let vanilla = measured.vanilla().both_s();
        measured.arms.iter().skip(1).map(move |arm| {
            [
                size(measured.case.format.geometry().page_bytes().into()),
                backing_name(measured.case.backing).to_string(),
                mode_name(measured.case.mode).to_string(),
                variant_name(arm.variant).to_string(),
                format!("{} to {}", measured.vanilla().counters.visits(), arm.counters.visits()),
                saved(&arm.both_s(), &vanilla).map_or_else(|| "?".to_string(), |saved| saved.text()),
            ]
        })
    });
    plain(["granule", "backing", "split at", "variant", "visits, built ones too", "saved %"], rows, width)
}

/// All results as a document.
pub fn document(bytes: u64, rounds: u32, measured: &[Measured]) -> Value {
    json!({
        "schema": "pagelab.table-split/1",
        "slot_bytes": bytes,
        "rounds": rounds,
        "optimised": OPTIMISED,
        "confidence_ratio": CONFIDENCE,
        "provenance": { "counters": "modelled", "times": "measured" },
        "cases": measured.iter().map(case_document).collect::<Vec<_>>(),
    })
}

/// The results of a case as a document.
pub fn case_document(measured: &Measured) -> Value {
    let case = &measured.case;
    let vanilla = measured.vanilla();
    let variants = measured.arms.iter().map(|arm| {
        let against = |times: &[f64], vanilla: &[f64]| {
            let saved = saved(times, vanilla).filter(|_| arm.variant != Variant::Vanilla)?;
            let (low, high) = saved.interval.unzip();
            Some(json!({ "saved_ratio": saved.ratio, "low_ratio": low, "high_ratio": high }))
        };
        json!({
            "variant": variant_name(arm.variant),
            "counters": counters_document(&arm.counters),
            "split_s": arm.split_s,
            "write_protect_s": arm.protect_s,
            "median_split_s": median(&arm.split_s),
            "split": against(&arm.split_s, &vanilla.split_s),
            "split_and_write_protect": against(&arm.both_s(), &vanilla.both_s()),
        })
    });
    let parts = measured.parts().map(
        |parts| json!({ "reading_s": parts.reading_s, "calling_s": parts.calling_s, "building_s": parts.building_s }),
    );
    json!({
        "granule_bytes": case.format.geometry().page_bytes(),
        "ipa_bits": case.format.geometry().input_bits(),
        "backing": backing_name(case.backing),
        "leaf_bytes": case.leaf_bytes(),
        "mode": mode_name(case.mode),
        "chunk_bytes": case.chunk_bytes,
        "variants": variants.collect::<Vec<_>>(),
        "reading_s": measured.reading_s,
        "vanilla_parts": parts,
    })
}

fn counters_document(counters: &Counters) -> Value {
    json!({
        "entries_read": counters.entries_read,
        "callbacks": counters.callbacks,
        "entries_built": counters.entries_built,
        "tables": counters.tables,
        "tlb_invalidations": counters.tlb_invalidations,
        "cache_lines": counters.cache_lines,
        "walks": counters.walks,
        "top_ups": counters.top_ups,
    })
}
