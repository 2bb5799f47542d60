//! [`FrameColumns`]: numbers and times of a frame's events, which detectors of the same fields read once for all of them.

use std::collections::{HashMap, HashSet};

use millrace_rules::Event;
use millrace_rules::engine::Frame;

use super::features;

/// Values of a frame that are kept, at most; those beyond are read anew for each detector.
const MAX_VALUES: usize = 1 << 20;
/// Events of a frame from which on columns are worth their while.
const MIN_EVENTS: usize = 16;
/// A detector makes columns if it matches one of so many events of a frame, or more.
const SPARSE_RATIO: usize = 4;
/// A NaN that no event has: the number was not read yet.
const UNREAD_NUMBER: u64 = 0x7ff8_0000_756e_7264;
/// A time that no event has.
const UNREAD_TIME: i64 = i64::MIN;

/// Values of fields, each by the place of its event.
#[derive(Debug)]
struct Columns<T> {
    places: HashMap<String, usize>,
    values: Vec<Vec<T>>,
    /// Fields that one detector of few events has asked for.
    asked_once: HashSet<String>,
}

impl<T> Default for Columns<T> {
    fn default() -> Self {
        Self { places: HashMap::new(), values: Vec::new(), asked_once: HashSet::new() }
    }
}

/// Place of a field's column; `None` where there is no room for one.
pub(crate) type ColumnPlace = Option<usize>;

/// Numbers of events that decide about columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCounts {
    /// Events of the frame.
    pub(crate) all: usize,
    /// Events that the detector matches.
    pub(crate) matched: usize,
}

impl EventCounts {
    /// Returns whether new columns are worth their while for the detector alone.
    fn are_dense(self) -> bool {
        self.matched.saturating_mul(SPARSE_RATIO) >= self.all
    }
}

/// Columns of the frame that is being scored.
#[derive(Debug, Default)]
pub(crate) struct FrameColumns {
    numbers: Columns<f64>,
    times: Columns<i64>,
    /// Values of all columns.
    kept: usize,
}

impl FrameColumns {
    /// Forgets the frame before.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Finds the columns of the numbers of fields. The first detector of few events that asks for a field makes no column.
    pub(crate) fn find_numbers(&mut self, fields: &[String], events: EventCounts) -> Vec<ColumnPlace> {
        let unread = f64::from_bits(UNREAD_NUMBER);
        let Self { numbers, kept, .. } = self;
        fields.iter().map(|field| find(numbers, kept, field, events, unread)).collect()
    }

    /// Finds the column of the times of a field.
    pub(crate) fn find_times(&mut self, field: &str, events: EventCounts) -> ColumnPlace {
        find(&mut self.times, &mut self.kept, field, events, UNREAD_TIME)
    }

    /// Returns the number of a field of an event.
    pub(crate) fn number(&mut self, column: ColumnPlace, field: &str, (at, event): (usize, &Event)) -> f64 {
        let kept = column.and_then(|column| self.numbers.values.get_mut(column)?.get_mut(at));
        match kept {
            Some(kept) => {
                if kept.to_bits() == UNREAD_NUMBER {
                    *kept = features::number(&event.source, field);
                }
                *kept
            }
            None => features::number(&event.source, field),
        }
    }

    /// Returns the time of an event by a field, in milliseconds.
    pub(crate) fn time_ms(
        &mut self,
        column: ColumnPlace,
        field: &str,
        at: usize,
        frame: &Frame,
    ) -> Option<i64> {
        let event = frame.events.get(at)?;
        let read = || event.time(field, false, frame.time).ms();
        let kept = column.and_then(|column| self.times.values.get_mut(column)?.get_mut(at));
        Some(match kept {
            Some(kept) => {
                if *kept == UNREAD_TIME {
                    *kept = read();
                }
                *kept
            }
            None => read(),
        })
    }
}

fn find<T: Copy>(
    columns: &mut Columns<T>,
    kept: &mut usize,
    field: &str,
    events: EventCounts,
    unread: T,
) -> ColumnPlace {
    if let Some(known) = columns.places.get(field) {
        return Some(*known);
    }
    if events.all < MIN_EVENTS || kept.saturating_add(events.all) > MAX_VALUES {
        return None;
    }
    if !events.are_dense() && columns.asked_once.insert(field.to_owned()) {
        return None;
    }
    *kept += events.all;
    let place = columns.values.len();
    columns.values.push(vec![unread; events.all]);
    columns.places.insert(field.to_owned(), place);
    Some(place)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_rules::{Origin, Time};
    use serde_json::{Value, json};

    use super::*;

    fn event(source: Value) -> Event {
        Event {
            index: "i".into(),
            uuid: "u".into(),
            shard: 0,
            seq_no: 0,
            id: "d".into(),
            created: true,
            times: Default::default(),
            source: Arc::new(source),
        }
    }

    #[test]
    fn values_are_those_of_the_events_also_without_room() {
        let events = vec![event(json!({"a": 1, "t": 7_000})), event(json!({"a": "x"}))];
        let count = MIN_EVENTS;
        let frame =
            Frame { number: 1, time: Time::from_ms(9_000), origin: Origin::User, events, complete: true };
        let (mut columns, fields) = (FrameColumns::default(), ["a".to_owned(), "b".to_owned()]);
        let all_of = |all| EventCounts { all, matched: all };
        let sparse = EventCounts { all: count, matched: count / SPARSE_RATIO - 1 };
        assert_eq!(columns.find_numbers(&fields, all_of(count - 1)), [None, None]);
        assert_eq!(columns.find_numbers(&fields, sparse), [None, None]);
        let places = columns.find_numbers(&fields, all_of(count));
        let times = columns.find_times("t", all_of(count));
        assert_eq!((places.as_slice(), times), (&[Some(0), Some(1)][..], Some(0)));
        // Columns that are there serve detectors of few events, too, and several of these make one.
        assert_eq!([columns.find_times("few", sparse), columns.find_times("few", sparse)], [None, Some(1)]);
        assert_eq!(columns.find_numbers(&fields, sparse), [Some(0), Some(1)]);
        for place in [places[0], None] {
            // The second time from the column.
            for _ in 0..2 {
                assert_eq!(columns.number(place, "a", (0, &frame.events[0])), 1.0);
                assert!(columns.number(place, "a", (1, &frame.events[1])).is_nan());
                let times: Vec<_> = (0..3).map(|at| columns.time_ms(place, "t", at, &frame)).collect();
                assert_eq!(times, [Some(7_000), Some(9_000), None]);
            }
        }
        assert_eq!(columns.find_numbers(&fields, all_of(usize::MAX)), [Some(0), Some(1)]);
        assert_eq!(columns.find_times("u", all_of(usize::MAX)), None);
        columns.clear();
        assert_eq!(columns.find_numbers(&fields, all_of(MAX_VALUES)), [Some(0), None]);
    }
}
