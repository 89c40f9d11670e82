//! `chase`: a pointer chase, in which the address of every access is the result of the previous one.
//!
//! Each node has a cache line of its own. The nodes form one cycle over all pages, in random order, so successive nodes are
//! almost always in different pages. With one node per page, the nodes use few cache lines for their number of pages, so the cost
//! of translation dominates. The line of a node within its page is pseudo-random, because lines at equal page offsets would
//! compete for the same few cache sets.

use std::time::Instant;

use workloads::memory::{Anonymous, base_page};
use workloads::random::{below, mix};

use super::report::Report;
use super::{WorkloadError, arguments, check};

const WORD: u64 = size_of::<u64>() as u64;
/// The result of a chase that ended because a pointer led out of the memory.
const NOWHERE: u64 = u64::MAX;

/// Arguments of `chase`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory to spread the nodes over, in whole base pages
    #[arg(long, default_value = "512M", value_parser = arguments::size)]
    bytes: u64,
    /// Cache lines used in each base page
    #[arg(long, default_value_t = 1)]
    lines_per_page: u64,
    /// Size of a cache line
    #[arg(long, default_value = "64", value_parser = arguments::size)]
    line_bytes: u64,
    /// Accesses that are timed
    #[arg(long, default_value_t = 8_000_000)]
    steps: u64,
    /// Populate the memory first and move its pages to other addresses in random order (mremap), so that neighbouring
    /// addresses have no neighbouring frames: no TLB can then hold several pages in one entry. Each page becomes a VMA, of
    /// which vm.max_map_count allows 65530 by default (255M)
    #[arg(long)]
    permute_frames: bool,
    /// Seed of the order and of the choice of lines
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where the nodes are. The first word of a node's line contains the index, in the whole memory, of the first word of
/// the next node.
struct Layout {
    /// Number of nodes. Node `n` is in page `n / lines_per_page`.
    nodes: usize,
    page_words: usize,
    line_words: usize,
    lines_per_page: usize,
    seed: u64,
}

impl Layout {
    /// The index of a node's word in the memory. Distinct nodes of a page have distinct lines: the number of lines in a page is a
    /// power of two, so an odd step visits all of them.
    fn word(&self, node: usize) -> usize {
        let (page, line) = (node / self.lines_per_page, node % self.lines_per_page);
        let hash = mix(self.seed ^ mix(page as u64));
        let (first, step) = (hash as u32 as usize, (hash >> 32) as usize | 1);
        let lines_in_page = self.page_words / self.line_words;
        let chosen = first.wrapping_add(line.wrapping_mul(step)) & (lines_in_page - 1);
        page * self.page_words + chosen * self.line_words
    }

    /// The node with which Sattolo's algorithm swaps `node`: a pseudo-randomly chosen node with a lower number.
    fn partner(&self, node: usize) -> usize {
        below(mix(self.seed.wrapping_add(mix(!(node as u64)))), node)
    }

    /// Links the nodes into one random cycle, in place (Sattolo 1986).
    fn link(&self, words: &mut [u64]) {
        for node in 0..self.nodes {
            words[self.word(node)] = self.word(node) as u64;
        }
        for node in (1..self.nodes).rev() {
            words.swap(self.word(node), self.word(self.partner(node)));
        }
    }

    /// Undoes the swaps of [`Layout::link`] in reverse order, after which every node must point to itself. Returns the first node
    /// that does not; `None` means that the memory still had what `link` wrote.
    fn unlink(&self, words: &mut [u64]) -> Option<usize> {
        for node in 1..self.nodes {
            words.swap(self.word(node), self.word(self.partner(node)));
        }
        (0..self.nodes).find(|node| words[self.word(*node)] != self.word(*node) as u64)
    }
}

/// Follows `steps` pointers from the word at index `start`, and returns the last index, or [`NOWHERE`] if a pointer leads out of
/// the memory.
#[inline(never)]
fn follow(words: &[u64], start: usize, steps: u64) -> u64 {
    let end = (0..steps).try_fold(start, |at, _| words.get(at).map(|next| *next as usize));
    end.map_or(NOWHERE, |end| end as u64)
}

