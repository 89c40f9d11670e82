//! Describes what a trace leaves out.

use trace::{Filter, Header, Part};

use crate::table::describe::count;

/// Everything that was left out according to the header; empty if nothing was.
pub fn left_out(header: &Header) -> Vec<String> {
    parts(header).into_iter().chain(filtered(&header.filter)).collect()
}

/// The parts of the program's run that are missing: outside of windows, after a limit, or outside of a cut.
pub fn parts(header: &Header) -> Vec<String> {
    let instructions = |number| count(number, "instruction");
    let windows = header.window.map(|window| {
        let skipped = instructions(window.skip_instructions);
        match window.record_instructions {
            Some(_) => format!("{skipped} of each thread before every window"),
            None => format!("the first {skipped} of each thread"),
        }
    });
    let most = header.max_instructions.map(|most| format!("what a thread did after {} recorded", instructions(most)));
    windows.into_iter().chain(most).chain(header.part.as_ref().map(of_part)).collect()
}

fn of_part(part: &Part) -> String {
    let from = part.from_instructions;
    let mut kept = match part.to_instructions {
        Some(to) => format!("blocks outside of instructions {from} to {to} of their thread"),
        None if from > 0 => format!("blocks before instruction {from} of their thread"),
        None => String::new(),
    };
    if !part.threads.is_empty() {
        let numbers: Vec<String> = part.threads.iter().map(u32::to_string).collect();
        let and = if kept.is_empty() { "" } else { ", and " };
        kept.push_str(&format!("{and}threads other than {}", numbers.join(", ")));
    }
    kept
}

/// Text on which runs a filter removed.
fn filtered(filter: &Filter) -> Option<String> {
    match filter {
        Filter::None => None,
        Filter::Lru { sets_4k, sets_64k, sets_2m } => Some(format!(
            "most recent pages; exact for LRU with {sets_4k} sets at 4K, {sets_64k} at 64K, {sets_2m} at 2M, and multiples"
        )),
        Filter::Sampled => Some("all but samples; exact for nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{LruFilter, Window};

    #[test]
    fn reports_everything_that_a_header_leaves_out() {
        let all = Header::of("a test");
        assert_eq!(left_out(&all), Vec::<String>::new());
        let window = Some(Window { skip_instructions: 1000, record_instructions: Some(7) });
        let part = Some(Part { from_instructions: 5, to_instructions: None, threads: vec![1, 3] });
        let header = Header { window, max_instructions: Some(1), part, filter: LruFilter::FILTER, ..all.clone() };
        let [windows, most, part, filter] = &left_out(&header)[..] else { panic!("{:?}", left_out(&header)) };
        assert_eq!(windows, "1,000 instructions of each thread before every window");
        assert_eq!(most, "what a thread did after 1 instruction recorded");
        assert_eq!(part, "blocks before instruction 5 of their thread, and threads other than 1, 3");
        assert!(filter.contains("16 sets at 4K"), "{filter}");
        let window = Some(Window { skip_instructions: 1, record_instructions: None });
        let part = Some(Part { from_instructions: 0, to_instructions: Some(9), threads: Vec::new() });
        let left_out_parts = parts(&Header { window, part, ..all });
        assert_eq!(
            left_out_parts,
            ["the first 1 instruction of each thread", "blocks outside of instructions 0 to 9 of their thread"]
        );
    }
}
