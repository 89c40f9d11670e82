//! `cargo xtask truth`: makes the truth table, which compares native runs of programs on the running kernel with their
//! simulations. The model was not tuned for these programs. `cargo xtask truth --random` does the same for random programs, for
//! some minutes or a number of programs. `cargo xtask truth --limits` compares memory limits.
//!
//! A *cell* of the table is one figure of one program under one policy, measured and simulated. A cell is *off* if the two do not
//! agree ([`Cell::agrees`]). `reasons.toml` has the known reasons why cells are off.

mod arguments;
mod bench;
mod inputs;
mod judge;
mod limits;
mod programs;
mod random;
mod reasons;
mod row;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use validation::StablePageCache;
use validation::lab::{Figures, Problem, Trials};

use arguments::{Arguments, Job};
use bench::Bench;
use judge::{Cell, FIGURES, Figure};
use programs::Program;
use reasons::{OffCell, Reasons};
use row::{Column, Row};
use tools::Tools;

/// The policies of the table, unless the arguments select some of them.
pub const POLICIES: [&str; 4] = ["base", "mthp-64k", "thp", "hugetlb-2m"];
/// The number of native runs of a program under a policy if a cell was off after one run. The runs show how far figures
/// vary on the kernel.
const RUNS: usize = 10;
/// The number of traces of a program of which a cell is still off after those runs. A recording is a run too, and partly
/// random.
const TRACES: usize = 3;

