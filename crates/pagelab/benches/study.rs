//! The cost of a large study apart from its trials: planning 100,000 of them, merging 100 stores of 10,000 samples each, and making
//! the report of the merged store.
//!
//! ```text
//! cargo bench -p pagelab --bench study [-- PROGRAM]
//! ```
//! PROGRAM is a pagelab to use instead of the one that cargo builds. Each step should take less than five seconds.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use policy::Admission;
use policy::Exit;
use policy::PageSizes;
use policy::census::Census;
use policy::machine::{Machine, State};
use policy::size::PageSize;
use policy::verdict::{Holding, Verdict};
use results::store::{OfStudy, Store};
use study::comparison::{Comparison, Design, Ended, Invocation};
use study::metric::{Metric, Observation};
use study::stats;
use study::trial::{Answer, Arm, Trial, TrialRecord};
use tracer::child::ChildrenUsage;

/// The size of a study.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The number of planned workloads, with 100 trials each.
    pub planned: usize,
    /// The number of merged stores, with one workload each.
    pub stores: usize,
    /// The number of blocks of each comparison, with 40 samples in each block.
    pub blocks: u32,
}

const POLICIES: [&str; 4] = ["default", "base", "thp", "mthp-64k"];
const METRICS: usize = 10;

#[allow(dead_code, reason = "a test takes the same steps with a small extent")]
fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let extent = Extent { planned: 1000, stores: 100, blocks: 250 };
    let other = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let pagelab = other.as_deref().unwrap_or(env!("CARGO_BIN_EXE_pagelab"));
    steps(Path::new(pagelab), directory.path(), extent)
}

/// Plans, merges and reports, and prints the duration of each.
pub fn steps(pagelab: &Path, directory: &Path, extent: Extent) -> Result<(), Box<dyn Error>> {
    let study = |words: &[&str], store: &Path| {
        let mut command = Command::new(pagelab);
        command.arg("study").args(words).arg("--store").arg(store).env("HOME", directory).stdin(Stdio::null());
        command
    };
    let plan = written(directory, "planned", extent.planned)?;
    let none = directory.join("none.sqlite");
    let trials = extent.planned * POLICIES.len() * 25;
    timed(&format!("plan {trials} trials"), study(&["run", &plan, "--dry-run"], &none))?;
    let file = written(directory, "merged", extent.stores)?;
    let status = study(&["status", &file, "--json"], &none).output()?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    let mut stores: Vec<PathBuf> = Vec::new();
    for (at, row) in status["rows"].as_array().into_iter().flatten().enumerate() {
        let path = directory.join(format!("shard-{at}.sqlite"));
        let store = Store::open(&path)?;
        let of =
            OfStudy { study: "merged".to_owned(), workload: format!("w{at}"), subject: row["compare"].to_string() };
        store.begin_of_study(&comparison(at, extent.blocks), &of)?;
        store.close()?;
        stores.push(path);
    }
    let samples = extent.blocks as usize * POLICIES.len() * METRICS;
    let into = directory.join("into.sqlite");
    let mut merge = study(&["merge"], &into);
    merge.args(&stores);
    timed(&format!("merge {} stores of {samples} samples", stores.len()), merge)?;
    let mut again = study(&["merge"], &into);
    again.args(&stores);
    timed("merge them again", again)?;
    let page = directory.join("report.html");
    let html = page.to_string_lossy().into_owned();
    timed("report of them", study(&["report", &file, "--html", &html], &into))?;
    println!("the page has {} bytes", fs::metadata(&page)?.len());
    Ok(())
}

