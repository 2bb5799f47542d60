//! `any`: each event is an alert.

use super::key::Key;
use super::{Arrival, Finding, Moment, Operator};

#[derive(Debug)]
pub(super) struct Any;

impl Operator for Any {
    fn event(&mut self, arrival: &Arrival<'_>, keys: &[Key], _: Moment) -> Vec<Finding> {
        keys.iter().map(|key| Finding::of(arrival, key)).collect()
    }
}
