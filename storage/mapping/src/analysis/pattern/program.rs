//! Compiles the tree of a pattern into instructions of the backtracking matcher.

use regex_syntax::hir::ClassUnicode;

use super::syntax::{Assertion, Case, Node, Repetition};

/// Most instructions of a pattern.
const MAX_INSTRUCTIONS: usize = 50_000;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) instructions: Vec<Instruction>,
    pub(super) sets: Vec<Set>,
    groups: usize,
    /// Slots of a match: two for each group, then those of loops and of what is tried apart.
    pub(super) slots: usize,
}

/// One step of the matcher. `usize::MAX` in a slot means that nothing is in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// One character of a set.
    Set(usize),
    /// As many characters of a set as possible, down to `min`.
    Run {
        set: usize,
        min: u32,
        max: u32,
    },
    /// Goes on at `first`, and at `second` if that fails.
    Split {
        first: usize,
        second: usize,
    },
    Jump(usize),
    /// Writes the position into a slot.
    Save(usize),
    /// Leaves a loop whose body matched nothing since the slot was written.
    LeaveIfEmpty {
        slot: usize,
        exit: usize,
    },
    Assert(Assertion),
    BackReference {
        group: usize,
        case: Case,
    },
    /// Begins what is tried apart: writes the position and the height of the stack into two slots.
    Enter(usize),
    /// Ends it: forgets its alternatives, and goes back to its position where that is a look.
    Commit {
        slot: usize,
        rewind: bool,
    },
    /// Fails behind a negative look.
    Refuse(usize),
    /// Goes back by so many characters.
    StepBack(u32),
    /// Fails elsewhere than at the position in the slot.
    At(usize),
    Match,
}

/// A set of characters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Set {
    ascii: u128,
    ranges: Box<[(char, char)]>,
}

impl Set {
    fn new(class: &ClassUnicode) -> Self {
        let ranges: Box<[(char, char)]> =
            class.ranges().iter().map(|range| (range.start(), range.end())).collect();
        let is_in = |c: char| ranges.iter().any(|&(low, high)| (low..=high).contains(&c));
        let ascii = (0..128_u8).filter(|&byte| is_in(char::from(byte))).fold(0, |set, byte| set | 1 << byte);
        Self { ascii, ranges }
    }

    pub(super) fn contains(&self, c: char) -> bool {
        if c.is_ascii() {
            return self.ascii >> u32::from(c) & 1 == 1;
        }
        let at = self.ranges.partition_point(|&(_, high)| high < c);
        self.ranges.get(at).is_some_and(|&(low, _)| low <= c)
    }
}

