//! A predicate made ready for one segment: columns, ids and prefixes are looked up here, and what
//! remains is postings and row sets. Runs on a compute thread, where reading may block.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use millrace_dsl::query::Combination;
use millrace_storage::mapping::{PathId, Scalar};
use millrace_storage::segment::{ColumnBatch, PagedRange, ValueRange};
use millrace_work::Work;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::bm25::Bm25;
use super::build;
use super::function_score::{Failure, Place, RowFunction};
use super::functions::{ExpandedTerm, ShardFunctions};
use super::geo;
use super::intervals::{self, PreparedIntervals};
use super::metadata;
use super::nested::{PreparedNested, prepare_nested};
use super::phrase::{Phrase, PlaceTerms};
use super::phrase_values;
use super::reader::{Inverted, SegmentReader};
use super::spans::{self, PreparedSpans};
use crate::table::keys::for_each_number;
use crate::table::node::{ExactValue, Node, Weight};

/// Values of a `terms` clause that are opened as posting lists side by side; more are united first.
const OPEN_LISTS: usize = 16;
/// Values of a column that are found one range at a time; more are found by reading the column.
const OPEN_RANGES: usize = 16;
/// Most integers of a range that are found by their terms, and one row in so many that these may have.
const LISTED_TERMS: usize = 64;
const LISTED_SHARE: u32 = 16;

/// Ids that are looked up between two looks at the stop.
const IDS: usize = 256;
/// Rows of which a column is read between two looks at the stop.
const COLUMN_ROWS: u32 = 1 << 18;

/// How a leaf scores in this segment.
#[derive(Clone, Debug)]
pub enum LeafScore {
    /// All rows alike.
    Flat(f32),
    /// By frequency and length.
    Bm25(Arc<Bm25>),
}

/// A predicate over one segment.
#[derive(Clone, Debug)]
pub enum Prepared {
    /// Every row.
    All(f32),
    /// No row.
    None,
    /// Postings of an exact value.
    Exact {
        /// Field.
        path: PathId,
        /// Value.
        value: Scalar,
        /// Score.
        score: f32,
    },
    /// Postings of a term.
    Text {
        /// Field.
        path: PathId,
        /// Term.
        term: String,
        /// Score.
        score: LeafScore,
    },
    /// Postings of several terms, scored as one.
    Synonyms {
        /// Field.
        path: PathId,
        /// Terms.
        terms: Arc<[String]>,
        /// Score.
        score: LeafScore,
    },
    /// Postings of terms at places; all expanded.
    Phrase {
        /// Field.
        path: PathId,
        /// Phrase.
        phrase: Arc<Phrase>,
        /// Score.
        score: LeafScore,
    },
    /// Postings of the rows that have a field.
    Exists {
        /// Field.
        path: PathId,
        /// Score.
        score: f32,
    },
    /// Terms at certain places relative to each other.
    Intervals(Box<PreparedIntervals>),
    /// Stretches of positions.
    Spans(Box<PreparedSpans>),
    /// A row set.
    Rows(Arc<RoaringBitmap>, f32),
    /// A range over the pages of a column.
    Range {
        /// The range.
        rows: Arc<PagedRange>,
        /// Score.
        score: f32,
        /// The error that ended a pass over its rows.
        failure: Failure,
    },
    /// All of them.
    And(Vec<Prepared>),
    /// At least so many of them.
    AtLeast(usize, Vec<Prepared>),
    /// Not this.
    Not(Box<Prepared>),
    /// This, with one score.
    Constant(f32, Box<Prepared>),
    /// This, with its score multiplied.
    Boosting {
        /// What matches.
        positive: Box<Prepared>,
        /// Where the second factor applies too.
        negative: Box<Prepared>,
        /// Factors of all scores, and where `negative` matches.
        factors: (f32, f32),
    },
    /// Any of them, with the best score and a share of the others.
    DisMax(f32, Vec<Prepared>),
    /// This, with scores combined with functions.
    FunctionScore {
        /// What matches.
        base: Box<Prepared>,
        /// The functions.
        functions: Vec<PreparedFunction>,
        /// How scores and functions are combined.
        combination: Combination,
        /// Where functions are evaluated.
        place: Place,
        /// The error of a row on which a function failed.
        failure: Failure,
    },
    /// Rows with elements that match.
    Nested(Box<PreparedNested>),
    /// This, with scores times a factor; rows of less than a least score are left out.
    Scaled {
        /// Factor.
        factor: f32,
        /// Least score.
        least: Option<f32>,
        /// What is scaled.
        part: Box<Prepared>,
    },
}

