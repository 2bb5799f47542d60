//! Conjunctions made ready for one segment: what is cheap to look up comes first, and may leave nothing to be done.

use std::sync::Arc;

use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::prepare;
use crate::condition::{Role, SharedCondition};
use crate::conjunction::ConjunctionScorer;
use crate::match_all::MatchNoneScorer;
use crate::node::Node;
use crate::ranges;
use crate::source::Source;
use crate::windows::few_rows;

/// One row in so many of a segment is few: it is looked which rows cheap parts of a conjunction leave before patterns are looked for, and
/// columns are read.
const FEW_SHARE: u64 = 8;

/// Counts the patterns that are looked up in dictionaries to prepare a part: each costs a walk over all terms.
fn patterns(node: &Node) -> usize {
    match node {
        Node::Matching { .. } => 1,
        Node::And(parts) | Node::AtLeast(_, parts) | Node::DisMax(_, parts) => {
            parts.iter().map(patterns).sum()
        }
        Node::Not(part) | Node::Constant(_, part) => patterns(part),
        _ => 0,
    }
}

/// Returns whether a part is a negation, or has one among its required parts. Negations leave many rows, so they are prepared last.
fn excludes(node: &Node) -> bool {
    match node {
        Node::Not(_) => true,
        Node::And(parts) => parts.iter().any(excludes),
        Node::Constant(_, part) => excludes(part),
        _ => false,
    }
}

/// Parts that are prepared, each with its place among all.
type PreparedParts = Vec<(usize, SharedCondition)>;

/// Prepares the parts without a pattern that need the inverted index only; `None` once one of them matches no row.
fn prepare_cheap(
    parts: &[Node],
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<Option<PreparedParts>> {
    let cheap = |part: &Node| !part.reads_columns() && patterns(part) == 0;
    let mut cheap: Vec<(usize, &Node)> = parts.iter().enumerate().filter(|(_, part)| cheap(part)).collect();
    cheap.sort_by_key(|(_, part)| excludes(part));
    let mut prepared = Vec::with_capacity(parts.len());
    for (at, part) in cheap {
        let own = prepare(part, source, among)?;
        if required_rows(&own).is_some_and(RoaringBitmap::is_empty) {
            return Ok(None);
        }
        prepared.push((at, own));
    }
    Ok(Some(prepared))
}

/// Prepares the parts with patterns that need the inverted index only, those with the fewest patterns first; `None` once one of them, or
/// all without a pattern together with the ranges, match no row. Patterns that are looked for in a column are looked for in the rows that
/// ranges and parts before them leave, where these are few. Returns these rows, if they are known.
fn prepare_patterns(
    parts: &[Node],
    prepared: &mut PreparedParts,
    ranges: &[SharedCondition],
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<Option<Option<RoaringBitmap>>> {
    let most = u64::from(source.reader.rows()) / FEW_SHARE;
    let indexed = parts.iter().enumerate().filter(|(_, part)| !part.reads_columns());
    let indexed = indexed.map(|(at, part)| (patterns(part), at, part));
    let mut indexed: Vec<(usize, usize, &Node)> = indexed.filter(|(patterns, ..)| *patterns > 0).collect();
    if indexed.is_empty() {
        return Ok(Some(None));
    }
    indexed.sort_by_key(|(patterns, _, part)| (*patterns, excludes(part)));
    let cheap = prepared.iter().map(|(_, part)| part).chain(ranges).map(Arc::clone);
    let cheap = ConjunctionScorer { parts: cheap.collect() };
    let mut narrowed = if cheap.parts.is_empty() { None } else { few_rows(&cheap, source, most)? };
    if narrowed.as_ref().is_some_and(RoaringBitmap::is_empty) {
        return Ok(None);
    }
    for (_, at, part) in indexed {
        let own = prepare(part, source, narrowed.as_ref().or(among))?;
        if let Some(rows) = required_rows(&own) {
            if rows.is_empty() {
                return Ok(None);
            }
            if rows.len() < most {
                narrowed = Some(match narrowed {
                    Some(narrowed) => narrowed & rows,
                    None => rows.clone(),
                });
            }
        }
        prepared.push((at, own));
    }
    Ok(Some(narrowed))
}

/// Returns the rows of a part that must match, if they are known.
fn required_rows(part: &SharedCondition) -> Option<&RoaringBitmap> {
    part.row_set().filter(|_| matches!(part.role(), Role::Required))
}

/// Prepares the parts of a conjunction: those that need the inverted index only come first, and
/// where they leave few rows, columns are read for these alone. It ends at the first that matches nothing. Parts that need the inverted
/// index keep their order, in which their scores add up.
pub(super) fn prepare_conjunction(
    parts: &[Node],
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let Some(mut prepared) = prepare_cheap(parts, source, among)? else {
        return Ok(Arc::new(MatchNoneScorer));
    };
    let mut unread: Vec<SharedCondition> = Vec::new();
    let mut columns: Vec<&Node> = Vec::new();
    for part in parts.iter().filter(|part| part.reads_columns()) {
        let lazy = match part {
            Node::ColumnRange { column, terms, range, weight } => {
                ranges::unread(source, (*column, *terms), range, weight.flat())?
            }
            _ => None,
        };
        match lazy {
            Some(part) => unread.push(part),
            None => columns.push(part),
        }
    }
    let Some(mut narrowed) = prepare_patterns(parts, &mut prepared, &unread, source, among)? else {
        return Ok(Arc::new(MatchNoneScorer));
    };
    prepared.sort_by_key(|(at, _)| *at);
    let mut prepared: Vec<SharedCondition> = prepared.into_iter().map(|(_, part)| part).collect();
    prepared.append(&mut unread);
    if columns.is_empty() {
        return Ok(ConjunctionScorer::of(prepared));
    }
    if narrowed.is_none() && !prepared.is_empty() {
        let found = ConjunctionScorer { parts: prepared.clone() };
        narrowed = few_rows(&found, source, u64::from(source.reader.rows()) / FEW_SHARE)?;
    }
    for part in columns {
        let among = narrowed.as_ref().or(among);
        let part = prepare(part, source, among)?;
        // Ranges may come one after another: each leaves less to read for the next.
        if let Some(rows) = part.row_set()
            && rows.len() < u64::from(source.reader.rows()) / FEW_SHARE
        {
            narrowed = Some(match narrowed {
                Some(narrowed) => narrowed & rows,
                None => rows.clone(),
            });
        }
        prepared.push(part);
    }
    Ok(ConjunctionScorer::of(prepared))
}
