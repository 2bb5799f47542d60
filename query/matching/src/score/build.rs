//! From a prepared predicate to scorers, row sets and counts.

use std::sync::Arc;

use millrace_work::error::Result;
use roaring::RoaringBitmap;
use tantivy::COLLECT_BLOCK_BUFFER_LEN;
use tantivy::postings::Postings;

use super::bits::SetBuilder;
use super::boolean::{Conjunction, Disjunction, Exclusion, Flat, Optional, Scaled};
use super::boosting::Boosting;
use super::disjunction_max::DisjunctionMax;
use super::function_score::{Applied, Failure, FunctionScore};
use super::intervals;
use super::leaves::{Everything, Nothing, RowSet, SynonymScorer, TermScore, TermScorer};
use super::max_score::MaxScore;
use super::nested;
use super::phrase::{PhraseScore, PhraseScorer};
use super::prepare::{LeafScore, Prepared};
use super::ranges::RangeScorer;
use super::ranked::Ranked;
use super::reader::{Inverted, TextReader};
use super::spans;
use super::windows::Windows;
use super::{BoxScorer, END};

/// Most parts of a disjunction that are ranked by how much each can add.
pub(super) const MAX_RANKED: usize = 24;

/// Opens a scorer over a segment of `rows` rows.
pub fn scorer<'a>(prepared: &'a Prepared, inverted: &'a dyn Inverted, rows: u32) -> Result<BoxScorer<'a>> {
    Ok(match prepared {
        Prepared::All(score) => Box::new(Everything::new(rows, *score)),
        Prepared::None => Box::new(Nothing),
        Prepared::Exact { path, value, score } => match inverted.exact(*path, value)? {
            Some(postings) => Box::new(TermScorer::new(postings, TermScore::Flat(*score))),
            None => Box::new(Nothing),
        },
        Prepared::Text { path, term, score } => {
            let Some(text) = inverted.text(*path) else { return Ok(Box::new(Nothing)) };
            let Some(postings) = text.postings(term)? else { return Ok(Box::new(Nothing)) };
            Box::new(TermScorer::of_term(postings, term_score(score, text), term))
        }
        Prepared::Synonyms { path, terms, score } => {
            let Some(text) = inverted.text(*path) else { return Ok(Box::new(Nothing)) };
            let mut postings = Vec::with_capacity(terms.len());
            for term in terms.iter() {
                postings.extend(text.postings(term)?);
            }
            Box::new(SynonymScorer::new(postings, term_score(score, text)))
        }
        Prepared::Phrase { path, phrase, score } => {
            let Some(text) = inverted.text(*path) else { return Ok(Box::new(Nothing)) };
            let score = match score {
                LeafScore::Flat(score) => PhraseScore::Flat(*score),
                LeafScore::Bm25(function) => PhraseScore::Bm25(function),
            };
            match PhraseScorer::open(phrase, text, score)? {
                Some(scorer) => Box::new(scorer),
                None => Box::new(Nothing),
            }
        }
        Prepared::Exists { path, score } => match inverted.exists(*path)? {
            Some(postings) => Box::new(TermScorer::new(postings, TermScore::Flat(*score))),
            None => Box::new(Nothing),
        },
        Prepared::Intervals(prepared) => Box::new(intervals::scorer(prepared, inverted, rows)?),
        Prepared::Spans(prepared) => Box::new(spans::scorer(prepared, inverted, rows)?),
        Prepared::Rows(found, score) => Box::new(RowSet::new(found.as_ref().clone(), *score)),
        Prepared::Range { rows: range, score, failure } => {
            Box::new(RangeScorer::new(Arc::clone(range), rows, *score, failure.clone()))
        }
        Prepared::And(parts) => conjunction(parts, inverted, rows)?,
        Prepared::AtLeast(0, parts) => {
            let extra = disjunction(parts, 1, inverted, rows)?;
            Box::new(Optional::new(Box::new(Everything::new(rows, 0.0)), extra))
        }
        Prepared::AtLeast(required, parts) => disjunction(parts, *required, inverted, rows)?,
        Prepared::Not(part) => {
            Box::new(Exclusion::new(Box::new(Everything::new(rows, 0.0)), scorer(part, inverted, rows)?))
        }
        Prepared::Constant(score, part) => Box::new(Flat::new(scorer(part, inverted, rows)?, *score)),
        Prepared::Boosting { positive, negative, factors } => {
            let positive = scorer(positive, inverted, rows)?;
            Box::new(Boosting::new(positive, scorer(negative, inverted, rows)?, *factors))
        }
        Prepared::FunctionScore { base, functions, combination, place, failure } => {
            let base = scorer(base, inverted, rows)?;
            let mut applied = Vec::with_capacity(functions.len());
            for function in functions {
                let filter =
                    function.filter.as_ref().map(|filter| scorer(filter, inverted, rows)).transpose()?;
                applied.push(Applied::new(&function.function, filter, function.weight, place));
            }
            Box::new(FunctionScore::new(base, applied, *combination, failure))
        }
        Prepared::Nested(prepared) => nested::scorer(prepared)?,
        Prepared::DisMax(tie_breaker, parts) => {
            let mut parts = matching_parts(parts, inverted, rows)?;
            match parts.len() {
                0 => Box::new(Nothing),
                1 => parts.remove(0),
                _ => Box::new(DisjunctionMax::new(parts, *tie_breaker)),
            }
        }
        Prepared::Scaled { factor, least, part } => {
            Box::new(Scaled::new(scorer(part, inverted, rows)?, *factor, *least))
        }
    })
}

