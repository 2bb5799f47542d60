//! Frequency of a phrase whose terms may be moved: the sum of `1 / (1 + distance)` over the matches, found as Lucene's
//! `SloppyPhraseMatcher` finds them.
//!
//! A cursor stands on each place's terms at `position - offset`, so that cursors agree where the
//! terms are in their places. The least is moved on until it passes the next; how far the greatest
//! is from it was the distance. Places that share a term must not take the same occurrence of it:
//! they form groups, in which the lesser of two that collide goes on.

use std::collections::BTreeMap;

use crate::phrase::PhrasePosition;

/// A place's terms in a row.
#[derive(Debug)]
struct Cursor {
    position: i64,
    /// Positions taken.
    taken: usize,
    offset: i64,
    /// Group of places that share terms, and the place in it.
    group: Option<(usize, usize)>,
}

/// The matcher of a phrase.
#[derive(Debug)]
pub(super) struct Sloppy {
    slop: i64,
    cursors: Vec<Cursor>,
    groups: Vec<Vec<usize>>,
    /// `true` if places of a group may have other terms too.
    alternatives: bool,
    queue: Vec<usize>,
    end: i64,
}

impl Sloppy {
    /// Makes the matcher of places.
    pub(super) fn new(places: &[PhrasePosition], slop: u32) -> Self {
        let mut cursors: Vec<Cursor> = places
            .iter()
            .map(|place| Cursor { position: 0, taken: 0, offset: place.offset.into(), group: None })
            .collect();
        let mut of_term: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            for term in place.fixed() {
                let list = of_term.entry(term).or_default();
                if list.last() != Some(&at) {
                    list.push(at);
                }
            }
        }
        // Places that share a term are one group, and so are groups that share a place.
        let mut group_of: Vec<usize> = (0..places.len()).collect();
        let mut shared = vec![false; places.len()];
        for list in of_term.values().filter(|list| list.len() > 1) {
            for at in list {
                shared[*at] = true;
                let (from, to) = (group_of[*at], group_of[list[0]]);
                group_of.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            }
        }
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in (0..places.len()).filter(|at| shared[*at]) {
            members.entry(group_of[at]).or_default().push(at);
        }
        let alternatives = (0..places.len()).any(|at| shared[at] && places[at].fixed().len() > 1);
        let mut groups: Vec<Vec<usize>> = members.into_values().collect();
        for (number, group) in groups.iter_mut().enumerate() {
            group.sort_by_key(|at| cursors[*at].offset);
            for (place, at) in group.iter().enumerate() {
                cursors[*at].group = Some((number, place));
            }
        }
        Self { slop: slop.into(), cursors, groups, alternatives, queue: Vec::new(), end: 0 }
    }

    /// Sums up the matches in a row; stops at the first if `first_only`.
    pub(super) fn frequency(&mut self, positions: &[Vec<u32>], first_only: bool) -> f32 {
        let mut frequency = 0.0f32;
        if !self.place(positions) {
            return frequency;
        }
        while let (Some(length), goes_on) = self.next_match(positions) {
            frequency += 1.0 / (1.0 + length as f32);
            if first_only || !goes_on {
                break;
            }
        }
        frequency
    }

    /// Puts all cursors on their first positions, those of a group on different ones.
    fn place(&mut self, positions: &[Vec<u32>]) -> bool {
        self.end = i64::MIN;
        self.queue.clear();
        for at in 0..self.cursors.len() {
            self.cursors[at].taken = 0;
            if !self.step(at, positions) {
                return false;
            }
        }
        if !self.separate(positions) {
            return false;
        }
        self.end = self.cursors.iter().map(|cursor| cursor.position).max().unwrap_or(i64::MIN).max(self.end);
        self.queue.extend(0..self.cursors.len());
        true
    }

    fn separate(&mut self, positions: &[Vec<u32>]) -> bool {
        for number in 0..self.groups.len() {
            let size = self.groups[number].len();
            if !self.alternatives {
                // All have the same term: each begins one occurrence behind the one before.
                for place in 1..size {
                    let at = self.groups[number][place];
                    for _ in 0..place {
                        if !self.step(at, positions) {
                            return false;
                        }
                    }
                }
                continue;
            }
            let mut place = 0;
            while place < size {
                let at = self.groups[number][place];
                let mut step = 1;
                while let Some(other) = self.collides(at) {
                    let lesser = self.lesser(at, other);
                    if !self.advance(lesser, positions) {
                        return false;
                    }
                    if self.cursors[lesser].group.is_some_and(|(_, at)| at < place) {
                        step = 0;
                        break;
                    }
                }
                place += step;
            }
        }
        true
    }

    /// Takes the next position of a cursor.
    fn step(&mut self, at: usize, positions: &[Vec<u32>]) -> bool {
        let cursor = &mut self.cursors[at];
        let Some(position) = positions.get(at).and_then(|list| list.get(cursor.taken)) else {
            return false;
        };
        cursor.taken += 1;
        cursor.position = i64::from(*position) - cursor.offset;
        true
    }

    fn advance(&mut self, at: usize, positions: &[Vec<u32>]) -> bool {
        if !self.step(at, positions) {
            return false;
        }
        self.end = self.end.max(self.cursors[at].position);
        true
    }

    /// Finds the next match: its distance, and whether there may be more.
    fn next_match(&mut self, positions: &[Vec<u32>]) -> (Option<i64>, bool) {
        let Some(mut at) = self.pop() else { return (None, false) };
        let mut length = self.end - self.cursors[at].position;
        let mut next = self.least();
        while self.advance(at, positions) {
            if self.cursors[at].group.is_some() && !self.resolve(at, positions) {
                break;
            }
            if self.cursors[at].position > next {
                self.queue.push(at);
                if length <= self.slop {
                    return (Some(length), true);
                }
                let Some(least) = self.pop() else { break };
                at = least;
                next = self.least();
                length = self.end - self.cursors[at].position;
            } else {
                length = length.min(self.end - self.cursors[at].position);
            }
        }
        // One place has no more terms: what was found is the last.
        ((length <= self.slop).then_some(length), false)
    }

    /// Goes on with the lesser of each two cursors that collide. `at` is not in the queue; all others are.
    fn resolve(&mut self, mut at: usize, positions: &[Vec<u32>]) -> bool {
        // The queue is searched for its least each time, so that what moves in it stays right.
        while let Some(other) = self.collides(at) {
            at = self.lesser(at, other);
            if !self.advance(at, positions) {
                return false;
            }
        }
        true
    }

    /// Finds another cursor of the group on the same occurrence.
    fn collides(&self, at: usize) -> Option<usize> {
        let (group, _) = self.cursors[at].group?;
        let occurrence = |at: usize| self.cursors[at].position + self.cursors[at].offset;
        let own = occurrence(at);
        self.groups[group].iter().copied().find(|other| *other != at && occurrence(*other) == own)
    }

    fn lesser(&self, a: usize, b: usize) -> usize {
        let key = |at: usize| (self.cursors[at].position, self.cursors[at].offset);
        if key(a) < key(b) { a } else { b }
    }

    fn pop(&mut self) -> Option<usize> {
        let key = |at: usize| (self.cursors[at].position, self.cursors[at].offset, at);
        let place = (0..self.queue.len()).min_by_key(|place| key(self.queue[*place]))?;
        Some(self.queue.swap_remove(place))
    }

    /// The least position in the queue.
    fn least(&self) -> i64 {
        self.queue.iter().map(|at| self.cursors[*at].position).min().unwrap_or(i64::MAX)
    }
}
