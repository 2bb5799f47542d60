//! [`Matcher`]: many filters of an index, asked of one batch after the other.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_mapping::Mapping;
use millrace_runtime::Compute;
use millrace_scoring::collect::row_set;
use millrace_scoring::condition::SharedCondition;
use millrace_scoring::conjunction::ConjunctionScorer;
use millrace_scoring::disjunction::AtLeast;
use millrace_scoring::match_all::{MatchAllScorer, MatchNoneScorer};
use millrace_scoring::negation::NegationScorer;
use millrace_scoring::node::ResolvedPredicate;
use millrace_scoring::prepare::prepare;
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::row_set::RowSet;
use millrace_scoring::source::Source;
use millrace_segment::ParsedDocuments;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::batch::{ArrivedDocument, Batch, BatchSegment, FilterSelection};
use super::clause::{Clause, Tree};
use super::fields::Fields;
use super::finder::{Candidates, Finder};
use super::{Filter, atoms};
use crate::table::snapshot::TableSegment;
use crate::table::statistics::expanded;

/// Filters of one index, compiled for one mapping of it or for such as mean the same to each.
#[derive(Debug)]
pub struct Matcher {
    filters: Vec<CompiledFilter>,
    /// The clauses that filters are made of, each once.
    clauses: Vec<Arc<Clause>>,
    fields: Fields,
    finder: Finder,
    /// Filters that match everything.
    everything: Vec<u32>,
    /// Fields of the filters that the finder finds, and of the others, where there are any but those.
    needing: Fields,
    others: Option<Fields>,
    prunes: bool,
}

/// A filter over the clauses of a matcher.
#[derive(Debug)]
struct CompiledFilter {
    tree: Tree,
    is_timed: bool,
}

/// Matches of a filter in a batch.
#[derive(Debug)]
pub struct FilterMatches {
    /// The filter's place among those of the matcher.
    pub filter: usize,
    /// The rows, of which there are some, or why this filter could not be asked.
    pub rows: Result<RoaringBitmap>,
}

impl Matcher {
    /// Makes the matcher of some filters. Takes the time of looking at each of them: filters that come and go are put into a new one.
    pub fn new(filters: &[Arc<Filter>]) -> Self {
        let mut known: HashMap<Arc<str>, usize> = HashMap::new();
        let (mut clauses, mut fields) = (Vec::new(), Fields::default());
        let mut placed = Vec::with_capacity(filters.len());
        for filter in filters {
            fields.join(&filter.fields);
            let mut number = |own: usize| match filter.clauses.get(own) {
                None => usize::MAX,
                Some(clause) => *known.entry(Arc::clone(&clause.written)).or_insert_with(|| {
                    clauses.push(Arc::clone(clause));
                    clauses.len() - 1
                }),
            };
            let tree = filter.tree.renumbered(&mut number);
            let is_timed = filter.clauses.iter().any(|clause| clause.timed.is_some());
            placed.push(CompiledFilter { tree, is_timed });
        }
        let needs = placed.iter().map(|filter| atoms::of_tree(&filter.tree, &clauses)).collect();
        let finder = Finder::new(needs);
        let (mut needing, mut others, mut everything) = (Fields::default(), None, Vec::new());
        let mut always = finder.always().iter().peekable();
        for ((number, filter), placed) in (0..).zip(filters).zip(&placed) {
            match always.next_if(|other| **other == number) {
                Some(_) if placed.tree.is_everything(&clauses) => everything.push(number),
                Some(_) => others.get_or_insert_with(Fields::default).join(&filter.fields),
                None => needing.join(&filter.fields),
            }
        }
        Self { filters: placed, clauses, fields, finder, everything, needing, others, prunes: true }
    }

    /// Evaluates every filter, on any batch: the rows are the same, found in more time.
    pub fn without_pruning(self) -> Self {
        Self { prunes: false, ..self }
    }

