//! What khugepaged did on the host while an arm ran.

/// What khugepaged did on the host during the trials of an arm that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collapses {
    /// Trials during which the host counted it.
    pub of_trials: usize,
    /// Those during which it made large pages.
    pub trials: usize,
    /// The fewest that it made in one of these; 0 where there is none.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Collapses {
    /// `khugepaged made 1 to 3 large pages in 2 of the 8 trials, ...`; nothing where it made none.
    pub fn describe(&self) -> Option<String> {
        let Collapses { of_trials, trials, least, most } = *self;
        let pages = match (least, most) {
            (_, 0) => return None,
            (1, 1) => "1 large page".to_string(),
            (least, most) if least == most => format!("{most} large pages"),
            (least, most) => format!("{least} to {most} large pages"),
        };
        Some(format!(
            "khugepaged made {pages} in {trials} of the {of_trials} trials (a counter of the host, whoever's memory it was)"
        ))
    }
}
