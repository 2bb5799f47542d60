//! `frequency`: `num_events` events of a key within `timeframe`, by event time.
//!
//! A key has the times of its events, in order. An event comes in where its time belongs, also a late one; then the
//! oldest leave until the span from the oldest to the latest is less than the timeframe. The event that makes them
//! `num_events` fires: the alert carries the latest event by time, of equal times the one that arrived last, and the key
//! is cleared.
//!
//! State: of an event its time; the last hundred of a key also tell which documents they are; the latest one has its
//! body, with `attach_related` all of the last hundred. A key cannot have more than `num_events - 1` events.

use std::collections::VecDeque;
use std::sync::Arc;

use super::codec::{Reader, Writer};
use super::key::Key;
use super::keyed::{Bounds, KeyedState, State};
use super::{EventArrival, EventMoment, Finding, MAX_EVIDENCE, Memory, Operator};
use crate::error::Result;
use crate::event::Reference;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// Bytes of the related events that an alert shows.
const MAX_RELATED: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Frequency {
    num_events: usize,
    timeframe: Span,
    attach_related: bool,
    keys: KeyedState<Window>,
}

/// Events of a key, in order of time.
#[derive(Debug, Default)]
struct Window {
    events: VecDeque<CountedEvent>,
    bytes: usize,
}

#[derive(Debug)]
struct CountedEvent {
    time: Time,
    depth: u8,
    shown: Option<Box<AlertEvent>>,
}

/// Content of an event that an alert reports.
#[derive(Debug)]
struct AlertEvent {
    reference: Reference,
    body: Option<Arc<str>>,
}

impl CountedEvent {
    fn bytes(&self) -> usize {
        24 + self.shown.as_ref().map_or(0, |shown| {
            16 + shown.reference.bytes() + shown.body.as_ref().map_or(0, |body| body.len())
        })
    }
}

impl Window {
    /// Changes one event, and the bytes that the window takes.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut CountedEvent)) {
        if let Some(counted) = self.events.get_mut(at) {
            self.bytes -= counted.bytes();
            change(counted);
            self.bytes += counted.bytes();
        }
    }

    fn insert(&mut self, arrival: &EventArrival<'_>, attach_related: bool) {
        let at = self.events.partition_point(|counted| counted.time <= arrival.time);
        let last = at == self.events.len();
        let body = (last || attach_related).then(|| arrival.body.clone());
        let shown = AlertEvent { reference: arrival.event.reference(), body };
        let counted = CountedEvent { time: arrival.time, depth: arrival.depth, shown: Some(Box::new(shown)) };
        self.bytes += counted.bytes();
        self.events.insert(at, counted);
        if last && !attach_related && at > 0 {
            self.change(at - 1, |counted| {
                if let Some(shown) = &mut counted.shown {
                    shown.body = None;
                }
            });
        }
        if let Some(hidden) = self.events.len().checked_sub(MAX_EVIDENCE + 1) {
            // An event that came in further back than the last hundred shows nothing either.
            for at in [hidden, at.min(hidden)] {
                self.change(at, |counted| counted.shown = None);
            }
        }
    }

    fn leave(&mut self, timeframe: Span) {
        while let (Some(first), Some(last)) = (self.events.front(), self.events.back()) {
            let span = last.time.since(first.time);
            let leaves = if mutated(Mutation::LeaveLate) { span > timeframe } else { span >= timeframe };
            if !leaves {
                break;
            }
            self.bytes -= first.bytes();
            self.events.pop_front();
        }
    }
}

impl State for Window {
    fn bytes(&self) -> usize {
        self.bytes + 64
    }

    fn encode(&self, writer: &mut Writer) {
        writer.size(self.events.len());
        for counted in &self.events {
            writer.time(counted.time);
            writer.number(u64::from(counted.depth));
            writer.flag(counted.shown.is_some());
            if let Some(shown) = &counted.shown {
                encode_reference(&shown.reference, writer);
                writer.flag(shown.body.is_some());
                if let Some(body) = &shown.body {
                    writer.text(body);
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut window = Self::default();
        for _ in 0..reader.count()? {
            let time = reader.time()?;
            let depth = u8::try_from(reader.number()?).unwrap_or(u8::MAX);
            let shown = if reader.flag()? {
                let reference = decode_reference(reader)?;
                let body = if reader.flag()? { Some(reader.text()?.into()) } else { None };
                Some(Box::new(AlertEvent { reference, body }))
            } else {
                None
            };
            let counted = CountedEvent { time, depth, shown };
            window.bytes += counted.bytes();
            window.events.push_back(counted);
        }
        Ok(window)
    }
}

pub(super) fn encode_reference(reference: &Reference, writer: &mut Writer) {
    writer.text(&reference.index);
    writer.text(&reference.uuid);
    writer.text(&reference.id);
    writer.number(reference.seq_no);
}

pub(super) fn decode_reference(reader: &mut Reader<'_>) -> Result<Reference> {
    Ok(Reference {
        index: reader.text()?.into(),
        uuid: reader.text()?.into(),
        id: reader.text()?.into(),
        seq_no: reader.number()?,
    })
}

impl Frequency {
    pub(super) fn new(num_events: usize, timeframe: Span, attach_related: bool, bounds: Bounds) -> Self {
        Self { num_events, timeframe, attach_related, keys: KeyedState::new(bounds) }
    }

    fn finding(&self, key: &Key, arrival: &EventArrival<'_>, window: &Window) -> Finding {
        let mut finding = Finding::new(arrival, key);
        let skipped = window.events.len().saturating_sub(MAX_EVIDENCE);
        let shown = || window.events.iter().skip(skipped).filter_map(|counted| counted.shown.as_deref());
        if let Some(last) = window.events.back()
            && !mutated(Mutation::CarryTrigger)
        {
            finding.time = last.time;
            if let Some(body) = last.shown.as_ref().and_then(|shown| shown.body.as_ref()) {
                finding.body = body.clone();
            }
        }
        finding.evidence = shown().map(|shown| shown.reference.clone()).collect();
        finding.count = window.events.len();
        finding.depth = window.events.iter().map(|counted| counted.depth).max().unwrap_or(0);
        if self.attach_related {
            let others = finding.evidence.len().saturating_sub(1);
            let bodies = shown().take(others).filter_map(|shown| shown.body.as_ref());
            finding.related = Some(fitting(bodies));
        }
        finding
    }
}

/// Those of the bodies for which there is room.
fn fitting<'a>(bodies: impl Iterator<Item = &'a Arc<str>>) -> Vec<Arc<str>> {
    let mut left = MAX_RELATED;
    let fits = |body: &&Arc<str>| {
        let rest = left.checked_sub(body.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    bodies.filter(fits).cloned().collect()
}

impl Operator for Frequency {
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], moment: EventMoment) -> Vec<Finding> {
        let mut findings = Vec::new();
        for key in keys {
            let mut window = self.keys.take(key, moment.watermark).unwrap_or_default();
            if mutated(Mutation::DropLate)
                && window.events.back().is_some_and(|last| arrival.time < last.time)
            {
                continue;
            }
            window.insert(arrival, self.attach_related);
            window.leave(self.timeframe);
            if window.events.len() >= self.num_events {
                findings.push(self.finding(key, arrival, &window));
                if !mutated(Mutation::KeepAfterFiring) {
                    continue;
                }
            }
            let latest = window.events.back().map_or(arrival.time, |last| last.time);
            let deadline = moment.deadline(latest, self.timeframe);
            self.keys.put(key.clone(), window, deadline, moment.watermark);
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
