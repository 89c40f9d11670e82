//! Win shares: in how many workloads each policy beats all others, ties, or has the best estimate, compared with what
//! chance would give.

use study_files::matrix::{Matrix, Total};

use super::Anchors;
use crate::html::parts::{captioned, typeset};
use crate::html::svg::{Anchor, ArmStyle, Figure, Scale, WIDTH};
use crate::matrix::{all_machine_figures, place, totals_of};

const LEFT: f64 = 142.0;
const RIGHT: f64 = 376.0;
const TOP: f64 = 10.0;
const LINE: f64 = 34.0;
const BAR: f64 = 18.0;

/// A picture for each machine with more than one race (a workload in which the policies are compared).
pub(super) fn shares(matrix: &Matrix, anchors: Anchors) -> String {
    let mut pictures = String::new();
    for (at, machine_figures) in all_machine_figures(matrix).into_iter().enumerate() {
        let totals = totals_of(matrix, machine_figures);
        if let Some(picture) = picture(&totals, &matrix.baseline, &format!("{}-wins{at}", anchors.prefix())) {
            pictures.push_str(&captioned(&picture, &place(machine_figures)));
        }
    }
    if pictures.is_empty() {
        pictures
    } else {
        format!(
            "<p>Filled: workloads in which the policy beats every other one, the baseline included. Hatched: it is one of \
         several that none beats. The mark: its estimate is the lowest, whatever the noise; that is what published win \
         shares count. The shaded band: where the mark would be in 95 % of cases if all policies were equal.</p>\n\
         <div class=\"figures\">\n{pictures}</div>\n"
        )
    }
}

fn picture(totals: &[&Total], baseline: &str, id: &str) -> Option<String> {
    let races = totals.iter().map(|total| total.wins.races).max().filter(|races| *races > 0)?;
    let scale = Scale::new((0.0, f64::from(races)), (LEFT, RIGHT));
    let bottom = TOP + LINE * totals.len() as f64;
    let sentences: Vec<String> = totals.iter().map(|total| in_words(total)).collect();
    let mut figure = Figure::new(id, "Win shares", &sentences.join(" "), bottom + 26.0);
    for tick in scale.ticks(5).into_iter().filter(|tick| tick.fract() == 0.0) {
        figure.line("grid", (scale.at(tick), TOP), (scale.at(tick), bottom));
        figure.text("tick", (scale.at(tick), bottom + 15.0), Anchor::Middle, &format!("{tick:.0}"));
    }
    let of_baseline = totals.iter().position(|total| total.policy == baseline).unwrap_or(usize::MAX);
    for (at, total) in totals.iter().enumerate() {
        draw(&mut figure, total, ArmStyle::of(at, of_baseline), &scale, TOP + LINE * at as f64 + (LINE - BAR) / 2.0);
    }
    Some(figure.finish())
}

fn draw(figure: &mut Figure, total: &Total, style: ArmStyle, scale: &Scale, y: f64) {
    figure.label((LEFT - 12.0, y + 13.0), &total.policy);
    let wins = &total.wins;
    if wins.races == 0 {
        return figure.text("none", (LEFT + 8.0, y + 13.0), Anchor::Start, "did not run");
    }
    let hover = in_words(total);
    let width = |count: u32| scale.at(f64::from(count)) - LEFT;
    let (low, high) = (scale.at(f64::from(wins.chance_range.0)), scale.at(f64::from(wins.chance_range.1)));
    figure.rectangle("band", (low, y - 5.0), (high - low, BAR + 10.0), &hover);
    figure.rectangle(&format!("bar {}", style.class()), (LEFT, y), (width(wins.won), BAR), &hover);
    let from = LEFT + width(wins.won);
    figure.rectangle(&format!("bar faint {}", style.class()), (from, y), (width(wins.tied), BAR), &hover);
    figure.rectangle("pattern hatched", (from, y), (width(wins.tied), BAR), "");
    figure.raw(&style.mark((scale.at(f64::from(wins.led)), y + BAR / 2.0), 5.0, "", &hover));
    let text = format!("{} / {} / {} of {}", wins.won, wins.tied, wins.led, wins.races);
    figure.text("value", (WIDTH - 2.0, y + 7.0), Anchor::End, &text);
    let percent = 100.0 * f64::from(wins.led) / f64::from(wins.races);
    let chance = 100.0 * wins.led_by_chance / f64::from(wins.races);
    let text = format!("lowest in {percent:.0} %, {chance:.0} % if equal");
    figure.text("range", (WIDTH - 2.0, y + 20.0), Anchor::End, &typeset(&text));
}

fn in_words(total: &Total) -> String {
    let wins = &total.wins;
    format!(
        "{}: wins {}, ties {}, lowest estimate on {} of {} workloads; {:.1} ({} to {}) if all were equal.",
        total.policy,
        wins.won,
        wins.tied,
        wins.led,
        wins.races,
        wins.led_by_chance,
        wins.chance_range.0,
        wins.chance_range.1
    )
}
