//! A predicate made ready for one segment: columns, ids and prefixes are looked up here, and what
//! remains is postings and row sets. Runs on a compute thread, where reading may block.

mod conjunction;

use std::sync::Arc;

use millrace_segment::ValueRange;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use self::conjunction::prepare_conjunction;
use crate::boosting::Boosting;
use crate::condition::SharedCondition;
use crate::constant::Constant;
use crate::disjunction::AtLeast;
use crate::disjunction_max::DisjunctionMax;
use crate::function_score::prepare_combined;
use crate::functions::LeafScore;
use crate::match_all::{MatchAllScorer, MatchNoneScorer};
use crate::negation::NegationScorer;
use crate::nested::prepare_nested;
use crate::node::Node;
use crate::row_set::RowSet;
use crate::source::Source;
use crate::synonyms::Synonyms;
use crate::term::Text;
use crate::{column_matching, dictionary, exact, geo, intervals, metadata, phrase, ranges, spans};

/// Ids that are looked up between two looks at the stop.
const IDS: usize = 256;

/// Prepares a predicate. `among` are the only rows that matter, where known. Row sets are held by the work of the source.
///
/// # Errors
/// Files that cannot be read, more rows than queries may hold, [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once
/// the work should end.
pub fn prepare(node: &Node, source: &Source, among: Option<&RoaringBitmap>) -> Result<SharedCondition> {
    source.work.check()?;
    Ok(match node {
        Node::All(weight) => Arc::new(MatchAllScorer(weight.flat())),
        Node::None => Arc::new(MatchNoneScorer),
        Node::Exact { path, column, value, weight } => {
            exact::prepare(source, (*path, *column), value, *weight, among)?
        }
        Node::AnyExact { path, column, values, weight } => {
            exact::prepare_any(source, (*path, *column), values, weight.flat(), among)?
        }
        Node::Text { path, term, weight } => {
            Arc::new(Text { path: *path, term: term.clone(), score: LeafScore::new(source, *weight) })
        }
        Node::RawRange { path, column, from, to, range, weight } => {
            if matches!(range, ValueRange::Str(..)) || source.inverted.has_exact(*path) {
                dictionary::prepare_values(source, *path, (from, to), weight.flat())?
            } else {
                ranges::prepare(source, (*column, None), Some(range), among, weight.flat())?
            }
        }
        Node::ColumnRange { column, terms, range, weight } => {
            ranges::prepare(source, (*column, *terms), Some(range), among, weight.flat())?
        }
        Node::TextRange { path, from, to, weight } => {
            dictionary::prepare_terms(source, *path, (from, to), weight.flat())?
        }
        Node::Matching { path, text, column, pattern, weight } => {
            dictionary::prepare_pattern(source, (*path, *text, *column), pattern, weight.flat(), among)?
        }
        Node::ColumnMatching { column, pattern, weight } => {
            let rows = column_matching::rows(source, *column, pattern, among)?;
            RowSet::found(source, rows, weight.flat())?
        }
        Node::Expanded(slot) => dictionary::prepare_expanded(source, *slot),
        Node::ManyExpanded { slots, minimum } => dictionary::prepare_many_expanded(source, slots, minimum),
        Node::Synonyms { path, terms, weight } => {
            let score = LeafScore::new(source, *weight);
            Arc::new(Synonyms { path: *path, terms: Arc::clone(terms), score })
        }
        Node::Phrase { path, phrase, values, weight } => {
            phrase::prepare(source, *path, phrase, values.as_ref(), *weight, among)?
        }
        Node::Exists { paths, weight } => exact::prepare_exists(source, paths, weight.flat())?,
        Node::Ids { values, weight } => {
            let mut rows = RoaringBitmap::new();
            for values in values.chunks(IDS) {
                source.work.check()?;
                rows |= source.reader.id_rows(values)?;
            }
            RowSet::found(source, rows, weight.flat())?
        }
        Node::Intervals { intervals, weight, .. } => {
            Arc::new(intervals::prepare(intervals, *weight, source)?)
        }
        Node::Spans { path, spans, weight } => {
            Arc::new(spans::prepare(spans, *path, LeafScore::new(source, *weight), source)?)
        }
        Node::Metadata { metadata, weight } => {
            RowSet::found(source, metadata::rows(source, metadata, among)?, weight.flat())?
        }
        Node::Listed(lists) => match lists.get(&source.number) {
            Some(rows) => RowSet::found(source, rows.clone(), 0.0)?,
            None => Arc::new(MatchNoneScorer),
        },
        Node::And(parts) => prepare_conjunction(parts, source, among)?,
        Node::AtLeast(required, parts) => AtLeast::of(*required, prepare_all(parts, source, among)?),
        Node::Not(part) => Arc::new(NegationScorer(prepare(part, source, among)?)),
        Node::Constant(score, part) => {
            Arc::new(Constant { score: *score, part: prepare(part, source, among)? })
        }
        Node::Boosting { positive, negative, factors } => Arc::new(Boosting {
            positive: prepare(positive, source, among)?,
            negative: prepare(negative, source, among)?,
            factors: *factors,
        }),
        Node::FunctionScore { base, functions, combination } => {
            prepare_combined(base, functions, combination, source, among)?
        }
        Node::Nested(node) => prepare_nested(node, source, among)?,
        Node::Within { column, area, weight } => {
            RowSet::found(source, geo::rows_in(source, *column, area, among)?, weight.flat())?
        }
        Node::DisMax(tie_breaker, parts) => {
            let parts = prepare_all(parts, source, among)?;
            Arc::new(DisjunctionMax { tie_breaker: *tie_breaker, parts })
        }
    })
}

fn prepare_all(
    nodes: &[Node],
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<Vec<SharedCondition>> {
    nodes.iter().map(|node| prepare(node, source, among)).collect()
}

#[cfg(test)]
mod tests;
