//! `cardinality` above a maximum: more than `max_cardinality` values of a field within `timeframe`, for each key.
//!
//! A value counts from when it was last seen, and leaves once that is the timeframe or more before the latest event of the
//! key. Each event that brings a value while there are more than `max_cardinality` is an alert and carries itself, as in
//! ElastAlert; `realert` makes fewer of them. A late event whose time has left the window brings nothing.
//!
//! State: of a key the `max_cardinality + 1` values that were seen last, which decide as much as all would.

use std::collections::BTreeMap;

use super::codec::{Reader, Writer};
use super::frequency::{decode_reference, encode_reference};
use super::key::Key;
use super::keyed::{Bounds, KeyedState, State};
use super::{EventArrival, EventMoment, Finding, MAX_EVIDENCE, Memory, Operator};
use crate::error::{Error, Result};
use crate::event::Reference;
use crate::fields;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

#[derive(Debug)]
pub(super) struct Cardinality {
    field: String,
    max: usize,
    timeframe: Span,
    keys: KeyedState<Values>,
}

#[derive(Debug)]
struct Values {
    latest: Time,
    seen: BTreeMap<Box<str>, (Time, u64)>,
    /// Values by when they were seen; the number tells apart those of the same time, by arrival.
    order: BTreeMap<(Time, u64), SeenValue>,
    arrivals: u64,
    bytes: usize,
}

#[derive(Debug)]
struct SeenValue {
    value: Box<str>,
    depth: u8,
    reference: Reference,
}

impl SeenValue {
    fn bytes(&self) -> usize {
        2 * self.value.len() + self.reference.bytes() + 160
    }
}

impl Values {
    fn new(latest: Time) -> Self {
        Self { latest, seen: BTreeMap::new(), order: BTreeMap::new(), arrivals: 0, bytes: 0 }
    }

    fn see(&mut self, seen: SeenValue, time: Time) {
        if let Some((before, number)) = self.seen.get(&seen.value).copied() {
            if before > time || mutated(Mutation::CardinalityFirstTime) {
                return;
            }
            self.forget((before, number));
        }
        self.insert(seen, time);
    }

    fn insert(&mut self, seen: SeenValue, time: Time) {
        let at = (time, self.arrivals);
        self.arrivals += 1;
        self.bytes += seen.bytes();
        self.seen.insert(seen.value.clone(), at);
        self.order.insert(at, seen);
    }

    fn forget(&mut self, at: (Time, u64)) {
        if let Some(seen) = self.order.remove(&at) {
            self.bytes -= seen.bytes();
            self.seen.remove(&seen.value);
        }
    }

    /// Lets go of values that left the window, and of more than `most`.
    fn leave(&mut self, timeframe: Span, most: usize) {
        while let Some((at, _)) = self.order.first_key_value()
            && (self.latest.since(at.0) >= timeframe || self.order.len() > most)
        {
            self.forget(*at);
        }
    }
}

impl State for Values {
    fn bytes(&self) -> usize {
        self.bytes + 128
    }

    fn encode(&self, writer: &mut Writer) {
        writer.time(self.latest);
        writer.size(self.order.len());
        for ((time, _), seen) in &self.order {
            writer.time(*time);
            writer.text(&seen.value);
            writer.number(u64::from(seen.depth));
            encode_reference(&seen.reference, writer);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut values = Self::new(reader.time()?);
        for _ in 0..reader.count()? {
            let time = reader.time()?;
            let value: Box<str> = reader.text()?.into();
            if values.seen.contains_key(&value) {
                return Err(Error::Corrupt("a value is there twice"));
            }
            let depth = u8::try_from(reader.number()?).unwrap_or(u8::MAX);
            values.insert(SeenValue { value, depth, reference: decode_reference(reader)? }, time);
        }
        Ok(values)
    }
}

impl Cardinality {
    pub(super) fn new(field: String, max: usize, timeframe: Span, bounds: Bounds) -> Self {
        Self { field, max, timeframe, keys: KeyedState::new(bounds) }
    }
}

impl Operator for Cardinality {
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], moment: EventMoment) -> Vec<Finding> {
        let found = fields::texts(&arrival.event.source, &self.field);
        if found.is_empty() {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for key in keys {
            let mut values =
                self.keys.take(key, moment.watermark).unwrap_or_else(|| Values::new(arrival.time));
            values.latest = values.latest.max(arrival.time);
            for value in &found {
                let seen = SeenValue {
                    value: value.clone(),
                    depth: arrival.depth,
                    reference: arrival.event.reference(),
                };
                values.see(seen, arrival.time);
            }
            values.leave(self.timeframe, self.max + 1);
            let within = values.latest.since(arrival.time) < self.timeframe;
            let most = if mutated(Mutation::CardinalityReached) { self.max } else { self.max + 1 };
            if within && values.order.len() >= most {
                let mut finding = Finding::new(arrival, key);
                let skipped = values.order.len().saturating_sub(MAX_EVIDENCE);
                let mut evidence: Vec<Reference> = Vec::new();
                for seen in values.order.values().skip(skipped) {
                    // An event with several values is one event.
                    if !evidence.contains(&seen.reference) {
                        evidence.push(seen.reference.clone());
                    }
                }
                finding.evidence = evidence;
                finding.count = values.order.len();
                finding.depth = values
                    .order
                    .values()
                    .map(|seen| seen.depth)
                    .fold(arrival.depth, |most, depth| most.max(depth));
                findings.push(finding);
            }
            let deadline = moment.deadline(values.latest, self.timeframe);
            self.keys.put(key.clone(), values, deadline, moment.watermark);
        }
        findings
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(&self.keys)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        Some(&mut self.keys)
    }
}
