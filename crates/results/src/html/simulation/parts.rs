//! What the figures and tables of a simulation share.

use crate::html::parts::captioned;
use crate::simulation::{Cell, Cost, Trace};

/// The cells of each machine.
pub fn machines(trace: &Trace) -> Vec<&[Cell]> {
    trace.cells.chunk_by(|one, other| one.machine == other.machine).collect()
}

/// What rates of these cells are per.
pub fn unit(cells: &[Cell]) -> &'static str {
    costs(cells).next().map_or("instructions", |(_, cost)| cost.per.unit())
}

pub fn costs(cells: &[Cell]) -> impl Iterator<Item = (&Cell, &Cost)> {
    cells.iter().filter_map(|cell| Some((cell, cell.outcome.as_ref().ok()?)))
}

/// A figure with its caption, which says where its numbers come from.
pub fn modelled(picture: &str, caption: &str) -> String {
    captioned(picture, &format!("{caption} (modelled)"))
}