/// Makes the table, or compares random programs. Fails if a cell is off without a known reason.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{}", arguments::USAGE);
        return ExitCode::SUCCESS;
    }
    let outcome = Arguments::parse(words).and_then(|arguments| {
        let tools = Tools::ready(root, arguments.built.as_deref())?;
        match &arguments.job {
            Job::Table { names, again } => table(root, &tools, names, *again, &arguments.policies),
            Job::Limits { names } => limits::run(root, &tools, names),
            Job::Random(wanted) => random::run(root, &tools, wanted, &arguments.policies),
        }
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("truth: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Prints each row as soon as it is made, and then a summary. Returns whether every cell that is off has a reason, and every
/// reason has a cell that is off. If `again` is true, measures every program, even if `target/truth` has its row from this kernel
/// and commit.
fn table(root: &Path, tools: &Tools, names: &[String], again: bool, policies: &[&'static str]) -> Result<bool, String> {
    let (programs, reasons) = (programs::named(names)?, Reasons::read()?);
    let made_with = tools::provenance(root);
    println!("{}, pagelab {}, {}\n", made_with.0, made_with.1, tools::today());
    print!("{}", row::head());
    let cache = root.join("target/truth");
    let mut launches = BTreeMap::new();
    let mut row = |program: &Program| -> Result<Row, String> {
        let cached = Row::kept(&cache, &program.name).filter(|row| {
            let row_policies = row.policies.iter().map(|(policy, _)| policy.as_str());
            let is_reproducible = row.made_with == made_with && !tools::is_changed(&made_with);
            !again && is_reproducible && row_policies.eq(policies.iter().copied())
        });
        let row = match cached {
            Some(row) => row,
            None => {
                let row = measure(program, tools, policies, &made_with, &mut launches);
                if row.missing().is_none() {
                    row.keep(&cache)?;
                }
                row
            }
        };
        print!("{}", row.lines());
        Ok(row)
    };
    let rows = programs.iter().map(&mut row).collect::<Result<Vec<_>, _>>()?;
    let variants = reasons.without(&programs);
    if !variants.is_empty() {
        println!("\nVariants without the supposed cause:\n");
        print!("{}", row::head());
    }
    let variant_rows = variants.iter().map(&mut row).collect::<Result<Vec<_>, _>>()?;
    Ok(summarize(&rows, &variant_rows, &reasons))
}

/// For each user that runs programs, the native faults of launching a program ([`launch_faults`]).
type Launches = BTreeMap<Option<String>, f64>;

/// Makes the row of a program. If that fails, the row has the reason instead of cells.
fn measure(
    program: &Program,
    tools: &Tools,
    policies: &[&'static str],
    made_with: &(String, String),
    launches: &mut Launches,
) -> Row {
    let empty_row = |why: &str| Row::without(&program.name, &program.kind, made_with, policies, why);
    let bench = match Bench::new(program, tools) {
        Ok(bench) => bench,
        Err(why) => return empty_row(&why.to_string()),
    };
    match launch_faults(program, tools, launches).and_then(|launch_faults| cells(&bench, policies, launch_faults)) {
        Ok(policies) => Row { policies, differs: bench.differs.map(str::to_owned), ..empty_row("") },
        Err(problem) => empty_row(&problem.to_string()),
    }
}

/// The native faults of launching a program, which happen before the execve, so that a recording does not have them. They
/// are measured with a program that only exits: its native faults minus its simulated ones.
fn launch_faults(program: &Program, tools: &Tools, launches: &mut Launches) -> Result<f64, Problem> {
    if let Some(faults) = launches.get(&program.user) {
        return Ok(*faults);
    }
    let failed = |why: String| Problem::Unread("the program that only exits".to_owned(), why);
    let exits = Program::only_exits(program.user.clone());
    let bench = Bench::new(&exits, tools).map_err(|why| failed(why.to_string()))?;
    let columns = cells(&bench, &["base"], 0.0)?;
    // The first figure of a column is the number of faults.
    let cell = columns.first().and_then(|(_, cells)| cells.as_ref().ok()?.first().map(|(_, cell)| cell.clone()));
    let Some(Cell::Number { measured, simulated }) = cell else { return Err(failed("faults".to_owned())) };
    let faults = measured.median - simulated.median;
    launches.insert(program.user.clone(), faults);
    Ok(faults)
}

/// The cells of a program under the policies. If a cell is off after one run, the program is run [`RUNS`] times under that
/// policy. If it is still off, the program is recorded [`TRACES`] times.
fn cells(bench: &Bench, policies: &[&'static str], launch_faults: f64) -> Result<Vec<Column>, Problem> {
    let directory = &bench.lab.directory;
    let _stable = StablePageCache::new(directory).map_err(|error| Problem::Cache(directory.clone(), error))?;
    let (lab, launch, command) = (&bench.lab, &bench.launch, &bench.command);
    // One list for each policy, with one entry for each trace.
    let mut simulated: Vec<Vec<Figures>> = policies.iter().map(|_| Vec::new()).collect();
    let record = |simulated: &mut Vec<Vec<Figures>>| -> Result<(), Problem> {
        let traced = lab.simulated(launch, command, policies)?;
        simulated.iter_mut().zip(traced).for_each(|(traces, trace)| traces.push(trace));
        Ok(())
    };
    record(&mut simulated)?;
    let mut measured = lab.measured(launch, command, policies, 1)?;
    let more_runs = |measured: &mut Vec<Trials>, simulated: &[Vec<Figures>]| -> Result<(), Problem> {
        for ((policy, trials), simulated) in policies.iter().zip(measured).zip(simulated) {
            if is_off(trials, simulated, launch_faults) && trials.as_ref().is_ok_and(|trials| trials.len() < RUNS) {
                let again = lab.measured(launch, command, &[policy], RUNS)?;
                again.into_iter().for_each(|again| *trials = again);
            }
        }
        Ok(())
    };
    more_runs(&mut measured, &simulated)?;
    let mut judged = measured.iter().zip(&simulated);
    if judged.any(|(trials, simulated)| is_off(trials, simulated, launch_faults)) {
        (1..TRACES).try_for_each(|_| record(&mut simulated))?;
        // A cell that agreed with the first trace may be off from the median of several traces.
        more_runs(&mut measured, &simulated)?;
    }
    let judged = measured.iter().zip(&simulated).map(|(trials, simulated)| judged_of(trials, simulated, launch_faults));
    Ok(policies.iter().map(|policy| (*policy).to_owned()).zip(judged).collect())
}

/// Whether any cell of a program under one policy is off.
fn is_off(trials: &Trials, simulated: &[Figures], launch_faults: f64) -> bool {
    let judged = judged_of(trials, simulated, launch_faults);
    judged.is_ok_and(|cells| cells.iter().any(|(figure, cell)| !cell.agrees(*figure)))
}

/// The cells of a program under one policy, from its native trials, and from its simulations, of which there is one for
/// each trace.
fn judged_of(trials: &Trials, simulated: &[Figures], launch_faults: f64) -> Result<Vec<(Figure, Cell)>, String> {
    let trials = trials.as_ref().map_err(ToString::to_string)?;
    Ok(FIGURES.map(|figure| (figure, Cell::new(figure, trials, simulated, launch_faults))).into())
}

/// Prints how many cells agree, the reasons of those that are off, and which changes the list of reasons needs. Returns
/// whether it needs none. `variant_rows` are the rows of variants of programs, which lack a supposed cause.
fn summarize(rows: &[Row], variant_rows: &[Row], reasons: &Reasons) -> bool {
    let all =
        || rows.iter().flat_map(|row| row.cells().map(move |(policy, figure, agrees)| (row, policy, figure, agrees)));
    let key = |row: &Row, policy: &str, figure| -> OffCell { (row.program.clone(), policy.to_owned(), figure) };
    let compared: BTreeSet<OffCell> = all().map(|(row, policy, figure, _)| key(row, policy, figure)).collect();
    let off = all().filter(|(.., agrees)| !agrees);
    let off_cells: BTreeSet<OffCell> = off.map(|(row, policy, figure, _)| key(row, policy, figure)).collect();
    let count = |figure: Option<Figure>| {
        let of = |cells: &BTreeSet<OffCell>| {
            cells.iter().filter(|cell| figure.is_none_or(|figure| cell.2 == figure)).count()
        };
        (of(&compared) - of(&off_cells), of(&compared))
    };
    let (agreeing, cells) = count(None);
    let share = agreeing as f64 / cells.max(1) as f64 * 100.0;
    println!(
        "\n{agreeing} of {cells} cells ({share:.1} %) within 2 %, 5 faults or the spread of {RUNS} runs (median of {TRACES} traces where one is off)"
    );
    for figure in FIGURES {
        let (agreeing, cells) = count(Some(figure));
        println!("  {}: {agreeing} of {cells}", figure.name());
    }
    for (program, policy, figure) in &off_cells {
        if let Some(because) = reasons.of(&(program.clone(), policy.clone(), *figure)) {
            println!("off: {program} under {policy}, {}: {because}", figure.name());
        }
    }
    for row in rows {
        if let Some(why) = row.missing() {
            println!("not in the table: {}: {why}", row.program);
            continue;
        }
        let missing = row.policies.iter().filter_map(|(policy, cells)| Some((policy, cells.as_ref().err()?)));
        missing.for_each(|(policy, why)| println!("not in the table: {} under {policy}: {why}", row.program));
        row.differs.iter().for_each(|why| println!("not the same on both sides: {}: {why}", row.program));
    }
    let mut needed_changes = reasons.needed_changes(&off_cells, &compared);
    needed_changes.extend(reasons.unconfirmed(variant_rows));
    needed_changes.iter().for_each(|what| println!("unsettled: {what}"));
    needed_changes.is_empty()
}
