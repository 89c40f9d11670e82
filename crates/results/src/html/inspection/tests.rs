use std::collections::BTreeMap;

use policy::cause::Cause;
use policy::census::{Backing, Census, Folio, Mapping};
use policy::inspect::{Benefit, Cut, CutBy, Explained, Kind, Process, Supply, Visibility, Window};
use policy::remedy::{Change, Remedy};

use super::strip::{Part, strip};
use super::*;
use crate::html::tests::{browse, browser, elements};

const WINDOW: u64 = 2 << 20;

/// A region whose windows are filled by `filled`.
fn region(start: u64, windows: u64, filled: impl Fn(u64) -> Option<Window>) -> Region {
    let windows_in: Vec<Window> = (0..windows)
        .filter_map(|at| filled(at).map(|window| Window { start: start + at * WINDOW, ..window }))
        .collect();
    let mut census = Census::default();
    let sum = |of: fn(&Window) -> u64| windows_in.iter().map(of).sum::<u64>();
    let mapping = |leaf, folio| Mapping { backing: Backing::Anonymous, leaf, folio: Folio::Whole(folio) };
    census.add(mapping(PageSize::M2, PageSize::M2), sum(|window| window.leaf_bytes));
    census.add(mapping(PageSize::K4, PageSize::K64), sum(|window| window.folio_bytes));
    census.add(mapping(PageSize::K4, PageSize::K4), sum(|window| window.base_bytes));
    Region {
        start,
        end: start + windows * WINDOW,
        kind: Kind::Anonymous,
        recognised_by: String::new(),
        accessible_bytes: windows * WINDOW,
        vmas: 1,
        shared: false,
        census,
        swap_bytes: Some(0),
        shared_after_fork_bytes: None,
        target: Some(PageSize::M2),
        aligned: true,
        tlb_runs: None,
        benefit: Benefit::default(),
        causes: Vec::new(),
        cuts: Vec::new(),
        cut_count: 0,
        windows: windows_in,
    }
}

fn leaf() -> Option<Window> {
    Some(Window { leaf_bytes: WINDOW, ..Window::default() })
}

fn base(bytes: u64) -> Option<Window> {
    Some(Window { base_bytes: bytes, ..Window::default() })
}

/// A process of 100 GiB with all kinds of memory, and with malicious names.
fn sample() -> Inspection {
    let mut large = region(0x7000_0000_0000, 51_200, |at| match at % 640 {
        0..400 => leaf(),
        400..460 => Some(Window { folio_bytes: WINDOW, ..Window::default() }),
        460..480 => base(WINDOW / 2),
        480..560 => base(WINDOW).map(|window| Window { cause_index: Some(0), ..window }),
        560..570 => Some(Window { zero_bytes: WINDOW, ..Window::default() }),
        _ if at > 30_000 && at < 40_000 => None,
        _ => leaf(),
    });
    large.kind = Kind::JvmHeap;
    large.recognised_by = "a mapping of libjvm.so, and reserved as one".into();
    large.benefit = Benefit { bytes: 4 << 30, slots: 2048, absent_bytes: 1 << 28 };
    large.causes = vec![Explained {
        cause: Cause::NotAdvised,
        also: Vec::new(),
        or: vec![Cause::TouchedBeforeEligible],
        bytes: 4 << 30,
        evidence: vec!["/sys/kernel/mm/transparent_hugepage/enabled is madvise".into()],
        remedies: vec![Remedy { changes: vec![Change::Collapse], only: None }],
    }];
    let mut jit = region(0x5000_0000_0000, 40, |at| if at % 8 == 7 { base(WINDOW - 4096) } else { leaf() });
    jit.kind = Kind::Named { name: "<b>jit & \"co\"\u{1b}[31m".into() };
    jit.cuts = (0..5)
        .map(|at| {
            let start = jit.start + at * 8 * WINDOW + WINDOW - 4096;
            Cut { start, end: start + 4096, by: CutBy::Guard }
        })
        .collect();
    jit.cut_count = 5;
    jit.vmas = 11;
    let small = (0..100).map(|at| region(0x4000_0000_0000 + at * 64 * WINDOW, 1, |_| base(128 << 10)));
    let mut regions: Vec<Region> = small.collect();
    regions.extend([jit, large]);
    Inspection {
        runtimes: Vec::new(),
        process: Process {
            pid: 4242,
            name: "ja<v>a".into(),
            command: vec!["java".into(), "-jar".into(), "a b.jar".into()],
            ..Process::default()
        },
        regions,
        supply: Supply {
            free_blocks_by_order: vec![11516, 5262, 2010, 1172, 327, 126, 2805, 1956, 1295, 716, 874],
            available_bytes: 21 << 30,
            settings: BTreeMap::from([("/sys/kernel/mm/transparent_hugepage/enabled".into(), "madvise".into())]),
            counters: BTreeMap::from([("thp_fault_fallback".into(), 7)]),
            ..Supply::default()
        },
        refused_requests: None,
        sight: Visibility { by_page: true, folios: true, flags: true, is_live: true },
        partial: vec!["its mappings changed while it was looked at".into()],
    }
}

