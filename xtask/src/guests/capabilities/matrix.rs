//! A stored matrix of capabilities, as the page needs it ([`Matrix`]).

use serde::Deserialize;

use super::Origin;

/// The document of one kernel.
#[derive(Debug, Deserialize)]
pub struct Matrix {
    pub guest: Origin,
    cells: Vec<Cell>,
}

#[derive(Debug, Deserialize)]
struct Cell {
    kind: String,
    mount: Option<String>,
    way: String,
    size_bytes: u64,
    outcome: String,
    leaf: Option<u64>,
    folio: Option<u64>,
    depends_on_free_memory: bool,
}

/// The sizes that one kind of memory gets in one way.
#[derive(Debug, Default, PartialEq)]
pub struct Sizes {
    /// The sizes that were tried, in bytes.
    pub tried: Vec<u64>,
    /// The sizes that the memory got: as a leaf, or else as a whole folio.
    pub large: Vec<u64>,
    /// The sizes that only folios of the memory have.
    pub folios: Vec<u64>,
    /// Whether an allocation of one of the sizes failed twice.
    pub depends_on_free_memory: bool,
}

impl Matrix {
    pub fn parse(text: &str) -> Result<Matrix, String> {
        serde_json::from_str(text).map_err(|error| format!("expected a stored document of capabilities: {error}"))
    }

    /// The rows: kind and mount, in the order of the cells.
    pub fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for cell in &self.cells {
            if !rows.contains(&cell.row()) {
                rows.push(cell.row());
            }
        }
        rows
    }

    pub fn sizes(&self, row: &str, way: &str) -> Sizes {
        let mut sizes = Sizes::default();
        for cell in self.cells.iter().filter(|cell| cell.way == way && cell.row() == row) {
            if cell.outcome == "not_available" {
                continue;
            }
            sizes.tried.push(cell.size_bytes);
            sizes.depends_on_free_memory |= cell.depends_on_free_memory;
            // If the memory got a larger page than the one that was tried, that belongs to the row of the larger size.
            let is_of_size = cell.leaf.max(cell.folio) == Some(cell.size_bytes);
            match cell.outcome.as_str() {
                "large" if is_of_size => sizes.large.push(cell.size_bytes),
                "folio_only" if is_of_size => sizes.folios.push(cell.size_bytes),
                _ => {}
            }
        }
        sizes
    }

    /// The number of cells with an outcome.
    pub fn count(&self, outcome: &str) -> usize {
        self.cells.iter().filter(|cell| cell.outcome == outcome).count()
    }
}

impl Cell {
    fn row(&self) -> String {
        let kind = match self.kind.as_str() {
            "anonymous" => "anon",
            "shared_anonymous" => "shared",
            "file_data" => "data",
            "file_text" => "text",
            other => other,
        };
        let mount = self.mount.as_deref().map(|mount| format!(" {}", mount.trim_start_matches("huge=")));
        format!("{kind}{}", mount.unwrap_or_default())
    }
}

impl Sizes {
    /// The sizes as text: `16K-2M`, with those of folios in parentheses.
    pub fn text(&self) -> String {
        if self.tried.is_empty() {
            return "-".to_owned();
        }
        let mut parts = ranges(&self.large, &self.tried);
        parts.extend(ranges(&self.folios, &self.tried).into_iter().map(|range| format!("({range})")));
        let text = if parts.is_empty() { "no".to_owned() } else { parts.join(" ") };
        if self.depends_on_free_memory { format!("{text}*") } else { text }
    }
}

/// Ranges of sizes that are consecutive among the sizes that were tried.
fn ranges(sizes: &[u64], tried: &[u64]) -> Vec<String> {
    let has = |at: usize| sizes.contains(&tried[at]);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tried.len() {
        let first = at;
        while at < tried.len() && has(at) {
            at += 1;
        }
        match at - first {
            0 => at += 1,
            1 => found.push(size(tried[first])),
            _ => found.push(format!("{}-{}", size(tried[first]), size(tried[at - 1]))),
        }
    }
    found
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=0xf_ffff => format!("{}K", bytes >> 10),
        0x10_0000..=0x3fff_ffff => format!("{}M", bytes >> 20),
        _ => format!("{}G", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_ranges_of_those_that_were_tried() {
        let sizes = Sizes {
            tried: vec![8 << 10, 16 << 10, 32 << 10, 64 << 10, 2 << 20, 1 << 30],
            large: vec![16 << 10, 32 << 10, 2 << 20],
            folios: vec![1 << 30],
            depends_on_free_memory: true,
        };
        assert_eq!(sizes.text(), "16K-32K 2M (1G)*");
        assert_eq!(Sizes::default().text(), "-");
        assert_eq!(Sizes { tried: vec![4096], ..Sizes::default() }.text(), "no");
    }
}
