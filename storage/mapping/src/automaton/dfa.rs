//! Deterministic automata over characters: made of an [`Nfa`], complemented, intersected, run.

use std::collections::{BTreeMap, HashMap};

use super::nfa::{Nfa, NfaFragment, Transition};
use super::{LAST, TooLarge};

/// A state.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Transitions over disjoint ranges, ascending. They lead to states from which something
    /// matches, and nowhere else.
    pub(super) moves: Vec<Transition>,
    /// `true` if what has been read matches.
    pub(super) accepts: bool,
}

/// A deterministic automaton; state 0 is the start. Without states it matches nothing.
#[derive(Clone, Debug, Default)]
pub struct Dfa {
    states: Vec<State>,
}

/// Bound of the work of making automata deterministic, as Lucene counts it: the states of the
/// automaton that each new state stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeterminizeBudget {
    /// Limit of the caller, for messages.
    pub(super) limit: i64,
    left: i64,
}

/// Most effort, whatever a caller allows.
const MOST_EFFORT: i64 = 1_000_000;

impl DeterminizeBudget {
    pub(super) fn new(limit: i64) -> Self {
        // Lucene converts what was a number of states once.
        Self { limit, left: limit.saturating_mul(10).clamp(0, MOST_EFFORT) }
    }

    fn spend(&mut self, amount: usize) -> Result<(), TooLarge> {
        self.left = self.left.saturating_sub(amount as i64);
        if self.left <= 0 { Err(TooLarge::Effort(self.limit)) } else { Ok(()) }
    }
}

impl Dfa {
    /// Makes a part of an automaton deterministic.
    pub(super) fn new(nfa: &Nfa, part: NfaFragment, limit: i64) -> Result<Self, TooLarge> {
        let mut effort = DeterminizeBudget::new(limit);
        let mut closure = Closure::new(nfa, part.end);
        let first = closure.of(&mut std::iter::once(part.start));
        let mut numbers: HashMap<Box<[u32]>, u32> = HashMap::new();
        let mut sets: Vec<Box<[u32]>> = vec![first.clone()];
        numbers.insert(first, 0);
        let mut states: Vec<State> = Vec::new();
        let mut active: BTreeMap<u32, u32> = BTreeMap::new();
        while let Some(set) = sets.get(states.len()) {
            effort.spend(set.len().max(1))?;
            let accepts = set.binary_search(&part.end).is_ok();
            // Where transitions begin and end: between two such points their targets are the same.
            let mut points: Vec<(u32, bool, u32)> = Vec::new();
            for state in set {
                for (first, last, to) in &nfa.moves[*state as usize] {
                    points.push((*first, true, *to));
                    points.push((last + 1, false, *to));
                }
            }
            points.sort_unstable();
            active.clear();
            let mut moves: Vec<Transition> = Vec::new();
            let mut at = 0;
            while at < points.len() {
                let point = points[at].0;
                while let Some((_, begins, to)) = points.get(at).filter(|next| next.0 == point) {
                    let count = active.entry(*to).or_default();
                    if *begins {
                        *count = count.wrapping_add(1);
                    } else {
                        *count = count.wrapping_sub(1);
                    }
                    if *count == 0 {
                        active.remove(to);
                    }
                    at += 1;
                }
                let Some(next) = points.get(at) else { break };
                if active.is_empty() {
                    continue;
                }
                let target = closure.of(&mut active.keys().copied());
                let known = numbers.len() as u32;
                let number = *numbers.entry(target.clone()).or_insert(known);
                if number == known {
                    sets.push(target);
                }
                match moves.last_mut() {
                    Some((_, last, to)) if *to == number && *last + 1 == point => *last = next.0 - 1,
                    _ => moves.push((point, next.0 - 1, number)),
                }
            }
            states.push(State { moves, accepts });
        }
        Ok(Self { states }.trimmed())
    }

    pub(super) fn states(&self) -> &[State] {
        &self.states
    }

    /// Matches what this one does not.
    pub(super) fn complement(&self) -> Self {
        let sink = self.states.len() as u32;
        let mut states = Vec::with_capacity(self.states.len() + 1);
        for state in &self.states {
            let mut moves = Vec::with_capacity(2 * state.moves.len() + 1);
            let mut from = 0;
            for (first, last, to) in &state.moves {
                if *first > from {
                    moves.push((from, first - 1, sink));
                }
                moves.push((*first, *last, *to));
                from = last + 1;
            }
            if from <= LAST {
                moves.push((from, LAST, sink));
            }
            states.push(State { moves, accepts: !state.accepts });
        }
        states.push(State { moves: vec![(0, LAST, sink)], accepts: true });
        Self { states }.trimmed()
    }