fn timed(what: &str, mut command: Command) -> Result<(), Box<dyn Error>> {
    let (began, before) = (Instant::now(), ChildrenUsage::now()?);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let used = ChildrenUsage::now()?.since(&before);
    let cpu_s = used.user_s + used.system_s;
    println!("{what}: {:.2} s, {cpu_s:.2} s of them on a processor", began.elapsed().as_secs_f64());
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// Writes a study with this number of workloads.
fn written(directory: &Path, name: &str, workloads: usize) -> Result<String, Box<dyn Error>> {
    let mut text = format!(
        "schema = \"pagelab.study/1\"\nname = \"{name}\"\nquestion = \"How long?\"\npolicies = {POLICIES:?}\n\
         [sizes.standard]\nblocks = 25\nmin_blocks = 25\n"
    );
    (0..workloads).for_each(|at| text += &format!("[[workload]]\nname = \"w{at}\"\ncommand = [\"true\", \"{at}\"]\n"));
    let file = directory.join(format!("{name}.toml"));
    fs::write(&file, text)?;
    Ok(file.to_string_lossy().into_owned())
}

/// A comparison whose figures vary a little.
fn comparison(number: usize, blocks: u32) -> Comparison {
    let arms: Vec<Arm> = POLICIES.map(|name| Arm::of_policy(name, name.parse().expect("a policy"))).into();
    let mut design = Design::new(arms, 0, number as u64);
    (design.min_blocks, design.max_blocks) = (blocks.min(6), blocks);
    let mut seed = number as u64 + 1;
    let mut noise = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0.99 + 0.02 * (seed >> 11) as f64 / (1u64 << 53) as f64
    };
    let names: Vec<String> = Metric::of_every_trial().into_iter().map(|metric| metric.name).take(METRICS).collect();
    let (mut trials, host) = (Vec::new(), state_of_host());
    for block in 0..blocks {
        for arm in 0..POLICIES.len() {
            let trial = Trial { arm, block, position: arm as u32, attempt: 0 };
            let values =
                names.iter().map(|name| Observation::measured(name.as_str(), noise() * (1.0 + arm as f64 / 50.0)));
            trials.push(record(trial, values.collect(), &host));
        }
    }
    let admissions = vec![Admission::Admitted { mechanism: "none".to_owned() }; POLICIES.len()];
    Comparison {
        id: 0,
        started_unix_s: 1_700_000_000 + number as i64,
        invocation: Invocation {
            command: vec!["true".to_owned(), number.to_string()],
            client: None,
            prepare: None,
            pagelab: vec!["pagelab".to_owned()],
            version: "0".to_owned(),
        },
        machine: machine(),
        analysis: stats::analyse(&design, &trials, &admissions),
        advice: None,
        admissions,
        trials,
        ended: Ended::Blocks,
        design,
    }
}

/// A state with as many settings as a current host has.
fn state_of_host() -> State {
    let path = |at: u32| format!("/sys/kernel/mm/transparent_hugepage/hugepages-{at}kB/shmem_enabled");
    let settings = (0..60).map(|at| (path(at), "never".to_owned())).collect();
    State { settings: Arc::new(settings), ..State::default() }
}

fn record(trial: Trial, observations: Vec<Observation>, state: &State) -> TrialRecord {
    TrialRecord {
        trial,
        started_s: f64::from(trial.block * 4 + trial.position),
        observations,
        census: Census::default(),
        verdict: Verdict {
            holding: Holding::Held,
            concerned_bytes: 1 << 20,
            covered_bytes: 1 << 20,
            peak: None,
            causes: vec![],
            answered: vec![],
        },
        answer: Answer::of(Exit::Code(0), None),
        state_before: state.clone(),
        state_after: state.clone(),
        rejected: vec![],
    }
}

fn machine() -> Machine {
    Machine {
        name: "host".to_owned(),
        arch: "x86_64".to_owned(),
        kernel: "6.18.0 #1".to_owned(),
        kernel_command_line: String::new(),
        boot_id: "boot".to_owned(),
        host_id: Some("host".to_owned()),
        cpu_model: "any".to_owned(),
        cpus: 2,
        memory_bytes: 1 << 33,
        hypervisor: None,
        page_sizes: PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![], hugetlb: vec![] },
        direct_map: None,
    }
}
