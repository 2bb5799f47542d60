//! Operators: the evaluation of matching events by a rule type, one file a type.
//!
//! An operator is synchronous and pure: (event) → (findings, state). It knows neither clock nor randomness nor where
//! events come from; `engine` hands it events in their order and makes alerts of what it finds. The order in which events
//! arrive is the order of the feed; what an operator finds depends on that order and on the times in events and frames.

mod any;
mod blacklist;
mod cardinality;
mod change;
pub(crate) mod codec;
mod flatline;
mod frequency;
pub(crate) mod key;
mod keyed;
mod metric_aggregation;
mod min_cardinality;
mod new_term;
mod panes;
mod percentage_match;
pub(crate) mod realert;
mod spike;
pub(crate) mod unobserved;
mod watermark;
mod whitelist;
pub(crate) mod window_operator;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use self::codec::{Reader, Writer};
use self::key::Key;
pub use self::keyed::Bounds;
pub(crate) use self::keyed::Memory;
use self::panes::Grid;
pub use self::watermark::Timing;
pub(crate) use self::watermark::{EventMoment, Watermark};
use self::window_operator::{PaneOperator, WindowJudge, WindowOperator};
use crate::definition::{Definition, RuleType};
use crate::error::Result;
use crate::event::{Event, Reference};
use crate::time::{Span, Time};

/// Contributing events that an alert lists; of more the latest.
pub(crate) const MAX_EVIDENCE: usize = 100;

/// Bound on the findings of one event; the rest is counted only.
pub(crate) const MAX_FINDINGS: usize = 1_000;

/// An event as an operator sees it.
#[derive(Debug)]
pub(crate) struct EventArrival<'a> {
    pub(crate) event: &'a Event,
    pub(crate) time: Time,
    /// Members of it that an alert shows, as JSON.
    pub(crate) body: Arc<str>,
    pub(crate) depth: u8,
}

/// Finding of an operator: an alert, unless it is silent.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The key of `query_key`.
    pub(crate) key: Key,
    /// Identity among the findings of the same event: the key, and for new terms the field and its value.
    pub(crate) identity: Key,
    /// Time and body of the event that the alert carries.
    pub(crate) time: Time,
    pub(crate) body: Arc<str>,
    /// Members of the body that the type adds.
    pub(crate) added: Vec<(&'static str, Value)>,
    /// Bodies of other events, for `related_events`: texts that events have together. As values they take many times as much.
    pub(crate) related: Option<Vec<Arc<str>>>,
    /// The latest of the contributing events, in order of time.
    pub(crate) evidence: Vec<Reference>,
    /// Number of events that contributed.
    pub(crate) count: usize,
    /// The greatest depth of a contributing event.
    pub(crate) depth: u8,
}

impl Finding {
    /// A finding that one event makes by itself.
    pub(crate) fn new(arrival: &EventArrival<'_>, key: &Key) -> Self {
        Self {
            key: key.clone(),
            identity: key.clone(),
            time: arrival.time,
            body: arrival.body.clone(),
            added: Vec::new(),
            related: None,
            evidence: vec![arrival.event.reference()],
            count: 1,
            depth: arrival.depth,
        }
    }
}

/// Size of an operator's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorStats {
    /// Keys with state.
    pub keys: usize,
    /// Bytes that they take, as an estimate.
    pub bytes: usize,
    /// Keys that were forgotten before their time, for want of room.
    pub evicted: u64,
}

/// A rule type at work.
pub(crate) trait Operator: fmt::Debug + Send + Sync {
    /// Takes an event under each of its keys.
    fn event(&mut self, arrival: &EventArrival<'_>, keys: &[Key], moment: EventMoment) -> Vec<Finding>;

    /// Returns the number of findings of the last event beyond [`MAX_FINDINGS`], and those that it did not look for.
    fn left_out(&self) -> usize {
        0
    }

    /// Returns its memory; `None` where each event is decided by itself.
    fn memory(&self) -> Option<&dyn Memory> {
        None
    }

    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        None
    }

    /// Frees what is forgotten; changes nothing that anybody could see.
    fn tick(&mut self, watermark: Time) {
        if let Some(memory) = self.memory_mut() {
            memory.purge(watermark);
        }
    }

    fn encode(&self, watermark: Time, writer: &mut Writer) {
        if let Some(memory) = self.memory() {
            memory.encode(watermark, writer);
        }
    }

    /// Reads what [`Self::encode`] wrote into an operator that is new.
    fn decode(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.memory_mut().map_or(Ok(()), |memory| memory.decode(reader))
    }

    fn figures(&self) -> OperatorStats {
        self.memory().map_or_else(OperatorStats::default, Memory::figures)
    }
}

