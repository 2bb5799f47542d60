//! Walks over the spans of a row, one at a time, in the order of their starts.
//!
//! The walks are those of Lucene (`NearSpansOrdered`, `NearSpansUnordered`, `SpanNotQuery`, ...): they find the same
//! spans, of which overlapping ones may be left out, and hold no more than where they stand.

use crate::heap;
use crate::spans::expression::Span;

/// Position of a walk behind its last span.
pub const END: i64 = i64::MAX;
/// Position of a walk before its first.
const BEFORE: i64 = -1;

/// A walk over the spans of a row. Positions are by leaf, ascending, and the same from one [`Walk::reset`] to the next.
pub trait Walk: Send {
    /// Stands before the first span of another row.
    fn reset(&mut self);
    /// Goes to the next span and returns where it starts, [`END`] behind the last.
    fn next(&mut self, positions: &[Vec<u32>]) -> i64;
    /// Goes to the first span from here on that starts at or behind a position.
    fn skip_to(&mut self, position: i64, positions: &[Vec<u32>]) -> i64 {
        while self.start() == BEFORE || self.start() < position {
            self.next(positions);
        }
        self.start()
    }
    /// Passes over so many spans, where each starts a position behind the one before.
    fn leap(&mut self, _spans: i64) {}
    /// Returns where the span starts.
    fn start(&self) -> i64;
    /// Returns the position behind the span.
    fn end(&self) -> i64;
    /// Returns how wide the span is for the score: 0 for what is as near as it can be.
    fn width(&self) -> i64;
    /// Calls `found` with the leaves, and their positions, that make the span.
    fn collect(&self, found: &mut dyn FnMut(usize, i64));
}

/// Makes the walk over an expression. A gap that is no part of spans in their order is nothing: it would not end.
pub fn over(span: &Span) -> Box<dyn Walk> {
    let all = |parts: &[Span]| -> Vec<Box<dyn Walk>> { parts.iter().map(over).collect() };
    match span {
        Span::Nothing(_) | Span::Gap(_) => Box::new(AnyOf { parts: Vec::new(), at: None }),
        Span::Leaf(leaf) => Box::new(Occurrences { leaf: *leaf, taken: 0, start: BEFORE }),
        Span::Near { parts, .. } if parts.iter().all(|part| matches!(part, Span::Gap(_))) => {
            Box::new(AnyOf { parts: Vec::new(), at: None })
        }
        Span::Near { parts, slop, in_order: true } => {
            let part = |part: &Span| -> Box<dyn Walk> {
                match part {
                    Span::Gap(width) => Box::new(GapSpans { start: BEFORE, width: *width }),
                    other => over(other),
                }
            };
            let parts = parts.iter().map(part).collect();
            Box::new(OrderedSpans { parts, slop: *slop, start: BEFORE, end: BEFORE, width: 0 })
        }
        Span::Near { parts, slop, in_order: false } => Box::new(Unordered {
            parts: all(parts),
            slop: *slop,
            order: Vec::new(),
            ended: false,
            covered: 0,
            end: BEFORE,
        }),
        Span::Any(parts) => Box::new(AnyOf { parts: all(parts), at: None }),
        Span::Without { include, exclude, around } => {
            let (part, keep) = (over(include), SpanCondition::Apart { from: over(exclude), around: *around });
            Box::new(FilteredSpans { part, keep, ended: false })
        }
        Span::First(part, end) => {
            Box::new(FilteredSpans { part: over(part), keep: SpanCondition::Until(*end), ended: false })
        }
        Span::Containing { big, little } => Box::new(ContainedSpans {
            big: over(big),
            little: over(little),
            shown: SpanSide::Big,
            ended: false,
        }),
        Span::Within { big, little } => Box::new(ContainedSpans {
            big: over(big),
            little: over(little),
            shown: SpanSide::Little,
            ended: false,
        }),
        Span::Masked(part, _) => over(part),
    }
}

/// Each position of a leaf.
struct Occurrences {
    leaf: usize,
    taken: usize,
    start: i64,
}

impl Walk for Occurrences {
    fn reset(&mut self) {
        (self.taken, self.start) = (0, BEFORE);
    }
    fn next(&mut self, positions: &[Vec<u32>]) -> i64 {
        let position = positions.get(self.leaf).and_then(|own| own.get(self.taken));
        self.taken += 1;
        self.start = position.map_or(END, |position| i64::from(*position));
        self.start
    }
    fn start(&self) -> i64 {
        self.start
    }
    fn end(&self) -> i64 {
        match self.start {
            BEFORE | END => self.start,
            start => start + 1,
        }
    }
    fn width(&self) -> i64 {
        0
    }
    fn collect(&self, found: &mut dyn FnMut(usize, i64)) {
        found(self.leaf, self.start);
    }
}

/// Positions between others, wherever they are asked for.
struct GapSpans {
    start: i64,
    width: i64,
}

