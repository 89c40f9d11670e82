//! Arguments of `pagelab study`.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use study_files::definition::{Definition, Size};

use super::slurm::arguments::Where;
use super::source;
use crate::failure::Failure;

/// Arguments of `pagelab study`.
#[derive(Debug, Args)]
pub struct StudyArguments {
    #[command(subcommand)]
    pub verb: StudyVerb,
}

/// The verbs of `pagelab study`.
#[derive(Debug, Subcommand)]
pub enum StudyVerb {
    /// List the studies
    List {
        /// Print one JSON document instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Run the missing parts of a study; finished parts are not repeated
    Run(Run),
    /// Say which parts of a study are done, which are missing, and why
    Status(Status),
    /// Show the results of a study, in a table or in another form
    Report(Report),
    /// Say which workloads can be run here, what the others lack, and which packages provide it
    Doctor(Doctor),
    /// Write every measured sample of a study, a row for each metric of a trial; simulations have no samples
    Export(Export),
    /// Merge study results of several stores into one; results that it already has are skipped
    Merge(Merge),
}

/// Which study, of which size, in which store.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// A name of `pagelab study list`, or a FILE.toml
    #[arg(value_name = "NAME_OR_FILE")]
    pub study: String,
    #[command(flatten)]
    pub size: SizeArgument,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// The size of a study.
#[derive(Clone, Copy, Debug, Args)]
pub struct SizeArgument {
    /// How much is run: quick shows in minutes that everything runs, standard decides or bounds the answer on two processors
    /// with 16 GB, full is for large machines
    #[arg(long, value_name = "SIZE", default_value = Size::Standard.name(), value_parser = sizes())]
    pub size: Size,
}

/// The names of the sizes.
fn sizes() -> impl TypedValueParser<Value = Size> {
    let named = |name: &str| Size::ALL.into_iter().find(|size| size.name() == name).unwrap_or_default();
    PossibleValuesParser::new(Size::ALL.map(Size::name)).map(move |name| named(&name))
}

impl SizeArgument {
    /// The argument that selects this size, for a command line; empty for the default size.
    pub fn words(self) -> Vec<String> {
        if self.size == Size::default() { vec![] } else { vec!["--size".to_owned(), self.size.name().to_owned()] }
    }
}

/// Arguments of `pagelab study run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub which: Which,
    /// Run nothing; print what would be run, and how long it takes at most. For simulations the time is estimated from earlier
    /// ones
    #[arg(long)]
    pub dry_run: bool,
    /// Also repeat workloads that failed, or for which no policy was available
    #[arg(long)]
    pub again: bool,
    /// In a boot without results, measure again what earlier boots of the same kind have measured: a comparison needs
    /// several boots of each kind
    #[arg(long)]
    pub each_boot: bool,
    /// Only workloads whose name contains this; repeat it, or separate several by commas
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run each workload to its own end, one after the other: its precision, blocks or max_time. Without this, workloads share
    /// the time: the one that the answer needs most gets the next slice, and the study ends once the answer is decided
    #[arg(long)]
    pub no_rounds: bool,
    /// How many threads share the simulations; default: one a processor. The results are the same for any number.
    /// Measurements run one trial at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    #[command(flatten)]
    pub place: Where,
    /// For pagelab's own tests, as in `compare`; absent from release builds
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "FILE", hide = true)]
    pub fake_platform: Option<String>,
}

/// Arguments of `pagelab study status`.
#[derive(Clone, Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub which: Which,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pagelab study doctor`.
#[derive(Clone, Debug, Args)]
pub struct Doctor {
    /// Names of `pagelab study list`, or files; without one: every suite, and every study
    #[arg(value_name = "NAME_OR_FILE")]
    pub studies: Vec<String>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pagelab study report`.
#[derive(Clone, Debug, Args)]
pub struct Report {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub form: Form,
    /// Write a report: one HTML file without script
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The form of the output.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct Form {
    /// Print one JSON document instead of the tables
    #[arg(long)]
    pub json: bool,
    /// Print Markdown instead
    #[arg(long)]
    pub markdown: bool,
    /// Print plain text in 72 columns instead, as kernel lists take it
    #[arg(long)]
    pub mail: bool,
}

/// Arguments of `pagelab study export`.
#[derive(Clone, Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub which: Which,
    /// Where the samples go: a name with .csv, .jsonl (a JSON object a line) or .parquet
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Arguments of `pagelab study merge`.
#[derive(Clone, Debug, Args)]
pub struct Merge {
    /// Stores of other hosts, or of other boots
    #[arg(value_name = "STORE", required_unless_present = "shards")]
    pub stores: Vec<PathBuf>,
    /// Merge the shards that the tasks of this study have left next to the store (`study run --on slurm`), and say what
    /// is missing
    #[arg(long, value_name = "NAME_OR_FILE", conflicts_with_all = ["stores", "study"])]
    pub shards: Option<String>,
    /// With --shards: the size of the study
    #[arg(long, value_name = "SIZE", requires = "shards", conflicts_with = "stores", value_parser = sizes())]
    pub size: Option<Size>,
    /// Merge only this study
    #[arg(long, value_name = "NAME")]
    pub study: Option<String>,
    /// The store that they are merged into; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

impl Which {
    /// Loads the study.
    ///
    /// # Errors
    /// The study does not exist or is invalid.
    pub fn definition(&self) -> Result<Definition, Failure> {
        let mut definition = source::named(&self.study)?.of_size(self.size.size)?;
        // Paths of traces in a study file are relative to the directory of the file.
        let directory = Path::new(&self.study).parent().unwrap_or(Path::new(""));
        for trace in definition.workloads.iter_mut().filter_map(|workload| workload.trace.as_mut()) {
            *trace = directory.join(&*trace).to_string_lossy().into_owned();
        }
        Ok(definition)
    }

    /// Whether the study is given as a file.
    pub fn is_file(&self) -> bool {
        source::is_file(&self.study)
    }

    /// The arguments that select the same study and store, for a command line.
    pub fn words(&self) -> String {
        let store = self.store.as_ref().map(|store| format!("--store {}", store.display()));
        let words = [self.study.clone()].into_iter().chain(self.size.words()).chain(store);
        words.collect::<Vec<String>>().join(" ")
    }
}

impl Run {
    /// Whether --only selects a workload.
    pub fn is_selected(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| workload.contains(text))
    }

    /// Refuses names that match no workload.
    ///
    /// # Errors
    /// A name matches no workload; the message lists the workloads.
    pub fn refuse_unknown_names(&self, definition: &Definition) -> Result<(), Failure> {
        let names: Vec<&str> = definition.workloads.iter().map(|workload| workload.name.as_str()).collect();
        let is_in_none = |text: &&String| !names.iter().any(|name| name.contains(text.as_str()));
        self.only.iter().find(is_in_none).map_or(Ok(()), |text| {
            let names = names.join(", ");
            Err(Failure::Input(format!("--only: no workload has {text:?} in its name; there are {names}")))
        })
    }

    /// Arguments that every comparison of the study gets in addition.
    pub fn added(&self) -> Vec<String> {
        #[cfg(debug_assertions)]
        if let Some(file) = &self.fake_platform {
            return vec!["--fake-platform".to_owned(), file.clone()];
        }
        Vec::new()
    }
}