    /// Makes the batch of documents of an index, by its whole mapping, for this matcher alone. Documents are parsed, and looked through for
    /// what filters need; those that have some of it are indexed, and all where there are filters of which nothing is known
    /// that they need. It is called on a compute thread, which `compute` is the pool of.
    ///
    /// # Errors
    /// More documents than [`Batch::fitting`] counts, an analyzer that is missing.
    pub fn batch(
        &self,
        mapping: &Arc<Mapping>,
        arrivals: &[ArrivedDocument],
        compute: &Compute,
    ) -> Result<Batch> {
        Batch::checked(arrivals)?;
        let known = self.finder.always().len() < self.filters.len();
        if !self.prunes || (!known && self.others.is_some()) {
            return Batch::build(mapping, arrivals, &self.fields, compute.clone());
        }
        if !known {
            return Batch::of_parts(mapping, arrivals, (RoaringBitmap::new(), &self.needing), None, compute);
        }
        let documents = arrivals
            .iter()
            .map(|arrival| (std::str::from_utf8(&arrival.id).unwrap_or_default(), arrival.source.as_ref()));
        let parsed = ParsedDocuments::new(mapping, documents, self.needing.some())?;
        let Some(rows) = self.finder.rows(&parsed)? else {
            return Batch::build(mapping, arrivals, &self.fields, compute.clone());
        };
        drop(parsed);
        Batch::of_parts(mapping, arrivals, (rows, &self.needing), self.others.as_ref(), compute)
    }

    /// Returns the fields that batches are made with.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Finds the rows of each filter that matches any of a batch, in the order of the filters. The batch is one of this matcher's, or of
    /// all its fields. What is held meanwhile is given back. Blocks: it is called on a compute thread.
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the work should end. What one filter fails of is said of that filter alone.
    pub fn run(&self, batch: &Batch, work: &QueryContext) -> Result<Vec<FilterMatches>> {
        let mut all = Vec::new();
        for part in &batch.parts {
            self.run_part(part, work, &mut all)?;
        }
        if batch.parts.iter().all(|part| part.whom != FilterSelection::All) {
            if batch.rows() > 0 {
                let rows = || RoaringBitmap::from_iter(0..batch.rows());
                all.extend(
                    self.everything
                        .iter()
                        .map(|filter| FilterMatches { filter: *filter as usize, rows: Ok(rows()) }),
                );
            }
            // Each filter is asked of one part.
            all.sort_by_key(|found| found.filter);
        }
        Ok(all)
    }

    fn run_part(&self, part: &BatchSegment, work: &QueryContext, all: &mut Vec<FilterMatches>) -> Result<()> {
        let source = source(&part.segment, work)?;
        let candidates = self.candidates(part, &source)?;
        let mut asked = MatchedBatch { clauses: &self.clauses, found: HashMap::new(), source };
        for number in candidates.iter() {
            let Some(filter) = self.filters.get(number) else { continue };
            match asked.of_filter(filter, &part.times) {
                Err(Error::TimedOut) => return Err(Error::TimedOut),
                Ok(rows) if rows.is_empty() => {}
                rows => {
                    all.push(FilterMatches { filter: number, rows: rows.map(|rows| part.of_batch(rows)) })
                }
            }
        }
        Ok(())
    }

    fn candidates(&self, part: &BatchSegment, source: &Source) -> Result<Candidates> {
        match part.whom {
            _ if !self.prunes => Ok(Candidates::all(self.filters.len())),
            FilterSelection::All => self.finder.candidates(source, true),
            FilterSelection::Needing => self.finder.candidates(source, false),
            FilterSelection::Others => Ok(self.finder.others(&self.everything)),
        }
    }

    /// Counts the filters that are asked of a batch once it is known what it has.
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the work should end.
    #[cfg(test)]
    pub(super) fn asked(&self, batch: &Batch, work: &QueryContext) -> Result<usize> {
        let of_part =
            |part: &BatchSegment| Ok(self.candidates(part, &source(&part.segment, work)?)?.iter().count());
        batch.parts.iter().map(of_part).sum()
    }
}

/// A batch that filters are asked of.
struct MatchedBatch<'a> {
    clauses: &'a [Arc<Clause>],
    /// The rows of clauses, by number and, where it matters, by what `now` means, as far as they were asked for.
    found: HashMap<(usize, Option<i64>), SharedCondition>,
    source: Source,
}

