//! A directed graph ([`Graph`]): finds its cycles, and removes redundant arrows.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Graph {
    /// Each node with the targets of its arrows, sorted by name.
    nodes: BTreeMap<String, BTreeSet<String>>,
    /// The nodes that can be reached from each node. A node reaches itself only if it is on a cycle.
    reached: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Makes a graph. Both ends of an arrow must be nodes. An arrow from a node to itself is left out.
    pub fn new(nodes: impl Iterator<Item = String>, arrows: impl Iterator<Item = (String, String)>) -> Graph {
        let mut graph: BTreeMap<String, BTreeSet<String>> = nodes.map(|node| (node, BTreeSet::new())).collect();
        for (from, to) in arrows.filter(|(from, to)| from != to) {
            graph.entry(to.clone()).or_default();
            graph.entry(from).or_default().insert(to);
        }
        let reached = graph.keys().map(|node| (node.clone(), reached_from(&graph, node))).collect();
        Graph { nodes: graph, reached }
    }

    /// Groups of two or more nodes that all reach each other.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let mut cycles: Vec<Vec<String>> = Vec::new();
        for node in self.nodes.keys() {
            let group: Vec<String> = self.nodes.keys().filter(|other| self.together(node, other)).cloned().collect();
            if group.len() > 1 && group[0] == *node {
                cycles.push(group);
            }
        }
        cycles
    }

    /// The transitive reduction: `a ─► c` is left out if there is `a ─► b ─► c`.
    pub fn reduced(&self) -> BTreeMap<&str, Vec<&str>> {
        let needed = |from: &str, to: &str| {
            let apart = |by: &String| !self.together(by, from) && !self.together(by, to);
            !self.nodes[from].iter().any(|by| by != to && apart(by) && self.reaches(by, to))
        };
        let mut reduced = BTreeMap::new();
        for (from, arrows) in &self.nodes {
            reduced.insert(from.as_str(), arrows.iter().filter(|to| needed(from, to)).map(String::as_str).collect());
        }
        reduced
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        self.reached.get(from).is_some_and(|reached| reached.contains(to))
    }

    fn together(&self, one: &str, other: &str) -> bool {
        one == other || (self.reaches(one, other) && self.reaches(other, one))
    }
}

fn reached_from(graph: &BTreeMap<String, BTreeSet<String>>, node: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = graph[node].iter().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next.clone()) {
            open.extend(&graph[next]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &str) -> Graph {
        let arrows = arrows.split(' ').filter_map(|arrow| arrow.split_once('>'));
        Graph::new(["z".to_string()].into_iter(), arrows.map(|(from, to)| (from.to_string(), to.to_string())))
    }

    #[test]
    fn cycles_are_groups_that_reach_each_other() {
        assert_eq!(graph("a>b b>c a>c a>a").cycles(), [[""; 0]; 0]);
        assert_eq!(graph("a>b b>a b>c c>d d>c e>a").cycles(), [["a", "b"], ["c", "d"]]);
        assert_eq!(graph("a>b b>c c>a").cycles(), [["a", "b", "c"]]);
    }

    #[test]
    fn arrows_that_follow_from_others_are_left_out() {
        let graph = graph("a>b b>c a>c c>d a>d");
        let reduced = graph.reduced();
        assert_eq!((&reduced["a"][..], &reduced["b"][..], &reduced["c"][..]), (&["b"][..], &["c"][..], &["d"][..]));
        assert_eq!(reduced["z"], [""; 0]);
    }

    #[test]
    fn a_cycle_keeps_its_arrows() {
        let graph = graph("a>b b>a a>c b>c");
        let reduced = graph.reduced();
        assert_eq!((&reduced["a"][..], &reduced["b"][..]), (&["b", "c"][..], &["a", "c"][..]));
    }
}
