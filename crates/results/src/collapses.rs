//! The work of khugepaged on the host while an arm ran.

/// The work of khugepaged on the host during the trials of an arm that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collapses {
    /// Trials for which the host's counter was available.
    pub of_trials: usize,
    /// Trials during which khugepaged created large pages.
    pub trials: usize,
    /// Minimum number of pages created, over the trials in which any were created; 0 if there are none.
    pub least: u64,
    /// Maximum number of pages created in a trial.
    pub most: u64,
}

impl Collapses {
    /// `khugepaged made 1 to 3 large pages in 2 of the 8 trials, ...`; `None` if no page was created.
    pub fn describe(&self) -> Option<String> {
        let Collapses { of_trials, trials, least, most } = *self;
        let pages = match (least, most) {
            (_, 0) => return None,
            (1, 1) => "1 large page".to_string(),
            (least, most) if least == most => format!("{most} large pages"),
            (least, most) => format!("{least} to {most} large pages"),
        };
        Some(format!(
            "khugepaged made {pages} in {trials} of the {of_trials} trials (a counter of the host: the pages may be another program's)"
        ))
    }
}
