//! Tables on an inspection's page: the content of its pictures, causes, regions, and how they were read.

use policy::inspect::{Explained, Inspection, Region};
use policy::size::{PageSize, format_bytes};

use super::map::{because, by_class, in_words};
use super::strip::{CellBytes, Part};
use crate::html::parts::{list, marked, remedy};
use crate::html::tables::wide;
use crate::inspection::words::{larger_folios, leaves};
use crate::text::escape;

/// Maximum number of regions in the table; the page says how many more there are.
const MAX_REGIONS: usize = 500;

fn head(names: &[(&str, bool)]) -> String {
    let head = |(name, number): &(&str, bool)| {
        let class = if *number { " class=\"n\"" } else { "" };
        format!("<th scope=\"col\"{class}>{}</th>", escape(name))
    };
    names.iter().map(head).collect()
}

fn number(bytes: u64) -> String {
    format!("<td class=\"n\">{}</td>", format_bytes(bytes))
}

/// A stretch of the map: adjacent parts with the same kinds of memory.
struct Stretch {
    start: u64,
    end: u64,
    cell_bytes: CellBytes,
    /// Which classes of memory the stretch contains, and whether it has holes.
    holds: ([bool; 4], bool),
}

fn stretches(parts: &[Part]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for part in parts {
        let (start, end, cell_bytes) = match part {
            Part::Cell { start, end, cell_bytes } => (*start, *end, *cell_bytes),
            Part::Empty { start, end } => (*start, *end, CellBytes::default()),
        };
        let holds = (by_class(&cell_bytes).map(|bytes| bytes > 0), cell_bytes.present_bytes() < end - start);
        match all.last_mut() {
            Some(last) if last.holds == holds && last.end == start && last.cell_bytes.why == cell_bytes.why => {
                last.end = end;
                last.cell_bytes.leaf_bytes += cell_bytes.leaf_bytes;
                last.cell_bytes.folio_bytes += cell_bytes.folio_bytes;
                last.cell_bytes.base_bytes += cell_bytes.base_bytes;
                last.cell_bytes.zero_bytes += cell_bytes.zero_bytes;
            }
            _ => all.push(Stretch { start, end, cell_bytes, holds }),
        }
    }
    all
}

/// The drawing of a region as text: every stretch, and every cut whose position is known.
pub fn drawn(region: &Region, parts: &[Part]) -> String {
    let row = |one: &Stretch| {
        let length = one.end - one.start;
        format!(
            "<tr><th scope=\"row\"><code>{:x}-{:x}</code></th>{}<td>{}</td></tr>\n",
            one.start,
            one.end,
            number(length),
            escape(&format!("{}{}", in_words(&one.cell_bytes, length), because(one.cell_bytes, region)))
        )
    };
    let rows: String = stretches(parts).iter().map(row).collect();
    let cuts = region.cuts.iter().map(|cut| {
        let place =
            if cut.end > cut.start { format!("{:x}-{:x}", cut.start, cut.end) } else { format!("{:x}", cut.start) };
        format!("<li><code>{place}</code>: {}</li>\n", escape(cut.by.describe()))
    });
    let cuts: String = cuts.collect();
    let more = region.cut_count.saturating_sub(region.cuts.len() as u64);
    let more = if more > 0 { format!("<li>{more} more</li>\n") } else { String::new() };
    let cuts = if cuts.is_empty() { String::new() } else { format!("<p>Cuts:</p>\n<ul>\n{cuts}{more}</ul>\n") };
    let caption = format!("Stretches of {:x}-{:x}", region.start, region.end);
    let table = wide(&caption, &head(&[("addresses", false), ("length", true), ("holds", false)]), &rows);
    format!("<details>\n<summary>The same as text</summary>\n{table}{cuts}</details>\n")
}

/// Escaped text with a possible line break after each slash, for long paths.
fn breakable(text: &str) -> String {
    escape(text).replace('/', "/<wbr>")
}

