//! `pagelab restore`: restores settings that a killed run left changed.

use clap::Args;
use lease::{Recovered, ReportedOutcome};
use serde_json::json;

use crate::failure::Failure;
use crate::output::print;

/// Arguments of `pagelab restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// Runs `pagelab restore`.
pub fn run(arguments: &Restore) -> Result<(), Failure> {
    let recovered = lease::recover().map_err(Failure::input)?;
    let text = if arguments.json { format!("{:#}", document(&recovered)) } else { text(&recovered) };
    print(&text, arguments.json)?;
    match recovered {
        Recovered::PutBack(report) if report.has_failed() => Err(Failure::Input(
            "not every setting could be restored; the journal is kept, so run `pagelab restore` again".into(),
        )),
        _ => Ok(()),
    }
}

fn text(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Nothing => "nothing to restore: no run left system settings changed".to_string(),
        Recovered::Rebooted { settings } => {
            format!("a run before the last reboot had changed {settings} settings; the reboot reset them")
        }
        Recovered::PutBack(report) => report.to_string(),
    }
}

fn document(recovered: &Recovered) -> serde_json::Value {
    let settings = match recovered {
        Recovered::PutBack(report) => report
            .settings
            .iter()
            .map(|setting| {
                let (outcome, detail) = match &setting.outcome {
                    ReportedOutcome::Unchanged => ("unchanged", None),
                    ReportedOutcome::Restored => ("restored", None),
                    ReportedOutcome::Foreign { found } => ("changed_by_other", Some(found)),
                    ReportedOutcome::Failed { reason } => ("failed", Some(reason)),
                };
                json!({ "path": setting.path, "before": setting.before, "fate": outcome, "detail": detail })
            })
            .collect(),
        Recovered::Nothing | Recovered::Rebooted { .. } => Vec::new(),
    };
    let found = match recovered {
        Recovered::Nothing => "nothing",
        Recovered::PutBack(_) => "journal",
        Recovered::Rebooted { .. } => "journal_of_earlier_boot",
    };
    json!({ "schema": "pagelab.restore/1", "found": found, "settings": settings })
}
