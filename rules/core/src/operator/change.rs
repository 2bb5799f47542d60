//! `change`: a key's values of `compare_key` are others than those of the event before.
//!
//! With `timeframe` only where that event is at most so old. Events are compared in the order in which they arrive, as
//! ElastAlert does it: a late one is compared with what came before it, and replaces it. With `ignore_null` an event that
//! lacks one of the fields is passed over; else what is missing is a value like any other. The alert shows both values,
//! as `old_value` and `new_value`.
//!
//! State: of a key its last values, for as long as they can matter: the timeframe, without one 30 days.

use serde_json::Value;

use super::codec::{Reader, Writer};
use super::key::Key;
use super::keyed::{Bounds, KeyedState, State};
use super::{EventArrival, EventMoment, Finding, Memory, Operator};
use crate::error::Result;
use crate::fields;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// For how long values are remembered without a timeframe.
pub(super) const REMEMBERED: Span = Span::from_secs(30 * 86_400);

#[derive(Debug)]
pub(super) struct Change {
    compare_key: Vec<String>,
    timeframe: Option<Span>,
    ignore_null: bool,
    keys: KeyedState<LastValues>,
}

/// Values of each of the fields.
type ComparedValues = Vec<Vec<Box<str>>>;

#[derive(Debug)]
struct LastValues {
    time: Time,
    values: ComparedValues,
}

impl State for LastValues {
    fn bytes(&self) -> usize {
        self.values
            .iter()
            .map(|values| 24 + values.iter().map(|text| text.len() + 16).sum::<usize>())
            .sum::<usize>()
            + 64
    }

    fn encode(&self, writer: &mut Writer) {
        writer.time(self.time);
        writer.size(self.values.len());
        for values in &self.values {
            writer.size(values.len());
            values.iter().for_each(|text| writer.text(text));
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let time = reader.time()?;
        let mut values = Vec::new();
        for _ in 0..reader.count()? {
            let count = reader.count()?;
            values.push((0..count).map(|_| Ok(reader.text()?.into())).collect::<Result<_>>()?);
        }
        Ok(Self { time, values })
    }
}

impl Change {
    pub(super) fn new(
        compare_key: Vec<String>,
        timeframe: Option<Span>,
        ignore_null: bool,
        bounds: Bounds,
    ) -> Self {
        Self { compare_key, timeframe, ignore_null, keys: KeyedState::new(bounds) }
    }
}

/// One entry a field: its value, the list of its values, or `null`.
fn to_json(values: &ComparedValues) -> Value {
    let texts = |values: &[Box<str>]| values.iter().map(|text| Value::from(&**text)).collect();
    let field = |values: &Vec<Box<str>>| match values.as_slice() {
        [] => Value::Null,
        [one] => Value::from(&**one),
        several => Value::Array(texts(several)),
    };
    Value::Array(values.iter().map(field).collect())
}

impl Operator for Change {
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], moment: EventMoment) -> Vec<Finding> {
        let values: ComparedValues =
            self.compare_key.iter().map(|field| fields::texts(&arrival.event.source, field)).collect();
        if self.ignore_null && values.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for key in keys {
            let mut last = LastValues { time: arrival.time, values: values.clone() };
            if let Some(before) = self.keys.take(key, moment.watermark)
                && before.values != values
            {
                let soon =
                    self.timeframe.is_none_or(|timeframe| arrival.time.since(before.time) <= timeframe);
                if soon || mutated(Mutation::ChangeWithoutTimeframe) {
                    let mut finding = Finding::new(arrival, key);
                    finding.added =
                        vec![("old_value", to_json(&before.values)), ("new_value", to_json(&values))];
                    findings.push(finding);
                }
                if mutated(Mutation::ChangeKeepsFirst) {
                    last = before;
                }
            }
            // It is within the timeframe still when it is exactly so old.
            let window = self.timeframe.map_or(REMEMBERED, |timeframe| timeframe.plus(Span::from_ms(1)));
            self.keys.put(key.clone(), last, moment.deadline(arrival.time, window), moment.watermark);
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
