//! The page of an invented simulation: what it must contain, and what it must not contain.

use super::*;
use crate::simulation::{
    Cell, Cost, FigureSpread, KernelCycles, Machine, MachineAnswer, MachineFigure, Mapped, Missing, Per, Provenance,
    Spread, Sweep, TlbGeometry,
};
use policy::cause::{Cause, CauseShare};
use policy::verdict::{Holding, Verdict};

fn cost(page_bytes: u64, misses: u64) -> Cost {
    Cost {
        page_bytes,
        verdict: Verdict {
            holding: Holding::Partly,
            concerned_bytes: 100 << 20,
            covered_bytes: 40 << 20,
            peak: None,
            causes: vec![CauseShare { cause: Cause::MappingTooSmall, bytes: Some(60 << 20) }],
            answered: Vec::new(),
        },
        per: Per::of(Some(1_000_000), 77),
        first_level_misses: misses,
        second_level_misses: misses / 2,
        walks: misses / 2,
        walk_references: misses,
        min_lost_cycles: misses * 10,
        max_lost_cycles: misses * 20,
        kernel: Some(KernelCycles { fault: 12_000, zeroing: misses, copying: 0 }),
        faults: 12,
        resident_peak_bytes: 100 << 20,
        touched_peak_bytes: 90 << 20,
        held_unmapped_peak_bytes: 3 << 20,
        table_peak_bytes: 256 << 10,
        mapped: vec![
            Mapped { leaf_bytes: 4096, group_bytes: 4096, bytes: 60 << 20 },
            Mapped { leaf_bytes: 4096, group_bytes: page_bytes, bytes: 40 << 20 },
        ],
        figures: vec![("walks".to_string(), misses / 2), ("zeroed_bytes".to_string(), 1 << 20)],
    }
}

fn document() -> Document {
    let cell = |machine: &str, policy: &str, outcome| Cell { machine: machine.into(), policy: policy.into(), outcome };
    let cells = vec![
        cell("cortex-a57", "base", Ok(cost(4096, 50_000))),
        cell("cortex-a57", "mthp-64k", Ok(cost(65536, 4_000))),
        cell("zen-3", "base", Ok(cost(4096, 0))),
        cell("zen-3", "thp", Err(Missing::Stopped("no <memory>".to_string()))),
        cell("zen-3", "contig-64k", Err(Missing::Refused("it has <none>".to_string()))),
    ];
    let geometries = [4096, 65536].into_iter().flat_map(|page_bytes| {
        [1, 2, 4].into_iter().flat_map(move |sets| {
            (1..=8).map(move |ways| TlbGeometry {
                page_bytes,
                sets,
                ways,
                misses: 4_096_000 / page_bytes / u64::from(sets * ways),
            })
        })
    });
    Document {
        title: "What <page sizes> cost".to_string(),
        invocation: vec!["pagelab".into(), "sim".into(), "a b.trace".into()],
        version: "0.1.0".to_string(),
        settings: vec![("seed".to_string(), "3".to_string())],
        traces: vec![Trace {
            file: "a b.trace".to_string(),
            command: vec!["sort".into(), "\u{1b}[2J".into()],
            facts: vec![("accesses".to_string(), "12".to_string())],
            notes: vec!["the trace was cut off".to_string()],
            answers: vec![MachineAnswer {
                machine: "cortex-a57".into(),
                sentence: "cortex-a57: mthp-64k is the <best>.".into(),
                bounds: vec![["base".into(), "≤ 12 %".into(), String::new()]],
            }],
            cells,
            spreads: vec![Spread {
                machine: "cortex-a57".to_string(),
                policy: "thp <2M>".to_string(),
                layouts: 20,
                figures: vec![FigureSpread { name: "faults".into(), fixed: 733, least: 986, median: 1050, most: 1130 }],
            }],
            sweep: Some(Sweep {
                per: Per::Instructions(1_000_000),
                geometries: geometries.collect(),
                footprints: vec![(4096, 1 << 20), (65536, 2 << 20), (2 << 20, 8 << 20)],
            }),
        }],
        machines: vec![Machine {
            name: "cortex-a57".to_string(),
            processor: "Arm Cortex-A57".to_string(),
            figures: vec![
                MachineFigure {
                    key: "tlb[0].entries".into(),
                    value: "48".into(),
                    provenance: Provenance::Source("a <manual>".into()),
                },
                MachineFigure {
                    key: "tlb[0].ways".into(),
                    value: "8".into(),
                    provenance: Provenance::Assumed("no source".into()),
                },
                MachineFigure {
                    key: "kernel_costs.fault_cycles".into(),
                    value: "1000".into(),
                    provenance: Provenance::Assumed("a guess".into()),
                },
            ],
        }],
    }
}