/// Opens a scorer over a segment of `rows` rows, of which the best are wanted, in steps that are not far from each other. An
/// error of a filter ends its rows, and is put into `failure`.
pub(crate) fn best_first<'a>(
    prepared: &'a Prepared,
    inverted: &'a dyn Inverted,
    rows: u32,
    failure: &Failure,
) -> Result<BoxScorer<'a>> {
    match Ranked::open(prepared, inverted, rows, failure)? {
        Some(ranked) => Ok(Box::new(ranked)),
        None => scorer(prepared, inverted, rows),
    }
}

/// Scores terms of a text field.
fn term_score<'a>(score: &'a LeafScore, text: &'a dyn TextReader) -> TermScore<'a> {
    match score {
        LeafScore::Flat(score) => TermScore::Flat(*score),
        LeafScore::Bm25(function) => TermScore::Bm25 { function, norms: text.has_norms().then_some(text) },
    }
}

fn conjunction<'a>(parts: &'a [Prepared], inverted: &'a dyn Inverted, rows: u32) -> Result<BoxScorer<'a>> {
    let (mut required, mut excluded, mut optional) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        match part {
            Prepared::Not(part) => excluded.push(scorer(part, inverted, rows)?),
            Prepared::AtLeast(0, parts) => optional.push(disjunction(parts, 1, inverted, rows)?),
            other => required.push(scorer(other, inverted, rows)?),
        }
    }
    let mut base: BoxScorer<'a> = match required.len() {
        0 => Box::new(Everything::new(rows, 0.0)),
        1 => required.remove(0),
        _ => Box::new(Conjunction::new(required)),
    };
    for part in excluded {
        base = Box::new(Exclusion::new(base, part));
    }
    for part in optional {
        base = Box::new(Optional::new(base, part));
    }
    Ok(base)
}

fn disjunction<'a>(
    parts: &'a [Prepared],
    required: usize,
    inverted: &'a dyn Inverted,
    rows: u32,
) -> Result<BoxScorer<'a>> {
    let mut scorers = matching_parts(parts, inverted, rows)?;
    Ok(match scorers.len() {
        count if count < required => Box::new(Nothing),
        0 => Box::new(Nothing),
        1 => scorers.remove(0),
        count if required <= 1 && count <= MAX_RANKED => Box::new(MaxScore::new(scorers)),
        _ => Box::new(Disjunction::new(scorers, required)),
    })
}