impl MatchedBatch<'_> {
    fn of_filter(
        &mut self,
        filter: &CompiledFilter,
        times: &[(i64, RoaringBitmap)],
    ) -> Result<RoaringBitmap> {
        self.source.work.check()?;
        if !filter.is_timed {
            return self.rows(&filter.tree, 0);
        }
        let mut all = RoaringBitmap::new();
        for (now_ms, rows) in times {
            all |= self.rows(&filter.tree, *now_ms)? & rows;
        }
        Ok(all)
    }

    fn rows(&mut self, tree: &Tree, now_ms: i64) -> Result<RoaringBitmap> {
        let prepared = self.prepared(tree, now_ms)?;
        match prepared.row_set() {
            Some(rows) => Ok(rows.clone()),
            None => found(&prepared, &self.source),
        }
    }

    fn prepared(&mut self, tree: &Tree, now_ms: i64) -> Result<SharedCondition> {
        Ok(match tree {
            Tree::Everything => Arc::new(MatchAllScorer(0.0)),
            Tree::Clause(number) => self.clause(*number, now_ms)?,
            Tree::All(parts) => {
                let mut all = Vec::with_capacity(parts.len());
                for part in parts {
                    let part = self.prepared(part, now_ms)?;
                    // Where nothing is left, the other clauses need not be looked for.
                    if part.row_set().is_some_and(RoaringBitmap::is_empty) {
                        return Ok(Arc::new(MatchNoneScorer));
                    }
                    all.push(part);
                }
                ConjunctionScorer::of(all)
            }
            Tree::AtLeast(required, parts) => {
                let parts = parts.iter().map(|part| self.prepared(part, now_ms)).collect::<Result<_>>()?;
                AtLeast::of(*required, parts)
            }
            Tree::Not(part) => Arc::new(NegationScorer(self.prepared(part, now_ms)?)),
        })
    }

    /// Finds the rows of a clause, once.
    fn clause(&mut self, number: usize, now_ms: i64) -> Result<SharedCondition> {
        let Some(clause) = self.clauses.get(number) else { return Ok(Arc::new(MatchNoneScorer)) };
        let key = (number, clause.timed.is_some().then_some(now_ms));
        if let Some(found) = self.found.get(&key) {
            return Ok(Arc::clone(found));
        }
        let rows = match &clause.timed {
            None => clause_rows(&clause.resolved, &self.source)?,
            Some(timed) => clause_rows(&timed.at(now_ms)?, &self.source)?,
        };
        self.found.insert(key, Arc::clone(&rows));
        Ok(rows)
    }
}

/// Finds the rows of a segment that a tree over clauses matches, none of which depends on time.
pub(super) fn tree_rows(
    tree: &Tree,
    clauses: &[Arc<Clause>],
    segment: &Arc<dyn SegmentReader>,
    work: &QueryContext,
) -> Result<RoaringBitmap> {
    MatchedBatch { clauses, found: HashMap::new(), source: source(segment, work)? }.rows(tree, 0)
}

/// A segment as conditions are asked of it.
pub(super) fn source(segment: &Arc<dyn SegmentReader>, work: &QueryContext) -> Result<Source> {
    Ok(Source {
        number: 0,
        shard: 0,
        reader: Arc::clone(segment),
        inverted: segment.inverted()?,
        functions: Arc::default(),
        ruled: None,
        work: work.part(),
    })
}

/// Finds the rows of a clause; scores are not computed.
pub(super) fn clause_rows(clause: &ResolvedPredicate, source: &Source) -> Result<SharedCondition> {
    let mut source = source.clone();
    if !clause.expansions.is_empty() {
        let (reader, deleted) = (Arc::clone(&source.reader), Arc::default());
        let segment = TableSegment { index: 0, shard: 0, reader, deleted, ruled: None };
        source.functions = expanded(&clause.expansions, &[segment], &source.work)?;
    }
    let prepared = prepare(&clause.node, &source, None)?;
    if prepared.row_set().is_some() {
        return Ok(prepared);
    }
    let rows = found(&prepared, &source)?;
    match prepared.failure() {
        Some(error) => Err(error),
        None => RowSet::found(&source, rows, 0.0),
    }
}

/// Finds all rows of a condition in a segment.
pub(super) fn found(prepared: &SharedCondition, source: &Source) -> Result<RoaringBitmap> {
    row_set(prepared.as_ref(), source.inverted.as_ref(), source.reader.rows(), &source.work)
}
