//! One set of many ways: a list ordered by last use, with an index from keys to list nodes.

use super::entry::Key;

/// Upper bound of the number of places in a list.
pub const MOST: u32 = u16::MAX as u32;

#[derive(Clone, Debug)]
pub struct List {
    nodes: Vec<Node>,
    /// The node of every key; 0 for none, because node 0 is not an entry.
    places: Vec<u16>,
    /// Number of nodes that hold a key.
    used: u16,
}

/// Node 0 is the head of the ring: its `next` is the most recently used entry, its `before` the least recently used.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    key: Key,
    before: u16,
    next: u16,
}

impl List {
    pub fn new(ways: u32) -> List {
        List { nodes: vec![Node::default(); ways as usize + 1], places: Vec::new(), used: 0 }
    }

    #[inline]
    pub fn touch(&mut self, _index: u32, key: Key) -> bool {
        if self.nodes[usize::from(self.nodes[0].next)].key == key {
            return true;
        }
        if key as usize >= self.places.len() {
            self.places.resize((key as usize + 1).next_power_of_two(), 0);
        }
        let found = self.places[key as usize];
        let node = if found != 0 { found } else { self.room() };
        if found != 0 {
            self.unlink(node);
        } else {
            self.places[key as usize] = node;
            self.nodes[usize::from(node)].key = key;
        }
        self.link_in_front(node);
        found != 0
    }

    /// A node that is in no list: a new one, or that of the least recently used entry.
    fn room(&mut self) -> u16 {
        if usize::from(self.used) + 1 < self.nodes.len() {
            self.used += 1;
            return self.used;
        }
        let last = self.nodes[0].before;
        self.places[self.nodes[usize::from(last)].key as usize] = 0;
        self.unlink(last);
        last
    }

    fn unlink(&mut self, node: u16) {
        let Node { before, next, .. } = self.nodes[usize::from(node)];
        self.nodes[usize::from(before)].next = next;
        self.nodes[usize::from(next)].before = before;
    }

    fn link_in_front(&mut self, node: u16) {
        let first = std::mem::replace(&mut self.nodes[0].next, node);
        self.nodes[usize::from(first)].before = node;
        self.nodes[usize::from(node)].before = 0;
        self.nodes[usize::from(node)].next = first;
    }

    pub fn forget_one(&mut self, _index: u32, key: Key) {
        if self.places.get(key as usize).is_some_and(|place| *place != 0) {
            self.forget(&|other| other == key);
        }
    }

    pub fn forget(&mut self, gone: &impl Fn(Key) -> bool) -> u64 {
        let mut keys = Vec::with_capacity(usize::from(self.used));
        let mut node = self.nodes[0].next;
        while node != 0 {
            keys.push(self.nodes[usize::from(node)].key);
            node = self.nodes[usize::from(node)].next;
        }
        if !keys.iter().any(|key| gone(*key)) {
            return 0;
        }
        for key in &keys {
            self.places[*key as usize] = 0;
        }
        let before = keys.len();
        keys.retain(|key| !gone(*key));
        let places = std::mem::take(&mut self.places);
        *self = List { places, ..List::new(self.nodes.len() as u32 - 1) };
        for key in keys.iter().rev() {
            self.touch(0, *key);
        }
        (before - keys.len()) as u64
    }
}
