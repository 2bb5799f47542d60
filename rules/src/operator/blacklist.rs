//! `blacklist`: an event is an alert where a value of `compare_key` is in the list.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::Key;
use super::{Arrival, Finding, Moment, Operator};
use crate::fields;

#[derive(Debug)]
pub(super) struct Blacklist {
    compare_key: Vec<String>,
    entries: Arc<BTreeSet<String>>,
}

impl Blacklist {
    pub(super) fn new(compare_key: Vec<String>, entries: Arc<BTreeSet<String>>) -> Self {
        Self { compare_key, entries }
    }
}

impl Operator for Blacklist {
    fn event(&mut self, arrival: &Arrival<'_>, keys: &[Key], _: Moment) -> Vec<Finding> {
        let mut values =
            self.compare_key.iter().flat_map(|field| fields::values(&arrival.event.source, field));
        let found = values.any(|value| self.entries.contains(&*fields::text(value)));
        if found { keys.iter().map(|key| Finding::of(arrival, key)).collect() } else { Vec::new() }
    }
}