/// Opens the scorers of those parts that match anything.
fn matching_parts<'a>(
    parts: &'a [Prepared],
    inverted: &'a dyn Inverted,
    rows: u32,
) -> Result<Vec<BoxScorer<'a>>> {
    let mut scorers = Vec::with_capacity(parts.len());
    for part in parts {
        let part = scorer(part, inverted, rows)?;
        if part.doc() != END {
            scorers.push(part);
        }
    }
    Ok(scorers)
}

/// Counts the matching rows where the index knows the number without visiting them. `all` says that else all would be
/// visited, so that a column may be read for it.
pub fn known_count(
    prepared: &Prepared,
    inverted: &dyn Inverted,
    rows: u32,
    deleted: &RoaringBitmap,
    all: bool,
) -> Result<Option<u64>> {
    Ok(match prepared {
        Prepared::None => Some(0),
        Prepared::All(_) => Some(u64::from(rows).saturating_sub(deleted.len())),
        Prepared::Rows(found, _) => Some(found.difference_len(deleted)),
        Prepared::Constant(_, part)
        | Prepared::Boosting { positive: part, .. }
        | Prepared::Scaled { least: None, part, .. } => known_count(part, inverted, rows, deleted, all)?,
        Prepared::FunctionScore { base, combination, .. } => match combination.min_score {
            None => known_count(base, inverted, rows, deleted, all)?,
            Some(_) => None,
        },
        Prepared::And(parts) if parts.len() == 1 => known_count(&parts[0], inverted, rows, deleted, all)?,
        Prepared::And(parts) => {
            // Optional clauses only score: the count is that of the one that decides.
            let mut deciding = parts.iter().filter(|part| !matches!(part, Prepared::AtLeast(0, _)));
            match (deciding.next(), deciding.next()) {
                (Some(only), None) => known_count(only, inverted, rows, deleted, all)?,
                _ => None,
            }
        }
        Prepared::AtLeast(0, _) => Some(u64::from(rows).saturating_sub(deleted.len())),
        Prepared::AtLeast(1, parts) | Prepared::DisMax(_, parts) if parts.len() == 1 => {
            known_count(&parts[0], inverted, rows, deleted, all)?
        }
        Prepared::Not(part) => known_count(part, inverted, rows, deleted, all)?
            .map(|matched| u64::from(rows).saturating_sub(deleted.len()).saturating_sub(matched)),
        _ if !deleted.is_empty() => None,
        Prepared::Exact { path, value, .. } => Some(inverted.exact_count(*path, value)?.into()),
        Prepared::Text { path, term, .. } => match inverted.text(*path) {
            Some(text) => Some(text.count(term)?.into()),
            None => Some(0),
        },
        Prepared::Exists { path, .. } => Some(inverted.exists_count(*path)?.into()),
        Prepared::Range { rows: range, .. } if all => range.count()?,
        Prepared::AtLeast(..)
        | Prepared::DisMax(..)
        | Prepared::Intervals(_)
        | Prepared::Nested(_)
        | Prepared::Phrase { .. }
        | Prepared::Range { .. }
        | Prepared::Scaled { .. }
        | Prepared::Spans(_)
        | Prepared::Synonyms { .. } => None,
    })
}

/// Collects the matching rows if there are at most `limit`; `None` beyond.
pub(crate) fn few_rows(
    prepared: &Prepared,
    inverted: &dyn Inverted,
    rows: u32,
    limit: u64,
) -> Result<Option<RoaringBitmap>> {
    let mut windows = Windows::open(prepared, inverted, rows)?;
    if windows.cost() > limit.saturating_mul(2) {
        return Ok(None);
    }
    let mut found = SetBuilder::default();
    while let Some((first, bits)) = windows.next()? {
        found.add(first, &bits);
        if found.len() > limit {
            return Ok(None);
        }
    }
    Ok(Some(found.finish()))
}

/// Empties postings into a row set.
pub(crate) fn drain(postings: &mut dyn Postings) -> RoaringBitmap {
    let mut rows = RoaringBitmap::new();
    let mut block = [0; COLLECT_BLOCK_BUFFER_LEN];
    loop {
        let filled = postings.fill_buffer(&mut block);
        // Rows ascend, so they always append.
        let _ = rows.append(block[..filled].iter().copied());
        if filled < block.len() {
            return rows;
        }
    }
}