fn setting() -> Setting {
    let (base, pmd) = (PageSize::K4, Some(PageSize::M2));
    Setting { base, pmd, unix_s: Some(1_774_101_900), version: "0.1.0".into() }
}

#[test]
fn a_small_screen_has_the_causes_before_the_memory_and_a_long_command_last() {
    let mut seen = sample();
    seen.process.command = vec!["java".into(), "-Dproperty=value ".repeat(200)];
    let at = |text: &str, part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in\n{text}"));
    let text = crate::inspection::answer_first(&seen, 120);
    let order = ["could be larger", "why not larger", "kind ", "what the kernel could give", "command: java"];
    assert!(order.map(|part| at(&text, part)).is_sorted(), "{text}");
    let text = crate::inspection::process(&seen, false, 120);
    assert!(at(&text, "command: java") < at(&text, "kind "), "inspect names the command first");
}

#[test]
fn empty_stretches_collapse_and_short_ones_stay() {
    let scale = Scale { window: PageSize::M2, windows: 1 };
    let one = region(WINDOW * 4, 20, |at| matches!(at, 0 | 2 | 9).then(|| leaf().unwrap()));
    let parts = strip(&one, scale);
    let lengths = |part: &Part| match part {
        Part::Cell { start, end, cell_bytes } => ((end - start) / WINDOW, cell_bytes.leaf_bytes > 0),
        Part::Empty { start, end } => ((end - start) / WINDOW, false),
    };
    let expected = [(1, true), (1, false), (1, true), (6, false), (1, true), (10, false)];
    assert_eq!(parts.iter().map(lengths).collect::<Vec<_>>(), expected);
    assert!(matches!(parts[3], Part::Empty { .. }) && matches!(parts[1], Part::Cell { .. }));
}

#[test]
fn cells_hold_what_their_windows_hold_and_end_where_the_region_ends() {
    // Neither end of the region is aligned to a cell.
    let one = region(WINDOW * 3, 10, |at| if at < 5 { leaf() } else { base(4096) });
    let parts = strip(&one, Scale { window: PageSize::M2, windows: 4 });
    let cells: Vec<(u64, u64, u64, u64)> = parts
        .iter()
        .map(|part| match part {
            Part::Cell { start, end, cell_bytes } => {
                (start / WINDOW, end / WINDOW, cell_bytes.leaf_bytes / WINDOW, cell_bytes.base_bytes / 4096)
            }
            Part::Empty { .. } => panic!("nothing is empty"),
        })
        .collect();
    assert_eq!(cells, [(3, 4, 1, 0), (4, 8, 4, 0), (8, 12, 0, 4), (12, 13, 0, 1)]);
}

#[test]
fn a_map_of_terabytes_has_no_more_cells_than_a_page_can_show() {
    for windows in [1, 4096, 51_200, 1 << 21] {
        let one = region(0, windows, |_| leaf());
        let scale = Scale::of(&[&one], PageSize::M2);
        let cells = strip(&one, scale).len();
        assert!(cells <= 4096 && (cells > 2048 || scale.windows == 1), "{cells} of {scale:?}");
        assert!(windows > 256 || scale.for_region(&one).windows == 1);
    }
}

