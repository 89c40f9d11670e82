//! The counters of a kernel that counts its own stage 2 walks ([`Counts`], count.patch).

use serde::{Deserialize, Serialize};

/// Counts of stage 2 walks, or the increase of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Entries that splitting walks visited.
    pub split_visits: u64,
    /// Entries that were written into new tables before they were linked.
    pub built_entries: u64,
    /// Tables that were allocated for these entries.
    pub tables: u64,
    /// Blocks that were replaced by a table. Each of them is invalidated once.
    pub blocks: u64,
}

impl Counts {
    /// Parses lines `PATH/NAME:VALUE`.
    pub fn read(lines: &str) -> Result<Counts, String> {
        let of = |name: &str| {
            let value = lines.lines().find_map(|line| {
                let (path, value) = line.rsplit_once(':')?;
                (path.rsplit('/').next() == Some(name)).then_some(value)
            });
            let value = value.ok_or_else(|| format!("the kernel has no counter {name}"))?;
            value.trim().parse().map_err(|_| format!("{name}: expected a number, found {value:?}"))
        };
        let [split_visits, built_entries] = [of("split_visits")?, of("built_entries")?];
        Ok(Counts { split_visits, built_entries, tables: of("tables")?, blocks: of("blocks")? })
    }

    /// The increase since `before`.
    pub fn since(self, before: Counts) -> Result<Counts, String> {
        let less = |now: u64, before: u64| now.checked_sub(before).ok_or("a counter of the kernel decreased");
        Ok(Counts {
            split_visits: less(self.split_visits, before.split_visits)?,
            built_entries: less(self.built_entries, before.built_entries)?,
            tables: less(self.tables, before.tables)?,
            blocks: less(self.blocks, before.blocks)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let text = "/p/blocks:1\n/p/built_entries:512\n/p/split_visits:513\n/p/tables:1\n/p/x:y\n";
        let counts = Counts::read(text).unwrap();
        assert_eq!(counts, Counts { split_visits: 513, built_entries: 512, tables: 1, blocks: 1 });
        assert_eq!(counts.since(Counts { split_visits: 13, ..Counts::default() }).unwrap().split_visits, 500);
        assert!(Counts::default().since(counts).is_err());
        assert!(Counts::read("/p/tables:1\n").unwrap_err().contains("split_visits"));
        assert!(Counts::read(&text.replace(":513", ":many")).unwrap_err().contains("many"));
    }
}
