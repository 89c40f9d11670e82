//! A single stored comparison as a mail.

use study::comparison::Comparison;
use study::stats::Warning;
use study_files::matrix::Row;

use super::super::HostOf;
use super::facts;
use super::figures::{self, Extent};
use super::layout::{command, fact, item, paragraph};
use super::{INTERVALS, MEDIANS};
use crate::rows::{self, baseline_label};
use crate::sentence;
use crate::text::{command_line, date_time};

pub fn comparison(comparison: &Comparison) -> String {
    let design = &comparison.design;
    let policies: Vec<String> = design.compared().map(|arm| design.arms[arm].label.clone()).collect();
    let words = [Some(&comparison.invocation.command), comparison.invocation.client.as_ref()];
    let name = words.into_iter().flatten().map(|words| command_line(words)).collect::<Vec<_>>().join("; client: ");
    let row = Row::of_comparison(&name, "", &policies, comparison, &[]);
    let host = HostOf {
        label: String::new(),
        machine: comparison.machine.clone(),
        measured_unix_s: Some(comparison.started_unix_s),
        settings: facts::settings(comparison),
    };
    // What no policy changes comes before everything that policies did.
    let shared = rows::warnings(comparison).into_iter().filter(|(warning, _)| is_shared(warning));
    let shared: String = shared.map(|(warning, remedy)| of_shared(comparison, warning, remedy)).collect();
    let mut text = paragraph(&sentence::conclude(comparison)) + &shared + &facts::of_hosts(&[host], &[]);
    text.push_str(&fact("Runs", &facts::design(comparison)));
    text.push_str(&fact("Command", ""));
    text.push_str(&command(&comparison.invocation.pagelab));
    text.push('\n');
    text.push_str(&paragraph(&format!("Per cent is against {}{INTERVALS}. {MEDIANS}", baseline_label(comparison))));
    text.push_str(&figures::of_row(&row, Extent::All));
    text.push_str(&limits(comparison));
    let number = if comparison.id > 0 { format!(", comparison {}", comparison.id) } else { String::new() };
    let made = date_time(comparison.started_unix_s);
    text + &format!("Made by pagelab {}{number}, {made}.\n", comparison.invocation.version)
}

fn is_shared(warning: &Warning) -> bool {
    matches!(warning, Warning::SharedMemory { .. })
}

fn of_shared(comparison: &Comparison, warning: &Warning, remedy: Option<String>) -> String {
    let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
    paragraph(&format!("{}{remedy}.", warning.describe(&comparison.design.arms)))
}

fn limits(comparison: &Comparison) -> String {
    let arms = &comparison.design.arms;
    let others = rows::warnings(comparison).into_iter().filter(|(warning, _)| !is_shared(warning));
    let items: String = others.map(|(warning, _)| item(&warning.describe(arms))).collect();
    if items.is_empty() { items } else { format!("What limits these figures:\n{items}\n") }
}
