//! Counts of terms over other documents than those that match: all of an index, or those of a filter.

use std::sync::Arc;

use millrace_work::error::Result;

use super::batch::{Batch, Positions, Selection};
use super::field::Values;
use super::keys::{Expanded, Form, KeyRule, Keys};
use super::metric::Ordinals;
use super::ordinals;
use super::term_filter::TermFilter;

/// What is counted.
#[derive(Debug)]
pub(crate) struct BackgroundPlan {
    /// Number of the scope whose rows are counted.
    pub scope: usize,
    rule: Arc<KeyRule>,
    filter: Option<usize>,
}

impl BackgroundPlan {
    /// Counts the values of a field, in the rows of a filter if there is one.
    pub(crate) fn new(scope: usize, values: Values, filter: Option<usize>) -> Self {
        let rule = KeyRule { values, form: Form::Terms(TermFilter::default()), null: false };
        Self { scope, rule: Arc::new(rule), filter }
    }

    /// Returns the places of the columns of documents that are read in an index.
    pub(crate) fn slot_in(&self, index: usize) -> Option<usize> {
        self.rule.values.place_in(index).map(|place| place.slot)
    }
}

/// Counts.
#[derive(Debug)]
pub(crate) struct Background {
    filter: Option<usize>,
    keys: Keys,
    ordinals: ordinals::Ordinals,
    counts: ordinals::Counts,
    /// Rows.
    pub total: u64,
    expanded: Expanded,
}

impl Background {
    /// Makes empty counts.
    pub(crate) fn new(plan: &BackgroundPlan) -> Self {
        Self {
            filter: plan.filter,
            keys: Keys::new(&[Arc::clone(&plan.rule)], false),
            ordinals: ordinals::Ordinals::default(),
            counts: ordinals::Counts::default(),
            total: 0,
            expanded: Expanded::default(),
        }
    }

    /// Counts the rows of a batch.
    pub(crate) fn collect(&mut self, batch: &Batch<'_>) -> Result<()> {
        let positions: Option<Vec<u32>> = match self.filter {
            None => None,
            Some(filter) => {
                let bits = batch.segment.filter(filter)?;
                let places = batch.rows.iter().enumerate();
                let matching = places.filter(|(_, row)| bits.is_some_and(|bits| bits.contains(**row)));
                Some(matching.map(|(at, _)| at as u32).collect())
            }
        };
        let positions = match &positions {
            None => Positions::All(batch.rows.len()),
            Some(positions) => Positions::Some(positions),
        };
        let selection = Selection { positions, ordinals: Ordinals::One(0) };
        self.total += selection.len() as u64;
        self.keys.expand(batch, selection, &mut self.expanded)?;
        for key in &self.expanded.keys {
            self.counts.add(self.ordinals.ordinal(0, *key), 1);
        }
        Ok(())
    }

    /// Adds other counts of the same plan.
    pub(crate) fn merge(&mut self, other: Self) {
        self.total += other.total;
        let theirs = other.counts.iter().map(|(ordinal, _)| other.ordinals.key(ordinal));
        for (key, (_, count)) in self.keys.adopt(&other.keys, theirs).into_iter().zip(other.counts.iter()) {
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

    /// Returns what gave the keys.
    pub(crate) fn reader(&self) -> &Keys {
        &self.keys
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.keys.memory() + self.ordinals.memory() + self.counts.memory() + self.expanded.memory()
    }
}
