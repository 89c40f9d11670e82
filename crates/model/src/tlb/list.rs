//! One LRU set of many ways: a list ordered by last use, with an index from keys to nodes.

use super::entry::Key;

/// The maximum number of ways of a list, whose node numbers have 16 bits.
pub const MAX_WAYS: u32 = u16::MAX as u32 - 1;

#[derive(Clone, Debug)]
pub struct LruList {
    nodes: Vec<Node>,
    /// The node of every key; 0 for none, because node 0 is not an entry.
    node_of: Vec<u16>,
    /// Number of nodes with a key.
    used: u16,
}

/// Node 0 is the head of the ring: `next` is the most recently used entry, `prev` the least recently used.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    key: Key,
    prev: u16,
    next: u16,
}

impl LruList {
    pub fn new(ways: u32) -> LruList {
        LruList { nodes: vec![Node::default(); ways as usize + 1], node_of: Vec::new(), used: 0 }
    }

    #[inline]
    pub fn touch(&mut self, _index: u32, key: Key) -> bool {
        if self.nodes[usize::from(self.nodes[0].next)].key == key {
            return true;
        }
        if key as usize >= self.node_of.len() {
            self.node_of.resize((key as usize + 1).next_power_of_two(), 0);
        }
        let found = self.node_of[key as usize];
        let node = if found != 0 { found } else { self.free_node() };
        if found != 0 {
            self.unlink(node);
        } else {
            self.node_of[key as usize] = node;
            self.nodes[usize::from(node)].key = key;
        }
        self.link_in_front(node);
        found != 0
    }

    /// A free node: an unused node, or else the node of the least recently used entry, which is evicted.
    fn free_node(&mut self) -> u16 {
        if usize::from(self.used) + 1 < self.nodes.len() {
            self.used += 1;
            return self.used;
        }
        let last = self.nodes[0].prev;
        self.node_of[self.nodes[usize::from(last)].key as usize] = 0;
        self.unlink(last);
        last
    }

    fn unlink(&mut self, node: u16) {
        let Node { prev, next, .. } = self.nodes[usize::from(node)];
        self.nodes[usize::from(prev)].next = next;
        self.nodes[usize::from(next)].prev = prev;
    }

    fn link_in_front(&mut self, node: u16) {
        let first = std::mem::replace(&mut self.nodes[0].next, node);
        self.nodes[usize::from(first)].prev = node;
        self.nodes[usize::from(node)].prev = 0;
        self.nodes[usize::from(node)].next = first;
    }

    pub fn invalidate_one(&mut self, _index: u32, key: Key) {
        if self.node_of.get(key as usize).is_some_and(|node| *node != 0) {
            self.invalidate(&|other| other == key);
        }
    }

    pub fn invalidate(&mut self, is_stale: &impl Fn(Key) -> bool) -> u64 {
        let mut keys = Vec::with_capacity(usize::from(self.used));
        let mut node = self.nodes[0].next;
        while node != 0 {
            keys.push(self.nodes[usize::from(node)].key);
            node = self.nodes[usize::from(node)].next;
        }
        if !keys.iter().any(|key| is_stale(*key)) {
            return 0;
        }
        for key in &keys {
            self.node_of[*key as usize] = 0;
        }
        let count = keys.len();
        keys.retain(|key| !is_stale(*key));
        let node_of = std::mem::take(&mut self.node_of);
        *self = LruList { node_of, ..LruList::new(self.nodes.len() as u32 - 1) };
        for key in keys.iter().rev() {
            self.touch(0, *key);
        }
        (count - keys.len()) as u64
    }
}
