//! `pagelab list`: lists policies, machines, workloads, page-table formats and stored comparisons.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use host::Host;
use host::admit::{self, Terms};
use model::policy::{ModelPolicy, ONLY_MODELLED};
use policy::Admission;
use policy::size::format_bytes;
use policy::{DirectMapLeaves, Granularity, Modifier, Policy};
use results::store::Summary;
use serde_json::{Value, json};
use study::comparison::Ended;

use crate::failure::Failure;
use crate::lab_command::WithLabs;
use crate::output::{find_store, print, terminal_width};
use crate::{sim, table, workload};
use results::grid::plain;

/// Arguments of `pagelab list`.
#[derive(Debug, Args)]
pub struct List {
    /// What to list
    #[command(subcommand)]
    pub what: WithLabs<Listed>,
    /// Print one JSON document instead of the table
    #[arg(long, global = true)]
    pub json: bool,
}

/// What can be listed.
#[derive(Debug, Subcommand)]
pub enum Listed {
    /// Page-size policies and whether this machine can give them
    Policies,
    /// This machine, and model machines for `pagelab sim`
    Machines {
        /// One model machine, `host` or a FILE.toml: every figure, with its source or that it is assumed
        #[arg(value_name = "MACHINE")]
        model: Option<String>,
        /// Print its file, to start one of your own from
        #[arg(long, requires = "model", conflicts_with = "json")]
        toml: bool,
    },
    /// Linux as `pagelab sim` models it: a file for --linux with every key
    Linux,
    /// Built-in workloads
    Workloads,
    /// Stored comparisons
    Comparisons {
        /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
        #[arg(long, value_name = "FILE")]
        store: Option<PathBuf>,
    },
    /// Page-table formats, for `pagelab table`
    Formats,
}

/// Runs `pagelab list`.
pub fn run(arguments: &List) -> Result<(), Failure> {
    let (text, document) = match &arguments.what {
        WithLabs::Own(what) => own(what)?,
        WithLabs::OfLab(command, arguments) => command.run(arguments)?,
    };
    let text = if arguments.json { format!("{document:#}") } else { text };
    print(&text, arguments.json)
}

fn own(what: &Listed) -> Result<(String, Value), Failure> {
    Ok(match what {
        Listed::Policies => policies()?,
        Listed::Machines { model: None, .. } => machines()?,
        Listed::Machines { model: Some(name), toml: true } => (sim::machines::file(name)?, Value::Null),
        Listed::Machines { model: Some(name), toml: false } => model(name)?,
        Listed::Linux => linux(),
        Listed::Workloads => workloads(),
        Listed::Comparisons { store } => comparisons(store.as_deref())?,
        Listed::Formats => table::formats::list(terminal_width()),
    })
}

fn policies() -> Result<(String, Value), Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let terms = Terms::of_this_process(&host, tracer::try_tracing);
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    for granularity in Policy::granularities(host.page_sizes()) {
        let policy = Policy::plain(granularity);
        let (here, how) = match admit::admit(&policy, &host, &terms) {
            Admission::Admitted { mechanism } => ("available", mechanism),
            Admission::Unsupported(why) => ("unsupported", why.to_string()),
        };
        documents.push(json!({
            "policy": policy.to_string(), "meaning": meaning(granularity), "here": here, "how": how,
        }));
        rows.push([policy.to_string(), meaning(granularity), here.to_string(), how]);
    }
    let only_modelled = only_modelled();
    let modifiers = Modifier::ALL.map(|modifier| [format!("+{}", modifier.name()), modifier.describe().to_string()]);
    let text = format!(
        "{}\n\n{}\n\n{}",
        plain(["policy", "what it asks for", "here", "how"], rows, terminal_width()),
        plain(["modifier", "what it adds to a policy"], modifiers, terminal_width()),
        plain(["only in `pagelab sim`", "what it asks for"], only_modelled.clone(), terminal_width()),
    );
    let modifiers =
        Modifier::ALL.map(|modifier| json!({ "name": modifier.name(), "meaning": modifier.describe() })).to_vec();
    let only_modelled: Vec<Value> =
        only_modelled.iter().map(|[name, meaning]| json!({ "policy": name, "meaning": meaning })).collect();
    let document = json!({
        "schema": "pagelab.list-policies/1", "policies": documents, "modifiers": modifiers, "only_modelled": only_modelled,
    });
    Ok((text, document))
}

/// Policies to which a running kernel cannot switch, so that only models have them, with their meanings.
fn only_modelled() -> Vec<[String; 2]> {
    let meaning = |name: &str| name.parse::<ModelPolicy>().map_or_else(|error| error.to_string(), |it| it.describe());
    ONLY_MODELLED.iter().map(|name| [(*name).to_owned(), meaning(name)]).collect()
}

fn meaning(granularity: Granularity) -> String {
    match granularity {
        Granularity::Default => "what the system gives: nothing is touched".to_string(),
        Granularity::Base => "base pages only".to_string(),
        Granularity::Mthp(size) => format!("folios of exactly {size}, mapped by PTEs"),
        Granularity::Thp => "folios of PMD size, mapped by one entry".to_string(),
        Granularity::Hugetlb(size) => format!("{size} pages of the hugetlb pool"),
        Granularity::DirectMap(DirectMapLeaves::Of(size)) => {
            format!("the kernel's direct map in leaves of {size}: one arm a boot")
        }
        Granularity::DirectMap(DirectMapLeaves::Mixed) => {
            "the kernel's direct map as it is, where no leaf size is shown to map nine tenths: one arm a boot"
                .to_string()
        }
    }
}

