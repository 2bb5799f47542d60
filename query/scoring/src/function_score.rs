//! Scores combined with functions of the row, as `function_score` asks.
//!
//! Functions are evaluated for the rows that are scored and no others. A row on which one fails ends
//! the pass: the error waits in the [`Failure`] of the condition.

use std::fmt;
use std::sync::Arc;

use millrace_dsl::query::{BoostMode, Combination, ScoreMode};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::condition::{Condition, RowCount, SharedCondition};
use crate::failure::{Failure, Watch};
use crate::node::{Node, NodeFunction};
use crate::prepare::prepare;
use crate::reader::InvertedIndex;
use crate::row_function::{Evaluator, FunctionScope, RowFunction};
use crate::source::Source;
use crate::windows::{BoxFilter, ScorerRows};
use crate::{BoxScorer, END, Scorer};

/// A condition with scores combined with functions.
#[derive(Debug)]
struct FunctionScoreCondition {
    /// Condition that matches.
    base: SharedCondition,
    functions: Vec<FilteredFunction>,
    combination: Combination,
    place: FunctionScope,
    work: QueryContext,
    failure: Failure,
}

/// A function of a row, where a filter lets it apply.
#[derive(Debug)]
struct FilteredFunction {
    /// Rows to which it applies; all where absent.
    filter: Option<SharedCondition>,
    function: RowFunction,
    weight: Option<f32>,
}

/// Prepares a condition and its functions.
pub(super) fn prepare_combined(
    base: &Node,
    functions: &[NodeFunction],
    combination: &Combination,
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let mut prepared = Vec::with_capacity(functions.len());
    for NodeFunction { filter, function, weight } in functions {
        let filter = filter.as_ref().map(|filter| prepare(filter, source, among)).transpose()?;
        prepared.push(FilteredFunction { filter, function: function.clone(), weight: *weight });
    }
    Ok(Arc::new(FunctionScoreCondition {
        base: prepare(base, source, among)?,
        functions: prepared,
        combination: *combination,
        place: FunctionScope::new(source),
        work: source.work.clone(),
        failure: Failure::default(),
    }))
}

impl Condition for FunctionScoreCondition {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let base = self.base.scorer(inverted, rows)?;
        let mut applied = Vec::with_capacity(self.functions.len());
        for FilteredFunction { filter, function, weight } in &self.functions {
            let filter = filter.as_ref().map(|filter| filter.scorer(inverted, rows)).transpose()?;
            applied.push(WeightedFunction::new(function, filter, *weight, &self.place));
        }
        Ok(Box::new(FunctionScore::new(base, applied, self.combination, (&self.work, &self.failure))))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        match self.combination.min_score {
            None => self.base.filter(inverted, rows),
            Some(_) => Ok(Box::new(ScorerRows(self.scorer(inverted, rows)?))),
        }
    }
    fn by_scorer(&self) -> bool {
        self.combination.min_score.is_some()
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        if self.by_scorer() { Ok(None) } else { self.base.known_count(of) }
    }
    fn failure(&self) -> Option<Error> {
        let mut filters = self.functions.iter().filter_map(|function| function.filter.as_ref());
        self.failure
            .take()
            .or_else(|| self.base.failure())
            .or_else(|| filters.find_map(|filter| filter.failure()))
    }
}

/// A function with the rows to which it applies and its weight.
pub struct WeightedFunction<'a> {
    filter: Option<BoxScorer<'a>>,
    evaluator: Evaluator<'a>,
    weight: Option<f32>,
}

impl fmt::Debug for WeightedFunction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applied").finish_non_exhaustive()
    }
}

impl<'a> WeightedFunction<'a> {
    /// Makes a function ready; it applies to the rows of `filter`, to all where absent.
    pub fn new(
        function: &'a RowFunction,
        filter: Option<BoxScorer<'a>>,
        weight: Option<f32>,
        place: &FunctionScope,
    ) -> Self {
        Self { filter, evaluator: Evaluator::new(function, place), weight }
    }

    /// Returns the weighted value at a row, where the function applies.
    fn at(&mut self, row: u32) -> Result<Option<f64>> {
        if let Some(filter) = &mut self.filter
            && filter.seek(row) != row
        {
            return Ok(None);
        }
        let value = self.evaluator.at(row)?;
        Ok(Some(self.weight.map_or(value, |weight| value * f64::from(weight))))
    }

    /// Returns a bound on all values.
    fn bound(&self) -> f64 {
        match self.evaluator.function {
            RowFunction::FieldValue { .. } => f64::INFINITY,
            _ => f64::from(self.weight.unwrap_or(1.0)),
        }
    }
}

/// Rows of a scorer whose scores are combined with functions.
pub struct FunctionScore<'a> {
    base: BoxScorer<'a>,
    functions: Vec<WeightedFunction<'a>>,
    combination: Combination,
    failure: &'a Failure,
    failed: bool,
    watch: Watch<'a>,
    /// Score of the current row, once `min_score` has asked for it.
    known: Option<f32>,
}

