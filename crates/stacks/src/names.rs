//! [`GeneratedNames`]: the names that a program gives to functions that it generated (Java, node).

use std::fs::File;
use std::io::Read;

/// The longest file that is read.
const MAX_BYTES: u64 = 256 << 20;

/// The content of /tmp/perf-PID.map: a line has the first address and the length of a function, in hexadecimal, and its name.
#[derive(Debug, Default)]
pub struct GeneratedNames {
    /// In the order of their addresses: first address, address after the last, name.
    functions: Vec<(u64, u64, String)>,
}

impl GeneratedNames {
    pub fn read(file: File) -> GeneratedNames {
        let mut bytes = Vec::new();
        // A file that cannot be read names nothing, like one that does not exist.
        drop(file.take(MAX_BYTES).read_to_end(&mut bytes));
        GeneratedNames::parse(&String::from_utf8_lossy(&bytes))
    }

    /// A later line replaces an earlier one for the same address.
    fn parse(text: &str) -> GeneratedNames {
        let function = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let (bytes, name) = rest.split_once(' ')?;
            let number = |hex: &str| u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok();
            let start = number(start)?;
            Some((start, start.checked_add(number(bytes)?)?, name.trim().to_string()))
        };
        let mut functions: Vec<_> = text.lines().filter_map(function).collect();
        functions.reverse();
        functions.sort_by_key(|(start, ..)| *start);
        functions.dedup_by_key(|(start, ..)| *start);
        GeneratedNames { functions }
    }

    pub fn at(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.functions[..after].last()?;
        (address < *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_for_an_address_counts() {
        let names = GeneratedNames::parse("7f00 20 Old::name\nbad line\n0x7f40 10 LMain;::run\n7f00 20 New::name\n");
        assert_eq!(names.at(0x7f1f), Some("New::name"));
        assert_eq!(names.at(0x7f20), None);
        assert_eq!(names.at(0x7f40), Some("LMain;::run"));
        assert_eq!(names.at(0x10), None);
    }
}
