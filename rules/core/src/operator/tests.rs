//! Bounds of state, and bytes of it.

mod windows;

use std::sync::Arc;

use serde_json::json;

use super::key::Key;
use super::keyed::{KeyedState, State};
use super::*;
use crate::error::Error;

#[derive(Debug, PartialEq)]
struct Number(u64);

impl State for Number {
    fn bytes(&self) -> usize {
        100
    }

    fn encode(&self, writer: &mut Writer) {
        writer.number(self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.number().map(Self)
    }
}

fn key(name: &str) -> Key {
    Key::new([Some(name.into())])
}

fn at(seconds: i64) -> Time {
    Time::from_ms(seconds * 1000)
}

#[test]
fn keys_with_the_oldest_events_go_where_there_is_no_room() {
    let mut keyed = KeyedState::new(Bounds { keys: 2, bytes: 1 << 20 });
    let never = Time::from_ms(i64::MIN);
    keyed.put(key("a"), Number(1), at(20), never);
    keyed.put(key("b"), Number(2), at(10), never);
    keyed.put(key("c"), Number(3), at(30), never);
    assert_eq!(keyed.take(&key("b"), never), None);
    assert_eq!((keyed.take(&key("a"), never), keyed.figures().evicted), (Some(Number(1)), 1));
    let mut keyed = KeyedState::new(Bounds { keys: 100, bytes: 2 * (100 + key("a").bytes()) });
    for (name, deadline) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        keyed.put(key(name), Number(0), at(deadline), never);
    }
    assert_eq!((keyed.figures().keys, keyed.figures().evicted), (2, 2));
    assert!(keyed.figures().bytes <= 2 * (100 + key("a").bytes()));
}

#[test]
fn a_key_is_forgotten_at_its_deadline_whether_or_not_it_was_freed() {
    for freed in [false, true] {
        let mut keyed = KeyedState::new(Bounds::default());
        keyed.put(key("a"), Number(1), at(10), at(0));
        if freed {
            keyed.purge(at(10));
        }
        let mut bytes = Writer::default();
        keyed.encode(at(10), &mut bytes);
        assert_eq!(bytes.finish(), [0, 0]);
        assert_eq!(keyed.take(&key("a"), at(10)), None);
        keyed.put(key("a"), Number(1), at(10), at(0));
        assert_eq!(keyed.take(&key("a"), Time::from_ms(9999)), Some(Number(1)));
        assert_eq!(keyed.figures(), OperatorStats { keys: 0, bytes: 0, evicted: 0 });
    }
}

fn event(source: serde_json::Value, number: u64) -> Event {
    Event {
        times: Default::default(),
        index: "i".into(),
        uuid: "u".into(),
        shard: 0,
        seq_no: number,
        id: number.to_string().into(),
        created: true,
        source: Arc::new(source),
    }
}

/// Gives an operator an event under one key, in time.
/// The operator of a type that decides when an event comes.
fn operator(rule_type: &RuleType, bounds: Bounds) -> Box<dyn Operator> {
    let mut rule = Definition::parse(&json!({"name": "r", "index": "i", "type": "any"})).unwrap();
    rule.rule_type = rule_type.clone();
    match RuleOperator::new(&rule, &Timing::default(), bounds) {
        RuleOperator::Eager(operator) => operator,
        RuleOperator::Waiting(_) => panic!("{rule_type:?} waits"),
    }
}

fn give(operator: &mut dyn Operator, event: &Event, time: Time, name: &str) -> Vec<Finding> {
    let moment = EventMoment { watermark: time.minus(Span::from_secs(3600)) };
    let arrival = EventArrival { event, time, body: event.source.to_string().into(), depth: 0 };
    operator.event(&arrival, &[key(name)], moment)
}