/// Describes one model machine with all its figures.
fn model(name: &str) -> Result<(String, Value), Failure> {
    let model = sim::machines::named(name)?;
    let notes = sim::machines::host_notes(&[name.to_owned()])?;
    let mut text = format!(
        "{}: {}, {}\n\n{}",
        model.name,
        model.processor,
        model.architecture.name(),
        plain(["figure", "value", "source"], sim::machines::figures(&model), terminal_width())
    );
    for note in &notes {
        text.push('\n');
        text.push_str(&results::fold(note, terminal_width(), 2));
    }
    let models = [sim::machines::of(&model)];
    let document = json!({ "schema": "pagelab.list-machines/1", "model_machines": models, "notes": notes });
    Ok((text, document))
}

fn machines() -> Result<(String, Value), Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let machine = host.machine().map_err(Failure::input)?;
    let page_sizes = &machine.page_sizes;
    let sizes = |sizes: &[policy::size::PageSize]| match sizes {
        [] => "none".to_string(),
        sizes => sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    let host_model = sim::machines::of_cpu(&sim::machines::host_cpu()?).map(|model| model.name);
    let rows = [
        ["name".to_string(), machine.name.clone()],
        ["processor".into(), format!("{} ({} online)", machine.cpu_model, machine.cpus)],
        ["model machine".into(), host_model.clone().unwrap_or_else(|| "none describes this processor".into())],
        ["memory".into(), format_bytes(machine.memory_bytes)],
        ["kernel".into(), format!("{} {}", machine.arch, machine.kernel)],
        ["hypervisor".into(), machine.hypervisor.clone().unwrap_or_else(|| "none detected".into())],
        ["base page".into(), page_sizes.base.to_string()],
        ["PMD leaf".into(), page_sizes.pmd.map_or("no THP in this kernel".into(), |pmd| pmd.to_string())],
        ["mTHP sizes".into(), sizes(&page_sizes.mthp)],
        ["hugetlb pools".into(), sizes(&page_sizes.hugetlb)],
    ];
    let models = model::machine::BUILT_IN.iter().map(|(name, _)| sim::machines::document(name));
    let models: Vec<Value> = models.collect::<Result<_, _>>()?;
    let document = json!({ "schema": "pagelab.list-machines/1", "machines": [machine], "host_model": host_model, "model_machines": models });
    let models = plain(
        ["model machine", "processor", "level 1", "level 2", "figures"],
        sim::machines::built_in_rows()?,
        terminal_width(),
    );
    let text = format!(
        "{}\n\n{models}\n\n`pagelab list machines MACHINE` and --json show every figure with its source; `pagelab list machines MACHINE --toml > \
         own.toml` writes a file to change, for `pagelab sim -m own.toml`",
        plain(["machine", ""], rows, terminal_width())
    );
    Ok((text, document))
}

/// The default kernel model.
fn linux() -> (String, Value) {
    let text = sim::linux::DEFAULTS.trim_end().to_owned();
    (text.clone(), json!({ "schema": "pagelab.list-linux/1", "file": text }))
}

fn workloads() -> (String, Value) {
    let catalogue = workload::catalogue();
    let documents: Vec<Value> =
        catalogue.iter().map(|(name, purpose)| json!({ "name": name, "purpose": purpose })).collect();
    let table = plain(
        ["workload", "what it does"],
        catalogue.into_iter().map(|(name, purpose)| [name, purpose]),
        terminal_width(),
    );
    let text = format!("{table}\n\npagelab workload NAME --help shows the arguments");
    (text, json!({ "schema": "pagelab.list-workloads/1", "workloads": documents }))
}

fn comparisons(store: Option<&Path>) -> Result<(String, Value), Failure> {
    let (path, summaries) = match find_store(store)? {
        Ok(store) => (store.path().to_path_buf(), store.list().map_err(Failure::input)?),
        Err(path) => (path, Vec::new()),
    };
    let documents: Vec<Value> = summaries.iter().map(summary_document).collect();
    let document = json!({ "schema": "pagelab.list-comparisons/1", "comparisons": documents });
    if summaries.is_empty() {
        return Ok((format!("no comparison is stored in {}", path.display()), document));
    }
    let rows = summaries.into_iter().map(|summary| {
        let ended = ended(&summary.ended).to_string();
        let quoted =
            |words: &[String]| shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "));
        let client = summary.client.map(|client| format!(", driven by {}", quoted(&client))).unwrap_or_default();
        let kernel = summary.kernel.map(|kernel| format!(" (on {kernel})")).unwrap_or_default();
        let command = quoted(&summary.command) + &client + &kernel;
        [summary.id.to_string(), summary.trials.to_string(), ended, summary.arms.join(" "), command]
    });
    let table = plain(["number", "trials", "ended", "policies", "command"], rows, terminal_width());
    Ok((
        format!(
            "{table}\n\npagelab show NUMBER shows one of them. Trials are those of policies; progress counts control runs too"
        ),
        document,
    ))
}

fn summary_document(summary: &Summary) -> Value {
    json!({
        "number": summary.id,
        "started_unix_s": summary.started_unix_s,
        "command": summary.command,
        "client": summary.client,
        "kernel": summary.kernel,
        "policies": summary.arms,
        "trials": summary.trials,
        "ended": ended(&summary.ended),
    })
}

fn ended(ended: &Ended) -> &'static str {
    match ended {
        Ended::NotEnded => "running or killed",
        Ended::Precise => "precise",
        Ended::Blocks => "all blocks",
        Ended::Time => "time was up",
        Ended::Interrupted => "interrupted",
        Ended::TooSlow { .. } => "a trial was too slow",
        Ended::Failed { .. } => "failed",
        Ended::NothingAdmitted => "nothing admitted",
    }
}
