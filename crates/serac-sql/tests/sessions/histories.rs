//! The histories that a level of isolation allows.
//!
//! The versions of each object are numbered in the order in which they were written, the first
//! state being 0. A transaction depends on another one if it has read (wr) or overwritten (ww) a
//! version of that one. It anti-depends on the other if that has overwritten a version that it has
//! read (rw). Adya's phenomena are cycles of these: G1c of ww and wr, G-single with one rw, G2 with
//! any number. Snapshot isolation allows only cycles in which two rw follow each other. No cycle is
//! left if each rw counts only in composition with a dependency before it (Cerone and Gotsman).
//! Serialisable histories have no cycle at all.

use std::collections::HashMap;

/// A transaction's operation on one object.
#[derive(Clone, Debug)]
pub enum Event {
    /// It read the object in the state with this number of versions.
    Read {
        object: usize,
        version: usize,
    },
    /// It wrote this version, from 1.
    Write {
        object: usize,
        version: usize,
    },
    /// It saw these elements of a set, to which `Insert` adds.
    Find {
        set: usize,
        elements: Vec<i64>,
    },
    Insert {
        set: usize,
        element: i64,
    },
}

/// Committed transactions, each with its session and events; those of a session in their order.
#[derive(Default, Debug)]
pub struct History {
    pub transactions: Vec<(usize, Vec<Event>)>,
}

/// The forbidden phenomena of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    ReadCommitted,
    Snapshot,
    Serializable,
}

#[derive(Default)]
struct Graph {
    /// ww, wr, and the order of a session.
    dependencies: Vec<Vec<usize>>,
    anti_dependencies: Vec<Vec<usize>>,
}

/// A cycle, if there is one.
fn cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    // 0: not seen, 1: on the path, 2: done.
    let mut state = vec![0u8; edges.len()];
    for root in 0..edges.len() {
        let mut path: Vec<(usize, usize)> = vec![(root, 0)];
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        while let Some((node, next)) = path.last_mut() {
            let Some(&to) = edges[*node].get(*next) else {
                state[*node] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    path.push((to, 0));
                }
                1 => {
                    let from = path.iter().position(|(node, _)| *node == to).expect("on the path");
                    return Some(path[from..].iter().map(|(node, _)| *node).collect());
                }
                _ => {}
            }
        }
    }
    None
}

