//! Published savings beside ranges.

use super::cost::Range;
use super::table::Table;

/// A saving that others have published, of a phase, a backing and a variant, averaged over granules.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it says.
    pub what: String,
    /// When it is done.
    pub phase: String,
    /// What the memory is mapped with.
    pub backing: String,
    /// The variant.
    pub variant: String,
    /// Whether only instructions count where it was measured, as on a software model.
    pub is_of_instructions: bool,
    /// The figure, as published: `-33.1%`.
    pub change: String,
    /// The share of time that is saved: 0.331.
    pub saved: f64,
    /// Where it stands.
    pub source: String,
    /// Why a figure here can be another one, as far as the study's author knows.
    pub differs: Option<String>,
}

/// Where a published saving lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Within the range.
    Within,
    /// It is larger than anything in the range.
    Above,
    /// It is smaller.
    Below,
    /// There is no range.
    Nowhere,
}

/// A published saving beside the range that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// What was published.
    pub figure: Figure,
    /// What was found: shares of the time, or of instructions where only they count there.
    pub found: Option<Range>,
    /// Where the one lies in the other.
    pub place: Place,
}

impl Place {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Place::Within => "within the range",
            Place::Above => "more than the range holds",
            Place::Below => "less than the range holds",
            Place::Nowhere => "not counted yet",
        }
    }
}

impl Set {
    /// Sets a figure beside a table.
    pub fn of(figure: &Figure, table: &Table) -> Set {
        let saving = table.average(&figure.phase, &figure.backing, &figure.variant);
        let found = saving.map(|saving| if figure.is_of_instructions { saving.instructions } else { saving.time });
        let place = match found {
            None => Place::Nowhere,
            Some(range) if range.holds(figure.saved) => Place::Within,
            Some(range) if figure.saved > range.high => Place::Above,
            Some(_) => Place::Below,
        };
        Set { figure: figure.clone(), found, place }
    }
}
