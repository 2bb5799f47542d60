//! `whitelist`: an event is an alert where a value of `compare_key` is not in the list, or where there is none, unless
//! `ignore_null`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::Key;
use super::{EventArrival, EventMoment, Finding, Operator};
use crate::fields;
use crate::mutation::{Mutation, mutated};

#[derive(Debug)]
pub(super) struct Whitelist {
    compare_key: Vec<String>,
    entries: Arc<BTreeSet<String>>,
    ignore_null: bool,
}

impl Whitelist {
    pub(super) fn new(compare_key: Vec<String>, entries: Arc<BTreeSet<String>>, ignore_null: bool) -> Self {
        Self { compare_key, entries, ignore_null }
    }
}

impl Operator for Whitelist {
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], _: EventMoment) -> Vec<Finding> {
        let found = self.compare_key.iter().any(|field| {
            let values = fields::values(&arrival.event.source, field);
            let missing = values.is_empty() && !self.ignore_null && !mutated(Mutation::WhitelistMissing);
            missing || values.iter().any(|value| !self.entries.contains(&*fields::text(value)))
        });
        if found { keys.iter().map(|key| Finding::new(arrival, key)).collect() } else { Vec::new() }
    }
}