    /// Matches what both match.
    pub(super) fn intersection(&self, other: &Self, limit: i64) -> Result<Self, TooLarge> {
        let mut effort = DeterminizeBudget::new(limit);
        if self.states.is_empty() || other.states.is_empty() {
            return Ok(Self::default());
        }
        let mut numbers: HashMap<(u32, u32), u32> = HashMap::from([((0, 0), 0)]);
        let mut pairs = vec![(0u32, 0u32)];
        let mut states = Vec::new();
        while let Some((left, right)) = pairs.get(states.len()).copied() {
            let (left, right) = (&self.states[left as usize], &other.states[right as usize]);
            effort.spend(left.moves.len() + right.moves.len())?;
            let mut moves = Vec::new();
            let mut from = 0;
            for (first, last, to) in &left.moves {
                while right.moves.get(from).is_some_and(|(_, end, _)| end < first) {
                    from += 1;
                }
                for (begin, end, target) in &right.moves[from..] {
                    if begin > last {
                        break;
                    }
                    let known = numbers.len() as u32;
                    let number = *numbers.entry((*to, *target)).or_insert(known);
                    if number == known {
                        pairs.push((*to, *target));
                    }
                    moves.push((*first.max(begin), *last.min(end), number));
                }
            }
            states.push(State { moves, accepts: left.accepts && right.accepts });
        }
        Ok(Self { states }.trimmed())
    }

    /// Leaves out the states from which nothing matches.
    fn trimmed(self) -> Self {
        let mut sources: Vec<Vec<u32>> = vec![Vec::new(); self.states.len()];
        for (number, state) in self.states.iter().enumerate() {
            for (_, _, to) in &state.moves {
                sources[*to as usize].push(number as u32);
            }
        }
        let mut alive: Vec<bool> = self.states.iter().map(|state| state.accepts).collect();
        let mut open: Vec<u32> = (0..self.states.len() as u32).filter(|at| alive[*at as usize]).collect();
        while let Some(state) = open.pop() {
            for source in &sources[state as usize] {
                if !std::mem::replace(&mut alive[*source as usize], true) {
                    open.push(*source);
                }
            }
        }
        if !alive.first().copied().unwrap_or(false) {
            return Self::default();
        }
        let mut numbers = vec![0u32; self.states.len()];
        let mut next = 0;
        for (number, alive) in alive.iter().enumerate() {
            numbers[number] = next;
            next += u32::from(*alive);
        }
        let kept = self.states.into_iter().zip(&alive).filter(|(_, alive)| **alive);
        let states = kept.map(|(mut state, _)| {
            state.moves.retain(|(_, _, to)| alive[*to as usize]);
            state.moves.iter_mut().for_each(|(_, _, to)| *to = numbers[*to as usize]);
            state
        });
        Self { states: states.collect() }
    }

    /// Returns the start, where anything matches at all.
    pub fn start(&self) -> Option<u32> {
        (!self.states.is_empty()).then_some(0)
    }

    /// Goes on from a state by a character.
    #[inline]
    pub fn step(&self, state: u32, character: u32) -> Option<u32> {
        let moves = &self.states.get(state as usize)?.moves;
        let at = moves.partition_point(|(_, last, _)| *last < character);
        moves.get(at).filter(|(first, _, _)| *first <= character).map(|(_, _, to)| *to)
    }

    /// Returns whether what led to a state matches.
    #[inline]
    pub fn accepts(&self, state: u32) -> bool {
        self.states.get(state as usize).is_some_and(|state| state.accepts)
    }

    /// Returns the length in bytes of the longest match at the start of a text.
    pub fn longest_match(&self, text: &str) -> Option<usize> {
        self.longest_match_if(text, &|_| true)
    }

    /// Returns the length in bytes of the longest match at the start of a text that may have behind it what
    /// it has there.
    pub fn longest_match_if(&self, text: &str, may_precede: &dyn Fn(&str) -> bool) -> Option<usize> {
        let mut state = self.start()?;
        let mut longest = (self.accepts(state) && may_precede(text)).then_some(0);
        for (at, character) in text.char_indices() {
            match self.step(state, character.into()) {
                Some(next) => state = next,
                None => break,
            }
            let end = at + character.len_utf8();
            if self.accepts(state) && may_precede(&text[end..]) {
                longest = Some(end);
            }
        }
        longest
    }

    /// Returns the text that everything that matches starts with.
    pub fn literal_start(&self) -> String {
        let mut start = String::new();
        let mut state = 0;
        // A loop of single characters has no end.
        for _ in 0..self.states.len() {
            match self.states.get(state as usize) {
                Some(State { moves, accepts: false }) => match moves.as_slice() {
                    [(first, last, to)] if first == last => match char::from_u32(*first) {
                        Some(character) => {
                            start.push(character);
                            state = *to;
                        }
                        None => break,
                    },
                    _ => break,
                },
                _ => break,
            }
        }
        start
    }
}

/// Follows empty transitions. What it returns are the states that read a character, and the end.
struct Closure<'a> {
    nfa: &'a Nfa,
    end: u32,
    seen: Vec<u32>,
    round: u32,
    open: Vec<u32>,
}

impl<'a> Closure<'a> {
    fn new(nfa: &'a Nfa, end: u32) -> Self {
        Self { nfa, end, seen: vec![0; nfa.moves.len()], round: 0, open: Vec::new() }
    }

    fn of(&mut self, from: &mut dyn Iterator<Item = u32>) -> Box<[u32]> {
        self.round += 1;
        let mut found = Vec::new();
        self.open.clear();
        self.open.extend(from);
        while let Some(state) = self.open.pop() {
            if std::mem::replace(&mut self.seen[state as usize], self.round) == self.round {
                continue;
            }
            if state == self.end || !self.nfa.moves[state as usize].is_empty() {
                found.push(state);
            }
            self.open.extend(&self.nfa.empty[state as usize]);
        }
        found.sort_unstable();
        found.into()
    }
}