/// Causes with their evidence and remedies, as a table.
pub fn causes(causes: &[Explained], caption: &str) -> String {
    if causes.is_empty() {
        return String::new();
    }
    let row = |one: &Explained| {
        let or: String =
            one.or.iter().map(|cause| format!("<small>or: {}</small>", escape(&cause.describe()))).collect();
        let evidence: String = one.evidence.iter().map(|seen| format!("<li>{}</li>", breakable(seen))).collect();
        let evidence = if evidence.is_empty() { String::new() } else { format!("<ul>{evidence}</ul>") };
        let also: String =
            one.also.iter().map(|cause| format!("<small>and: {}</small>", escape(&cause.describe_also()))).collect();
        let remedies: Vec<String> = one.remedies.iter().map(|one| marked(&remedy(&one.describe()))).collect();
        format!(
            "<tr>{}<td>{}{also}{or}</td><td>{evidence}</td><td>{}</td></tr>\n",
            number(one.bytes),
            breakable(&one.cause.describe()),
            remedies.join("<br>or: ")
        )
    };
    let rows: String = causes.iter().map(row).collect();
    wide(caption, &head(&[("bytes", true), ("cause", false), ("seen", false), ("remedy (not tried)", false)]), &rows)
}

/// The regions. Those that could gain most come first, then those with the most memory.
pub fn regions(shown: &[&Region]) -> String {
    let mut sorted = shown.to_vec();
    sorted.sort_by_key(|region| std::cmp::Reverse((region.benefit.bytes, region.resident_bytes())));
    let rows: String = sorted.iter().take(MAX_REGIONS).map(|region| region_row(region)).collect();
    let rest: u64 = sorted.iter().skip(MAX_REGIONS).map(|region| region.resident_bytes()).sum();
    let more = match sorted.len().saturating_sub(MAX_REGIONS) {
        0 => String::new(),
        more => format!("<p>{more} smaller regions are left out; {} of them are present.</p>\n", format_bytes(rest)),
    };
    let titles = [
        ("region", false),
        ("addresses", false),
        ("size", true),
        ("resident", true),
        ("could be larger", true),
        ("would add", true),
        ("mappings", true),
        ("by leaf", false),
        ("larger folios", false),
    ];
    wide("Regions that have memory, those that could gain most first", &head(&titles), &rows) + &more
}

fn region_row(region: &Region) -> String {
    let how = match region.recognised_by.as_str() {
        "" => String::new(),
        how => format!("<small>{}</small>", escape(how)),
    };
    format!(
        "<tr><th scope=\"row\">{}{how}</th><td><code>{:x}-<wbr>{:x}</code></td>{}{}{}{}<td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>\n",
        escape(&region.kind.describe()),
        region.start,
        region.end,
        number(region.length_bytes()),
        number(region.resident_bytes()),
        number(region.benefit.bytes),
        number(region.benefit.absent_bytes),
        region.vmas,
        escape(&leaves(&region.census)),
        escape(&larger_folios(&region.census))
    )
}

/// The large pages that the kernel could provide.
pub fn supply(inspection: &Inspection, base: PageSize) -> String {
    let supply = &inspection.supply;
    let blocks = supply.free_blocks_by_order.iter().enumerate();
    let blocks = blocks.map(|(order, count)| {
        let block = base.bytes() << order;
        format!("{count} of {} ({})", format_bytes(block), format_bytes(count * block))
    });
    const COUNTERS: [&str; 6] = [
        "thp_fault_alloc",
        "thp_fault_fallback",
        "thp_scan_exceed_none_pte",
        "thp_scan_exceed_swap_pte",
        "thp_scan_exceed_share_pte",
        "compact_fail",
    ];
    let mut facts = vec![
        ("available memory", format_bytes(supply.available_bytes)),
        ("free blocks by size", blocks.collect::<Vec<_>>().join(", ")),
    ];
    for name in COUNTERS {
        facts.extend(supply.counters.get(name).map(|value| (name, format!("{value} since boot, whole system"))));
    }
    let settings: Vec<(&str, String)> = supply
        .settings
        .iter()
        .filter(|(path, _)| path.contains("transparent_hugepage"))
        .map(|(path, value)| (path.as_str(), value.clone()))
        .collect();
    list(&facts)
        + &format!("<details>\n<summary>Settings of transparent pages</summary>\n{}</details>\n", list(&settings))
}

/// How the inspection was read, and what it could not see.
pub fn sight(inspection: &Inspection) -> String {
    let partial = inspection.partial.iter().map(|why| format!("<li><strong>partial</strong>: {}</li>\n", escape(why)));
    let seen = inspection.sight.describe().into_iter().map(|line| format!("<li>{}</li>\n", escape(&line)));
    format!("<ul class=\"warnings\">\n{}</ul>\n", partial.chain(seen).collect::<String>())
}
