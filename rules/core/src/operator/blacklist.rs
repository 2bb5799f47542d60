//! `blacklist`: an event is an alert where a value of `compare_key` is in the list.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::Key;
use super::{EventArrival, EventMoment, Finding, Operator};
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
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], _: EventMoment) -> Vec<Finding> {
        let mut values =
            self.compare_key.iter().flat_map(|field| fields::values(&arrival.event.source, field));
        let found = values.any(|value| self.entries.contains(&*fields::text(value)));
        if found { keys.iter().map(|key| Finding::new(arrival, key)).collect() } else { Vec::new() }
    }
}
