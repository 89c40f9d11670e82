//! An inspection as one HTML file: the address space drawn as strips of cells, and the same content as text.

mod map;
mod strip;
mod tables;

use policy::inspect::{Explained, Inspection, Region, explained};
use policy::size::{PageSize, format_bytes};

use super::parts::{page, section, typeset};
use crate::figure::share;
use crate::text::{command_line, date_time, escape, printable};
use strip::{CellBytes, Scale, strip};

/// Maximum number of regions that are drawn: those with the most memory.
const MAX_DRAWN: usize = 48;
/// If there are more regions than this, a region of only one cell is not drawn.
const FEW_REGIONS: usize = 6;

/// Context of an inspection.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Base page size.
    pub base: PageSize,
    /// Size of a PMD leaf, which is also the size of a window; `None` if the kernel has no THP.
    pub pmd: Option<PageSize>,
    /// Time of the inspection in seconds since 1970; `None` for a capture.
    pub unix_s: Option<i64>,
    /// The version of pagelab.
    pub version: String,
}

/// Renders the page. The inspection must contain windows ([`Region::windows`]).
pub fn report(inspection: &Inspection, setting: &Setting) -> String {
    let shown: Vec<&Region> = inspection.regions.iter().filter(|region| !region.census.is_empty()).collect();
    let (absent, present): (Vec<_>, Vec<_>) =
        explained(&inspection.regions).into_iter().partition(Explained::is_absent);
    let (winnable, fixed): (Vec<_>, Vec<_>) = present.into_iter().partition(Explained::is_removable);
    let sections = [
        section("What maps it", "sizes", &sizes(&shown)),
        section(
            "Why it is not larger",
            "causes",
            &tables::causes(&winnable, "Causes, the one that explains most first"),
        ),
        section("Map of the address space", "map", &map_of(&shown, setting)),
        section("Regions", "regions", &tables::regions(&shown)),
        section(
            "What no setting makes larger",
            "fixed",
            &tables::causes(&fixed, "Memory that takes a change of the program or its files"),
        ),
        section("What is not present", "absent", &tables::causes(&absent, "Memory that is not present, and cannot be")),
        section("What the kernel could give", "supply", &tables::supply(inspection, setting.base)),
        section("How this was seen", "sight", &tables::sight(inspection)),
    ];
    let about = &inspection.process;
    let title = format!("{} (process {})", printable(&about.name), about.pid);
    let footer = format!(
        "<footer><p>Made by pagelab {}. <code>pagelab inspect --json</code> exports every number.</p></footer>\n",
        escape(&setting.version)
    );
    page(&title, &header(inspection, setting), &sections.concat(), &footer)
}

fn header(inspection: &Inspection, setting: &Setting) -> String {
    let about = &inspection.process;
    let when = setting.unix_s.map_or("from a capture".to_string(), date_time);
    let command = if about.command.is_empty() {
        String::new()
    } else {
        format!(
            "<pre class=\"command\" aria-label=\"command line\"><code>{}</code></pre>\n",
            escape(&command_line(&about.command))
        )
    };
    format!(
        "<header>\n<p class=\"kicker\">pagelab · inspection of process {} · {}</p>\n<h1>{}</h1>\n{command}</header>\n",
        about.pid,
        escape(&when),
        escape(&typeset(&answer(inspection)))
    )
}

/// The result as a sentence, for the title.
fn answer(inspection: &Inspection) -> String {
    let name = printable(&inspection.process.name);
    let resident = inspection.resident_bytes();
    let larger = inspection.could_be_larger_bytes();
    if larger == 0 {
        return format!("{name} has {} resident, and none of it could be larger", format_bytes(resident));
    }
    let cause = explained(&inspection.regions).into_iter().find(|one| one.is_removable());
    let cause = cause.map(|one| format!("; first cause: {}", one.cause.describe())).unwrap_or_default();
    format!(
        "{name} has {} resident, of which {} ({}) could be larger{cause}",
        format_bytes(resident),
        format_bytes(larger),
        share(larger as f64 / resident.max(1) as f64)
    )
}

/// The sum over all regions, as a bar and as text.
fn sizes(shown: &[&Region]) -> String {
    let mut all = CellBytes::default();
    for window in shown.iter().flat_map(|region| &region.windows) {
        all.leaf_bytes += window.leaf_bytes;
        all.folio_bytes += window.folio_bytes;
        all.base_bytes += window.base_bytes;
        all.zero_bytes += window.zero_bytes;
    }
    if all.present_bytes() == 0 {
        return "<p>Positions inside mappings were not visible, so nothing can be drawn.</p>\n".into();
    }
    format!(
        "<figure class=\"map\">\n{}</figure>\n<p>{}.</p>\n",
        map::bar(&all, "all"),
        escape(&map::in_words(&all, all.present_bytes()))
    )
}

