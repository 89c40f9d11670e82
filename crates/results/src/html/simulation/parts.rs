//! Parts that the figures and tables of a simulation share.

use crate::html::parts::captioned;
use crate::simulation::{Cell, Cost, Trace};

/// The cells grouped by machine.
pub fn machines(trace: &Trace) -> Vec<&[Cell]> {
    trace.cells.chunk_by(|one, other| one.machine == other.machine).collect()
}

/// The unit to which rates of these cells refer.
pub fn unit(cells: &[Cell]) -> &'static str {
    costs(cells).next().map_or("instructions", |(_, cost)| cost.per.unit())
}

pub fn costs(cells: &[Cell]) -> impl Iterator<Item = (&Cell, &Cost)> {
    cells.iter().filter_map(|cell| Some((cell, cell.outcome.as_ref().ok()?)))
}

/// A figure with a caption, which says that the numbers are modelled.
pub fn modelled(picture: &str, caption: &str) -> String {
    captioned(picture, &format!("{caption} (modelled)"))
}
