//! What the user of `top` has chosen ([`Browse`]): sort order, filter, selected process, and the page shown. This
//! module does not depend on a terminal.

use super::view::{InspectionState, Row, View};
use crate::sizes::Class;

/// The sort order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Resident bytes, most first.
    #[default]
    Resident,
    /// Bytes that could be larger, most first.
    Larger,
    /// Faults a second, most first.
    Faults,
    /// Bytes of base pages, most first.
    Base,
    /// Name.
    Name,
    /// Process id.
    Pid,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Resident, Sort::Larger, Sort::Faults, Sort::Base, Sort::Name, Sort::Pid];

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }
}

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Up arrow: one line up.
    Up,
    /// Down arrow: one line down.
    Down,
    PageUp,
    PageDown,
    /// Home: to the first line.
    Home,
    /// End: to the last line.
    End,
    Enter,
    Escape,
    Backspace,
    /// Any other character.
    Char(char),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// The action that a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Only redraw the frame.
    Draw,
    /// Exit.
    Quit,
    /// Stop the process, as a shell's job control does.
    Suspend,
    /// Inspect this process.
    Inspect(u32),
}

/// The part of the table or the text that the last frame showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The number of lines shown.
    pub page: usize,
    /// The total number of lines.
    pub lines: usize,
}

/// The page that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// The table of processes.
    Processes,
    /// A text: the help on keys, or an inspection.
    Text {
        /// The title of the text.
        title: String,
        /// The lines of the text.
        lines: Vec<String>,
        /// The index of the first visible line.
        first: usize,
    },
}

/// The user's choices.
#[derive(Clone, Debug)]
pub struct Browse {
    /// The column that the table is sorted by.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub is_reversed: bool,
    /// A text that the name, the cause or the process ID must contain.
    pub filter: String,
    /// Whether the filter is being typed.
    pub is_typing: bool,
    /// The selected process.
    pub selected: Option<u32>,
    /// The page that is shown.
    pub page: Page,
}

/// The keys and their descriptions in the help.
const KEYS: [(&str, &str); 9] = [
    ("q, Ctrl-C", "end"),
    ("Up, Down, j, k", "select a process"),
    ("PgUp, PgDn, Home, End", "by pages, to the first and the last"),
    ("Enter", "inspect the process: region by region, and why not larger"),
    ("Esc", "back; clears the filter"),
    ("/", "filter by name, PID or cause"),
    ("s, S", "sort by the next column; reverse the order"),
    ("1 to 6", "sort by resident, could be larger, faults, base pages, name, PID"),
    ("h, ?", "these keys, and what columns mean"),
];

const MEANINGS: [&str; 8] = [
    "RESIDENT  resident bytes by the kernel's own counters; shared memory counts in each process, hugetlb in none",
    "4K, 2M    the share of memory mapped by leaves of this size, which the TLB sees",
    "FOLIOS    the share of memory in folios that are larger than the entries that map them; ? where folios are not visible \
     (root sees them)",
    "TO WIN    bytes that the kernel could map by larger pages than it does; ~ if the memory has changed since the inspection",
    "given  folios of a size that anonymous faults got, and faults that fell back to a smaller size",
    "A process is inspected when its faults or its resident memory have changed; the longest wait comes first.",
    "top stays below 1 % of a processor: if that is not enough, rows become stale and the interval longer.",
    "Keys and inspections that you ask for are not counted.",
];

impl Browse {
    /// The initial state, with this order and filter.
    pub fn new(sort: Sort, filter: String) -> Browse {
        Browse { sort, is_reversed: false, filter, is_typing: false, selected: None, page: Page::Processes }
    }

