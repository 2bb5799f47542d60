//! The rows of several posting lists, as if they were one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tantivy::postings::Postings;

use crate::END;

/// Posting lists side by side.
pub(crate) struct PostingsUnion {
    parts: Vec<Box<dyn Postings>>,
    /// Parts ahead of the current row, least row first; empty where there is one part only.
    ahead: BinaryHeap<Reverse<(u32, usize)>>,
    /// Parts on the current row.
    here: Vec<usize>,
    doc: u32,
}

impl PostingsUnion {
    /// Starts at the first row.
    pub(crate) fn new(parts: Vec<Box<dyn Postings>>) -> Self {
        let mut union = Self { parts, ahead: BinaryHeap::new(), here: Vec::new(), doc: END };
        if let [part] = union.parts.as_slice() {
            union.doc = part.doc();
            union.here.push(0);
            return union;
        }
        for (at, part) in union.parts.iter().enumerate() {
            if part.doc() != END {
                union.ahead.push(Reverse((part.doc(), at)));
            }
        }
        union.gather();
        union
    }

    /// Takes the parts that stand on the least row.
    fn gather(&mut self) {
        self.doc = self.ahead.peek().map_or(END, |Reverse((doc, _))| *doc);
        while let Some(Reverse((doc, at))) = self.ahead.peek().copied()
            && doc == self.doc
        {
            self.ahead.pop();
            self.here.push(at);
        }
    }

    /// Returns the current row, [`END`] at the end.
    pub(crate) fn doc(&self) -> u32 {
        self.doc
    }

    /// Goes to the first row at or behind `target`; stays where it is already there.
    pub(crate) fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        if let [part] = self.parts.as_mut_slice() {
            self.doc = part.seek(target);
            return self.doc;
        }
        while let Some(Reverse((doc, at))) = self.ahead.peek().copied()
            && doc < target
        {
            self.ahead.pop();
            self.here.push(at);
        }
        for at in self.here.drain(..) {
            let doc = self.parts[at].seek(target);
            if doc != END {
                self.ahead.push(Reverse((doc, at)));
            }
        }
        self.gather();
        self.doc
    }

    /// Goes to the next row.
    pub(crate) fn advance(&mut self) -> u32 {
        match self.parts.as_mut_slice() {
            [part] => {
                self.doc = part.advance();
                self.doc
            }
            _ if self.doc == END => END,
            _ => self.seek(self.doc + 1),
        }
    }

    /// Counts the occurrences in the current row.
    pub(crate) fn freq(&self) -> u32 {
        self.here.iter().map(|at| self.parts[*at].term_freq()).fold(0, u32::saturating_add)
    }

    /// Reads the positions in the current row, ascending, into `positions`.
    pub(crate) fn positions(&mut self, positions: &mut Vec<u32>) {
        positions.clear();
        for at in &self.here {
            self.parts[*at].append_positions_with_offset(0, positions);
        }
        if self.here.len() > 1 {
            positions.sort_unstable();
        }
    }

    /// Estimates how many rows there are.
    pub(crate) fn cost(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.size_hint())).sum()
    }
}
