//! The hugetlb pools of a host, as a whole and by NUMA node (Documentation/admin-guide/mm/hugetlbpage.rst).

use policy::inspect::{NodePool, Pool};
use policy::size::PageSize;

use super::absent;
use super::read::{HostError, keyed_bytes};
use super::{Host, Root, hugetlb_file};

/// The directory of the NUMA nodes.
pub const NODES: &str = "/sys/devices/system/node";
/// The files of the pool of a node.
const OF_NODE: [&str; 3] = ["nr_hugepages", "free_hugepages", "surplus_hugepages"];

impl Host {
    /// The hugetlb pools, smallest pages first. A pool may be empty.
    pub fn pools(&self) -> Result<Vec<Pool>, HostError> {
        self.page_sizes.hugetlb.iter().map(|size| self.pool(*size)).collect()
    }

    /// The hugetlb pool of pages of `size`.
    pub fn pool(&self, size: PageSize) -> Result<Pool, HostError> {
        let number = |file: &str| self.required_number(&hugetlb_file(size, file));
        let (surplus, reserved) = (number("surplus_hugepages")?, number("resv_hugepages")?);
        let nodes: Result<Vec<Option<NodePool>>, HostError> =
            nodes(&self.root)?.into_iter().map(|node| self.node_pool(node, size)).collect();
        Ok(Pool {
            size,
            pages: number("nr_hugepages")?,
            free: number("free_hugepages")?.saturating_sub(reserved),
            reserved,
            surplus,
            surplus_left: number("nr_overcommit_hugepages")?.saturating_sub(surplus),
            nodes: nodes?.into_iter().flatten().collect(),
        })
    }

    /// The size of hugetlb pages for a request that names none (`Hugepagesize`); `None` where the kernel has no pools.
    pub fn default_hugetlb(&self) -> Result<Option<PageSize>, HostError> {
        let text = self.root.required("/proc/meminfo")?;
        let bytes = text.lines().find_map(|line| keyed_bytes(line, "Hugepagesize"));
        Ok(bytes.and_then(|bytes| PageSize::new(bytes).ok()))
    }

    /// The part of a pool on a node; `None` where the node has no memory, or the capture lacks its files.
    fn node_pool(&self, node: u32, size: PageSize) -> Result<Option<NodePool>, HostError> {
        let [pages, free, surplus] = OF_NODE.map(|file| self.number(&node_file(node, size, file)));
        let numbers = pages?.zip(free?).zip(surplus?);
        Ok(numbers.map(|((pages, free), surplus)| NodePool { node, pages, free, surplus }))
    }

    /// The files of all pools on all nodes.
    pub(crate) fn node_pool_files(&self) -> Vec<String> {
        // A capture lacks what cannot be listed.
        let nodes = nodes(&self.root).unwrap_or_default();
        let of_node = |node: u32| {
            let sizes = self.page_sizes.hugetlb.iter();
            sizes.flat_map(move |size| OF_NODE.map(|file| node_file(node, *size, file)))
        };
        nodes.into_iter().flat_map(of_node).collect()
    }
}

/// The numbers of the NUMA nodes.
pub fn nodes(root: &Root) -> Result<Vec<u32>, HostError> {
    let names = absent::names(root, NODES)?;
    let mut nodes: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    nodes.sort_unstable();
    Ok(nodes)
}

fn node_file(node: u32, size: PageSize, file: &str) -> String {
    format!("{NODES}/node{node}/hugepages/hugepages-{}kB/{file}", size.bytes() >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_pool_is_read_as_a_whole_and_by_node() {
        let tree = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = tree.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("/proc/self/smaps", "KernelPageSize: 4 kB\n");
        let whole =
            [("nr_hugepages", "10"), ("free_hugepages", "6"), ("resv_hugepages", "2"), ("surplus_hugepages", "3")];
        for (file, value) in whole.into_iter().chain([("nr_overcommit_hugepages", "8")]) {
            put(&hugetlb_file(PageSize::M2, file), value);
        }
        for (node, free) in [(0, "1"), (10, "5")] {
            for (file, value) in [("nr_hugepages", "5"), ("free_hugepages", free), ("surplus_hugepages", "0")] {
                put(&node_file(node, PageSize::M2, file), value);
            }
        }
        fs::create_dir_all(tree.path().join("sys/devices/system/node/node2")).unwrap();
        let host = Host::open(tree.path()).unwrap();
        let pool = host.pool(PageSize::M2).unwrap();
        assert_eq!((pool.pages, pool.free, pool.reserved, pool.surplus, pool.surplus_left), (10, 4, 2, 3, 5));
        let nodes: Vec<_> = pool.nodes.iter().map(|node| (node.node, node.pages, node.free)).collect();
        assert_eq!(nodes, [(0, 5, 1), (10, 5, 5)], "node 2 has no memory");
        assert!(host.files().contains(&node_file(10, PageSize::M2, "free_hugepages")));
    }
}