impl Program {
    /// Compiles a pattern with so many groups.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn new(node: &Node, groups: usize) -> Result<Self, String> {
        let mut program =
            Self { instructions: Vec::new(), sets: Vec::new(), groups, slots: 2 * (groups + 1) };
        program.push(Instruction::Save(0))?;
        program.node(node)?;
        program.push(Instruction::Save(1))?;
        program.push(Instruction::Match)?;
        Ok(program)
    }

    fn push(&mut self, instruction: Instruction) -> Result<usize, String> {
        if self.instructions.len() >= MAX_INSTRUCTIONS {
            return Err(format!(
                "the pattern has more than {MAX_INSTRUCTIONS} parts; repeat them fewer times"
            ));
        }
        self.instructions.push(instruction);
        Ok(self.instructions.len() - 1)
    }

    fn here(&self) -> usize {
        self.instructions.len()
    }

    fn slots(&mut self, count: usize) -> usize {
        self.slots += count;
        self.slots - count
    }

    /// Makes the second way of a split lead here; the other way where it prefers that.
    fn leave_here(&mut self, split: usize, reluctant: bool) {
        let here = self.here();
        if let Instruction::Split { first, second } = &mut self.instructions[split] {
            *(if reluctant { first } else { second }) = here;
        }
    }

    /// Appends a split into what follows, and what is not known yet.
    fn split(&mut self) -> Result<usize, String> {
        let next = self.here() + 1;
        self.push(Instruction::Split { first: next, second: next })
    }

    fn set(&mut self, class: &ClassUnicode) -> usize {
        let set = Set::new(class);
        self.sets.iter().position(|had| *had == set).unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        })
    }

    fn node(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Class(class) => {
                let set = self.set(class);
                self.push(Instruction::Set(set))?;
            }
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node))?,
            Node::Alternate(nodes) => {
                let mut jumps = Vec::new();
                for (nth, node) in nodes.iter().enumerate() {
                    if nth + 1 == nodes.len() {
                        self.node(node)?;
                        break;
                    }
                    let split = self.split()?;
                    self.node(node)?;
                    jumps.push(self.push(Instruction::Jump(0))?);
                    self.leave_here(split, false);
                }
                let here = self.here();
                for jump in jumps {
                    self.instructions[jump] = Instruction::Jump(here);
                }
            }
            Node::Repeat { node, min, max, kind: Repetition::Possessive } => {
                let slot = self.slots(2);
                self.push(Instruction::Enter(slot))?;
                self.repeat(node, *min, *max, false)?;
                self.push(Instruction::Commit { slot, rewind: false })?;
            }
            Node::Repeat { node, min, max, kind } => {
                self.repeat(node, *min, *max, *kind == Repetition::Reluctant)?;
            }
            Node::Group(group, node) => {
                self.push(Instruction::Save(2 * group))?;
                self.node(node)?;
                self.push(Instruction::Save(2 * group + 1))?;
            }
            Node::Atomic(node) => {
                let slot = self.slots(2);
                self.push(Instruction::Enter(slot))?;
                self.node(node)?;
                self.push(Instruction::Commit { slot, rewind: false })?;
            }
            Node::Look { behind, negated, node } => self.look(*behind, *negated, node)?,
            // There is no such group, so nothing matches.
            Node::BackReference { group, .. } if *group > self.groups => {
                let set = self.set(&ClassUnicode::empty());
                self.push(Instruction::Set(set))?;
            }
            Node::BackReference { group, case } => {
                self.push(Instruction::BackReference { group: *group, case: *case })?;
            }
            Node::Assertion(assertion) => {
                self.push(Instruction::Assert(*assertion))?;
            }
        }
        Ok(())
    }

    fn repeat(&mut self, node: &Node, min: u32, max: Option<u32>, reluctant: bool) -> Result<(), String> {
        if let (Node::Class(class), false) = (node, reluctant) {
            let (set, max) = (self.set(class), max.unwrap_or(u32::MAX));
            self.push(Instruction::Run { set, min, max })?;
            return Ok(());
        }
        for _ in 0..min {
            let before = self.here();
            self.node(node)?;
            if self.here() == before {
                // It matches the empty text and does nothing: once is as often as many times.
                break;
            }
        }
        match max {
            Some(max) => {
                let mut splits = Vec::new();
                for _ in min..max {
                    splits.push(self.split()?);
                    self.node(node)?;
                }
                for split in splits {
                    self.leave_here(split, reluctant);
                }
            }
            None => {
                let start = self.here();
                let split = self.split()?;
                let may_be_empty = width(node).0 == 0;
                let slot = self.slots(usize::from(may_be_empty));
                if may_be_empty {
                    self.push(Instruction::Save(slot))?;
                }
                self.node(node)?;
                let check = self.push(Instruction::Jump(start))?;
                if may_be_empty {
                    self.push(Instruction::Jump(start))?;
                    self.instructions[check] = Instruction::LeaveIfEmpty { slot, exit: self.here() };
                }
                self.leave_here(split, reluctant);
            }
        }
        Ok(())
    }

    fn look(&mut self, behind: bool, negated: bool, node: &Node) -> Result<(), String> {
        let slot = self.slots(2);
        self.push(Instruction::Enter(slot))?;
        let split = if negated { Some(self.split()?) } else { None };
        if behind {
            self.step_back(node)?;
        }
        self.node(node)?;
        if behind {
            self.push(Instruction::At(slot))?;
        }
        match split {
            Some(split) => {
                self.push(Instruction::Refuse(slot))?;
                self.leave_here(split, false);
            }
            None => {
                self.push(Instruction::Commit { slot, rewind: true })?;
            }
        }
        Ok(())
    }

    /// Goes back to each place where what is looked at may begin, the nearest first.
    fn step_back(&mut self, node: &Node) -> Result<(), String> {
        let (min, max) = width(node);
        self.push(Instruction::StepBack(min))?;
        match max {
            Some(max) => {
                let mut splits = Vec::new();
                for _ in min..max {
                    splits.push(self.split()?);
                    self.push(Instruction::StepBack(1))?;
                }
                for split in splits {
                    self.leave_here(split, true);
                }
            }
            None => {
                let start = self.split()?;
                self.push(Instruction::StepBack(1))?;
                self.push(Instruction::Jump(start))?;
                self.leave_here(start, true);
            }
        }
        Ok(())
    }
}

/// Fewest and most characters that a node matches; `None` where there is no most.
pub(super) fn width(node: &Node) -> (u32, Option<u32>) {
    match node {
        Node::Class(_) => (1, Some(1)),
        Node::Concat(nodes) => nodes.iter().map(width).fold((0, Some(0)), |(min, max), (low, high)| {
            (min.saturating_add(low), max.zip(high).map(|(max, high): (u32, u32)| max.saturating_add(high)))
        }),
        Node::Alternate(nodes) => nodes
            .iter()
            .map(width)
            .reduce(|(min, max), (low, high)| (min.min(low), max.zip(high).map(|(max, high)| max.max(high))))
            .unwrap_or((0, Some(0))),
        Node::Repeat { node, min, max, .. } => {
            let (low, high) = width(node);
            let most = match (high, max) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (Some(high), Some(max)) => Some(high.saturating_mul(*max)),
                _ => None,
            };
            (low.saturating_mul(*min), most)
        }
        Node::Group(_, node) | Node::Atomic(node) => width(node),
        Node::Look { .. } | Node::Assertion(_) => (0, Some(0)),
        Node::BackReference { .. } => (0, None),
    }
}
