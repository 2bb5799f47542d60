//! Buckets by keys that rows have: `terms` and its kin, `composite`, histograms.

use std::sync::Arc;

use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::{composite, date_histogram, histogram, multi_terms, rare_terms, significant_terms, terms};
use crate::batch::{Batch, Positions, Selection};
use crate::collector::{Collector, Reduction, ShardReader, SubCollectors, same};
use crate::field::ValueKind;
use crate::keys::{KeyRule, KeyedRows, RowKeys};
use crate::metric::{DROPPED, Ordinals, moved};
use crate::ordinals::{self, Children};
use crate::result::{Bucket, Detail, Key, Outcome, Results};
use crate::segment::SegmentContext;
use crate::source::{Question, Sink, SourceQuery, all_of};

/// Bytes of a bucket while an answer is made, with the text of a short key.
const CANDIDATE_BYTES: usize = size_of::<Candidate>() + 48;
/// Bytes of a bucket that waits for being chosen.
const COUNTED_BYTES: usize = size_of::<BucketCandidate>();
/// Buckets of a `composite` above those of its page at which the ones behind the page are let go.
const SPARE_BUCKETS: usize = 16_384;
/// Keys between two checks for the end of the work.
const KEYS_A_CHECK: usize = 8_192;

/// An aggregation whose buckets come of values.
#[derive(Debug)]
pub(crate) struct KeyedAggregation {
    /// Rules for keys.
    pub rules: Vec<Arc<KeyRule>>,
    /// `true` if keys are lists, though there be one rule.
    pub list: bool,
    /// Kind of the aggregation.
    pub kind: Kind,
}

impl KeyedAggregation {
    /// Returns whether rows are counted by the bucket of the level above, too.
    pub(crate) fn counts_rows(&self) -> bool {
        matches!(self.kind, Kind::SignificantTerms(_))
    }
}

/// Aggregations whose buckets come of values.
#[derive(Debug)]
#[allow(missing_docs)]
pub(crate) enum Kind {
    Composite(composite::CompositeSpec),
    DateHistogram(date_histogram::DateHistogramSpec),
    Histogram(histogram::HistogramSpec),
    MultiTerms(multi_terms::MultiTermsSpec),
    RareTerms(rare_terms::RareTermsSpec),
    SignificantTerms(significant_terms::SignificantTermsSpec),
    Terms(terms::TermsSpec),
}

/// A bucket while an answer is made.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its key.
    pub key: Key,
    /// Number of its documents.
    pub doc_count: u64,
    /// Its number; [`ordinals::NONE`] where it has no documents.
    pub ordinal: u32,
    /// Details of a bucket.
    pub detail: Detail,
}

impl Candidate {
    /// Makes a bucket without documents.
    pub(crate) fn empty(key: Key) -> Self {
        Self { key, doc_count: 0, ordinal: ordinals::NONE, detail: Detail::None }
    }
}

/// A bucket that has yet to be chosen: its key is made once it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketCandidate {
    /// Its key, as [`Keys`] number it.
    pub key: u64,
    /// Number of its documents.
    pub doc_count: u64,
    /// Its number; [`ordinals::NONE`] where it has no documents.
    pub ordinal: u32,
}

/// The state of an aggregation whose buckets come of values.
#[derive(Debug)]
pub(crate) struct KeyedCollector {
    keyed: Arc<KeyedAggregation>,
    /// Keys.
    pub row_keys: RowKeys,
    ordinals: ordinals::Ordinals,
    counts: ordinals::Counts,
    /// Rows by bucket of the level above, where these are asked for.
    rows: ordinals::Counts,
    subs: SubCollectors,
    /// By index, the places of the columns that are read below, where these are of numbers only.
    below: Arc<[Option<Vec<usize>>]>,
    expanded: KeyedRows,
    children: Vec<u32>,
}