/// A function of a row, where a filter lets it apply.
#[derive(Clone, Debug)]
pub struct PreparedFunction {
    /// Rows to which it applies; all where absent.
    pub filter: Option<Prepared>,
    /// The function.
    pub function: RowFunction,
    /// Factor of its value.
    pub weight: Option<f32>,
}

impl Prepared {
    /// Takes the error that ended a pass, if one did.
    pub fn failure(&self) -> Option<Error> {
        match self {
            Self::And(parts) | Self::AtLeast(_, parts) | Self::DisMax(_, parts) => {
                parts.iter().find_map(Self::failure)
            }
            Self::Not(part) | Self::Constant(_, part) | Self::Scaled { part, .. } => part.failure(),
            Self::Boosting { positive, negative, .. } => positive.failure().or_else(|| negative.failure()),
            Self::FunctionScore { base, functions, failure, .. } => {
                let filters = functions.iter().filter_map(|function| function.filter.as_ref());
                failure
                    .take()
                    .or_else(|| base.failure())
                    .or_else(|| filters.into_iter().find_map(Self::failure))
            }
            Self::Nested(nested) => nested.inner.failure(),
            Self::Range { failure, .. } => failure.take(),
            _ => None,
        }
    }
}

/// Everything that preparing needs of one segment.
#[derive(Clone)]
pub struct Source {
    /// Number of the segment in its table.
    pub number: u32,
    /// Number of its shard in the index.
    pub shard: u32,
    /// The segment.
    pub reader: Arc<dyn SegmentReader>,
    /// Its inverted index.
    pub inverted: Arc<dyn Inverted>,
    /// Scoring functions and expanded terms of the shard.
    pub functions: Arc<ShardFunctions>,
    /// The work that it is prepared for.
    pub work: Work,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Prepares a predicate. `among` are the only rows that matter, where known. Row sets are held by the work of the source.
///
/// # Errors
/// Files that cannot be read, more rows than queries may hold, [`Error::TimedOut`] once the work should end.
pub fn prepare(node: &Node, source: &Source, among: Option<&RoaringBitmap>) -> Result<Prepared> {
    source.work.check()?;
    Ok(match node {
        Node::All(weight) => Prepared::All(flat(*weight)),
        Node::None => Prepared::None,
        Node::Exact { path, column, value, weight } => {
            let score = match weight {
                Weight::Bm25(slot) => source.functions.get(*slot).map_or(0.0, |f| f.exact_score()),
                other => flat(*other),
            };
            if is_term(source, *path, value) {
                Prepared::Exact { path: *path, value: value.value.clone(), score }
            } else {
                column_rows(source, (*column, None), value.range.as_ref(), among, score)?
            }
        }
        Node::AnyExact { path, column, values, weight } => {
            any_exact(source, *path, *column, values, flat(*weight), among)?
        }
        Node::Text { path, term, weight } => {
            Prepared::Text { path: *path, term: term.clone(), score: leaf_score(source, *weight) }
        }
        Node::RawRange { path, column, from, to, range, weight } => {
            let is_string = matches!(range, ValueRange::Str(..));
            if is_string || source.inverted.has_exact(*path) {
                let rows = source.inverted.range_rows(*path, from, to, source.work.stop())?;
                found(source, rows, flat(*weight))?
            } else {
                column_rows(source, (*column, None), Some(range), among, flat(*weight))?
            }
        }
        Node::ColumnRange { column, terms, range, weight } => {
            column_rows(source, (*column, *terms), Some(range), among, flat(*weight))?
        }
        Node::TextRange { path, from, to, weight } => {
            let rows = match source.inverted.text(*path) {
                Some(text) => text.range_rows(from, to, source.work.stop())?,
                None => RoaringBitmap::new(),
            };
            found(source, rows, flat(*weight))?
        }
        Node::Matching { path, text, pattern, weight } => {
            let rows = match text {
                false => source.inverted.matching_rows(*path, pattern.until(source.work.stop()))?,
                true => match source.inverted.text(*path) {
                    Some(text) => text.matching_rows(pattern.until(source.work.stop()))?,
                    None => RoaringBitmap::new(),
                },
            };
            found(source, rows, flat(*weight))?
        }
        Node::Expanded(slot) => any_of(expanded(source, *slot)),
        Node::ManyExpanded { slots, minimum } => {
            let parts: Vec<Prepared> = slots.iter().flat_map(|slot| expanded(source, *slot)).collect();
            match minimum.required(parts.len()).max(1) {
                1 => any_of(parts),
                required => Prepared::AtLeast(required, parts),
            }
        }
        Node::Synonyms { path, terms, weight } => {
            Prepared::Synonyms { path: *path, terms: Arc::clone(terms), score: leaf_score(source, *weight) }
        }
        Node::Phrase { path, phrase, values, weight } => match values {
            None => Prepared::Phrase {
                path: *path,
                phrase: concrete(source, phrase),
                score: leaf_score(source, *weight),
            },
            Some(values) => {
                let rows = phrase_values::rows(source, *path, &concrete(source, phrase), values, among)?;
                found(source, rows, flat(*weight))?
            }
        },
        Node::Exists { paths, weight } => {
            let score = flat(*weight);
            let mut parts: Vec<Prepared> =
                paths.iter().map(|path| Prepared::Exists { path: *path, score: 0.0 }).collect();
            match (parts.len(), parts.pop()) {
                (1, Some(Prepared::Exists { path, .. })) => Prepared::Exists { path, score },
                (_, None) => Prepared::None,
                (_, Some(last)) => {
                    parts.push(last);
                    Prepared::Constant(score, Box::new(Prepared::AtLeast(1, parts)))
                }
            }
        }
        Node::Ids { values, weight } => {
            let mut rows = RoaringBitmap::new();
            for values in values.chunks(IDS) {
                source.work.check()?;
                rows |= source.reader.id_rows(values)?;
            }
            found(source, rows, flat(*weight))?
        }
        Node::Intervals { intervals, weight, .. } => intervals::prepare(intervals, flat(*weight), source)?,
        Node::Spans { path, spans, weight } => {
            Prepared::Spans(Box::new(spans::prepare(spans, *path, leaf_score(source, *weight), source)?))
        }
        Node::Metadata { metadata, weight } => {
            let rows = metadata::rows(source, metadata, among)?;
            found(source, rows, flat(*weight))?
        }
        Node::Listed(lists) => match lists.get(&source.number) {
            Some(rows) => found(source, rows.clone(), 0.0)?,
            None => Prepared::None,
        },
        Node::And(parts) => and(parts, source, among)?,
        Node::AtLeast(required, parts) => Prepared::AtLeast(*required, prepare_all(parts, source, among)?),
        Node::Not(part) => Prepared::Not(Box::new(prepare(part, source, among)?)),
        Node::Constant(score, part) => Prepared::Constant(*score, Box::new(prepare(part, source, among)?)),
        Node::Boosting { positive, negative, factors } => Prepared::Boosting {
            positive: Box::new(prepare(positive, source, among)?),
            negative: Box::new(prepare(negative, source, among)?),
            factors: *factors,
        },
        Node::FunctionScore { base, functions, combination } => {
            let mut prepared = Vec::with_capacity(functions.len());
            for function in functions {
                let filter =
                    function.filter.as_ref().map(|filter| prepare(filter, source, among)).transpose()?;
                let (function, weight) = (function.function.clone(), function.weight);
                prepared.push(PreparedFunction { filter, function, weight });
            }
            let place =
                Place { reader: Arc::clone(&source.reader), segment: source.number, shard: source.shard };
            Prepared::FunctionScore {
                base: Box::new(prepare(base, source, among)?),
                functions: prepared,
                combination: *combination,
                place,
                failure: Failure::default(),
            }
        }
        Node::Nested(node) => prepare_nested(node, source, among)?,
        Node::Within { column, area, weight } => {
            let rows = geo::rows_in(source, *column, area, among)?;
            found(source, rows, flat(*weight))?
        }
        Node::DisMax(tie_breaker, parts) => {
            Prepared::DisMax(*tie_breaker, prepare_all(parts, source, among)?)
        }
    })
}

/// Prepares a set of rows that was found; what a walk that was told to end has found is none.
fn found(source: &Source, rows: RoaringBitmap, score: f32) -> Result<Prepared> {
    source.work.check()?;
    source.work.hold_rows(&rows)?;
    Ok(Prepared::Rows(Arc::new(rows), score))
}

fn prepare_all(nodes: &[Node], source: &Source, among: Option<&RoaringBitmap>) -> Result<Vec<Prepared>> {
    nodes.iter().map(|node| prepare(node, source, among)).collect()
}

fn flat(weight: Weight) -> f32 {
    match weight {
        Weight::Constant(score) => score,
        Weight::None | Weight::Bm25(_) => 0.0,
    }
}

fn leaf_score(source: &Source, weight: Weight) -> LeafScore {
    match weight {
        Weight::Bm25(slot) => match source.functions.get(slot) {
            Some(function) => LeafScore::Bm25(Arc::clone(function)),
            None => LeafScore::Flat(0.0),
        },
        other => LeafScore::Flat(flat(other)),
    }
}

/// Prepares the terms that an expansion found.
fn expanded(source: &Source, slot: usize) -> Vec<Prepared> {
    let Some(found) = source.functions.expansion(slot) else { return Vec::new() };
    let path = found.path;
    let part = |found_term: &ExpandedTerm| match found.text {
        true => Prepared::Text { path, term: found_term.term.clone(), score: found_term.score.clone() },
        false => Prepared::Exact {
            path,
            value: Scalar::Str(found_term.term.clone()),
            score: match &found_term.score {
                LeafScore::Flat(score) => *score,
                LeafScore::Bm25(function) => function.exact_score(),
            },
        },
    };
    found.terms.iter().map(part).collect()
}

fn any_of(mut parts: Vec<Prepared>) -> Prepared {
    match parts.len() {
        0 => Prepared::None,
        1 => parts.remove(0),
        _ => Prepared::AtLeast(1, parts),
    }
}

/// Puts the terms found in the shard into a phrase.
fn concrete(source: &Source, phrase: &Arc<Phrase>) -> Arc<Phrase> {
    let expands = phrase.places().any(|place| matches!(place.terms, PlaceTerms::Expanded(_)));
    if !expands {
        return Arc::clone(phrase);
    }
    Arc::new(phrase.expanded(&|slot| match source.functions.expansion(slot) {
        Some(found) => found.terms.iter().map(|found| found.term.clone()).collect(),
        None => Vec::new(),
    }))
}

/// Whether the value is a term here; strings, booleans and addresses always are.
fn is_term(source: &Source, path: PathId, value: &ExactValue) -> bool {
    matches!(value.value, Scalar::Str(_) | Scalar::Bool(_) | Scalar::Ip(_))
        || value.range.is_none()
        || source.inverted.has_exact(path)
}

/// Prepares the parts of a conjunction: those that need the inverted index only come first, and
/// where they leave few rows, columns are read for these alone.
fn and(parts: &[Node], source: &Source, among: Option<&RoaringBitmap>) -> Result<Prepared> {
    let mut prepared = Vec::with_capacity(parts.len());
    for part in parts.iter().filter(|part| !part.reads_columns()) {
        prepared.push(prepare(part, source, among)?);
    }
    let mut columns: Vec<&Node> = Vec::new();
    for part in parts.iter().filter(|part| part.reads_columns()) {
        let lazy = match part {
            Node::ColumnRange { column, terms, range, weight } => {
                unread(source, (*column, *terms), range, flat(*weight))?
            }
            _ => None,
        };
        match lazy {
            Some(part) => prepared.push(part),
            None => columns.push(part),
        }
    }
    if columns.is_empty() {
        return Ok(flattened(prepared));
    }
    let mut narrowed: Option<RoaringBitmap> = None;
    if !prepared.is_empty() {
        let found = Prepared::And(prepared.clone());
        let rows = source.reader.rows();
        narrowed = build::few_rows(&found, source.inverted.as_ref(), rows, u64::from(rows) / 8)?;
    }
    for part in columns {
        let among = narrowed.as_ref().or(among);
        let part = prepare(part, source, among)?;
        // Ranges may come one after another: each leaves less to read for the next.
        if let Prepared::Rows(rows, _) = &part
            && rows.len() < u64::from(source.reader.rows()) / 8
        {
            narrowed = Some(match narrowed {
                Some(narrowed) => narrowed & rows.as_ref(),
                None => rows.as_ref().clone(),
            });
        }
        prepared.push(part);
    }
    Ok(flattened(prepared))
}

/// Makes one conjunction of several: the part with the fewest rows of all then leads.
fn flattened(parts: Vec<Prepared>) -> Prepared {
    let own = |part| match part {
        Prepared::And(inner) => inner,
        part => vec![part],
    };
    Prepared::And(parts.into_iter().flat_map(own).collect())
}

/// Prepares a range over a column, which may have a field whose terms are its integers.
fn column_rows(
    source: &Source,
    column: (PathId, Option<PathId>),
    range: Option<&ValueRange>,
    among: Option<&RoaringBitmap>,
    score: f32,
) -> Result<Prepared> {
    let Some(range) = range else { return Ok(Prepared::None) };
    if let Some(unread) = unread(source, column, range, score)? {
        return Ok(unread);
    }
    let mut rows = RoaringBitmap::new();
    range_rows(source.reader.as_ref(), column.0, range, among, &source.work, &mut |some| {
        rows |= some;
        true
    })?;
    found(source, rows, score)
}

/// Gives `each` the rows with a value in a range, some at a time until it returns false.
///
/// # Errors
/// Files that cannot be read, [`Error::TimedOut`] once the work should end.
pub fn range_rows(
    reader: &dyn SegmentReader,
    column: PathId,
    range: &ValueRange,
    among: Option<&RoaringBitmap>,
    work: &Work,
    each: &mut dyn FnMut(RoaringBitmap) -> bool,
) -> Result<()> {
    let total = reader.rows();
    // What lies in memory is looked at as a whole, and that takes no time.
    if total <= COLUMN_ROWS || reader.in_memory().is_some() {
        each(reader.range_rows(column, range, among)?);
        return Ok(());
    }
    let mut first = 0;
    while first < total {
        work.check()?;
        let end = first.saturating_add(COLUMN_ROWS).min(total);
        let mut window = RoaringBitmap::new();
        window.insert_range(first..end);
        if let Some(among) = among {
            window &= among;
        }
        first = end;
        if !window.is_empty() && !each(reader.range_rows(column, range, Some(&window))?) {
            break;
        }
    }
    Ok(())
}

/// Prepares a range as far as the column need not be read for that.
fn unread(
    source: &Source,
    (column, terms): (PathId, Option<PathId>),
    range: &ValueRange,
    score: f32,
) -> Result<Option<Prepared>> {
    match listed(source, terms, range, score)? {
        None => paged(source, column, range, score),
        listed => Ok(listed),
    }
}

/// Prepares a range of integers by their terms, where these are few and have few rows.
fn listed(
    source: &Source,
    terms: Option<PathId>,
    range: &ValueRange,
    score: f32,
) -> Result<Option<Prepared>> {
    let Some(path) = terms else { return Ok(None) };
    let (from, to) = match range {
        ValueRange::I64(from, to) => (Scalar::I64(*from), Scalar::I64(*to)),
        ValueRange::U64(from, to) => (Scalar::U64(*from), Scalar::U64(*to)),
        _ => return Ok(None),
    };
    let most_rows = source.reader.rows() / LISTED_SHARE;
    let rows = source.inverted.few_rows(path, (&from, &to), LISTED_TERMS, most_rows)?;
    rows.map(|rows| found(source, rows, score)).transpose()
}

/// Prepares a range that is evaluated where its rows are asked for, where there is such a form.
fn paged(source: &Source, column: PathId, range: &ValueRange, score: f32) -> Result<Option<Prepared>> {
    Ok(source.reader.paged_range(column, range)?.map(|rows| {
        if rows.is_everything() {
            Prepared::All(score)
        } else if rows.most_rows() == 0 {
            Prepared::None
        } else {
            Prepared::Range { rows: Arc::new(rows), score, failure: Failure::default() }
        }
    }))
}

fn any_exact(
    source: &Source,
    path: PathId,
    column: PathId,
    values: &Arc<[ExactValue]>,
    score: f32,
    among: Option<&RoaringBitmap>,
) -> Result<Prepared> {
    let terms = values.first().is_some_and(|value| is_term(source, path, value));
    if terms && values.len() <= OPEN_LISTS {
        let parts = values
            .iter()
            .map(|value| Prepared::Exact { path, value: value.value.clone(), score: 0.0 })
            .collect();
        return Ok(Prepared::Constant(score, Box::new(Prepared::AtLeast(1, parts))));
    }
    if terms {
        let mut rows = RoaringBitmap::new();
        for value in values.iter() {
            source.work.check()?;
            if let Some(mut postings) = source.inverted.exact(path, &value.value)? {
                rows |= build::drain(postings.as_mut());
            }
        }
        return found(source, rows, score);
    }
    let mut rows = RoaringBitmap::new();
    if values.len() <= OPEN_RANGES {
        for range in values.iter().filter_map(|value| value.range.as_ref()) {
            source.work.check()?;
            range_rows(source.reader.as_ref(), column, range, among, &source.work, &mut |some| {
                rows |= some;
                true
            })?;
        }
        return found(source, rows, score);
    }
    let wanted: HashSet<u64> = values.iter().filter_map(|value| bits(&value.value)).collect();
    visit(source, column, among.cloned(), &mut |batch, array| {
        for_each_number(array, &mut |at, number| {
            if wanted.contains(&number) {
                rows.insert(batch.rows[at]);
            }
        })
    })?;
    found(source, rows, score)
}

/// A number's bits, as [`crate::table::keys::for_each_number`] gives them.
fn bits(value: &Scalar) -> Option<u64> {
    match value {
        Scalar::I64(number) => Some(*number as u64),
        Scalar::U64(number) => Some(*number),
        Scalar::F64(number) => Some(number.to_bits()),
        _ => None,
    }
}

/// Calls `each` with the batches of one column.
pub(super) fn visit(
    source: &Source,
    column: PathId,
    rows: Option<RoaringBitmap>,
    each: &mut dyn FnMut(&ColumnBatch, &ArrayRef) -> Result<()>,
) -> Result<()> {
    let mut done = Ok(());
    source.reader.read(&[column], rows, &mut |batch| {
        done = source.work.check();
        if let (Ok(()), Some(array)) = (&done, batch.columns.first()) {
            done = each(&batch, array);
        }
        done.is_ok()
    })?;
    done
}

#[cfg(test)]
mod tests;