impl Walk for GapSpans {
    fn reset(&mut self) {
        self.start = BEFORE;
    }
    fn next(&mut self, _positions: &[Vec<u32>]) -> i64 {
        self.start += 1;
        self.start
    }
    fn skip_to(&mut self, position: i64, _positions: &[Vec<u32>]) -> i64 {
        self.start = position;
        position
    }
    fn leap(&mut self, spans: i64) {
        self.start += spans;
    }
    fn start(&self) -> i64 {
        self.start
    }
    fn end(&self) -> i64 {
        self.start.saturating_add(self.width)
    }
    fn width(&self) -> i64 {
        self.width
    }
    fn collect(&self, _found: &mut dyn FnMut(usize, i64)) {}
}

/// Spans of all parts in their order: of the parts behind the first, those that come next.
struct OrderedSpans {
    parts: Vec<Box<dyn Walk>>,
    slop: i64,
    start: i64,
    end: i64,
    width: i64,
}

impl OrderedSpans {
    /// Lines the parts up behind the first; `None` where one has no more spans.
    fn stretch(&mut self, positions: &[Vec<u32>]) -> Option<i64> {
        let (first, rest) = self.parts.split_first_mut()?;
        let (mut end, mut width) = (first.end(), 0);
        for part in rest {
            let start = part.skip_to(end, positions);
            if start == END {
                return None;
            }
            width += start - end;
            end = part.end();
        }
        self.end = end;
        Some(width)
    }
}

impl Walk for OrderedSpans {
    fn reset(&mut self) {
        self.parts.iter_mut().for_each(|part| part.reset());
        (self.start, self.end) = (BEFORE, BEFORE);
    }
    fn next(&mut self, positions: &[Vec<u32>]) -> i64 {
        loop {
            let first = self.parts.first_mut().map_or(END, |first| first.next(positions));
            match if first == END { None } else { self.stretch(positions) } {
                Some(width) if width <= self.slop => {
                    (self.start, self.width) = (first, width);
                    return first;
                }
                // Each position that a gap moves on brings it one nearer.
                Some(width) => {
                    self.parts.first_mut().into_iter().for_each(|first| first.leap(width - self.slop - 1))
                }
                None => {
                    (self.start, self.end) = (END, END);
                    return END;
                }
            }
        }
    }
    fn start(&self) -> i64 {
        self.start
    }
    fn end(&self) -> i64 {
        self.end
    }
    fn width(&self) -> i64 {
        self.width
    }
    fn collect(&self, found: &mut dyn FnMut(usize, i64)) {
        self.parts.iter().for_each(|part| part.collect(found));
    }
}

/// Returns the part whose span comes first.
fn foremost(parts: &[Box<dyn Walk>]) -> Option<usize> {
    (0..parts.len()).min_by_key(|at| (parts[*at].start(), parts[*at].end()))
}

/// Spans of all parts in any order: the window from the foremost to the last end.
struct Unordered {
    parts: Vec<Box<dyn Walk>>,
    slop: i64,
    /// The parts, the foremost first, once there is a window.
    order: Vec<usize>,
    ended: bool,
    /// Positions that the spans cover, each by itself.
    covered: i64,
    /// Last end.
    end: i64,
}

impl Unordered {
    /// Puts all parts on their first spans, or moves the foremost on; tells whether there is a window.
    fn step(&mut self, positions: &[Vec<u32>]) -> bool {
        let foremost = self.order.first().copied();
        if let Some(at) = foremost {
            self.covered -= self.parts[at].end() - self.parts[at].start();
        }
        for at in foremost.map_or(0..self.parts.len(), |at| at..at + 1) {
            if self.parts[at].next(positions) == END {
                self.ended = true;
                return false;
            }
            self.covered += self.parts[at].end() - self.parts[at].start();
            self.end = self.end.max(self.parts[at].end());
            let place = |at: &usize| (self.parts[*at].start(), self.parts[*at].end());
            match foremost {
                None => heap::push(&mut self.order, at, |a, b| place(a) < place(b)),
                Some(_) => heap::settle(&mut self.order, |a, b| place(a) < place(b)),
            }
        }
        !self.order.is_empty()
    }
}

impl Walk for Unordered {
    fn reset(&mut self) {
        self.parts.iter_mut().for_each(|part| part.reset());
        self.order.clear();
        (self.ended, self.covered, self.end) = (false, 0, BEFORE);
    }
    fn next(&mut self, positions: &[Vec<u32>]) -> i64 {
        while !self.ended && self.step(positions) {
            if self.width() - self.covered <= self.slop {
                break;
            }
        }
        self.start()
    }
    fn start(&self) -> i64 {
        match self.order.first() {
            _ if self.ended => END,
            None => BEFORE,
            Some(at) => self.parts[*at].start(),
        }
    }
    fn end(&self) -> i64 {
        match self.order.first() {
            _ if self.ended => END,
            None => BEFORE,
            Some(_) => self.end,
        }
    }
    fn width(&self) -> i64 {
        self.end - self.order.first().map_or(self.end, |at| self.parts[*at].start())
    }
    fn collect(&self, found: &mut dyn FnMut(usize, i64)) {
        self.parts.iter().for_each(|part| part.collect(found));
    }
}