#[test]
fn everything_is_on_the_page() {
    let html = report(&document());
    for part in [
        "a b.trace&#39;",
        "What &lt;page sizes&gt; cost",
        "it has &lt;none&gt;",
        "partly 40 %",
        "mappings smaller than one page of that size",
        "In the source: allocate multiples of the size",
        "64K of 4K",
        "per 1000 instructions",
        "tlb[0].entries",
        "a &lt;manual&gt;",
        "assumed",
        "no source",
        "the trace was cut off",
        "<td>modelled</td>",
        "Over 20 layouts that Linux makes by randomisation, modelled",
        "thp &lt;2M&gt;",
        "1,130",
        "4 sets of 8 ways",
        "peak under mthp-64k",
        "<dt>seed</dt><dd>3</dd>",
        "cortex-a57: mthp-64k is the &lt;best&gt;.",
        "cycles of translation and of the kernel",
        "kernel_costs.fault_cycles",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    // A machine without lost cycles has no bars of cycles.
    assert!(html.contains("cortex-a57: cycles lost") && !html.contains("zen-3: cycles lost per"));
    let captions: Vec<&str> = html.split("<figcaption>").skip(1).collect();
    assert!(
        captions.len() >= 6
            && captions.iter().all(|rest| rest.split("</figcaption>").next().unwrap().contains("(modelled)"))
    );
}

/// Positions and widths of the labels below an axis.
fn labels(figure: &str) -> Vec<(f64, f64)> {
    let texts = figure
        .split("<text class=\"tick\" ")
        .skip(1)
        .filter(|text| text.split('>').next().is_some_and(|tag| tag.contains("middle")));
    let label = |text: &str| {
        let x = text.strip_prefix("x=\"")?.split('"').next()?.parse().ok()?;
        let shown = text.split('>').nth(1)?.split('<').next()?;
        // Maximum width of a digit at the font size of ticks.
        Some((x, shown.len() as f64 * 7.5))
    };
    texts.filter_map(label).collect()
}

#[test]
fn labels_of_axes_are_complete_and_apart() {
    let mut shown = document();
    let sweep = shown.traces[0].sweep.as_mut().unwrap();
    sweep.geometries = (0..12)
        .map(|power| TlbGeometry { page_bytes: 4096, sets: 1 << power, ways: 8, misses: 5000 >> power })
        .collect();
    sweep.footprints = [12, 14, 16, 21, 25, 29, 30].map(|power| (1 << power, 1 << 30)).to_vec();
    for figure in [curves::misses(sweep, "a"), curves::memory(&shown.traces[0], "b")] {
        let labels = labels(&figure.unwrap());
        assert!(labels.len() > 4, "{labels:?}");
        assert!(labels.iter().all(|(x, width)| x + width / 2.0 <= crate::html::svg::WIDTH), "{labels:?}");
        assert!(labels.windows(2).all(|pair| pair[0].0 + pair[0].1 / 2.0 <= pair[1].0 - pair[1].1 / 2.0), "{labels:?}");
    }
}

#[test]
fn nothing_is_fetched_or_run() {
    let html = report(&document());
    for part in ["<script", "http://", "https://", "src=", "@import", "\u{1b}"] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(html.contains("default-src 'none'"));
    let mut ids: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "duplicate id");
}

#[test]
fn an_empty_document_and_one_of_geometries_alone_are_shown() {
    assert!(report(&Document::default()).ends_with("</html>\n"));
    let mut swept = document();
    swept.machines.clear();
    swept.traces[0].cells.clear();
    let html = report(&swept);
    assert!(html.contains("4 sets of 8 ways") && !html.contains("Verdicts"));
    // Without policies no peaks are drawn, so the legend must not mention them. In dark mode a stronger shade is not
    // darker.
    assert!(!html.contains("marks are the peaks") && report(&document()).contains("marks are the peaks"));
    assert!(!html.contains("darker"));
    swept.traces[0].sweep = Some(Sweep::default());
    assert!(report(&swept).contains("No geometry misses"));
}

#[test]
fn the_title_is_the_answer() {
    let mut document = document();
    assert!(report(&document).contains("<h1>cortex-a57: mthp-64k is the &lt;best&gt;</h1>"));
    document.traces[0].answers.clear();
    assert!(report(&document).contains("<h1>What &lt;page sizes&gt; cost</h1>"));
}

#[test]
fn distinguishes_measured_and_modelled_knees() {
    let line = |name: &str, step: f64| crate::simulation::Line {
        name: name.to_string(),
        points: (16..30).map(|power| (1 << power, f64::from(power) * step)).collect(),
    };
    let mut shown = crate::simulation::Knees {
        title: "A chase".to_string(),
        facts: vec![("processor".to_string(), "a <zen>".to_string())],
        measured_ns: vec![line("base", 1.0), line("thp", 0.5)],
        modelled_cycles: vec![line("base", 3.0)],
        ..crate::simulation::Knees::default()
    };
    let html = knees(&shown);
    assert!(html.contains(">In a buffer of 512M a load takes 29.0 ns under base and 14.5 ns under thp</h1>"), "{html}");
    for part in ["Nanoseconds a load (measured)", "Cycles a load loses (modelled)", "a &lt;zen&gt;", "512K"] {
        assert!(html.contains(part), "{part}");
    }
    shown.measured_ns.clear();
    let html = knees(&shown);
    assert!(!html.contains("(measured)") && html.contains("(modelled)"));
}