    /// The processes that pass the filter, sorted.
    pub fn visible_rows<'a>(&self, view: &'a View) -> Vec<&'a Row> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<&Row> = view.rows.iter().filter(|row| contains(row, &filter)).collect();
        rows.sort_by(|a, b| self.compare(a, b, view).then(a.pid.cmp(&b.pid)));
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    fn compare(&self, a: &Row, b: &Row, view: &View) -> std::cmp::Ordering {
        let of_inspected = |row: &Row, of: &dyn Fn(&super::view::Inspected) -> u64| match &row.inspection {
            InspectionState::Done(of_inspected) => of(of_inspected),
            InspectionState::Pending | InspectionState::Failed(_) => 0,
        };
        let base = |row: &Row| {
            of_inspected(row, &|of_inspected| of_inspected.sizes.class_bytes(Class::Base, &view.system.page_sizes))
        };
        let larger = |row: &Row| of_inspected(row, &|of_inspected| of_inspected.larger_bytes);
        match self.sort {
            Sort::Resident => b.resident_bytes.cmp(&a.resident_bytes),
            Sort::Larger => larger(b).cmp(&larger(a)),
            Sort::Faults => b.faults_per_s.unwrap_or(-1.0).total_cmp(&a.faults_per_s.unwrap_or(-1.0)),
            Sort::Base => base(b).cmp(&base(a)),
            Sort::Name => a.name.cmp(&b.name),
            Sort::Pid => a.pid.cmp(&b.pid),
        }
    }

    /// Handles a key press. `shown` describes the last frame.
    pub fn press(&mut self, key: Key, view: &View, shown: Shown) -> Command {
        match key {
            Key::Interrupt => return Command::Quit,
            Key::Suspend => return Command::Suspend,
            _ => {}
        }
        if self.is_typing {
            self.type_filter(key);
            return Command::Draw;
        }
        match self.page {
            Page::Processes => self.press_in_table(key, view, shown.page),
            Page::Text { .. } => self.press_in_text(key, shown),
        }
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => self.is_typing = false,
        }
    }

    fn press_in_table(&mut self, key: Key, view: &View, page: usize) -> Command {
        match key {
            Key::Char('q') => return Command::Quit,
            Key::Char('h' | '?') => self.page = help(),
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('S') => self.is_reversed = !self.is_reversed,
            Key::Char(digit @ '1'..='6') => self.sort = Sort::ALL[digit as usize - '1' as usize],
            Key::Escape => self.filter.clear(),
            Key::Enter => return self.selected(view).map_or(Command::Draw, Command::Inspect),
            other => self.select(other, view, page),
        }
        Command::Draw
    }

    fn press_in_text(&mut self, key: Key, shown: Shown) -> Command {
        let Page::Text { first, .. } = &mut self.page else { return Command::Draw };
        let last = shown.lines.saturating_sub(shown.page.max(1));
        match key {
            Key::Char('q') | Key::Escape | Key::Backspace => {
                self.page = Page::Processes;
                return Command::Draw;
            }
            other => *first = position_after(*first, other, shown.page, last),
        }
        Command::Draw
    }

    fn select(&mut self, key: Key, view: &View, page: usize) {
        let rows = self.visible_rows(view);
        let at = rows.iter().position(|row| Some(row.pid) == self.selected).unwrap_or(0);
        let to = position_after(at, key, page, rows.len().saturating_sub(1));
        self.selected = rows.get(to).map(|row| row.pid);
    }

    /// The selected process: the first one if none was selected or it has ended.
    pub fn selected(&self, view: &View) -> Option<u32> {
        let rows = self.visible_rows(view);
        let chosen = rows.iter().find(|row| Some(row.pid) == self.selected).or_else(|| rows.first());
        chosen.map(|row| row.pid)
    }

    /// Switches to a text page.
    pub fn show(&mut self, title: String, text: &str) {
        self.page = Page::Text { title, lines: text.lines().map(String::from).collect(), first: 0 };
    }
}

/// The position after a movement key, between 0 and `last`.
fn position_after(at: usize, key: Key, page: usize, last: usize) -> usize {
    let to = match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => at + 1,
        Key::PageUp => at.saturating_sub(page.max(1)),
        Key::PageDown | Key::Char(' ') => at + page.max(1),
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => at,
    };
    to.min(last)
}

/// Whether a process's name, PID or cause contains the lower-case text.
fn contains(row: &Row, text: &str) -> bool {
    let cause = || match &row.inspection {
        InspectionState::Done(seen) => seen.cause.as_deref().unwrap_or_default().to_lowercase(),
        InspectionState::Pending | InspectionState::Failed(_) => String::new(),
    };
    text.is_empty()
        || row.name.to_lowercase().contains(text)
        || row.pid.to_string().contains(text)
        || cause().contains(text)
}