/// Spans of any part.
struct AnyOf {
    parts: Vec<Box<dyn Walk>>,
    /// The foremost part, once there is a span.
    at: Option<usize>,
}

impl Walk for AnyOf {
    fn reset(&mut self) {
        self.parts.iter_mut().for_each(|part| part.reset());
        self.at = None;
    }
    fn next(&mut self, positions: &[Vec<u32>]) -> i64 {
        let moved = self.at.map_or(0..self.parts.len(), |at| at..at + 1);
        for part in &mut self.parts[moved] {
            part.next(positions);
        }
        self.at = foremost(&self.parts);
        self.at.map_or(END, |at| self.parts[at].start())
    }
    fn start(&self) -> i64 {
        match self.at {
            Some(at) => self.parts[at].start(),
            None if self.parts.is_empty() => END,
            None => BEFORE,
        }
    }
    fn end(&self) -> i64 {
        self.at.map_or(self.start(), |at| self.parts[at].end())
    }
    fn width(&self) -> i64 {
        self.at.map_or(0, |at| self.parts[at].width())
    }
    fn collect(&self, found: &mut dyn FnMut(usize, i64)) {
        if let Some(at) = self.at {
            self.parts[at].collect(found);
        }
    }
}

/// Condition on spans.
enum SpanCondition {
    /// Those that end at or before a position.
    Until(i64),
    /// Those that have none of another walk in them, nor within so many positions before and behind.
    Apart { from: Box<dyn Walk>, around: (i64, i64) },
}

/// Spans of a part that fulfil a condition.
struct FilteredSpans {
    part: Box<dyn Walk>,
    keep: SpanCondition,
    ended: bool,
}

impl Walk for FilteredSpans {
    fn reset(&mut self) {
        self.part.reset();
        self.ended = false;
        if let SpanCondition::Apart { from, .. } = &mut self.keep {
            from.reset();
        }
    }
    fn next(&mut self, positions: &[Vec<u32>]) -> i64 {
        while !self.ended {
            let start = self.part.next(positions);
            if start == END {
                break;
            }
            match &mut self.keep {
                SpanCondition::Until(last) if start >= *last => self.ended = true,
                SpanCondition::Until(last) if self.part.end() <= *last => return start,
                SpanCondition::Until(_) => {}
                SpanCondition::Apart { from, around: (before, behind) } => {
                    if from.start() == BEFORE {
                        from.next(positions);
                    }
                    while from.end() <= start - *before {
                        from.next(positions);
                    }
                    if from.start() == END || from.start() - *behind >= self.part.end() {
                        return start;
                    }
                }
            }
        }
        self.ended = true;
        END
    }
    fn start(&self) -> i64 {
        if self.ended { END } else { self.part.start() }
    }
    fn end(&self) -> i64 {
        if self.ended { END } else { self.part.end() }
    }
    fn width(&self) -> i64 {
        self.part.width()
    }
    fn collect(&self, found: &mut dyn FnMut(usize, i64)) {
        self.part.collect(found);
    }
}

/// Side whose spans are returned where one is inside of another.
#[derive(Clone, Copy)]
enum SpanSide {
    Big,
    Little,
}

/// Spans with one of another in them, or those within one of another.
struct ContainedSpans {
    big: Box<dyn Walk>,
    little: Box<dyn Walk>,
    shown: SpanSide,
    ended: bool,
}

impl ContainedSpans {
    fn shown(&self) -> &dyn Walk {
        match self.shown {
            SpanSide::Big => self.big.as_ref(),
            SpanSide::Little => self.little.as_ref(),
        }
    }

    /// Finds the next pair; `None` where there is none.
    fn pair(&mut self, positions: &[Vec<u32>]) -> Option<i64> {
        let walked = |start: i64| if start == END { None } else { Some(start) };
        let (big, little) = (&mut self.big, &mut self.little);
        loop {
            match self.shown {
                SpanSide::Big => {
                    let start = walked(big.next(positions))?;
                    walked(little.skip_to(start, positions))?;
                    if big.end() >= little.end() {
                        return Some(start);
                    }
                }
                SpanSide::Little => {
                    let start = walked(little.next(positions))?;
                    while big.end() < little.end() {
                        walked(big.next(positions))?;
                    }
                    if big.start() <= start {
                        return Some(start);
                    }
                }
            }
        }
    }
}

impl Walk for ContainedSpans {
    fn reset(&mut self) {
        self.big.reset();
        self.little.reset();
        self.ended = false;
    }
    fn next(&mut self, positions: &[Vec<u32>]) -> i64 {
        let found = if self.ended { None } else { self.pair(positions) };
        self.ended = found.is_none();
        found.unwrap_or(END)
    }
    fn start(&self) -> i64 {
        if self.ended { END } else { self.shown().start() }
    }
    fn end(&self) -> i64 {
        if self.ended { END } else { self.shown().end() }
    }
    fn width(&self) -> i64 {
        self.shown().width()
    }
    fn collect(&self, found: &mut dyn FnMut(usize, i64)) {
        self.big.collect(found);
        self.little.collect(found);
    }
}
