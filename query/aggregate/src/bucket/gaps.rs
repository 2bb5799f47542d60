//! Common part of histograms: buckets at places that follow one another, with empty ones in the gaps.

use millrace_dsl::aggs::BucketOrder;
use millrace_work::error::Result;

use super::keyed::{Candidate, KeyedCollector};
use super::sorted;
use crate::collector::Reduction;
use crate::ordinals::Children;
use crate::result::{BucketsKind, Key, Outcome};

/// The places of a histogram's buckets.
pub(super) trait BucketPositions {
    /// Position of a bucket.
    type Position: Copy + PartialOrd;

    /// Returns the place of a key; `None` of a key of another kind.
    fn of(&self, key: &Key) -> Option<Self::Position>;

    /// Returns the key of a place.
    fn key(&self, place: Self::Position) -> Key;

    /// Returns the least and the greatest place that empty buckets fill, where given.
    fn extended(&self) -> (Option<Self::Position>, Option<Self::Position>);

    /// Walks from one place to another, ascending, both included.
    ///
    /// # Errors
    /// More than so many buckets.
    fn walk(
        &self,
        first: Self::Position,
        last: Self::Position,
        max_buckets: u64,
    ) -> Result<impl Iterator<Item = Self::Position>>;
}

/// Layout of a histogram's answer.
pub(super) struct Layout<'a> {
    /// Least documents of a bucket; gaps are filled where it is 0.
    pub min_doc_count: u64,
    /// Order of the buckets.
    pub order: &'a BucketOrder,
    /// `true` if they are members of an object.
    pub keyed: bool,
    /// Kind of the histogram.
    pub shape: BucketsKind,
}

/// Makes the answer.
pub(super) fn reduce<P: BucketPositions>(
    places: &P,
    layout: Layout<'_>,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let mut chosen = Vec::with_capacity(parents.len());
    for parent in parents {
        let mut candidates = level.candidates(children, *parent, reduction)?;
        candidates.retain(|candidate| {
            candidate.doc_count >= layout.min_doc_count && places.of(&candidate.key).is_some()
        });
        candidates.sort_unstable_by(|a, b| a.key.compare(&b.key));
        level.made(candidates.len(), reduction)?;
        if layout.min_doc_count == 0 {
            candidates = filled(places, candidates, reduction.max_buckets, &mut || level.made(1, reduction))?;
        }
        chosen.push(sorted::take_first(level, layout.order, candidates, usize::MAX, reduction)?);
    }
    let lists = level.finish(chosen, reduction)?.into_iter();
    Ok(lists.map(|buckets| Outcome::buckets(layout.shape.clone(), layout.keyed, buckets)).collect())
}

/// Puts empty buckets into gaps, each of which `made` counts.
fn filled<P: BucketPositions>(
    places: &P,
    candidates: Vec<Candidate>,
    max_buckets: u64,
    made: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Candidate>> {
    let place = |candidate: &Candidate| places.of(&candidate.key);
    let ends = candidates.first().and_then(place).zip(candidates.last().and_then(place));
    let (first, last) = match (ends, places.extended()) {
        (Some((first, last)), (min, max)) => {
            (min.filter(|min| *min < first).unwrap_or(first), max.filter(|max| *max > last).unwrap_or(last))
        }
        (None, (Some(min), Some(max))) => (min, max),
        (None, _) => return Ok(Vec::new()),
    };
    let mut list = Vec::with_capacity(candidates.len());
    let mut candidates = candidates.into_iter().peekable();
    for at in places.walk(first, last, max_buckets)? {
        let mut has_documents = false;
        while let Some(candidate) = candidates.next_if(|next| place(next).is_some_and(|own| own <= at)) {
            has_documents = place(&candidate) == Some(at);
            list.push(candidate);
        }
        if !has_documents {
            made()?;
            list.push(Candidate::empty(places.key(at)));
        }
    }
    list.extend(candidates);
    Ok(list)
}