impl History {
    fn graph(&self, level: Level) -> Result<Graph, String> {
        let mut writers: HashMap<(usize, usize), usize> = HashMap::new();
        let mut last_of: HashMap<(usize, usize), usize> = HashMap::new();
        let mut inserters: HashMap<usize, Vec<(i64, usize)>> = HashMap::new();
        for (number, (_, events)) in self.transactions.iter().enumerate() {
            for event in events {
                match *event {
                    Event::Write { object, version } => {
                        if let Some(other) = writers.insert((object, version), number) {
                            return Err(format!(
                                "lost update: {other} and {number} wrote version {version} of {object}"
                            ));
                        }
                        let last = last_of.entry((object, number)).or_default();
                        *last = version.max(*last);
                    }
                    Event::Insert { set, element } => inserters.entry(set).or_default().push((element, number)),
                    _ => {}
                }
            }
        }
        let mut graph = Graph {
            dependencies: vec![Vec::new(); self.transactions.len()],
            anti_dependencies: vec![Vec::new(); self.transactions.len()],
        };
        let add = |edges: &mut Vec<Vec<usize>>, from: usize, to: usize| {
            if from != to {
                edges[from].push(to);
            }
        };
        for (&(object, version), &writer) in &writers {
            if let Some(&next) = writers.get(&(object, version + 1)) {
                add(&mut graph.dependencies, writer, next);
            }
        }
        let mut last_of_session: HashMap<usize, usize> = HashMap::new();
        for (number, (session, events)) in self.transactions.iter().enumerate() {
            if let Some(before) = last_of_session.insert(*session, number)
                && level != Level::ReadCommitted
            {
                add(&mut graph.dependencies, before, number);
            }
            for event in events {
                match event {
                    Event::Read { object, version } => {
                        if *version > 0 {
                            let Some(&writer) = writers.get(&(*object, *version)) else {
                                return Err(format!("G1a: {number} read version {version} of {object}, of no commit"));
                            };
                            if writer != number && last_of[&(*object, writer)] != *version {
                                return Err(format!(
                                    "G1b: {number} read version {version} of {object}, not {writer}'s last"
                                ));
                            }
                            add(&mut graph.dependencies, writer, number);
                        }
                        if let Some(&next) = writers.get(&(*object, version + 1)) {
                            add(&mut graph.anti_dependencies, number, next);
                        }
                    }
                    Event::Find { set, elements } => {
                        let all = inserters.get(set).map_or(&[][..], Vec::as_slice);
                        if let Some(element) = elements.iter().find(|e| !all.iter().any(|(known, _)| known == *e)) {
                            return Err(format!("G1a: {number} found {element} in {set}, of no commit"));
                        }
                        for (element, inserter) in all {
                            if elements.contains(element) {
                                add(&mut graph.dependencies, *inserter, number);
                            } else {
                                add(&mut graph.anti_dependencies, number, *inserter);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(graph)
    }

    /// Checks the history.
    pub fn check(&self, level: Level) -> Result<(), String> {
        let graph = self.graph(level)?;
        let edges: Vec<Vec<usize>> = match level {
            Level::ReadCommitted => graph.dependencies,
            Level::Snapshot => {
                let composed = |to: &Vec<usize>| {
                    let behind = to.iter().flat_map(|&between| &graph.anti_dependencies[between]);
                    to.iter().chain(behind).copied().collect()
                };
                graph.dependencies.iter().map(composed).collect()
            }
            Level::Serializable => {
                let both = graph.dependencies.iter().zip(&graph.anti_dependencies);
                both.map(|(a, b)| a.iter().chain(b).copied().collect()).collect()
            }
        };
        match cycle(&edges) {
            None => Ok(()),
            Some(cycle) => {
                let shown: Vec<String> =
                    cycle.iter().map(|&number| format!("{number}: {:?}", self.transactions[number])).collect();
                Err(format!("a cycle at {level:?}:\n{}", shown.join("\n")))
            }
        }
    }
}

use Event::{Find, Insert, Read, Write};

fn allowed(transactions: &[(usize, Vec<Event>)]) -> [bool; 3] {
    let history = History { transactions: transactions.to_vec() };
    [Level::ReadCommitted, Level::Snapshot, Level::Serializable].map(|level| history.check(level).is_ok())
}

#[test]
fn phenomena_are_found() {
    let read = |object, version| Read { object, version };
    let write = |object, version| Write { object, version };
    let serial = [(0, vec![read(0, 0), write(0, 1)]), (1, vec![read(0, 1), write(0, 2)])];
    assert_eq!(allowed(&serial), [true, true, true]);
    let aborted_read = [(0, vec![read(0, 1)])];
    assert_eq!(allowed(&aborted_read), [false, false, false]);
    let intermediate_read = [(0, vec![write(0, 1), write(0, 2)]), (1, vec![read(0, 1)])];
    assert_eq!(allowed(&intermediate_read), [false, false, false]);
    let dirty_write = [(0, vec![write(0, 1), write(1, 2)]), (1, vec![write(0, 2), write(1, 1)])];
    assert_eq!(allowed(&dirty_write), [false, false, false]);
    let circular_information = [(0, vec![write(0, 1), read(1, 1)]), (1, vec![write(1, 1), read(0, 1)])];
    assert_eq!(allowed(&circular_information), [false, false, false]);
    let read_skew = [(0, vec![read(0, 0), read(1, 1)]), (1, vec![write(0, 1), write(1, 1)])];
    assert_eq!(allowed(&read_skew), [true, false, false]);
    let lost_update = [(0, vec![read(0, 0), write(0, 1)]), (1, vec![read(0, 0), write(0, 2)])];
    assert_eq!(allowed(&lost_update), [true, false, false]);
    let write_skew = [(0, vec![read(0, 0), write(1, 1)]), (1, vec![read(1, 0), write(0, 1)])];
    assert_eq!(allowed(&write_skew), [true, true, false]);
    let on_a_predicate = [
        (0, vec![Find { set: 0, elements: vec![] }, Insert { set: 1, element: 1 }]),
        (1, vec![Find { set: 1, elements: vec![] }, Insert { set: 0, element: 2 }]),
    ];
    assert_eq!(allowed(&on_a_predicate), [true, true, false]);
    let long_fork = [
        (0, vec![write(0, 1)]),
        (1, vec![write(1, 1)]),
        (2, vec![read(0, 1), read(1, 0)]),
        (3, vec![read(0, 0), read(1, 1)]),
    ];
    assert_eq!(allowed(&long_fork), [true, false, false]);
    let stale_own_session = [(0, vec![write(0, 1)]), (0, vec![read(0, 0)])];
    assert_eq!(allowed(&stale_own_session), [true, false, false]);
}
