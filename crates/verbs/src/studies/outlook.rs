//! How much of a study's answer is decided, judging by the rows on this host that share its time.

use study_files::definition::Definition;
use study_files::rounds::{StudyProgress, WorkloadProgress, next, questions};

use super::measured::matrices;
use super::plan::{HostRow, Progress, has_rounds, max_time_s};

/// The rows that share the time: those of the selected workloads that can be run here and did not fail.
pub fn pool(definition: &Definition, rows: &[HostRow<'_>], only: &[String]) -> Vec<usize> {
    let is_named = |row: &HostRow<'_>| only.is_empty() || only.iter().any(|text| row.workload.name.contains(text));
    let can_run = |row: &HostRow<'_>| !matches!(row.progress, Progress::Refused(_) | Progress::Failed { .. });
    let is_in = |row: &HostRow<'_>| is_named(row) && can_run(row) && !definition.is_of_series(row.workload);
    (0..rows.len()).filter(|at| is_in(&rows[*at])).collect()
}

/// How much of the answer is decided; `None` if no row that shares the time has been measured here.
pub fn study_progress(definition: &Definition, rows: &[HostRow<'_>], only: &[String]) -> Option<StudyProgress> {
    let pool = pool(definition, rows, only);
    let study_progress = of_pool(definition, rows, &pool).0;
    (has_rounds(definition) && !study_progress.spent.is_empty()).then_some(study_progress)
}

/// How much of the answer is decided. Also returns, for each entry of [`StudyProgress::spent`], its row.
pub fn of_pool(definition: &Definition, rows: &[HostRow<'_>], pool: &[usize]) -> (StudyProgress, Vec<usize>) {
    let indexes: Vec<usize> = pool.iter().copied().filter(|at| rows[*at].current().is_some()).collect();
    let spent = indexes.iter().filter_map(|at| {
        let row = &rows[*at];
        Some(WorkloadProgress { comparison: row.current()?.id, time_s: row.time_s(), is_open: row.open().is_some() })
    });
    let spent: Vec<WorkloadProgress> = spent.collect();
    let matrices = if spent.is_empty() { Vec::new() } else { matrices(definition, rows) };
    let questions = matrices.iter().flat_map(|matrix| questions(matrix, &spent)).collect();
    let max_time_s = max_time_s(definition);
    (StudyProgress { questions, spent, workloads: pool.len(), max_time_s }, indexes)
}

/// The maximum number of seconds that `study run` still takes for the rows that share the time.
pub fn remaining_s(definition: &Definition, rows: &[HostRow<'_>]) -> f64 {
    let (study_progress, _) = of_pool(definition, rows, &pool(definition, rows, &[]));
    let is_unfinished = rows.iter().any(|row| row.progress.is_unfinished());
    let continues = !study_progress.is_certain() && next(&study_progress.questions, &study_progress.spent).is_some();
    if is_unfinished || continues { study_progress.left_s() } else { 0.0 }
}
