//! The intervals of one row: an expression over the positions of its terms, by the algorithms of Boldi and Vigna, "Efficient
//! Optimally Lazy Algorithms for Minimal-Interval Semantics", with the gaps that Lucene counts.

use millrace_dsl::query::Relation;

use crate::intervals::source::{IntervalSide, Source};

/// Behind the last position that an interval may reach.
const END: i64 = i32::MAX as i64;

/// Positions from `start` to `end`, both of them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// First position.
    pub start: i64,
    /// Last position.
    pub end: i64,
    /// Positions between the parts.
    pub gaps: i64,
    /// Positions that count as taken where it is a part itself.
    width: i64,
}

impl Interval {
    fn new(start: i64, end: i64, gaps: i64) -> Self {
        Self { start, end, gaps, width: end - start + 1 }
    }

    /// Returns the number of positions.
    pub(super) fn length(&self) -> i64 {
        self.end - self.start + 1
    }
}

/// Finds the intervals of a source in a row with these positions, ascending, by leaf.
pub(super) fn intervals(source: &Source, positions: &[Vec<u32>]) -> Vec<Interval> {
    let of = |part: &Source| intervals(part, positions);
    let all = |parts: &[Source]| parts.iter().map(of).collect::<Vec<_>>();
    match source {
        Source::Nothing => Vec::new(),
        Source::Leaf(leaf) => {
            let positions = positions.get(*leaf).map(Vec::as_slice).unwrap_or_default();
            positions.iter().map(|at| Interval::new((*at).into(), (*at).into(), 0)).collect()
        }
        Source::Extended(part, before, after) => {
            let extended = |own: Interval| {
                let start = (own.start - i64::from(*before)).max(0);
                let end = (own.end + i64::from(*after)).min(END - 1);
                Interval::new(start, end, own.gaps)
            };
            of(part).into_iter().map(extended).collect()
        }
        Source::Beside(part, side) => {
            let beside = |own: Interval| {
                let at = match side {
                    IntervalSide::Before => (own.start - 1).max(0),
                    IntervalSide::Behind => (own.end + 1).min(END - 1),
                };
                Interval::new(at, at, 0)
            };
            of(part).into_iter().map(beside).collect()
        }
        Source::Repeated(part, count) => of(part).windows(*count).filter_map(repeated).collect(),
        Source::Ordered(parts) => ordered(&all(parts)),
        Source::Unordered(parts) => unordered(&all(parts)),
        Source::Block(parts) => block(&all(parts)),
        Source::Any(parts) => any(&all(parts)),
        Source::MaxGaps(part, most) => {
            let mut found = of(part);
            found.retain(|own| own.gaps <= i64::from(*most));
            // Limited intervals count in full where they are parts.
            found.iter_mut().for_each(|own| own.width = own.length());
            found
        }
        Source::Related(relation, own, other) => related(*relation, &of(own), &of(other)),
        Source::Fixed(part) => of(part),
    }
}

/// Joins a run of intervals.
fn repeated(run: &[Interval]) -> Option<Interval> {
    let (first, last) = (run.first()?, run.last()?);
    let mut joined = Interval::new(first.start, last.end, 0);
    // Lucene subtracts where it should add: right for single positions only, and scores depend on it.
    joined.width = run.iter().map(|own| own.start - own.end + 1).sum();
    joined.gaps = joined.length() - joined.width;
    Some(joined)
}

/// A place in a list of intervals: before the first, on one, or behind the last.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    list: &'a [Interval],
    /// Intervals reached.
    taken: usize,
}

impl<'a> Cursor<'a> {
    fn all(lists: &'a [Vec<Interval>]) -> Vec<Self> {
        lists.iter().map(|list| Self { list, taken: 0 }).collect()
    }

    fn current(&self) -> Option<&'a Interval> {
        self.list.get(self.taken.checked_sub(1)?)
    }

    fn start(&self) -> i64 {
        if self.taken == 0 { -1 } else { self.current().map_or(END, |own| own.start) }
    }

    fn end(&self) -> i64 {
        if self.taken == 0 { -1 } else { self.current().map_or(END, |own| own.end) }
    }

    fn width(&self) -> i64 {
        self.current().map_or(0, |own| own.width)
    }

    /// Goes to the next interval; false where there is none.
    fn next(&mut self) -> bool {
        if self.taken <= self.list.len() {
            self.taken += 1;
        }
        self.taken <= self.list.len()
    }
}

/// Minimal intervals with one of each list, in the order of the lists.
fn ordered(lists: &[Vec<Interval>]) -> Vec<Interval> {
    let mut found = Vec::new();
    let mut cursors = Cursor::all(lists);
    let Some(first) = cursors.first_mut() else { return found };
    first.next();
    while let Some(interval) = next_ordered(&mut cursors) {
        found.push(interval);
    }
    found
}