impl KeyedCollector {
    /// Makes an empty state; `below` has by index the places of the columns that all below it reads, where these are plain
    /// columns of numbers, of whose rows each counts for itself, in any order.
    pub(crate) fn new(
        keyed: &Arc<KeyedAggregation>,
        subs: SubCollectors,
        below: &Arc<[Option<Vec<usize>>]>,
    ) -> Self {
        Self {
            keyed: Arc::clone(keyed),
            below: Arc::clone(below),
            row_keys: RowKeys::new(&keyed.rules, keyed.list),
            ordinals: ordinals::Ordinals::default(),
            counts: ordinals::Counts::default(),
            rows: ordinals::Counts::default(),
            subs,
            expanded: KeyedRows::default(),
            children: Vec::new(),
        }
    }

    /// Counts the rows of a bucket of the level above, whether they have keys or not.
    pub(crate) fn rows(&self, parent: u32) -> u64 {
        self.rows.of(parent)
    }

    fn counts_rows(&self) -> bool {
        self.keyed.counts_rows()
    }

    fn add_rows(&mut self, parent: u32, rows: u64) {
        self.rows.add(parent, rows);
    }

    fn add(&mut self, parent: u32, key: u64, count: u64) -> u32 {
        let ordinal = self.ordinals.ordinal(parent, key);
        self.counts.add(ordinal, count);
        ordinal
    }

    /// Lists the buckets of a bucket of the level above.
    ///
    /// # Errors
    /// No memory for so many.
    pub(crate) fn candidates(
        &self,
        children: &Children,
        parent: u32,
        reduction: &mut Reduction<'_>,
    ) -> Result<Vec<Candidate>> {
        reduction.room_for(children.of(parent).len() * CANDIDATE_BYTES)?;
        Ok(self.listed(children, parent))
    }

    fn listed(&self, children: &Children, parent: u32) -> Vec<Candidate> {
        self.all(children, parent).map(|counted| self.candidate(counted)).collect()
    }

    /// Lists the buckets of a bucket of the level above, for some of them to be chosen.
    ///
    /// # Errors
    /// No memory for so many.
    pub(crate) fn counted(
        &self,
        children: &Children,
        parent: u32,
        reduction: &mut Reduction<'_>,
    ) -> Result<Vec<BucketCandidate>> {
        reduction.room_for(children.of(parent).len() * COUNTED_BYTES)?;
        Ok(self.all(children, parent).collect())
    }

    fn all<'a>(&'a self, children: &'a Children, parent: u32) -> impl Iterator<Item = BucketCandidate> + 'a {
        children.of(parent).iter().map(|ordinal| BucketCandidate {
            key: self.ordinals.key(*ordinal),
            doc_count: self.counts.of(*ordinal),
            ordinal: *ordinal,
        })
    }

    /// Tells the keys of buckets that were chosen.
    pub(crate) fn chosen(&self, counted: Vec<BucketCandidate>) -> Vec<Candidate> {
        counted.into_iter().map(|counted| self.candidate(counted)).collect()
    }

    /// Tells the key of a bucket.
    pub(crate) fn candidate(&self, counted: BucketCandidate) -> Candidate {
        Candidate {
            key: self.row_keys.key(counted.key),
            doc_count: counted.doc_count,
            ordinal: counted.ordinal,
            detail: Detail::None,
        }
    }

    /// Lets the buckets of a `composite` go that cannot be on its page: so many before them are known. It does not end with the work, since
    /// a search whose time is over answers what was collected. A batch adds few buckets to twice a page.
    fn prune(&mut self) {
        let keyed = Arc::clone(&self.keyed);
        let Kind::Composite(shape) = &keyed.kind else { return };
        if self.ordinals.len() < shape.size().saturating_mul(2).saturating_add(SPARE_BUCKETS) {
            return;
        }
        let children = self.ordinals.by_parent();
        let mut kept = vec![false; self.ordinals.len()];
        for parent in 0..children.parents() {
            for candidate in shape.page(self.listed(&children, parent)) {
                if let Some(kept) = kept.get_mut(candidate.ordinal as usize) {
                    *kept = true;
                }
            }
        }
        let empty = Self::new(&keyed, self.subs.fresh(), &self.below);
        let old = std::mem::replace(self, empty);
        let mut map = vec![DROPPED; kept.len()];
        let kept: Vec<u32> = (0..).zip(kept).filter(|(_, kept)| *kept).map(|(ordinal, _)| ordinal).collect();
        let keys = self.row_keys.adopt(&old.row_keys, kept.iter().map(|ordinal| old.ordinals.key(*ordinal)));
        for (ordinal, key) in kept.into_iter().zip(keys) {
            map[ordinal as usize] = self.add(old.ordinals.parent(ordinal), key, old.counts.of(ordinal));
        }
        self.subs.merge_all(old.subs, &map);
    }