#[test]
fn a_window_of_many_events_is_not_cut_and_lists_the_latest() {
    let rule_type =
        RuleType::Frequency { num_events: 25_000, timeframe: Span::from_secs(3600), attach_related: false };
    let mut operator = operator(&rule_type, Bounds::default());
    for number in 1..25_000 {
        let found =
            give(&mut *operator, &event(json!({"n": number}), number), Time::from_ms(number as i64), "a");
        assert!(found.is_empty(), "{number}");
    }
    // Events of which only the time is kept take little.
    assert!(operator.figures().bytes < 25_000 * 30 + 100 * 300, "{:?}", operator.figures());
    // One that is late is counted, and is none of the latest hundred.
    let found = give(&mut *operator, &event(json!({"n": 0}), 25_000), Time::from_ms(5), "a");
    assert_eq!((found.len(), found[0].count, found[0].evidence.len()), (1, 25_000, MAX_EVIDENCE));
    assert_eq!((&*found[0].body, &*found[0].evidence[99].id), (r#"{"n":24999}"#, "24999"));
    assert_eq!(operator.figures(), OperatorStats::default());
}

#[test]
fn related_events_are_chosen_by_length_and_shared_by_keys() {
    let rule_type =
        RuleType::Frequency { num_events: 20, timeframe: Span::from_secs(3600), attach_related: true };
    let mut operator = operator(&rule_type, Bounds::default());
    let keys: Vec<Key> = (0..key::MAX_KEYS).map(|number| key(&number.to_string())).collect();
    let mut found = Vec::new();
    for number in 1..=20_u64 {
        let text = "x".repeat(if number == 12 { 10 } else { 30 << 10 });
        let event = event(json!({"n": number, "text": text}), number);
        let arrival = EventArrival {
            event: &event,
            time: at(number as i64),
            body: event.source.to_string().into(),
            depth: 0,
        };
        found = operator.event(&arrival, &keys, EventMoment { watermark: at(0) });
    }
    assert_eq!(found.len(), keys.len());
    let related: Vec<&Vec<Arc<str>>> = found.iter().filter_map(|finding| finding.related.as_ref()).collect();
    let number = |body: &Arc<str>| serde_json::from_str::<Value>(body).unwrap()["n"].as_u64().unwrap();
    // Eight of 30 KiB have 256, about; there is room for a small one behind them.
    assert_eq!(related[0].iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 12]);
    let same = |of: &&Vec<Arc<str>>| {
        of.len() == related[0].len() && of.iter().zip(related[0]).all(|(one, other)| Arc::ptr_eq(one, other))
    };
    assert!(related.len() == keys.len() && related.iter().all(same));
}

#[test]
fn a_cardinality_far_above_its_maximum_takes_no_more_state() {
    let rule_type = RuleType::Cardinality { field: "v".to_owned(), max: 3, timeframe: Span::from_secs(3600) };
    let mut operator = operator(&rule_type, Bounds::default());
    let mut bytes = Vec::new();
    for number in 10..1000 {
        let found = give(&mut *operator, &event(json!({"v": number}), number), at(number as i64), "a");
        assert_eq!(found.len(), usize::from(number > 12), "{number}");
        bytes.push(operator.figures().bytes);
    }
    assert!(bytes[900] <= bytes[10] + 100, "{bytes:?}");
}

#[test]
fn state_of_each_type_reads_back_byte_for_byte_and_survives_damage() {
    let fields = vec![vec!["v".to_owned()], vec!["v".to_owned(), "w".to_owned()]];
    let types = [
        RuleType::Frequency { num_events: 200, timeframe: Span::from_secs(900), attach_related: true },
        RuleType::Frequency { num_events: 200, timeframe: Span::from_secs(900), attach_related: false },
        RuleType::Cardinality { field: "v".to_owned(), max: 3, timeframe: Span::from_secs(900) },
        RuleType::Change { compare_key: vec!["v".to_owned()], timeframe: None, ignore_null: false },
        RuleType::NewTerm { fields, window: Span::from_secs(900), alert_on_missing_field: false },
    ];
    for rule_type in types {
        let mut one = operator(&rule_type, Bounds::default());
        for number in 0..300_u64 {
            let source = json!({"v": [number % 7, "é"], "w": number % 3});
            give(&mut *one, &event(source, number), at(number as i64 % 50), &format!("k{}", number % 5));
        }
        let bytes = |operator: &dyn Operator| {
            let mut writer = Writer::default();
            operator.encode(at(-3600), &mut writer);
            writer.finish()
        };
        let written = bytes(&*one);
        assert!(written.len() > 50, "{rule_type:?}");
        let read = |bytes: &[u8]| -> Result<Box<dyn Operator>> {
            let mut other = operator(&rule_type, Bounds::default());
            let mut reader = Reader::new(bytes);
            other.decode(&mut reader)?;
            reader.finish()?;
            Ok(other)
        };
        let other = read(&written).unwrap();
        assert_eq!(bytes(&*other), written, "{rule_type:?}");
        for cut in 0..written.len() {
            assert!(matches!(read(&written[..cut]), Err(Error::Corrupt(_))), "{rule_type:?} cut at {cut}");
        }
        for place in 0..written.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = written.clone();
                damaged[place] ^= flip;
                // It may read as something else; that it is damaged tells the checksum of the whole.
                let _ = read(&damaged);
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        for rule_type in [
            RuleType::Frequency { num_events: 5, timeframe: Span::from_secs(1), attach_related: false },
            RuleType::Cardinality { field: "v".to_owned(), max: 3, timeframe: Span::from_secs(1) },
            RuleType::Change { compare_key: vec!["v".to_owned()], timeframe: None, ignore_null: false },
        ] {
            let mut operator = operator(&rule_type, Bounds::default());
            let _ = operator.decode(&mut Reader::new(&bytes));
            let found = give(&mut *operator, &event(json!({"v": 1}), 1), at(1), "k");
            proptest::prop_assert!(found.len() <= 1);
        }
    }
}
