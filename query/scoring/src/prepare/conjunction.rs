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

/// Prepares the parts that need the inverted index only, those with the fewest patterns first; `None` once one of them, or all
/// without a pattern together with the ranges, match no row. Patterns that are looked for in a column are looked for in the rows that
/// ranges and parts before them leave, where these are few. Parts are returned in their own order, in which their scores add up, with the
/// rows that patterns were looked for in, if there were any and these are known.
fn prepare_indexed(
    parts: &[Node],
    ranges: &[SharedCondition],
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<Option<(Vec<SharedCondition>, Option<RoaringBitmap>)>> {
    let most = u64::from(source.reader.rows()) / FEW_SHARE;
    let indexed = parts.iter().enumerate().filter(|(_, part)| !part.reads_columns());
    let mut indexed: Vec<(usize, usize, &Node)> =
        indexed.map(|(at, part)| (patterns(part), at, part)).collect();
    indexed.sort_by_key(|(patterns, _, part)| (*patterns, excludes(part)));
    let mut prepared: Vec<(usize, SharedCondition)> = Vec::with_capacity(indexed.len());
    let mut looked = false;
    let mut narrowed: Option<RoaringBitmap> = None;
    for (patterns, at, part) in indexed {
        if patterns > 0 && !std::mem::replace(&mut looked, true) {
            let cheap = prepared.iter().map(|(_, part)| part).chain(ranges).map(Arc::clone);
            let cheap = ConjunctionScorer { parts: cheap.collect() };
            narrowed = if cheap.parts.is_empty() { None } else { few_rows(&cheap, source, most)? };
            if narrowed.as_ref().is_some_and(RoaringBitmap::is_empty) {
                return Ok(None);
            }
        }
        let own = prepare(part, source, narrowed.as_ref().or(among))?;
        let required = matches!(own.role(), Role::Required);
        if let Some(rows) = own.row_set().filter(|_| required) {
            if rows.is_empty() {
                return Ok(None);
            }
            if patterns > 0 && rows.len() < most {
                narrowed = Some(match narrowed {
                    Some(narrowed) => narrowed & rows,
                    None => rows.clone(),
                });
            }
        }
        prepared.push((at, own));
    }
    prepared.sort_by_key(|(at, _)| *at);
    Ok(Some((prepared.into_iter().map(|(_, part)| part).collect(), narrowed)))
}

/// Prepares the parts of a conjunction: those that need the inverted index only come first, and
/// where they leave few rows, columns are read for these alone. It ends at the first that matches nothing.
pub(super) fn prepare_conjunction(
    parts: &[Node],
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
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
    let Some((mut prepared, mut narrowed)) = prepare_indexed(parts, &unread, source, among)? else {
        return Ok(Arc::new(MatchNoneScorer));
    };
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
