//! Interval sources: an expression over terms, in the normal form in which Lucene's minimal-interval algorithms find all matches.
//!
//! Parts in the same relation are one list, equal parts of it are one that repeats, and alternatives
//! of different lengths are pulled out of what is sensitive to gaps: the shortest interval of one
//! alternative would hide a longer one of another that fits.

use millrace_dsl::query::{MAX_CLAUSES, Relation};
use millrace_work::error::{Error, Result};

/// Most parts that an expression may be made of once its alternatives are pulled out.
const MAX_PARTS: usize = 16 * MAX_CLAUSES;

/// An expression over terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// No interval.
    Nothing,
    /// Each occurrence of the terms of a leaf, by its number.
    Leaf(usize),
    /// Intervals with so many positions more before and behind them.
    Extended(Box<Source>, u32, u32),
    /// The position before each interval, or behind it.
    Beside(Box<Source>, IntervalSide),
    /// So many intervals one behind the other.
    Repeated(Box<Source>, usize),
    /// One of each, in this order.
    Ordered(Vec<Source>),
    /// One of each.
    Unordered(Vec<Source>),
    /// One of each, in this order, without anything between.
    Block(Vec<Source>),
    /// Those of any.
    Any(Vec<Source>),
    /// Those with at most so many positions between their parts.
    MaxGaps(Box<Source>, i32),
    /// Those of the first that stand in a relation to those of the second.
    Related(Relation, Box<Source>, Box<Source>),
    /// Those of another field: stays a part of its own.
    Fixed(Box<Source>),
}

/// A side of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IntervalSide {
    Before,
    Behind,
}

impl Source {
    /// Intervals with so many positions before them.
    pub fn behind(self, positions: u32) -> Self {
        match positions {
            0 => self,
            before => Self::Extended(Box::new(self), before, 0),
        }
    }

    /// Intervals of any of some sources.
    pub fn any(sources: Vec<Source>) -> Self {
        let mut distinct: Vec<Source> = Vec::with_capacity(sources.len());
        for source in sources {
            let own = match source {
                Self::Any(inner) => inner,
                other => vec![other],
            };
            for source in own {
                if !distinct.contains(&source) {
                    distinct.push(source);
                }
            }
        }
        match distinct.len() {
            1 => distinct.remove(0),
            _ => Self::Any(distinct),
        }
    }

