//! `any`: each event is an alert.

use super::key::Key;
use super::{EventArrival, EventMoment, Finding, Operator};

#[derive(Debug)]
pub(super) struct AnyOperator;

impl Operator for AnyOperator {
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], _: EventMoment) -> Vec<Finding> {
        keys.iter().map(|key| Finding::new(arrival, key)).collect()
    }
}
