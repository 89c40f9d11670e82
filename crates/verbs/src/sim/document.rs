//! Converts simulations to one JSON document, and to plain data for the page.

use model::machine::Machine;
use model::space::Kernel;
use policy::size::format_bytes;
use results::simulation as shown;
use results::simulation::Document;
use serde_json::{Value, json};

use results::answer::Answer;

use super::cost::{answers_of, cells, typical_cells};
use super::notes::Notes;
use super::request::Request;
use super::simulated::Simulated;
use super::{machines, report};

/// All simulations as one JSON document.
pub fn json(simulated: &[Simulated], used: &[Machine], request: &Request) -> Value {
    let Kernel { khugepaged, instructions_per_s, smaller_folios, pt_reclaim, reuses_large_folios, vdso_pages } =
        &request.kernel;
    json!({
        "schema": "pagelab.sim/1",
        "settings": {
            "memory_bytes": request.physical.bytes,
            "fragmentation_ratio": request.physical.fragmentation,
            "kernel": {
                "also_folio_bytes": smaller_folios,
                "pages_to_scan": khugepaged.pages_to_scan,
                "scan_sleep_s": khugepaged.scan_sleep_s,
                "max_ptes_none": khugepaged.max_ptes_none,
                "khugepaged_makes_folios": khugepaged.makes_folios,
                "instructions_per_s": instructions_per_s,
                "pt_reclaim": pt_reclaim,
                "reuses_large_folios": reuses_large_folios,
                "vdso_pages": vdso_pages,
            },
            "seed": request.physical.seed,
            "layouts": request.layouts,
            "accesses_only": request.accesses_only,
        },
        "machines": used.iter().map(machines::of).collect::<Vec<_>>(),
        "traces": simulated.iter().map(|simulated| report::document(simulated, used)).collect::<Vec<_>>(),
    })
}

/// All simulations as one page.
pub fn page(simulated: &[Simulated], used: &[Machine], request: &Request) -> Document {
    let mut settings = vec![
        ("memory of the machine".to_owned(), format_bytes(request.physical.bytes)),
        ("fragmentation".to_owned(), format!("{} %", request.physical.fragmentation * 100.0)),
        ("seed".to_owned(), request.physical.seed.to_string()),
    ];
    if let Some(layouts) = request.layouts {
        settings
            .push(("address layouts".to_owned(), format!("{layouts} randomised by the seed, and one not randomised")));
    }
    settings.extend(if request.accesses_only {
        vec![("kernel".to_owned(), "none: only the accesses".to_owned())]
    } else {
        kernel_settings(&request.kernel)
    });
    let files: Vec<&str> = simulated.iter().map(|simulated| simulated.file.as_str()).collect();
    Document {
        title: format!("What page sizes cost {}", files.join(", ")),
        invocation: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        traces: simulated.iter().map(|simulated| trace_page(simulated, used)).collect(),
        machines: used.iter().map(machines::shown).collect(),
    }
}

/// The kernel settings other than the policy.
fn kernel_settings(kernel: &Kernel) -> Vec<(String, String)> {
    let Kernel { khugepaged, instructions_per_s, smaller_folios, pt_reclaim, reuses_large_folios, vdso_pages } = kernel;
    let pages = |pages: Option<u64>, usual: &str| pages.map_or(usual.to_owned(), |pages| format!("{pages} pages"));
    let mut settings = vec![(
        "khugepaged".to_owned(),
        format!(
            "scans {} every {} s at {instructions_per_s} instructions/s; {} of a window may be missing",
            pages(khugepaged.pages_to_scan, "eight PMDs"),
            khugepaged.scan_sleep_s,
            pages(khugepaged.max_ptes_none, "all pages but one")
        ),
    )];
    if khugepaged.makes_folios {
        settings.push(("khugepaged makes".to_owned(), "also folios smaller than a PMD".to_owned()));
    }
    let folios: Vec<String> = smaller_folios.iter().map(|bytes| format_bytes(*bytes)).collect();
    if !folios.is_empty() {
        settings.push(("further folios".to_owned(), folios.join(", ")));
    }
    if let Some(pt_reclaim) = pt_reclaim {
        let text = if *pt_reclaim { "freed by MADV_DONTNEED" } else { "kept by MADV_DONTNEED" };
        settings.push(("empty page tables".to_owned(), text.to_owned()));
    }
    if let Some(vdso_pages) = vdso_pages {
        settings.push(("the vDSO and its data".to_owned(), format!("{vdso_pages} pages")));
    }
    if !reuses_large_folios {
        settings.push((
            "pages of large folios at a write fault".to_owned(),
            "always copied where PTEs map them".to_owned(),
        ));
    }
    settings
}

/// The result of a machine, with the bounds of each policy that has figures.
fn answer_page(simulated: &Simulated, answer: Answer) -> shown::MachineAnswer {
    let cells = typical_cells(simulated);
    let own = cells.iter().filter(|cell| cell.machine == answer.machine);
    let bounds = own.filter_map(|cell| {
        let cost = cell.outcome.as_ref().ok()?;
        let share = answer.share_in_words(cost.max_lost_cycles);
        Some([cell.policy.clone(), share, answer.change_in_words(&cell.policy)])
    });
    shown::MachineAnswer { bounds: bounds.collect(), machine: answer.machine, sentence: answer.sentence }
}

/// The results of a trace, for the page.
pub fn trace_page(simulated: &Simulated, used: &[Machine]) -> shown::Trace {
    let mut facts = Vec::new();
    if let Some((accesses, runs, instructions)) = simulated.counted() {
        let instructions = instructions.map_or("not counted by the trace".to_owned(), |count| count.to_string());
        facts = vec![
            ("accesses, in runs to one 4K page".to_owned(), format!("{accesses} in {runs}")),
            ("instructions".to_owned(), instructions),
            ("recorded on".to_owned(), simulated.header.architecture.clone()),
            ("recorder".to_owned(), simulated.header.recorded_by()),
            ("CPU time of the program".to_owned(), simulated.time.in_words()),
        ];
    }
    shown::Trace {
        file: simulated.file.clone(),
        command: simulated.header.command.clone(),
        facts,
        notes: Notes::of(simulated).all(),
        answers: answers_of(simulated, used).into_iter().map(|answer| answer_page(simulated, answer)).collect(),
        cells: cells(simulated),
        spreads: simulated.layouts.as_ref().map(|layouts| layouts.spreads.clone()).unwrap_or_default(),
        sweep: simulated.swept.as_ref().map(|swept| swept.sweep.clone()),
    }
}
