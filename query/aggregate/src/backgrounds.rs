//! Counts of terms over other documents than those that match: all of an index, or those of a filter.

use std::sync::Arc;

use millrace_work::error::{Error, Result};

use super::batch::{Batch, Positions, Selection};
use super::field::{ValueKind, Values};
use super::keys::{KeyForm, KeyRule, KeyedRows, RowKeys};
use super::metric::Ordinals;
use super::ordinals;
use super::source::{Question, Sink, SourceQuery};
use super::term_filter::TermFilter;

/// Plan of the counts.
#[derive(Debug)]
pub(crate) struct BackgroundPlan {
    scope: usize,
    rule: Arc<KeyRule>,
    filter: Option<usize>,
}

impl BackgroundPlan {
    /// Counts the values of a field, in the rows of a filter if there is one.
    pub(crate) fn new(scope: usize, values: Values, filter: Option<usize>) -> Self {
        let rule = KeyRule { values, form: KeyForm::Terms(TermFilter::default()), null: false };
        Self { scope, rule: Arc::new(rule), filter }
    }
}

/// Counts.
#[derive(Debug)]
pub(crate) struct Background {
    /// Number of the scope whose rows are counted.
    pub scope: usize,
    rule: Arc<KeyRule>,
    filter: Option<usize>,
    row_keys: RowKeys,
    ordinals: ordinals::Ordinals,
    counts: ordinals::Counts,
    /// Rows.
    pub total: u64,
    expanded: KeyedRows,
}

impl Background {
    /// Makes empty counts.
    pub(crate) fn new(plan: &BackgroundPlan) -> Self {
        Self {
            scope: plan.scope,
            rule: Arc::clone(&plan.rule),
            filter: plan.filter,
            row_keys: RowKeys::new(&[Arc::clone(&plan.rule)], false),
            ordinals: ordinals::Ordinals::default(),
            counts: ordinals::Counts::default(),
            total: 0,
            expanded: KeyedRows::default(),
        }
    }

    /// Returns the places of the columns of documents that are read in an index.
    pub(crate) fn slot_in(&self, index: usize) -> Option<usize> {
        self.rule.values.place_in(index).map(|place| place.slot)
    }

    /// Asks for the counts of rows of a segment and has them added; whether there was an answer.
    pub(crate) fn ask(&mut self, answer: &mut SourceQuery<'_>) -> Result<bool> {
        let rule = Arc::clone(&self.rule);
        if self.filter.is_some() { Ok(false) } else { answer(&Question::Keys(&rule), self) }
    }

    /// Counts the rows of a batch.
    pub(crate) fn collect(&mut self, batch: &Batch<'_>) -> Result<()> {
        let positions: Option<Vec<u32>> = match self.filter {
            None => None,
            Some(filter) => {
                let own = batch.segment.filter(filter)?;
                let places = batch.rows.iter().enumerate();
                let matching = places.filter(|(_, row)| own.is_some_and(|own| own.contains(**row)));
                Some(matching.map(|(at, _)| at as u32).collect())
            }
        };
        let positions = match &positions {
            None => Positions::All(batch.rows.len()),
            Some(positions) => Positions::Some(positions),
        };
        let selection = Selection { positions, ordinals: Ordinals::One(0) };
        self.total += selection.len() as u64;
        self.row_keys.expand(batch, selection, &mut self.expanded)?;
        for key in &self.expanded.keys {
            self.counts.add(self.ordinals.ordinal(0, *key), 1);
        }
        Ok(())
    }

    /// Adds other counts of the same plan.
    pub(crate) fn merge(&mut self, other: Self) {
        self.total += other.total;
        let theirs = other.counts.iter().map(|(ordinal, _)| other.ordinals.key(ordinal));
        for (key, (_, count)) in
            self.row_keys.adopt(&other.row_keys, theirs).into_iter().zip(other.counts.iter())
        {
            self.counts.add(self.ordinals.ordinal(0, key), count);
        }
    }

    /// Counts the keys.
    pub(crate) fn len(&self) -> usize {
        self.ordinals.len()
    }

    /// Lists the keys.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().map(|(ordinal, count)| (self.ordinals.key(ordinal), count))
    }

    /// Returns the source of the keys.
    pub(crate) fn reader(&self) -> &RowKeys {
        &self.row_keys
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.row_keys.memory() + self.ordinals.memory() + self.counts.memory() + self.expanded.memory()
    }
}

impl Sink for Background {
    fn batch(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.collect(batch)
    }

    fn rows(&mut self, rows: u64) {
        self.total += rows;
    }

    fn group(&mut self, group: u64, count: u64) -> Result<()> {
        Err(Error::Execution(format!("[{count}] rows of the group [{group}] have no term to be counted for")))
    }

    fn term(&mut self, kind: ValueKind, term: &[u8], rows: u64) -> Result<Option<u32>> {
        let key = self.row_keys.one().and_then(|reader| reader.wanted_key(kind, term));
        let ordinal = key.map(|key| self.ordinals.ordinal(0, key));
        ordinal.into_iter().for_each(|ordinal| self.counts.add(ordinal, rows));
        Ok(ordinal)
    }
}
