//! The page-table entries above leaves: all leaves in one table have the same path.

use std::collections::HashMap;

use super::keys::Hashing;
use crate::space::Path;

/// The paths to tables with leaves, each stored once. A path does not change while its table has a leaf. Numbers of paths are kept with
/// leaves and dropped with them, so that a number that is in use is valid.
#[derive(Default)]
pub(super) struct Paths {
    /// The number of the latest path to a table, by the address of the entry that points to the table.
    numbers: HashMap<u64, u32, Hashing>,
    paths: Vec<Path>,
}

impl Paths {
    /// The number of the path to the leaf that ends `path`.
    pub(super) fn number(&mut self, path: &Path) -> u32 {
        let mut above = *path;
        above.entries[..=usize::from(path.leaf_level)].fill(Default::default());
        let pointer = above.entries.get(usize::from(path.leaf_level) + 1).copied().unwrap_or_default().0;
        let paths = &mut self.paths;
        // The entry may point to another table since.
        let number = self.numbers.get(&pointer).copied().filter(|number| paths[*number as usize] == above);
        number.unwrap_or_else(|| {
            paths.push(above);
            self.numbers.insert(pointer, paths.len() as u32 - 1);
            paths.len() as u32 - 1
        })
    }

    /// The entries above a leaf.
    #[inline]
    pub(super) fn path(&self, number: u32) -> &Path {
        &self.paths[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Pa;
    use crate::space::LEVELS;

    #[test]
    fn leaves_of_one_table_share_a_path_and_another_table_has_another_path() {
        let path = |leaf: u64, pmd: u64, pud: u64| Path {
            entries: [Pa(leaf), Pa(pmd), Pa(pud), Pa(8), Pa(0)],
            root_level: 3,
            leaf_level: 0,
        };
        assert_eq!(LEVELS, 5);
        let mut paths = Paths::default();
        let [first, again] = [0x1000, 0x1008].map(|leaf| paths.number(&path(leaf, 0x2000, 0x3000)));
        assert_eq!(first, again);
        assert_eq!(paths.path(first), &path(0, 0x2000, 0x3000));
        let other = paths.number(&path(0x5000, 0x2008, 0x3000));
        let moved = paths.number(&path(0x5000, 0x2000, 0x9000));
        assert!(first != other && moved != first && moved != other);
        assert_eq!(paths.path(first), &path(0, 0x2000, 0x3000), "an old number keeps its path");
        let huge = paths.number(&Path { leaf_level: 1, ..path(0x5000, 0x2000, 0x3000) });
        assert_eq!(paths.path(huge).entries[..2], [Pa(0); 2]);
    }
}