fn map_of(shown: &[&Region], setting: &Setting) -> String {
    let Some(window) = setting.pmd else {
        return "<p>This kernel has no transparent huge pages, and so no windows to draw.</p>\n".into();
    };
    // The regions with the most memory, in address order.
    let mut drawn: Vec<&Region> = shown.iter().copied().filter(|region| !region.windows.is_empty()).collect();
    if drawn.is_empty() {
        return String::new();
    }
    drawn.sort_by_key(|region| std::cmp::Reverse((region.windows.len() > 1, region.resident_bytes())));
    let of_cells = drawn.iter().filter(|region| region.windows.len() > 1).count();
    let left = drawn.split_off(drawn.len().min(MAX_DRAWN).min(of_cells.max(FEW_REGIONS)));
    drawn.sort_by_key(|region| region.start);
    let scale = Scale::of(&drawn, window);
    let strips: String = drawn.iter().enumerate().map(|(at, region)| strip_of(region, scale, at)).collect();
    format!("{}{}{strips}{}", legend(), explanation(window), left_out(&left))
}

fn explanation(window: PageSize) -> String {
    format!(
        "<p>Each region is a strip in rows of 64 cells. A cell is a window of {window}: what one leaf of that size can map. In a \
         large region a cell is several windows, and the heading says so. A cell with several kinds of memory is divided by \
         their bytes; what is absent stays empty. A hatched cell stands for a longer stretch without memory. A mark above a \
         cell is a cut between mappings. A number above a cell is a cause of the list above the strip: why this cell and those \
         after it are not larger.</p>\n"
    )
}

fn legend() -> String {
    let item = |(colour, pattern, what): (&str, Option<&str>, &str)| {
        let pattern = pattern.map(|pattern| format!("<rect class=\"pattern {pattern}\" width=\"16\" height=\"12\"/>"));
        format!(
            "<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\"><rect class=\"bar {colour}\" width=\"16\" height=\"12\"/>{}</svg>{}</li>\n",
            pattern.unwrap_or_default(),
            escape(what)
        )
    };
    let classes: String = map::CLASSES.into_iter().map(item).collect();
    let others = [("bar absent", "nothing present"), ("discarded", "a stretch without memory"), ("cut", "a cut")];
    let others = others.map(|(class, what)| {
        let width = if class == "cut" { 2 } else { 16 };
        format!(
            "<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"{width}\" height=\"12\"/></svg>{what}</li>\n"
        )
    });
    format!("<ul class=\"legend\">\n{classes}{}</ul>\n", others.concat())
}

/// One region: its description, its causes, the picture, and the content of the picture as text.
fn strip_of(region: &Region, scale: Scale, at: usize) -> String {
    let scale = scale.for_region(region);
    let parts = strip(region, scale);
    let item = |one: &Explained| {
        format!("<li>{}</li>\n", escape(&format!("{}: {}", format_bytes(one.bytes), one.cause.describe())))
    };
    let causes: String = region.causes.iter().map(item).collect();
    let causes = if causes.is_empty() { causes } else { format!("<ol class=\"note\">\n{causes}</ol>\n") };
    let cuts = match region.cut_count {
        0 => String::new(),
        cuts => format!(" · {cuts} cut{}", if cuts == 1 { "" } else { "s" }),
    };
    format!(
        "<figure class=\"map\">\n<figcaption>{} <code>{:x}-<wbr>{:x}</code> <small>{} of {}, a cell is {}{cuts}</small></figcaption>\n{causes}{}{}</figure>\n",
        escape(&region.kind.describe()),
        region.start,
        region.end,
        format_bytes(region.resident_bytes()),
        format_bytes(region.length_bytes()),
        format_bytes(scale.bytes()),
        map::picture(region, &parts, scale, &format!("map{at}")),
        tables::drawn(region, &parts)
    )
}

fn left_out(left: &[&Region]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let bytes: u64 = left.iter().map(|region| region.resident_bytes()).sum();
    format!(
        "<p>{} smaller regions with {} are not drawn; the table below has them.</p>\n",
        left.len(),
        format_bytes(bytes)
    )
}

#[cfg(test)]
mod tests;
