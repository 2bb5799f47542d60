//! `new_term`: a value that a field has not had before.
//!
//! Each of `fields` is watched by itself; several fields in a list of their own are one composite term. A value is known
//! from the event that has it until it was not seen for `terms_window_size`, also where an event has more than alerts are raised
//! of. Terms beyond the first thousand of one of `fields` are not looked at, but counted: that some may be hidden behind others is
//! told. The alert names the field as `new_field`; with `alert_on_missing_field` an event without a value is an alert, with
//! `missing_field`.
//!
//! State: each value with when it was seen last. What was written before the rule began is known only where the rule was
//! given it, muted.

use serde_json::Value;

use super::codec::{Reader, Writer};
use super::key::{Combination, Key, MAX_KEYS, combinations};
use super::keyed::{Bounds, KeyedState, State};
use super::{EventArrival, EventMoment, Finding, MAX_FINDINGS, Memory, Operator};
use crate::error::Result;
use crate::fields;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// Terms of an event that are looked at, for each of the fields.
const MAX_TERMS: usize = 1_000;
/// Alerts that the fields before it leave to each of the fields, where it has so many terms. There are ten fields at most.
const LEFT_TO_EACH: usize = 64;

#[derive(Debug)]
pub(super) struct NewTerm {
    fields: Vec<Vec<String>>,
    window: Span,
    alert_on_missing_field: bool,
    terms: KeyedState<TermRecord>,
    /// Alerts of the last event that were too many, and terms of it that were not looked at.
    left_out: usize,
}

/// Time at which a term was seen last.
#[derive(Debug)]
struct TermRecord(Time);

impl State for TermRecord {
    fn bytes(&self) -> usize {
        8
    }

    fn encode(&self, writer: &mut Writer) {
        writer.time(self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.time().map(Self)
    }
}

impl NewTerm {
    pub(super) fn new(
        fields: Vec<Vec<String>>,
        window: Span,
        alert_on_missing_field: bool,
        bounds: Bounds,
    ) -> Self {
        Self { fields, window, alert_on_missing_field, terms: KeyedState::new(bounds), left_out: 0 }
    }

    /// The terms that an event has in one of the fields, and how many that are not looked at could be alerts.
    fn terms_of(&self, source: &Value, fields: &[String]) -> (Vec<Combination>, usize) {
        let values: Vec<_> =
            fields.iter().map(|field| fields::first_texts(source, field, MAX_TERMS)).collect();
        // What lacks a part is in no combination that could be new: the event is told of as it is.
        let is_missing = values.iter().any(|(values, _)| values.is_empty());
        if is_missing && !self.alert_on_missing_field {
            return (Vec::new(), 0);
        }
        let all = values.iter().fold(1_usize, |all, (values, more)| {
            all.saturating_mul(values.len().max(1).saturating_add(*more))
        });
        let most = if is_missing { MAX_KEYS } else { MAX_TERMS };
        let terms = combinations(values.into_iter().map(|(values, _)| values), most);
        let more = if is_missing { 0 } else { all.saturating_sub(terms.len()) };
        (terms, more)
    }

    /// Takes a term in; tells whether it is new.
    fn meet(&mut self, term: Key, time: Time, moment: EventMoment) -> bool {
        let known = self.terms.take(&term, moment.watermark);
        let lasting = known
            .as_ref()
            .is_some_and(|known| time.since(known.0) < self.window || mutated(Mutation::TermNeverForgotten));
        let latest = known.map_or(time, |known| known.0.max(time));
        if !mutated(Mutation::TermNotRemembered) {
            self.terms.put(term, TermRecord(latest), moment.deadline(latest, self.window), moment.watermark);
        }
        !lasting
    }
}

/// The name of a field, of a composite one the list of names.
fn name(fields: &[String]) -> Value {
    match fields {
        [one] => Value::from(one.as_str()),
        several => Value::from(several),
    }
}

impl Operator for NewTerm {
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], moment: EventMoment) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.left_out = 0;
        let of_fields: Vec<_> =
            self.fields.iter().map(|fields| self.terms_of(&arrival.event.source, fields)).collect();
        // Terms of one field do not hide all those of the fields behind it.
        let wanted = |(terms, _): &(Vec<Combination>, usize)| (terms.len() * keys.len()).min(LEFT_TO_EACH);
        let mut left_to_others: usize = of_fields.iter().map(wanted).sum();
        for (at, of_field) in of_fields.into_iter().enumerate() {
            let number: Box<str> = at.to_string().into();
            left_to_others -= wanted(&of_field);
            let room = MAX_FINDINGS - left_to_others;
            let (terms, more) = of_field;
            self.left_out = self.left_out.saturating_add(more);
            for value in terms {
                let missing = value.iter().any(Option::is_none);
                let identity: Vec<_> = [Some(number.clone())].into_iter().chain(value).collect();
                let member = if missing { "missing_field" } else { "new_field" };
                let found = if missing {
                    self.alert_on_missing_field
                } else {
                    self.meet(Key::new(identity.clone()), arrival.time, moment)
                };
                if !found {
                    continue;
                }
                // Terms and keys multiply.
                let some = keys.len().min(room.saturating_sub(findings.len()));
                self.left_out = self.left_out.saturating_add(keys.len() - some);
                for key in &keys[..some] {
                    let mut finding = Finding::new(arrival, key);
                    finding.identity = key.with(&identity);
                    finding.added = vec![(member, name(&self.fields[at]))];
                    findings.push(finding);
                }
            }
        }
        findings
    }

    fn left_out(&self) -> usize {
        self.left_out
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(&self.terms)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        Some(&mut self.terms)
    }
}