/// Operator of a rule: types decide when an event comes, or wait for the end of windows.
#[derive(Debug)]
pub(crate) enum RuleOperator {
    Eager(Box<dyn Operator>),
    Waiting(Box<dyn WindowOperator>),
}

impl RuleOperator {
    /// Makes that of a rule.
    pub(crate) fn new(rule: &Definition, timing: &Timing, bounds: Bounds) -> Self {
        let delay = rule.delay.unwrap_or(timing.delay);
        let keyless = rule.query_key.is_empty();
        let sliding = |window, looked_at| Grid::sliding(window, looked_at, timing, delay);
        let tumbling = |window| Grid::tumbling(window, timing, delay);
        fn paned<J: WindowJudge + 'static>(
            judge: J,
            grid: Grid,
            keyless: bool,
            bounds: Bounds,
        ) -> RuleOperator {
            RuleOperator::Waiting(Box::new(PaneOperator::new(judge, grid, keyless, bounds)))
        }
        fn eager(operator: impl Operator + 'static) -> RuleOperator {
            RuleOperator::Eager(Box::new(operator))
        }
        match &rule.rule_type {
            RuleType::Flatline { threshold, timeframe, forget_keys } => {
                let judge = flatline::Flatline { threshold: *threshold, forget_keys: *forget_keys };
                paned(judge, sliding(*timeframe, 1), keyless, bounds)
            }
            RuleType::Spike(spike) => {
                let grid = sliding(spike.timeframe, 2);
                match &spike.field_value {
                    None => paned(spike::SummedSpike::<()>::new(spike.clone()), grid, keyless, bounds),
                    Some(_) => paned(spike::SummedSpike::<f64>::new(spike.clone()), grid, keyless, bounds),
                }
            }
            RuleType::MinCardinality { field, min, timeframe } => {
                let judge = min_cardinality::MinCardinality { field: field.clone(), min: *min };
                paned(judge, tumbling(*timeframe), keyless, bounds)
            }
            RuleType::MetricAggregation(aggregation) => {
                let judge = metric_aggregation::MetricAggregation::new(aggregation.clone());
                paned(judge, tumbling(aggregation.window), keyless, bounds)
            }
            RuleType::PercentageMatch(percentage) => {
                let judge = percentage_match::PercentageMatch(percentage.clone());
                paned(judge, tumbling(percentage.window), keyless, bounds)
            }
            RuleType::Any => eager(any::AnyOperator),
            RuleType::Frequency { num_events, timeframe, attach_related } => {
                eager(frequency::Frequency::new(*num_events, *timeframe, *attach_related, bounds))
            }
            RuleType::Cardinality { field, max, timeframe } => {
                eager(cardinality::Cardinality::new(field.clone(), *max, *timeframe, bounds))
            }
            RuleType::Blacklist { compare_key, entries } => {
                eager(blacklist::Blacklist::new(compare_key.clone(), entries.clone()))
            }
            RuleType::Whitelist { compare_key, entries, ignore_null } => {
                eager(whitelist::Whitelist::new(compare_key.clone(), entries.clone(), *ignore_null))
            }
            RuleType::Change { compare_key, timeframe, ignore_null } => {
                eager(change::Change::new(compare_key.clone(), *timeframe, *ignore_null, bounds))
            }
            RuleType::NewTerm { fields, window, alert_on_missing_field } => {
                eager(new_term::NewTerm::new(fields.clone(), *window, *alert_on_missing_field, bounds))
            }
        }
    }

    /// For how long it looks back.
    pub(crate) fn window(&self, rule_type: &RuleType) -> Span {
        match self {
            Self::Eager(_) => window(rule_type),
            Self::Waiting(waiting) => waiting.grid().window(),
        }
    }

    pub(crate) fn figures(&self) -> OperatorStats {
        match self {
            Self::Eager(operator) => operator.figures(),
            Self::Waiting(waiting) => waiting.figures(),
        }
    }
}

/// Returns for how long a type looks back that decides when an event comes.
fn window(rule_type: &RuleType) -> Span {
    match rule_type {
        RuleType::MinCardinality { .. }
        | RuleType::Spike(_)
        | RuleType::Flatline { .. }
        | RuleType::MetricAggregation(_)
        | RuleType::PercentageMatch(_)
        | RuleType::Any
        | RuleType::Blacklist { .. }
        | RuleType::Whitelist { .. } => Span::ZERO,
        RuleType::Frequency { timeframe, .. } | RuleType::Cardinality { timeframe, .. } => *timeframe,
        RuleType::Change { timeframe, .. } => timeframe.unwrap_or(change::REMEMBERED),
        RuleType::NewTerm { window, .. } => *window,
    }
}
