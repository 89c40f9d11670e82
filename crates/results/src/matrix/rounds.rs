//! What the rounds of a study have decided, and how much more time would decide the rest, in words.

use study_files::rounds::{Aim, Question, StudyProgress};

use crate::figure::Change;
use crate::text::enumerate;

/// After a round: whether each change is decided, and how many published figures are not decided yet.
pub fn after_round(progress: &StudyProgress) -> String {
    let (figures, changes): (Vec<&Question>, Vec<&Question>) =
        progress.questions.iter().partition(|one| is_figure(one));
    let mut clauses: Vec<String> = changes.into_iter().map(|question| change(progress, question)).collect();
    let open = figures.iter().filter(|question| !question.is_certain()).count();
    if open > 0 {
        clauses.push(format!("{open} of {} published figures not decided", figures.len()));
    }
    if clauses.is_empty() { "no policy has a figure yet".to_owned() } else { clauses.join("; ") }
}

fn is_figure(question: &Question) -> bool {
    matches!(question.aim, Aim::Published { .. })
}

fn change(progress: &StudyProgress, question: &Question) -> String {
    format!("{}: {}", with_change(question), state(progress, question))
}

/// `thp -3.1 % (-4.0 to -2.2)`.
fn with_change(question: &Question) -> String {
    let change = Change::of(&question.effect());
    let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
    format!("{} {}{range}", question.name, change.estimate())
}

fn state(progress: &StudyProgress, question: &Question) -> String {
    let left_s = progress.left_s();
    match progress.more_s(question) {
        _ if question.is_certain() => "decided".to_owned(),
        _ if question.is_decided() => "decided, but not certain enough to end early".to_owned(),
        _ if question.aim == Aim::TracerCost => "unproven: the tracer's cost".to_owned(),
        _ if question.aim == Aim::Correction => "not shown after the correction for several claims".to_owned(),
        Some(more_s) if more_s <= left_s => format!("about {} more would decide it", duration(more_s)),
        Some(more_s) => {
            let left = duration(left_s);
            format!("about {} more would decide it, more than the time that is left ({left})", duration(more_s))
        }
        None => format!("undecided, {}", why_no_time(question)),
    }
}

/// Why it is unknown how much time would decide this question.
fn why_no_time(question: &Question) -> &'static str {
    match question.error() {
        None => "with too few blocks for an interval",
        Some(_) => "and its settled workloads leave too large an error",
    }
}

/// What is undecided, and the `max_time` that would decide it; `None` if everything is decided.
pub fn lacking(progress: &StudyProgress) -> Option<String> {
    let figures = progress.undecided().filter(|question| is_figure(question)).count();
    let mut lacking: Vec<String> =
        progress.undecided().filter(|question| !is_figure(question)).map(|question| question.name.clone()).collect();
    match figures {
        0 => {}
        1 => lacking.push("1 published figure".to_owned()),
        count => lacking.push(format!("{count} published figures")),
    }
    if lacking.is_empty() {
        return None;
    }
    let undecided = format!("Undecided: {}.", enumerate(&lacking));
    Some(format!("{undecided} {}", remedy(progress)))
}

fn remedy(progress: &StudyProgress) -> String {
    let Some(max_time_s) = progress.deciding_max_time_s() else {
        return "More time would not decide it: the workloads have the precision or the blocks that the study asks for, or too few \
                blocks for an interval."
            .to_owned();
    };
    let more_s =
        max_time_s * progress.workloads as f64 - (progress.max_time_s * progress.workloads as f64 - progress.left_s());
    let some =
        if progress.undecided().all(|question| progress.more_s(question).is_some()) { "it" } else { "part of it" };
    if more_s <= progress.left_s() {
        return format!("About {} of the time that is left would decide {some}.", duration(more_s));
    }
    let max_time = word(max_time_s);
    format!(
        "About {} more would decide {some}: max_time {max_time} in its file instead of {}.",
        duration(more_s),
        word(progress.max_time_s)
    )
}

/// `40 s`, `25 min`, `3.5 h`, rounded up.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{:.0} s", seconds.ceil()),
        seconds if seconds < 90.0 * 60.0 => format!("{:.0} min", (seconds / 60.0).ceil()),
        seconds => format!("{:.1} h", (seconds / 360.0).ceil() / 10.0),
    }
}

/// A duration in the form of a study's file: `40s`, `25m`.
fn word(seconds: f64) -> String {
    if seconds < 90.0 { format!("{:.0}s", seconds.ceil()) } else { format!("{:.0}m", (seconds / 60.0).ceil()) }
}

#[cfg(test)]
mod tests {
    use study::stats::LogError;
    use study_files::rounds::{Term, WorkloadProgress};

    use super::*;

    fn question(name: &str, log_ratio: f64, deviation: f64) -> Question {
        let error = Some(LogError { variance: deviation * deviation, degrees: 1000.0 });
        let term = |workload| Term { workload: Some(workload), error, is_running: true };
        let terms = vec![term(0), term(1)];
        Question { name: name.to_owned(), aim: Aim::Change, log_ratio, terms, confidence: 0.95 }
    }

    fn progress(questions: Vec<Question>, max_time_s: f64) -> StudyProgress {
        let spent = [1, 2].map(|comparison| WorkloadProgress { comparison, time_s: 600.0, is_open: true });
        StudyProgress { questions, spent: spent.to_vec(), workloads: 2, max_time_s }
    }

    #[test]
    fn a_round_lists_decided_questions_and_what_would_decide_the_rest() {
        let questions = vec![question("thp", -0.03, 0.006), question("mthp-64k", -0.006, 0.012)];
        let text = after_round(&progress(questions.clone(), 6000.0));
        let thp = "thp -3.0 % (-3.8 to -2.1): decided";
        assert_eq!(text, format!("{thp}; mthp-64k -0.6 % (-2.2 to +1.1): about 2.3 h more would decide it"));
        let text = after_round(&progress(questions, 900.0));
        assert!(text.ends_with("about 2.3 h more would decide it, more than the time that is left (10 min)"), "{text}");
    }

    #[test]
    fn an_undecided_question_has_the_max_time_that_decides_it() {
        assert_eq!(lacking(&progress(vec![question("thp", -0.03, 0.006)], 600.0)), None);
        let open = vec![question("mthp-64k", -0.006, 0.012)];
        let text = lacking(&progress(open.clone(), 600.0)).unwrap();
        assert_eq!(
            text,
            "Undecided: mthp-64k. About 2.3 h more would decide it: max_time 77m in its file instead of 10m."
        );
        let text = lacking(&progress(open.clone(), 6000.0)).unwrap();
        assert!(text.ends_with("About 2.3 h of the time that is left would decide it."), "{text}");
        let mut settled = progress(open, 600.0);
        settled.spent.iter_mut().for_each(|one| one.is_open = false);
        assert!(lacking(&settled).unwrap().contains("More time would not decide it"));
    }
}