/// Runs the pointer chase.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let layout = layout(arguments)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let mut memory = Anonymous::map(arguments.bytes as usize)?;
    if arguments.permute_frames {
        memory = memory.with_permuted_frames(arguments.seed).map_err(WorkloadError::Permute)?;
    }
    layout.link(memory.slice_mut());
    let first = layout.word(0);
    let start = Instant::now();
    let end = follow(memory.slice(), first, arguments.steps);
    let elapsed = start.elapsed();
    // After a whole cycle, the chase is at its first node again.
    let expected = follow(memory.slice(), first, arguments.steps % layout.nodes as u64);
    check("the last node", expected, end)?;
    if let Some(node) = layout.unlink(memory.slice_mut()) {
        let (expected, found) = (layout.word(node) as u64, memory.slice::<u64>()[layout.word(node)]);
        check(format!("node {node} after all swaps were undone"), expected, found)?;
    }
    let report = Report::new("chase", mix(end ^ mix(layout.nodes as u64)))
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", base_page().bytes())
        .argument("lines_per_page", arguments.lines_per_page)
        .argument("line_bytes", arguments.line_bytes)
        .argument("steps", arguments.steps)
        .argument("seed", arguments.seed)
        .figure("ns_per_access", elapsed.as_secs_f64() * 1e9 / arguments.steps as f64)
        .figure("chase_s", elapsed.as_secs_f64());
    Ok(if arguments.permute_frames { report.argument("permute_frames", true) } else { report })
}

/// Checks the arguments and computes the layout.
fn layout(arguments: &Arguments) -> Result<Layout, WorkloadError> {
    let page_bytes = base_page().bytes();
    let pages = arguments::whole_pages("bytes", arguments.bytes)? as u64 / page_bytes;
    let wrong =
        |option, expected: String, found: u64| WorkloadError::Argument { option, expected, found: found.to_string() };
    let line_bytes = arguments.line_bytes;
    if !line_bytes.is_power_of_two() || !(WORD..=page_bytes).contains(&line_bytes) {
        return Err(wrong("line-bytes", format!("a power of two from {WORD} to {page_bytes}"), line_bytes));
    }
    let lines_in_page = page_bytes / line_bytes;
    if !(1..=lines_in_page).contains(&arguments.lines_per_page) {
        return Err(wrong("lines-per-page", format!("1 to {lines_in_page}"), arguments.lines_per_page));
    }
    arguments::at_least("steps", 1, arguments.steps)?;
    Ok(Layout {
        nodes: (pages * arguments.lines_per_page) as usize,
        page_words: (page_bytes / WORD) as usize,
        line_words: (line_bytes / WORD) as usize,
        lines_per_page: arguments.lines_per_page as usize,
        seed: arguments.seed,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn small(lines_per_page: usize) -> (Layout, Vec<u64>) {
        let layout = Layout { nodes: 300 * lines_per_page, page_words: 512, line_words: 8, lines_per_page, seed: 3 };
        let mut words = vec![0; 300 * 512];
        layout.link(&mut words);
        (layout, words)
    }

    #[test]
    fn the_nodes_are_one_cycle_over_the_requested_lines_of_every_page() {
        for lines_per_page in [1, 3, 64] {
            let (layout, words) = small(lines_per_page);
            let mut visited = HashSet::new();
            let mut at = layout.word(0);
            while visited.insert(at) {
                at = words[at] as usize;
            }
            assert_eq!((at, visited.len()), (layout.word(0), 300 * lines_per_page));
            let lines: HashSet<(usize, usize)> = visited.iter().map(|word| (word / 512, word % 512 / 8)).collect();
            assert_eq!(lines.len(), 300 * lines_per_page, "a line is used twice");
            assert!((0..300).all(|page| lines.iter().filter(|line| line.0 == page).count() == lines_per_page));
        }
    }

    #[test]
    fn lines_spread_evenly_over_the_cache_sets() {
        let (layout, _) = small(1);
        let mut by_line = [0; 64];
        (0..300).for_each(|node| by_line[layout.word(node) % 512 / 8] += 1);
        assert!(by_line.iter().all(|count| *count < 20), "{by_line:?}");
    }

    #[test]
    fn a_changed_pointer_is_found() {
        let (layout, mut words) = small(2);
        assert_eq!(layout.unlink(&mut words.clone()), None);
        words[layout.word(7)] = 1 << 40;
        assert_eq!(follow(&words, layout.word(0), 600), NOWHERE);
        assert!(layout.unlink(&mut words).is_some());
    }
}
