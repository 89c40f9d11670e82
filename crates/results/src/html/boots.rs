//! A comparison merged over boots as one HTML file.

use study::stats::boots::Merged;

use super::parts::{command, lead, list, metric_name, page, section, title, typeset, unwrapped};
use super::tables::wide;
use crate::boots::{self, Grid};
use crate::figure;
use crate::sentence::claim_and_rest;
use crate::text::{command_line, date_time, escape};

/// Renders the page.
pub fn report(merged: &Merged) -> String {
    let sections = [
        section("Result", "result", &(result(merged) + &limits(merged))),
        section("All figures", "figures", &figures(merged)),
        section(
            "Boots",
            "boots",
            &table("A boot has one direct map; its trials make one median", &boots::boots(merged)),
        ),
        section("Invocation and design", "invocation", &invocation(merged)),
    ];
    page(&command_line(&merged.invocation.command), &header(merged), &sections.concat(), &footer(merged))
}

fn header(merged: &Merged) -> String {
    let started = merged.boots.iter().map(|boot| boot.started_unix_s).min().unwrap_or(0);
    let client = merged.invocation.client.as_ref().map(|client| command("client that drives it", client));
    let sentence = boots::conclude(merged);
    let (claim, rest) = claim_and_rest(&sentence);
    format!(
        "<header>\n<p class=\"kicker\">pagelab · arms over boots · {}</p>\n{}{}{}{}</header>\n",
        escape(&date_time(started)),
        title(claim.trim_end_matches('.')),
        lead(&unwrapped(rest)),
        command("measured command", &merged.invocation.command),
        client.unwrap_or_default()
    )
}

fn result(merged: &Merged) -> String {
    table("Medians over boots; changes against the baseline, within hosts", &boots::outcomes(merged))
}

fn limits(merged: &Merged) -> String {
    let item = |note: &String| format!("<li>{}</li>\n", escape(&typeset(note)));
    let items: String = boots::notes(merged).iter().map(item).collect();
    if items.is_empty() {
        items
    } else {
        format!("<h3>What cannot be concluded</h3>\n<ul class=\"warnings\">\n{items}</ul>\n")
    }
}

/// The metrics other than the primary one, one table each.
fn figures(merged: &Merged) -> String {
    let others = merged.design.metrics.iter().filter(|metric| {
        metric.name != merged.design.primary && merged.arms.iter().any(|arm| arm.medians.contains_key(&metric.name))
    });
    others.map(|metric| table(&metric_name(&metric.name), &boots::arms(merged, &metric.name))).collect()
}

fn invocation(merged: &Merged) -> String {
    let (invocation, design) = (&merged.invocation, &merged.design);
    let percent = |ratio: f64| format!("{} %", figure::plain(ratio * 100.0));
    let mut facts = vec![("pagelab", command_line(&invocation.pagelab))];
    facts.extend(invocation.prepare.as_ref().map(|prepare| ("before each trial", command_line(prepare))));
    facts.extend([
        ("version", invocation.version.clone()),
        ("metric that decides", design.primary.clone()),
        ("band of changes that do not matter", format!("± {}", percent(design.band_ratio))),
        ("confidence", percent(design.confidence)),
        ("memory that is given back before the end", figure::proof(design)),
        ("khugepaged", figure::khugepaged(design).to_owned()),
        ("free memory", crate::fragmented::request(design.fragmented)),
        ("session of every run", figure::session(design)),
    ]);
    list(&facts)
}

fn table<const N: usize>(caption: &str, grid: &Grid<N>) -> String {
    let head: String = grid.header.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title))).collect();
    let cells = |row: &[String; N]| {
        let cell = |text: &String| format!("<td>{}</td>", escape(&typeset(text)));
        format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>())
    };
    wide(caption, &head, &grid.rows.iter().map(cells).collect::<String>())
}

fn footer(merged: &Merged) -> String {
    format!(
        "<footer><p>Made by pagelab {}. <code>pagelab merge --json</code> and <code>--csv</code> export the \
         medians of every boot.</p></footer>\n",
        escape(&merged.invocation.version)
    )
}