    /// Makes the results of the sub-aggregations of buckets.
    pub(crate) fn results(
        &mut self,
        ordinals: &[u32],
        reduction: &mut Reduction<'_>,
    ) -> Result<Vec<Results>> {
        self.subs.reduce(ordinals, reduction)
    }

    /// Counts buckets of the answer and accounts for them: [`KeyedCollector::finish`] is given counted ones.
    ///
    /// # Errors
    /// As [`Reduction::made`].
    pub(crate) fn made(&self, buckets: usize, reduction: &mut Reduction<'_>) -> Result<()> {
        reduction.made(buckets, self.subs.0.len())
    }

    /// Gives buckets, which were counted, the results of their sub-aggregations: a list for each bucket of the level above.
    pub(crate) fn finish(
        &mut self,
        chosen: Vec<Vec<Candidate>>,
        reduction: &mut Reduction<'_>,
    ) -> Result<Vec<Vec<Bucket>>> {
        let ordinals: Vec<u32> = chosen.iter().flatten().map(|candidate| candidate.ordinal).collect();
        let mut results = self.subs.reduce(&ordinals, reduction)?.into_iter();
        let bucket = |candidate: Candidate, subs: Results| Bucket {
            key: candidate.key,
            doc_count: candidate.doc_count,
            detail: candidate.detail,
            subs,
        };
        Ok(chosen
            .into_iter()
            .map(|list| {
                list.into_iter()
                    .map(|candidate| bucket(candidate, results.next().unwrap_or_default()))
                    .collect()
            })
            .collect())
    }
}

