//! Text about the programs that recorded processes have executed.

/// Maximum number of programs listed by name; the others are only counted.
const MAX_PROGRAMS: usize = 8;

/// Lists programs, most frequent first, each with a remark and how often it was executed.
pub fn programs_by_times<'a>(programs: impl Iterator<Item = (&'a str, Option<&'a str>, u64)>) -> String {
    let mut programs: Vec<_> = programs.collect();
    programs.sort_by_key(|(.., times)| std::cmp::Reverse(*times));
    let named = programs.iter().take(MAX_PROGRAMS).map(|(program, about, times)| {
        let times = if *times > 1 { format!(" {times} times") } else { String::new() };
        let about = about.map(|about| format!(" ({})", results::printable(about))).unwrap_or_default();
        format!("{}{times}{about}", results::printable(program))
    });
    let more = programs.len().checked_sub(MAX_PROGRAMS).filter(|more| *more > 0);
    named.chain(more.map(|more| format!("and {more} more"))).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_often_executed_are_named_first() {
        let programs = [("cc", None, 1), ("/bin/su\u{1b}", Some("it gains privileges"), 3)];
        let words = programs_by_times(programs.into_iter());
        assert!(words.starts_with("/bin/su") && words.ends_with(" 3 times (it gains privileges); cc"), "{words}");
        assert!(!words.contains('\u{1b}'), "{words}");
        let many: Vec<String> = (0..11).map(|number| format!("p{number}")).collect();
        let words = programs_by_times(many.iter().map(|name| (name.as_str(), None, 1)));
        assert!(words.ends_with("; p7; and 3 more"), "{words}");
    }
}
