//! Settings and counters as evidence: their paths and their values.

use super::supply::Supply;
use crate::judge::{THP, thp_size_enabled};
use crate::size::PageSize;

/// The settings that decide about a transparent page size, with their values.
pub fn setting(supply: &Supply, size: PageSize) -> Vec<String> {
    let own = thp_size_enabled(size);
    let says = |path: &String| supply.settings.get(path).map(|value| format!("{path}: {value}"));
    let inherits = supply.settings.get(&own).is_none_or(|value| value == "inherit");
    let common = Some(format!("{THP}/enabled")).filter(|_| inherits);
    [Some(own), common].into_iter().flatten().filter_map(|path| says(&path)).collect()
}

/// The value of a system-wide counter or of a setting in the directory of transparent huge pages.
pub fn counted(supply: &Supply, name: &str) -> String {
    let setting = supply.settings.get(&format!("{THP}/{name}"));
    match (supply.counter(name), setting) {
        (Some(times), _) => format!("{name}: {times} {} (whole system)", supply.counted_since.describe()),
        (None, Some(value)) => format!("{THP}/{name}: {value}"),
        (None, None) => format!("{name}: this kernel does not say"),
    }
}