    /// One of each, in this order.
    pub fn ordered(sources: Vec<Source>) -> Self {
        let mut flat = Vec::with_capacity(sources.len());
        for source in sources {
            match source {
                Self::Ordered(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        let mut runs: Vec<(Source, usize)> = Vec::with_capacity(flat.len());
        for source in flat {
            match runs.last_mut() {
                Some((last, count)) if *last == source => *count += 1,
                _ => runs.push((source, 1)),
            }
        }
        one_or(runs, Self::Ordered)
    }

    /// One of each.
    pub fn unordered(sources: Vec<Source>) -> Self {
        let mut counted: Vec<(Source, usize)> = Vec::with_capacity(sources.len());
        let mut count = |source: Source| match counted.iter_mut().find(|(known, _)| *known == source) {
            Some((_, count)) => *count += 1,
            None => counted.push((source, 1)),
        };
        for source in sources {
            match source {
                Self::Unordered(inner) => inner.into_iter().for_each(&mut count),
                other => count(other),
            }
        }
        one_or(counted, Self::Unordered)
    }

    /// One of each, in this order, without anything between.
    pub fn block(mut sources: Vec<Source>) -> Result<Self> {
        if sources.len() == 1 {
            return Ok(sources.remove(0));
        }
        let size: usize = sources.iter().map(Self::size).sum();
        let mut ways: Vec<Vec<Source>> = vec![Vec::with_capacity(sources.len())];
        for source in sources {
            let parts = source.alternatives();
            let count = ways.len().saturating_mul(parts.len());
            if count > MAX_CLAUSES || count.saturating_mul(size) > MAX_PARTS {
                return Err(Error::IllegalArgument("Too many disjunctions to expand".to_owned()));
            }
            ways = parts
                .iter()
                .flat_map(|part| {
                    ways.iter().map(move |way| way.iter().cloned().chain([part.clone()]).collect())
                })
                .collect();
        }
        let flat = |way: Vec<Source>| {
            let mut flat = Vec::with_capacity(way.len());
            for source in way {
                match source {
                    Self::Block(inner) => flat.extend(inner),
                    other => flat.push(other),
                }
            }
            Self::Block(flat)
        };
        Ok(Self::any(ways.into_iter().map(flat).collect()))
    }

    /// Those with at most so many positions between their parts.
    pub fn max_gaps(self, gaps: i32) -> Self {
        let limited = |source: Source| Self::MaxGaps(Box::new(source), gaps);
        Self::any(self.pulled_up().into_iter().map(limited).collect())
    }

    /// Those that stand in a relation to those of another.
    pub fn related(self, relation: Relation, other: Source) -> Self {
        let pair = |own: Source, other: Source| Self::Related(relation, Box::new(own), Box::new(other));
        let splits = |split: &Source, copied: &Source| {
            split.alternatives().len().saturating_mul(copied.size()) <= MAX_PARTS
        };
        match relation {
            Relation::Overlapping | Relation::NotOverlapping => pair(self, other),
            Relation::Containing | Relation::NotContaining if splits(&self, &other) => {
                Self::any(self.alternatives().into_iter().map(|own| pair(own, other.clone())).collect())
            }
            Relation::ContainedBy | Relation::NotContainedBy if splits(&other, &self) => {
                Self::any(other.alternatives().into_iter().map(|other| pair(self.clone(), other)).collect())
            }
            Relation::Containing
            | Relation::NotContaining
            | Relation::ContainedBy
            | Relation::NotContainedBy => pair(self, other),
            // Before an interval is within all that is before it.
            Relation::Before => {
                let beside = Self::Beside(Box::new(other), IntervalSide::Before);
                self.related(Relation::ContainedBy, Self::Extended(Box::new(beside), u32::MAX, 0))
            }
            Relation::After => {
                let beside = Self::Beside(Box::new(other), IntervalSide::Behind);
                self.related(Relation::ContainedBy, Self::Extended(Box::new(beside), 0, u32::MAX))
            }
        }
    }

    /// Returns the number of the first leaf.
    pub fn first_leaf(&self) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::Leaf(leaf) => Some(*leaf),
            Self::Extended(source, ..)
            | Self::Beside(source, _)
            | Self::Repeated(source, _)
            | Self::MaxGaps(source, _)
            | Self::Related(_, source, _)
            | Self::Fixed(source) => source.first_leaf(),
            Self::Ordered(parts) | Self::Unordered(parts) | Self::Block(parts) | Self::Any(parts) => {
                parts.iter().find_map(Self::first_leaf)
            }
        }
    }

    /// Counts the parts.
    pub fn size(&self) -> usize {
        let below = match self {
            Self::Nothing | Self::Leaf(_) => 0,
            Self::Extended(source, ..)
            | Self::Beside(source, _)
            | Self::Repeated(source, _)
            | Self::MaxGaps(source, _)
            | Self::Fixed(source) => source.size(),
            Self::Related(_, own, other) => own.size() + other.size(),
            Self::Ordered(parts) | Self::Unordered(parts) | Self::Block(parts) | Self::Any(parts) => {
                parts.iter().map(Self::size).sum()
            }
        };
        below + 1
    }

    /// Returns whether the expression has become larger than is evaluated.
    pub fn is_too_large(&self) -> bool {
        self.size() > MAX_PARTS
    }

    /// Returns the least length of an interval.
    pub fn min_extent(&self) -> u32 {
        let sum = |parts: &[Source]| parts.iter().map(Self::min_extent).fold(0, u32::saturating_add);
        match self {
            Self::Nothing => 0,
            Self::Leaf(_) | Self::Beside(..) => 1,
            Self::Extended(source, before, after) => {
                source.min_extent().saturating_add(*before).saturating_add(*after)
            }
            Self::Repeated(source, _)
            | Self::MaxGaps(source, _)
            | Self::Related(_, source, _)
            | Self::Fixed(source) => source.min_extent(),
            Self::Ordered(parts) | Self::Unordered(parts) | Self::Block(parts) => sum(parts),
            Self::Any(parts) => parts.iter().map(Self::min_extent).min().unwrap_or(u32::MAX),
        }
    }

    /// Takes alternatives apart, as far as they can be pulled out of the expression.
    fn pulled_up(&self) -> Vec<Source> {
        let boxed = |source: Source| Box::new(source);
        let lists = |parts: &[Source], make: fn(Vec<Source>) -> Source| {
            let size: usize = parts.iter().map(Self::size).sum();
            let mut ways: Vec<Vec<Source>> = vec![Vec::new()];
            for part in parts {
                let alternatives = part.alternatives();
                // Beyond the bounds alternatives stay where they are.
                let count = ways.len().saturating_mul(alternatives.len());
                if count > MAX_CLAUSES || count.saturating_mul(size) > MAX_PARTS {
                    return vec![self.clone()];
                }
                ways = alternatives
                    .iter()
                    .flat_map(|alternative| {
                        ways.iter().map(move |way| way.iter().cloned().chain([alternative.clone()]).collect())
                    })
                    .collect();
            }
            ways.into_iter().map(make).collect()
        };
        let wrapped = |inner: Vec<Source>, make: &dyn Fn(Source) -> Source| match inner.len() {
            0 | 1 => vec![self.clone()],
            _ => inner.into_iter().map(make).collect(),
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Any(parts) => parts.clone(),
            Self::Ordered(parts) => lists(parts, Self::Ordered),
            Self::Unordered(parts) => lists(parts, Self::Unordered),
            Self::Extended(source, before, after) => {
                wrapped(source.pulled_up(), &|source| Self::Extended(boxed(source), *before, *after))
            }
            Self::Beside(source, side) => {
                wrapped(source.pulled_up(), &|source| Self::Beside(boxed(source), *side))
            }
            Self::Fixed(source) => wrapped(source.pulled_up(), &|source| Self::Fixed(boxed(source))),
            Self::Related(relation @ (Relation::Containing | Relation::ContainedBy), own, other) => {
                let splits_own = *relation == Relation::Containing;
                let split = if splits_own { own.alternatives() } else { other.alternatives() };
                if split.len().saturating_mul(self.size()) > MAX_PARTS {
                    return vec![self.clone()];
                }
                let pair = |part| match splits_own {
                    true => Self::Related(*relation, boxed(part), other.clone()),
                    false => Self::Related(*relation, own.clone(), boxed(part)),
                };
                split.into_iter().map(pair).collect()
            }
            Self::Related(Relation::Overlapping, source, reference) => {
                let pair = |(source, reference): (Source, Source)| {
                    Self::Related(Relation::Overlapping, boxed(source), boxed(reference))
                };
                let references = reference.alternatives();
                let sources = source.alternatives();
                let count = sources.len().saturating_mul(references.len());
                if count.saturating_mul(self.size()) > MAX_PARTS {
                    return vec![self.clone()];
                }
                references
                    .iter()
                    .flat_map(|reference| {
                        sources.iter().map(move |source| (source.clone(), reference.clone()))
                    })
                    .map(pair)
                    .collect()
            }
            Self::Leaf(_) | Self::Repeated(..) | Self::Block(_) | Self::MaxGaps(..) | Self::Related(..) => {
                vec![self.clone()]
            }
        }
    }

    /// Takes alternatives apart; those of one position are one, as none hides another.
    fn alternatives(&self) -> Vec<Source> {
        let (single, longer): (Vec<Source>, Vec<Source>) =
            self.pulled_up().into_iter().partition(|source| source.min_extent() == 1);
        let mut parts = Vec::with_capacity(longer.len() + 1);
        if !single.is_empty() {
            parts.push(Self::any(single));
        }
        parts.extend(longer);
        parts
    }
}

/// Makes one part of each source that is there several times, and a list of the parts.
fn one_or(counted: Vec<(Source, usize)>, list: fn(Vec<Source>) -> Source) -> Source {
    let part = |(source, count): (Source, usize)| match count {
        1 => source,
        _ => Source::Repeated(Box::new(source), count),
    };
    let mut parts: Vec<Source> = counted.into_iter().map(part).collect();
    match parts.len() {
        1 => parts.remove(0),
        _ => list(parts),
    }
}
