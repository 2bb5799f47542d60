//! State of types that wait: bounds, bytes, and what is done how often.

use serde_json::{Value, json};

use super::super::unobserved::{OwnUnobserved, UnobservedIntervals};
use super::super::window_operator::{ClosedWindow, JudgeContext, Outcome, Sample};
use super::*;
use crate::definition::Definition;

/// Notes what is raised.
#[derive(Debug, Default)]
struct RecordedAlerts(Vec<(String, Time, Value)>);

impl Outcome for RecordedAlerts {
    fn recovers(&self) -> bool {
        true
    }

    fn alert(&mut self, closing: ClosedWindow<'_>) -> bool {
        self.0.push((closing.key.to_string(), closing.end, closing.verdict.added.into_iter().collect()));
        true
    }

    fn revise(&mut self, _: ClosedWindow<'_>) {}

    fn recover(&mut self, _: &Key, _: Time, _: Time) {}

    fn is_full(&self) -> bool {
        false
    }
}

fn waiting(options: Value, bounds: Bounds) -> Box<dyn WindowOperator> {
    let mut rule = json!({"name": "r", "index": "i", "query_key": "k"});
    for (name, value) in options.as_object().unwrap() {
        rule[name] = value.clone();
    }
    match RuleOperator::new(&Definition::parse(&rule).unwrap(), &Timing::default(), bounds) {
        RuleOperator::Waiting(waiting) => waiting,
        RuleOperator::Eager(_) => panic!("{rule}"),
    }
}

/// Closes the windows up to a time.
fn close(waiting: &mut dyn WindowOperator, until: Time) -> Vec<(String, Time, Value)> {
    let mut raised = RecordedAlerts::default();
    let mut lags = OwnUnobserved::default();
    lags.origin = Some(at(0));
    lags.push(at(-20), at(-10));
    let number = waiting.grid().number(until);
    let unobserved = UnobservedIntervals { lags: &lags, absences: &[] };
    let mut looking = JudgeContext { unobserved, clock: &|end| end, out: &mut raised };
    assert!(waiting.settle(&mut looking) && waiting.close(number, &mut looking));
    raised.0
}

fn of_each_type() -> Vec<Value> {
    let mut all = vec![
        json!({"type": "flatline", "threshold": 30, "timeframe": "50s"}),
        json!({"type": "spike", "spike_height": 1.5, "spike_type": "both", "timeframe": "20s"}),
        json!({"type": "spike", "spike_height": 1.5, "spike_type": "both", "timeframe": "20s", "field_value": "v"}),
        json!({"type": "cardinality", "cardinality_field": "v", "min_cardinality": 12, "timeframe": "20s"}),
        json!({"type": "percentage_match", "match_bucket_filter": [], "max_percentage": 20, "bucket_interval": "20s"}),
    ];
    for metric in ["min", "max", "avg", "sum", "cardinality", "value_count", "percentiles"] {
        let mut rule = json!({"type": "metric_aggregation", "metric_agg_key": "v", "metric_agg_type": metric,
            "max_threshold": -1, "bucket_interval": "100s"});
        if metric == "percentiles" {
            rule["percentile_range"] = json!(95);
        }
        all.push(rule);
    }
    all
}

/// Gives it an event of a key at a second.
fn give(waiting: &mut dyn WindowOperator, second: i64, name: &str, source: Value) {
    let event = event(source, second as u64);
    let sample = Sample { event: &event, time: at(second), second: second % 3 == 0, depth: 0 };
    waiting.event(&sample, &[key(name)], at(second), at(second));
}

#[test]
fn state_of_each_type_that_waits_reads_back_byte_for_byte_and_survives_damage() {
    for options in of_each_type() {
        let mut one = waiting(options.clone(), Bounds::default());
        let mut raised = 0;
        for second in 0..300_i64 {
            let source = json!({"v": [second % 7, (second as f64) / 8.0, "x"]});
            // At times three at once.
            for _ in 0..1 + 2 * (second / 50 % 2) {
                give(&mut *one, second, &format!("k{}", second % 5), source.clone());
            }
            if second % 40 == 39 {
                raised += close(&mut *one, at(second - 10)).len();
            }
        }
        assert!(raised > 0, "{options}");
        let bytes = |waiting: &dyn WindowOperator| {
            let mut writer = Writer::default();
            waiting.encode(at(299), waiting.closed(), &mut writer);
            writer.finish()
        };
        let written = bytes(&*one);
        assert!(written.len() > 50, "{options}");
        let read = |bytes: &[u8]| -> Result<Box<dyn WindowOperator>> {
            let mut other = waiting(options.clone(), Bounds::default());
            let mut reader = Reader::new(bytes);
            other.decode(&mut reader)?;
            reader.finish()?;
            Ok(other)
        };
        let mut other = read(&written).unwrap();
        assert_eq!(bytes(&*other), written, "{options}");
        assert_eq!(close(&mut *other, at(700)), close(&mut *one, at(700)), "{options}");
        for cut in 0..written.len() {
            assert!(matches!(read(&written[..cut]), Err(Error::Corrupt(_))), "{options} cut at {cut}");
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

#[test]
fn keys_with_the_oldest_events_go_at_the_bound() {
    let mut flatline = waiting(
        json!({"type": "flatline", "threshold": 1, "timeframe": "1m"}),
        Bounds { keys: 10, bytes: 1 << 20 },
    );
    for number in 0..50 {
        give(&mut *flatline, number, &format!("k{number}"), json!({}));
    }
    assert_eq!((flatline.figures().keys, flatline.figures().evicted), (10, 40));
    let silent: Vec<String> = close(&mut *flatline, at(200)).into_iter().map(|(key, ..)| key).collect();
    let expected: Vec<String> = (40..50).map(|number| format!("k{number}")).collect();
    assert_eq!(silent[..10].iter().collect::<std::collections::BTreeSet<_>>(), expected.iter().collect());
}

#[test]
fn a_key_that_does_not_come_any_more_is_forgotten_by_and_by() {
    let mut flatline =
        waiting(json!({"type": "flatline", "threshold": 1, "timeframe": "1d"}), Bounds::default());
    give(&mut *flatline, 0, "a", json!({}));
    let day = 86_400;
    assert_eq!(close(&mut *flatline, at(29 * day)).len(), 28);
    assert_eq!(flatline.figures().keys, 1);
    assert_eq!(close(&mut *flatline, at(400 * day)).len(), 2);
    assert_eq!((flatline.figures().keys, flatline.figures().bytes), (0, 0));
}

#[test]
fn a_busy_key_takes_little_and_what_is_over_goes() {
    let mut flatline =
        waiting(json!({"type": "flatline", "threshold": 1, "timeframe": "5m"}), Bounds::default());
    for second in 0..20_000 {
        give(&mut *flatline, second, "a", json!({}));
        if second % 100 == 0 {
            assert!(close(&mut *flatline, at(second - 10)).is_empty());
        }
    }
    assert!(flatline.figures().bytes < 2_000, "{:?}", flatline.figures());
    let mut metric = waiting(
        json!({"type": "metric_aggregation", "metric_agg_key": "v", "metric_agg_type": "percentiles",
            "percentile_range": 50, "max_threshold": 1e6, "bucket_interval": "1h"}),
        Bounds::default(),
    );
    for second in 0..100_000 {
        give(&mut *metric, second % 3600, "a", json!({"v": (second * 7919) % 100_000}));
    }
    assert!(metric.figures().bytes < 20_000, "{:?}", metric.figures());
}

#[test]
fn a_percentile_of_many_values_is_within_a_hundredth() {
    for (percent, exact) in [(50.0, 5_000.0), (95.0, 9_500.0), (99.9, 9_990.0), (0.0, 1.0), (100.0, 10_000.0)]
    {
        let mut metric = waiting(
            json!({"type": "metric_aggregation", "metric_agg_key": "v", "metric_agg_type": "percentiles",
                "percentile_range": percent, "max_threshold": 0, "bucket_interval": "1h"}),
            Bounds::default(),
        );
        for number in 1..=10_000 {
            // Each value once, in no order.
            give(&mut *metric, number % 3600, "a", json!({"v": number * 7919 % 10_000 + 1}));
        }
        let found = close(&mut *metric, at(4000));
        let value = found[0].2["metric_v_percentiles"].as_f64().unwrap();
        assert!((value / exact - 1.0).abs() <= 0.01, "{percent}: {value}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_by_types_that_wait(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)
    ) {
        for options in of_each_type() {
            let mut waiting = waiting(options, Bounds::default());
            let _ = waiting.decode(&mut Reader::new(&bytes));
        }
    }
}
