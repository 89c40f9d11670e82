//! Which pages are read, and in which order.

use workloads::random::shuffle;

/// The order of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// From the lowest address to the highest
    Sequential,
    /// Clusters of pages in random order, each from its lowest address to its highest
    Random,
}

/// The reads of a workload.
pub struct Reads {
    pub pages: usize,
    /// Pages of a cluster.
    pub cluster_pages: usize,
    /// The part of the clusters that is read.
    pub share: f64,
    pub order: Order,
}

impl Reads {
    /// The pages in the order in which they are read; at least one cluster.
    pub fn in_order(&self, seed: u64) -> Vec<usize> {
        let clusters = self.pages.div_ceil(self.cluster_pages);
        let is_read = |cluster: &u32| {
            let cluster = f64::from(*cluster);
            ((cluster + 1.0) * self.share).floor() > (cluster * self.share).floor()
        };
        let mut read: Vec<u32> = (0..u32::try_from(clusters).unwrap_or(u32::MAX)).filter(is_read).collect();
        if read.is_empty() {
            read.push(0);
        }
        if self.order == Order::Random {
            shuffle(&mut read, seed);
        }
        let of_cluster = |cluster: u32| {
            let first = cluster as usize * self.cluster_pages;
            first..(first + self.cluster_pages).min(self.pages)
        };
        read.into_iter().flat_map(of_cluster).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: usize, cluster_pages: usize, share: f64, order: Order) -> Vec<usize> {
        Reads { pages, cluster_pages, share, order }.in_order(1)
    }

    #[test]
    fn a_share_of_the_clusters_is_read_whole() {
        assert_eq!(pages(6, 1, 1.0, Order::Sequential), [0, 1, 2, 3, 4, 5]);
        assert_eq!(pages(7, 2, 0.5, Order::Sequential), [2, 3, 6]);
        assert_eq!(pages(4, 2, 0.01, Order::Sequential), [0, 1]);
    }

    #[test]
    fn the_seed_decides_the_order_of_clusters() {
        let random = pages(64, 4, 1.0, Order::Random);
        assert_eq!(random, pages(64, 4, 1.0, Order::Random));
        let reads = Reads { pages: 64, cluster_pages: 4, share: 1.0, order: Order::Random };
        assert_ne!(random, reads.in_order(2));
        assert!(random.chunks(4).all(|cluster| cluster.windows(2).all(|two| two[1] == two[0] + 1)));
        let mut all = random;
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
    }
}
