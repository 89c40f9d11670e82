//! Arguments of `pagelab study`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use study::definition::{Definition, Size};

use super::source;
use crate::failure::Failure;

/// Arguments of `pagelab study`.
#[derive(Debug, Args)]
pub struct StudyArguments {
    #[command(subcommand)]
    pub verb: StudyVerb,
}

/// What is done with a study.
#[derive(Debug, Subcommand)]
pub enum StudyVerb {
    /// Show the studies that there are
    List {
        /// Print one JSON document instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Run what is missing of a study; what has been finished is not repeated
    Run(Run),
    /// Say what of a study is done, what is missing, and why
    Status(Status),
}

/// Which study, of which size, in which store.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// A name of `pagelab study list`, or a FILE.toml
    #[arg(value_name = "NAME_OR_FILE")]
    pub study: String,
    /// The size that shows in minutes that all of it can be run
    #[arg(long)]
    pub quick: bool,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// Arguments of `pagelab study run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub which: Which,
    /// Print what would be run, and how long it takes at most, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Run workloads again that failed, or for which no policy could be given
    #[arg(long)]
    pub again: bool,
    /// Only workloads with this in their name; repeat it, or separate several by commas
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub only: Vec<String>,
    /// For pagelab's own tests, and not in the program that is released: as in `compare`
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

impl Which {
    /// The study.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub fn definition(&self) -> Result<Definition, Failure> {
        source::named(&self.study)?.of_size(if self.quick { Size::Quick } else { Size::Full })
    }

    /// The words by which it is named again.
    pub fn words(&self) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        let store = self.store.as_ref().map(|store| format!(" --store {}", store.display()));
        format!("{}{quick}{}", self.study, store.unwrap_or_default())
    }
}

impl Run {
    /// Words that are added to those of every comparison.
    pub fn added(&self) -> Vec<String> {
        #[cfg(debug_assertions)]
        if let Some(file) = &self.fake_platform {
            return vec!["--fake-platform".to_owned(), file.clone()];
        }
        Vec::new()
    }
}