impl Collector for KeyedCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        if self.counts_rows() {
            selection.for_each(|_, parent| self.add_rows(parent, 1));
        }
        self.row_keys.expand(batch, selection, &mut self.expanded)?;
        self.children.clear();
        let mut last: Option<(u32, u64, u32)> = None;
        for (parent, key) in self.expanded.parents.iter().zip(&self.expanded.keys) {
            let ordinal = match last {
                Some((last_parent, last_key, ordinal)) if last_parent == *parent && last_key == *key => {
                    ordinal
                }
                _ => {
                    let ordinal = self.ordinals.ordinal(*parent, *key);
                    last = Some((*parent, *key, ordinal));
                    ordinal
                }
            };
            self.counts.add(ordinal, 1);
            self.children.push(ordinal);
        }
        if self.subs.is_empty() || self.children.is_empty() {
            self.prune();
            return Ok(());
        }
        let positions = match self.expanded.whole {
            true => Positions::All(self.children.len()),
            false => Positions::Some(&self.expanded.positions),
        };
        self.subs.collect(batch, Selection { positions, ordinals: Ordinals::Each(&self.children) })?;
        self.prune();
        Ok(())
    }

    fn ask(&mut self, segment: &SegmentContext<'_>, answer: &mut SourceQuery<'_>) -> Result<bool> {
        let (keyed, below) = (Arc::clone(&self.keyed), Arc::clone(&self.below));
        let question = match (&keyed.kind, keyed.rules.as_slice()) {
            (Kind::Composite(shape), rules) => shape.first_of(rules),
            (_, [rule]) if !keyed.list && self.subs.is_empty() => Some(Question::Keys(rule)),
            (_, [rule]) if !keyed.list && !keyed.counts_rows() => {
                let columns = below.get(segment.index).and_then(Option::as_deref);
                columns.map(|columns| Question::NumbersByKey(rule, columns))
            }
            _ => None,
        };
        let Some(question) = question else { return Ok(false) };
        let done = answer(&question, self)?;
        self.prune();
        Ok(done)
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.keyed, self.subs.fresh(), &self.below))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        let Some(other) = same::<Self>(other) else { return Ok(()) };
        for (parent, rows) in other.rows.iter() {
            if let Some(parent) = moved(map, parent) {
                self.add_rows(parent, rows);
            }
        }
        let mut children = vec![DROPPED; other.ordinals.len()];
        let kept = (0..children.len() as u32)
            .filter_map(|ordinal| Some((ordinal, moved(map, other.ordinals.parent(ordinal))?)));
        // A merge that ends early leaves keys out: its error leaves the answer out.
        let mut adopted = 0_usize;
        let goes_on = |_: &u64| {
            adopted += 1;
            !adopted.is_multiple_of(KEYS_A_CHECK) || work.check().is_ok()
        };
        let theirs = kept.clone().map(|(ordinal, _)| other.ordinals.key(ordinal)).take_while(goes_on);
        let keys = self.row_keys.adopt(&other.row_keys, theirs);
        for (at, ((ordinal, parent), key)) in kept.zip(keys).enumerate() {
            if at.is_multiple_of(KEYS_A_CHECK) {
                work.check()?;
            }
            children[ordinal as usize] = self.add(parent, key, other.counts.of(ordinal));
        }
        work.check()?;
        self.subs.merge(other.subs, Some(&children), work)?;
        self.prune();
        Ok(())
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        let children = self.ordinals.by_parent();
        let keyed = Arc::clone(&self.keyed);
        let before = self.row_keys.shown_bytes();
        let outcomes = match &keyed.kind {
            Kind::Composite(shape) => composite::reduce(shape, self, &children, parents, reduction),
            Kind::DateHistogram(shape) => date_histogram::reduce(shape, self, &children, parents, reduction),
            Kind::Histogram(shape) => histogram::reduce(shape, self, &children, parents, reduction),
            Kind::MultiTerms(shape) => multi_terms::reduce(shape, self, &children, parents, reduction),
            Kind::RareTerms(shape) => rare_terms::reduce(shape, self, &children, parents, reduction),
            Kind::SignificantTerms(shape) => {
                significant_terms::reduce(shape, self, &children, parents, reduction)
            }
            Kind::Terms(shape) => terms::reduce(shape, self, &children, parents, reduction),
        }?;
        reduction.hold(self.row_keys.shown_bytes().saturating_sub(before))?;
        Ok(outcomes)
    }

    fn memory(&self) -> usize {
        self.row_keys.memory()
            + self.ordinals.memory()
            + self.counts.memory()
            + self.rows.memory()
            + self.expanded.memory()
            + self.children.capacity() * 4
            + self.subs.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.subs.end_shard(segments)
    }
}

impl Sink for KeyedCollector {
    fn rows(&mut self, rows: u64) {
        if self.counts_rows() {
            self.add_rows(0, rows);
        }
    }

    fn group(&mut self, key: u64, rows: u64) -> Result<()> {
        self.add(0, key, rows);
        Ok(())
    }

    fn term(&mut self, kind: ValueKind, term: &[u8], rows: u64) -> Result<Option<u32>> {
        let key = self.row_keys.one().and_then(|reader| reader.wanted_key(kind, term));
        Ok(key.map(|key| self.add(0, key, rows)))
    }

    fn batch(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.collect(batch, all_of(batch))
    }

    fn grouped(&mut self, batch: &Batch<'_>, groups: &[u32]) -> Result<()> {
        let positions = Positions::All(groups.len());
        self.subs.collect(batch, Selection { positions, ordinals: Ordinals::Each(groups) })
    }
}