fn help() -> Page {
    let keys = KEYS.iter().map(|(key, what)| format!("{key:<22} {what}"));
    let meanings = MEANINGS.iter().map(ToString::to_string);
    let lines = keys.chain([String::new()]).chain(meanings).collect();
    Page::Text { title: "keys and columns".into(), lines, first: 0 }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    const SHOWN: Shown = Shown { page: 5, lines: 5 };
    const TEXT: Shown = Shown { page: 10, lines: 30 };

    fn pids(browse: &Browse, view: &View) -> Vec<u32> {
        browse.visible_rows(view).iter().map(|row| row.pid).collect()
    }

    #[test]
    fn keys_sort_filter_and_select() {
        let view = sample::view();
        let mut browse = Browse::new(Sort::Resident, String::new());
        assert_eq!(pids(&browse, &view)[..2], [4242, 77]);
        assert_eq!(browse.press(Key::Char('2'), &view, SHOWN), Command::Draw);
        assert_eq!((browse.sort, pids(&browse, &view)[0]), (Sort::Larger, 77));
        browse.press(Key::Char('S'), &view, SHOWN);
        assert_eq!(*pids(&browse, &view).last().unwrap(), 77);
        browse.press(Key::Char('S'), &view, SHOWN);
        for key in [Key::Char('/'), Key::Char('R'), Key::Char('e'), Key::Char('d'), Key::Enter] {
            browse.press(key, &view, SHOWN);
        }
        assert_eq!(pids(&browse, &view), [77], "{}", browse.filter);
        assert_eq!(browse.press(Key::Enter, &view, SHOWN), Command::Inspect(77));
        browse.press(Key::Escape, &view, SHOWN);
        assert_eq!(pids(&browse, &view).len(), view.rows.len());
        assert_eq!(browse.press(Key::Char('q'), &view, SHOWN), Command::Quit);
        assert_eq!(browse.press(Key::Interrupt, &view, SHOWN), Command::Quit);
        assert_eq!(browse.press(Key::Suspend, &view, SHOWN), Command::Suspend);
    }

    #[test]
    fn while_typing_a_filter_keys_are_text_except_ctrl_c() {
        let view = sample::view();
        let mut browse = Browse::new(Sort::Resident, String::new());
        for key in [Key::Char('/'), Key::Char('q'), Key::Char('x'), Key::Backspace] {
            assert_eq!(browse.press(key, &view, SHOWN), Command::Draw);
        }
        assert_eq!((browse.filter.as_str(), browse.is_typing), ("q", true));
        assert_eq!(browse.press(Key::Interrupt, &view, SHOWN), Command::Quit);
    }

    #[test]
    fn the_selection_stays_with_its_process_until_it_ends() {
        let mut view = sample::view();
        let mut browse = Browse::new(Sort::Resident, String::new());
        browse.press(Key::Down, &view, SHOWN);
        assert_eq!(browse.selected(&view), Some(77));
        browse.press(Key::Char('6'), &view, SHOWN);
        assert_eq!(browse.selected(&view), Some(77), "however it is sorted");
        view.rows.retain(|row| row.pid != 77);
        assert_eq!(browse.selected(&view), Some(1));
        for key in [Key::Home, Key::Up, Key::PageUp, Key::End, Key::Down, Key::PageDown] {
            browse.press(key, &view, SHOWN);
        }
        assert_eq!(browse.selected(&view), pids(&browse, &view).last().copied());
        view.rows.clear();
        assert_eq!((browse.press(Key::Down, &view, SHOWN), browse.selected(&view)), (Command::Draw, None));
        assert_eq!(browse.press(Key::Enter, &view, SHOWN), Command::Draw, "there is none to be inspected");
    }

    #[test]
    fn a_text_scrolls_within_its_lines_and_can_be_left() {
        let view = sample::view();
        let mut browse = Browse::new(Sort::Resident, String::new());
        browse.show("a".into(), &"line\n".repeat(30));
        let first = |browse: &Browse| if let Page::Text { first, .. } = browse.page { Some(first) } else { None };
        browse.press(Key::PageDown, &view, TEXT);
        assert_eq!(first(&browse), Some(10));
        browse.press(Key::End, &view, TEXT);
        browse.press(Key::Down, &view, TEXT);
        assert_eq!(first(&browse), Some(20));
        assert_eq!(browse.press(Key::Char('q'), &view, TEXT), Command::Draw, "back, and not the end");
        assert_eq!(browse.page, Page::Processes);
    }
}
