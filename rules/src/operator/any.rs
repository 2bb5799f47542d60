//! `any`: each event is an alert.

use super::codec::{Reader, Writer};
use super::key::Key;
use super::{Arrival, Figures, Finding, Moment, Operator};
use crate::error::Result;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Any;

impl Operator for Any {
    fn event(&mut self, arrival: &Arrival<'_>, keys: &[Key], _: Moment) -> Vec<Finding> {
        keys.iter().map(|key| Finding::of(arrival, key)).collect()
    }

    fn tick(&mut self, _: Time) {}

    fn encode(&self, _: Time, _: &mut Writer) {}

    fn decode(&mut self, _: &mut Reader<'_>) -> Result<()> {
        Ok(())
    }

    fn figures(&self) -> Figures {
        Figures::default()
    }
}