#[test]
fn the_page_is_well_formed_self_contained_and_small() {
    let html = report(&sample(), &setting());
    let all = elements(&html);
    assert!(html.len() < 3_000_000, "{} bytes", html.len());
    assert!(!all.iter().any(|name| ["script", "img", "link", "iframe"].contains(&name.as_str())), "{all:?}");
    assert!(!html.contains("ja<v>a") && !html.contains("<b>jit") && !html.contains('\u{1b}'));
    assert!(html.contains("4G") && html.contains("not advised"), "the answer is at the top");
    let empty = Inspection { regions: Vec::new(), ..sample() };
    elements(&report(&empty, &setting()));
    // Before Linux 6.7 the kernel gives only sums for a region, without positions.
    let mut by_sums = sample();
    by_sums.regions.iter_mut().for_each(|region| region.windows.clear());
    assert!(report(&by_sums, &setting()).contains("nothing can be drawn"));
}

/// Everything that is drawn is also available as text: the bytes of every stretch, and every cut.
#[test]
fn all_that_is_drawn_can_be_read() {
    let html = report(&sample(), &setting());
    for svg in html.split("<svg ").skip(1) {
        let (tag, rest) = svg.split_once('>').unwrap();
        let named = rest.starts_with("<title id=") && rest.contains("<desc id=") && tag.contains("role=\"img\"");
        assert!(named || tag.contains("aria-hidden=\"true\""), "{tag}");
    }
    assert_eq!(html.matches("<th>").count(), 0, "every heading of a table has a scope");
    assert_eq!(html.matches("<table>").count(), html.matches("<caption>").count());
    let ids: Vec<&str> = html.split(" id=\"").skip(1).map(|part| part.split_once('"').unwrap().0).collect();
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    let drawn: Vec<&str> = html.split("<figure class=\"map\">").skip(2).collect();
    assert_eq!(drawn.len(), FEW_REGIONS, "regions of one cell are only in the table");
    assert!(drawn.iter().all(|figure| figure.contains("The same as text")));
    let jit = drawn.iter().find(|figure| figure.contains("jit")).unwrap();
    assert_eq!(jit.matches("class=\"cut\"").count(), 5);
    let large = drawn.iter().find(|figure| figure.contains("JVM heap")).unwrap();
    assert!(large.contains("class=\"why\"") && large.matches("; not larger: not advised").count() > 2);
    assert_eq!(jit.matches("guard page</li>").count(), 5);
    assert_eq!(jit.matches("4K absent").count(), 3 * 5, "on hover of the cell and of what is in it, and in the table");
}

/// A real browser lays out the page at the widths of a telephone, a laptop and a large screen, light and dark.
#[test]
fn a_browser_shows_the_map() {
    let Some(browser) = browser() else {
        testing::skip("chromium");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("inspection.html");
    std::fs::write(&page, report(&sample(), &setting())).unwrap();
    let parsed = browse(browser, directory.path(), &["--dump-dom"], &page).expect("the browser ends");
    assert_eq!(parsed.matches("</figure>").count(), FEW_REGIONS + 1);
    for (width, dark) in [(400, false), (1200, true), (2400, false)] {
        let picture = directory.path().join(format!("{width}.png"));
        let size = format!("--window-size={width},2400");
        let shot = format!("--screenshot={}", picture.display());
        let mut arguments = vec![size.as_str(), shot.as_str()];
        arguments.extend(dark.then_some("--blink-settings=preferredColorScheme=0"));
        browse(browser, directory.path(), &arguments, &page).expect("the browser ends");
        let png = std::fs::read(&picture).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 40_000, "{} bytes of a picture", png.len());
    }
}

/// Writes the sample's page to a file for viewing: `PAGELAB_SAMPLE_REPORT=FILE cargo test -- --ignored`.
#[test]
#[ignore = "writes a file to look at"]
fn write_the_sample() {
    let path = std::env::var_os("PAGELAB_SAMPLE_REPORT").expect("PAGELAB_SAMPLE_REPORT names a file");
    std::fs::write(path, report(&sample(), &setting())).unwrap();
}