fn next_ordered(cursors: &mut [Cursor<'_>]) -> Option<Interval> {
    let count = cursors.len();
    let (mut best, mut last_start) = (None, END);
    loop {
        for at in 1..count {
            if cursors[at - 1].end() >= last_start {
                return best;
            }
            while cursors[at].start() <= cursors[at - 1].end() {
                if cursors[at].end() >= last_start || !cursors[at].next() {
                    return best;
                }
            }
        }
        let (start, end) = (cursors[0].start(), cursors[count - 1].end());
        if start == END {
            return None;
        }
        let taken: i64 = cursors.iter().map(Cursor::width).sum();
        best = Some(Interval::new(start, end, end - start + 1 - taken));
        last_start = cursors[count - 1].start();
        if !cursors[0].next() {
            return best;
        }
    }
}

/// Minimal intervals with one of each list.
fn unordered(lists: &[Vec<Interval>]) -> Vec<Interval> {
    let mut found = Vec::new();
    let mut cursors = Cursor::all(lists);
    if !cursors.iter_mut().all(Cursor::next) {
        return found;
    }
    let mut furthest = cursors.iter().map(Cursor::end).max().unwrap_or(END);
    // The one that starts first, and of several the longest.
    let top = |cursors: &[Cursor<'_>]| {
        (0..cursors.len()).min_by_key(|at| (cursors[*at].start(), -cursors[*at].end())).unwrap_or(0)
    };
    let mut last_start = -1;
    loop {
        let mut first = top(&cursors);
        while cursors[first].start() == last_start {
            if !cursors[first].next() {
                return found;
            }
            furthest = furthest.max(cursors[first].end());
            first = top(&cursors);
        }
        let mut best;
        let mut exhausted = false;
        loop {
            let first = top(&cursors);
            let (start, end) = (cursors[first].start(), furthest);
            let taken: i64 = cursors.iter().map(Cursor::width).sum();
            best = Interval::new(start, end, end - start + 1 - taken);
            if cursors[first].end() == end {
                break;
            }
            if !cursors[first].next() {
                exhausted = true;
                break;
            }
            furthest = furthest.max(cursors[first].end());
            if furthest != end {
                break;
            }
        }
        found.push(best);
        if exhausted {
            return found;
        }
        last_start = best.start;
    }
}

/// Intervals with one of each list, each beginning where the one before ends.
fn block(lists: &[Vec<Interval>]) -> Vec<Interval> {
    let mut found = Vec::new();
    let mut cursors = Cursor::all(lists);
    let count = cursors.len();
    if count == 0 {
        return found;
    }
    'next: loop {
        if !cursors[0].next() {
            return found;
        }
        let mut at = 1;
        while at < count {
            while cursors[at].start() <= cursors[at - 1].end() {
                if !cursors[at].next() {
                    return found;
                }
            }
            if cursors[at].start() != cursors[at - 1].end() + 1 {
                continue 'next;
            }
            at += 1;
        }
        found.push(Interval::new(cursors[0].start(), cursors[count - 1].end(), 0));
    }
}

/// Minimal intervals of any list.
fn any(lists: &[Vec<Interval>]) -> Vec<Interval> {
    let mut found: Vec<Interval> = Vec::new();
    // Those that end first come first, and of these the shortest.
    let mut all: Vec<Interval> = lists.iter().flatten().copied().collect();
    all.sort_by_key(|own| (own.end, -own.start));
    for own in all {
        let hides = found.last().is_some_and(|last| own.start <= last.start && last.end <= own.end);
        if !hides {
            found.push(Interval { width: own.length(), ..own });
        }
    }
    found
}

/// Intervals of `own` that stand in a relation to those of `other`.
fn related(relation: Relation, own: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let negative =
        matches!(relation, Relation::NotContaining | Relation::NotContainedBy | Relation::NotOverlapping);
    let mut found = Vec::new();
    let mut rest = other.iter();
    let mut next = rest.next();
    for interval in own {
        let passed = |other: &Interval| match relation {
            Relation::Containing | Relation::NotContaining => {
                other.start < interval.start && other.end < interval.end
            }
            Relation::Overlapping | Relation::NotOverlapping => other.end < interval.start,
            _ => other.end < interval.end,
        };
        while let Some(other) = next
            && passed(other)
        {
            next = rest.next();
        }
        let takes = match (relation, next) {
            (_, None) => negative,
            (Relation::Containing, Some(other)) => interval.start <= other.start && interval.end >= other.end,
            (Relation::Overlapping, Some(other)) => other.start <= interval.end,
            (Relation::NotContaining | Relation::NotOverlapping, Some(other)) => other.start > interval.end,
            (Relation::NotContainedBy, Some(other)) => interval.start < other.start,
            // What is before and after is within what is beside: there are no other relations here.
            (_, Some(other)) => other.start <= interval.start,
        };
        if takes {
            found.push(Interval { width: interval.length(), ..*interval });
        }
    }
    found
}
