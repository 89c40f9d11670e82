//! Input that is almost valid: valid input with a few changes. The changes follow from a seed that is printed. For each input,
//! a parser must return a result or an error.

use serde_json::{Map, Number, Value};

use crate::Random;

/// The variable by which the number of mutations is multiplied.
pub const TIMES: &str = "PAGELAB_TEST_TIMES";

/// The number of mutations that a test tries: `small`, multiplied by [`TIMES`] if it is set.
///
/// # Panics
/// The variable is not a number.
pub fn count(small: usize) -> usize {
    let times = std::env::var(TIMES).ok();
    let times =
        times.map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{TIMES}: expected a number, found {text:?}")));
    small * times
}

/// Boundary values.
const NUMBERS: [u64; 14] =
    [0, 1, 2, 3, 255, 4095, 4096, 65_536, 1 << 31, 1 << 32, 1 << 47, 1 << 62, u64::MAX - 1, u64::MAX];

/// Words with a special meaning for a terminal, a shell, a parser or a path.
const WORDS: [&str; 16] = [
    "",
    " ",
    "\u{1b}[31mred\u{1b}[0m",
    "\u{1b}]0;title\u{7}",
    "two\nlines\r",
    "\u{9b}2J\u{202e}",
    "\0",
    "../../../etc/passwd",
    "{0}%s%n",
    "NaN",
    "-1",
    "1e999",
    "18446744073709551616",
    "0x",
    "4K",
    "true",
];

/// The length of a text that no parser expects, in bytes.
const LONG: u64 = 200_000;

impl Random {
    fn index(&mut self, length: usize) -> usize {
        self.below(length.max(1) as u64) as usize
    }

    /// A number at or near a boundary value, or any number.
    pub fn number(&mut self) -> u64 {
        let edge = NUMBERS[self.index(NUMBERS.len())];
        match self.below(4) {
            0 => edge.wrapping_sub(self.below(3)),
            1 => edge.wrapping_add(self.below(3)),
            2 => edge,
            _ => self.below(u64::MAX),
        }
    }

    /// An unexpected word.
    pub fn word(&mut self) -> String {
        match self.below(12) {
            0 => "x".repeat(self.below(LONG) as usize),
            1 => self.number().to_string(),
            _ => WORDS[self.index(WORDS.len())].to_owned(),
        }
    }

    /// Changes a few bytes or ranges of bytes.
    pub fn change_bytes(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let (at, length) = (self.index(bytes.len()), 1 + self.index(64));
            let end = bytes.len().min(at + length);
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.below(256) as u8,
                2 => {
                    let number = self.number().to_le_bytes();
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].copy_from_slice(&number[..end - at]);
                }
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let again = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, again));
                }
                _ => bytes.truncate(at),
            }
        }
    }

    /// Changes a few values, keys or lengths of a document.
    pub fn change_json(&mut self, document: &mut Value) {
        for _ in 0..=self.below(3) {
            let steps = self.below(12);
            self.change_below(document, steps);
        }
    }

    fn change_below(&mut self, value: &mut Value, steps: u64) {
        match value {
            Value::Array(list) if !list.is_empty() && steps > 0 => {
                let at = self.index(list.len());
                match self.below(8) {
                    0 => drop(list.remove(at)),
                    1 => list.insert(at, list[at].clone()),
                    _ => self.change_below(&mut list[at], steps - 1),
                }
            }
            Value::Object(map) if !map.is_empty() && steps > 0 => {
                let key = map.keys().nth(self.index(map.len())).cloned().unwrap_or_default();
                match self.below(12) {
                    0 => drop(map.remove(&key)),
                    1 => drop(map.insert(self.word(), Value::Null)),
                    _ => self.change_below(&mut map[&key], steps - 1),
                }
            }
            _ => *value = self.value(),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 0),
            2 => Value::Array(Vec::new()),
            3 => Value::Object(Map::new()),
            4 => Value::from(-(self.below(1 << 62) as i64)),
            5 => Number::from_f64([0.5, -0.0, 1e300, f64::MIN_POSITIVE][self.index(4)])
                .map_or(Value::Null, Value::Number),
            6 => (0..1 + self.below(200)).fold(Value::Null, |inner, _| Value::Array(vec![inner])),
            7..9 => Value::from(self.number()),
            _ => Value::String(self.word()),
        }
    }

    /// Changes a few lines of a text that has lines like `key = value`: values, keys, whole lines, and their order.
    pub fn change_lines(&mut self, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=self.below(3) {
            let (at, other) = (self.index(lines.len()), self.index(lines.len()));
            match self.below(8) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[other].clone()),
                2 => lines.swap(at, other),
                3 => lines.insert(at, self.word()),
                _ => lines[at] = self.changed_line(&lines[at]),
            }
            if lines.is_empty() {
                break;
            }
        }
        lines.join("\n")
    }

    fn changed_line(&mut self, line: &str) -> String {
        // Changes one part of the line: a number, a word, or other text.
        let parts: Vec<&str> = line.split_inclusive([' ', ',', '=', '"', '[', ']', '{', '}']).collect();
        let changed = self.index(parts.len());
        let value = match self.below(4) {
            0 => format!("{:?}", self.word()),
            1 => self.word(),
            2 => format!("-{}", self.number()),
            _ => self.number().to_string(),
        };
        let part = |(at, part): (usize, &&str)| if at == changed { value.clone() } else { (*part).to_owned() };
        parts.iter().enumerate().map(part).collect()
    }
}
