//! The work and the savings of every variant, per granule and averaged over granules.

use serde::Serialize;

use super::cost::Range;
use super::{Case, Counted};

/// A counted case with its cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The phase of the work.
    pub phase: String,
    /// What maps the memory.
    pub backing: String,
    /// The translation granule.
    pub granule: String,
    pub variant: String,
    /// Page table entries visited.
    pub visits: u64,
    /// Seconds that the work takes.
    pub time_s: Range,
    /// The saving over the first variant; absent for the first variant.
    pub saving: Option<Saving>,
}

/// The saving of a variant, as a share of the first variant's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// Share of the time.
    pub time: Range,
    /// Share of the instructions.
    pub instructions: Range,
    /// The saving over the preceding variant, as a share of the time of that variant; absent if that is the first variant.
    pub beyond: Option<Range>,
}

/// All cases with their costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// One row per case, in the order of the cases.
    pub rows: Vec<Row>,
}

impl Table {
    /// Computes the costs of cases.
    pub fn of(counted: &Counted, cases: &[Case]) -> Table {
        let row = |case: &Case| Row {
            phase: case.phase.clone(),
            backing: case.backing.clone(),
            granule: case.granule.clone(),
            variant: case.variant.clone(),
            visits: case.visits,
            time_s: counted.costs.time_s(&case.counts),
            saving: saving(counted, cases, case),
        };
        Table { rows: cases.iter().map(row).collect() }
    }

    /// The distinct phases, in the order of the rows.
    pub fn phases(&self) -> Vec<&str> {
        self.distinct(|row| &row.phase)
    }

    /// The distinct backings.
    pub fn backings(&self) -> Vec<&str> {
        self.distinct(|row| &row.backing)
    }

    /// The distinct granules.
    pub fn granules(&self) -> Vec<&str> {
        self.distinct(|row| &row.granule)
    }

    /// The distinct variants.
    pub fn variants(&self) -> Vec<&str> {
        self.distinct(|row| &row.variant)
    }

    fn distinct(&self, of: fn(&Row) -> &String) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for name in self.rows.iter().map(|row| of(row).as_str()) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }

    /// The rows of a phase, a backing and a variant: one per granule.
    pub fn of_granules<'a>(
        &'a self,
        phase: &'a str,
        backing: &'a str,
        variant: &'a str,
    ) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.phase == phase && row.backing == backing && row.variant == variant)
    }

    /// The saving of a variant averaged over granules with equal weight.
    pub fn average(&self, phase: &str, backing: &str, variant: &str) -> Option<Saving> {
        let savings: Vec<Saving> = self.of_granules(phase, backing, variant).filter_map(|row| row.saving).collect();
        let mean = |of: fn(&Saving) -> Range| Range::mean(&savings.iter().map(of).collect::<Vec<_>>());
        let beyond: Vec<Range> = savings.iter().filter_map(|saving| saving.beyond).collect();
        Some(Saving {
            time: mean(|saving| saving.time)?,
            instructions: mean(|saving| saving.instructions)?,
            beyond: Range::mean(&beyond),
        })
    }
}

fn saving(counted: &Counted, cases: &[Case], case: &Case) -> Option<Saving> {
    let at = counted.variants.iter().position(|variant| *variant == case.variant).filter(|at| *at > 0)?;
    let other = |variant: &String| {
        let place = (&case.phase, &case.backing, &case.granule, variant);
        cases.iter().find(|other| (&other.phase, &other.backing, &other.granule, &other.variant) == place)
    };
    let base = other(&counted.variants[0])?;
    let costs = &counted.costs;
    let before = other(&counted.variants[at - 1]).filter(|_| at > 1);
    Some(Saving {
        time: costs.ratio(&case.counts, &base.counts)?.saved(),
        instructions: costs.ratio_of_instructions(&case.counts, &base.counts)?.saved(),
        beyond: before.and_then(|before| costs.ratio(&case.counts, &before.counts)).map(Range::saved),
    })
}
