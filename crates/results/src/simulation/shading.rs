//! Heat maps of TLB misses for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Sweep;

/// Maximum number of shades per line, each two columns wide.
const MAX_SHADES: usize = 32;

impl Sweep {
    /// The heat map of a page size: a line per number of sets, a column per number of ways. A darker shade means more
    /// misses, on a logarithmic scale between the smallest and the greatest rate of the trace.
    pub fn shading(&self, page_bytes: u64) -> String {
        let mut by_sets: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for geometry in self.of_size(page_bytes) {
            by_sets.entry(geometry.sets).or_default().push((geometry.ways, geometry.misses));
        }
        let ways = || self.of_size(page_bytes).map(|geometry| geometry.ways);
        let (least, most) = (ways().min().unwrap_or(0), ways().max().unwrap_or(0));
        let columns = by_sets.values().map(Vec::len).max().unwrap_or(0);
        // A shade for every number of ways; if that makes the line too long, for every n-th.
        let step = columns.div_ceil(MAX_SHADES).max(1);
        let every = if step > 1 { format!(", one in {step}") } else { String::new() };
        let mut text = format!("   sets  ways {least} to {most}{every}\n");
        for (sets, mut ways) in by_sets {
            ways.sort_unstable();
            let shades: String = ways.iter().step_by(step).map(|(_, misses)| self.shade(*misses)).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {sets:>5}  {shades}");
        }
        text
    }

    fn shade(&self, misses: u64) -> &'static str {
        const SHADES: [&str; 5] = ["··", "░░", "▒▒", "▓▓", "██"];
        let last = SHADES.len() - 1;
        SHADES[(self.heat(misses) * last as f64).round() as usize % SHADES.len()]
    }
}