impl fmt::Debug for FunctionScore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionScore").finish_non_exhaustive()
    }
}

impl<'a> FunctionScore<'a> {
    /// Starts at the first row of `base`, or the first with the least score asked for. The error that ends the pass, as
    /// that of a work that should end, goes to the failure.
    pub fn new(
        base: BoxScorer<'a>,
        functions: Vec<WeightedFunction<'a>>,
        combination: Combination,
        (work, failure): (&'a QueryContext, &'a Failure),
    ) -> Self {
        let watch = Watch::new(work, failure);
        let mut scorer = Self { base, functions, combination, failure, failed: false, watch, known: None };
        scorer.seek_match();
        scorer
    }

    /// Goes on to a row with the least score asked for.
    fn seek_match(&mut self) -> u32 {
        self.known = None;
        let Some(least) = self.combination.min_score else { return self.doc() };
        while self.doc() != END {
            let score = self.combined();
            if score >= least {
                self.known = Some(score);
                break;
            }
            if !self.watch.goes_on() {
                break;
            }
            self.base.advance();
        }
        self.doc()
    }

    fn combined(&mut self) -> f32 {
        let row = self.base.doc();
        let score = self.base.score();
        match self.factor(row).and_then(|factor| combine(&self.combination, score, factor, row)) {
            Ok(score) => score,
            Err(error) => {
                self.failure.put(error);
                self.failed = true;
                0.0
            }
        }
    }

    /// Joins the values of the functions at a row.
    pub fn factor(&mut self, row: u32) -> Result<f64> {
        let mode = self.combination.score_mode;
        let mut joined: Option<f64> = None;
        let mut weights = 0.0_f64;
        for function in &mut self.functions {
            let Some(value) = function.at(row)? else { continue };
            if value.is_nan() {
                return Ok(value);
            }
            weights += f64::from(function.weight.unwrap_or(1.0));
            joined = Some(match (joined, mode) {
                (None, ScoreMode::First) => return Ok(value),
                (None, _) => value,
                (Some(joined), ScoreMode::Max) => joined.max(value),
                (Some(joined), ScoreMode::Min) => joined.min(value),
                (Some(joined), ScoreMode::Multiply) => joined * value,
                (Some(joined), _) => joined + value,
            });
        }
        Ok(match (joined, mode) {
            (None, _) => 1.0,
            (Some(_), ScoreMode::Sum | ScoreMode::Avg) if weights == 0.0 => 1.0,
            (Some(sum), ScoreMode::Avg) => sum / weights,
            (Some(joined), _) => joined,
        })
    }

    /// Bounds the joined values of the functions.
    fn factor_bound(&self) -> f64 {
        let bounds = self.functions.iter().map(WeightedFunction::bound);
        match self.combination.score_mode {
            ScoreMode::Sum => bounds.sum::<f64>().max(1.0),
            ScoreMode::Multiply => bounds.map(|bound| bound.max(1.0)).product(),
            _ => bounds.fold(1.0, f64::max),
        }
    }
}

/// Joins a score and the result of the functions.
fn combine(combination: &Combination, score: f32, factor: f64, row: u32) -> Result<f32> {
    let invalid = factor.is_nan();
    let (score, factor) = (f64::from(score), factor.min(f64::from(combination.max_boost)));
    let combined = match combination.boost_mode {
        _ if invalid => f64::NAN,
        BoostMode::Multiply => score * factor,
        BoostMode::Replace => factor,
        BoostMode::Sum => score + factor,
        BoostMode::Avg => (score + factor) / 2.0,
        BoostMode::Min => score.min(factor),
        BoostMode::Max => score.max(factor),
    } as f32;
    if combined < 0.0 || combined.is_nan() {
        return Err(Error::Exception {
            kind: "exception",
            status: 500,
            reason: format!("function score query returned an invalid score: {combined:?} for doc: {row}"),
        });
    }
    Ok(combined)
}

impl Scorer for FunctionScore<'_> {
    fn doc(&self) -> u32 {
        if self.failed || self.watch.ended() { END } else { self.base.doc() }
    }
    fn advance(&mut self) -> u32 {
        if self.doc() != END {
            self.base.advance();
        }
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc() < target {
            self.base.seek(target);
            return self.seek_match();
        }
        self.doc()
    }
    fn score(&mut self) -> f32 {
        match self.known {
            Some(score) => score,
            None => self.combined(),
        }
    }
    fn max_score(&self) -> f32 {
        if self.functions.is_empty() {
            return self.base.max_score();
        }
        let factor = self.factor_bound().min(f64::from(self.combination.max_boost));
        let score = f64::from(self.base.max_score());
        let bound = match self.combination.boost_mode {
            BoostMode::Multiply if score == 0.0 || factor == 0.0 => 0.0,
            BoostMode::Multiply => score * factor,
            BoostMode::Replace => factor,
            BoostMode::Sum | BoostMode::Avg => score + factor,
            BoostMode::Min => score.min(factor),
            BoostMode::Max => score.max(factor),
        };
        // Sums are rounded in another order than the bound.
        (bound * 1.000_01) as f32
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
