//! States of parts, merged in any way, give what one state over all values gives.

use millrace_dsl::aggs::{Aggregations, Kind};

use super::*;
use crate::result::{Metric, PercentileMethod};
use serde_json::json;

/// Numbers that differ by seed and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn parse(kind: &str, body: serde_json::Value) -> aggs::Metric {
    let parsed = Aggregations::parse("aggs", &json!({"a": {kind: body}})).unwrap();
    match &parsed.0[0].kind {
        Kind::Metric(metric) => metric.as_ref().clone(),
        other => panic!("{other:?} is no metric"),
    }
}

fn near(a: &Metric, b: &Metric) -> bool {
    let close =
        |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(1.0);
    match (a, b) {
        (Metric::Avg { sum: a, count: m }, Metric::Avg { sum: b, count: n }) => m == n && close(*a, *b),
        (Metric::Sum(a), Metric::Sum(b)) => close(*a, *b),
        (Metric::ExtendedStats(a), Metric::ExtendedStats(b)) => {
            a.stats.count == b.stats.count && close(a.squares, b.squares) && close(a.stats.sum, b.stats.sum)
        }
        (Metric::Stats(a), Metric::Stats(b)) => {
            (a.count, a.min, a.max) == (b.count, b.min, b.max) && close(a.sum, b.sum)
        }
        (Metric::WeightedAvg { sum: a, weight: v }, Metric::WeightedAvg { sum: b, weight: w }) => {
            close(*a, *b) && close(*v, *w)
        }
        // Their texts, in which what is not a number equals itself.
        (a, b) => format!("{a:?}") == format!("{b:?}"),
    }
}

#[test]
fn parts_merge_to_the_whole() {
    let numbers = json!({"field": "n"});
    let weighted = json!({"value": {"field": "n"}, "weight": {"field": "w"}});
    let metrics = [
        parse("avg", numbers.clone()),
        parse("sum", numbers.clone()),
        parse("min", numbers.clone()),
        parse("max", numbers.clone()),
        parse("stats", numbers.clone()),
        parse("extended_stats", numbers.clone()),
        parse("value_count", numbers.clone()),
        parse("cardinality", numbers.clone()),
        parse("percentiles", numbers.clone()),
        parse("percentiles", json!({"field": "n", "hdr": {}})),
        parse("percentile_ranks", json!({"field": "n", "values": [10, 55]})),
        parse("median_absolute_deviation", numbers),
        parse("weighted_avg", weighted),
        parse("geo_bounds", json!({"field": "g"})),
    ];
    let mut random = Random(42);
    for round in 0..40 {
        let buckets = 1 + random.below(9) as u32;
        // Few enough distinct values that digests are exact.
        let rows: Vec<(u32, f64)> = (0..random.below(600))
            .map(|_| (random.below(buckets.into()) as u32, random.below(100) as f64 / 4.0))
            .collect();
        for metric in &metrics {
            let feed = |state: &mut Accumulator, rows: &[(u32, f64)]| {
                let ordinals: Vec<u32> = rows.iter().map(|(ordinal, _)| *ordinal).collect();
                let values: Vec<f64> = rows.iter().map(|(_, value)| *value).collect();
                let weights: Vec<f64> = values.iter().map(|value| value + 1.0).collect();
                let hashes: Vec<u64> = values.iter().map(|value| hash_double(*value)).collect();
                let values = match Accumulator::input(metric) {
                    Input::Numbers => Values::Numbers(&values),
                    Input::Count => Values::Count(values.len()),
                    Input::Hashes => Values::Hashes(&hashes),
                    Input::Weighted => Values::Weighted { values: &values, weights: &weights },
                    Input::Points => Values::Points { lat: &values, lon: &weights },
                    Input::Rows(_) => Values::Rows(&values),
                };
                state.collect(Ordinals::Each(&ordinals), values).unwrap();
            };
            let mut whole = Accumulator::new(metric, false);
            feed(&mut whole, &rows);
            // Each part numbers its buckets by its own order of appearance.
            let mut merged = Accumulator::new(metric, false);
            for part in rows.chunks(1 + random.below(200) as usize) {
                let mut map: Vec<u32> = Vec::new();
                let local: Vec<(u32, f64)> = part
                    .iter()
                    .map(|(ordinal, value)| {
                        let at = map.iter().position(|known| known == ordinal).unwrap_or_else(|| {
                            map.push(*ordinal);
                            map.len() - 1
                        });
                        (at as u32, *value)
                    })
                    .collect();
                let mut state = Accumulator::new(metric, false);
                feed(&mut state, &local);
                merged.merge(state, Some(&map), &QueryContext::default()).unwrap();
            }
            for ordinal in 0..buckets + 1 {
                let (a, b) = (whole.reduce(ordinal), merged.reduce(ordinal));
                assert!(near(&a, &b), "round {round}, {}: {a:?} and {b:?}", metric.name());
            }
        }
    }
}

#[test]
fn one_bucket_takes_batches_as_each_value_does() {
    let metrics = ["avg", "max", "extended_stats", "percentiles"];
    let values: Vec<f64> = (0..5_000).map(|n| f64::from(n % 77) / 3.0).collect();
    for kind in metrics {
        let metric = parse(kind, json!({"field": "n"}));
        let (mut one, mut each) = (Accumulator::new(&metric, true), Accumulator::new(&metric, true));
        one.collect(Ordinals::One(2), Values::Numbers(&values)).unwrap();
        each.collect(Ordinals::Each(&vec![2; values.len()]), Values::Numbers(&values)).unwrap();
        let (one, each) = (one.reduce(2), each.reduce(2));
        assert!(near(&one, &each), "{kind}: {one:?} and {each:?}");
        if let Metric::Percentiles(found) = one {
            assert_eq!(found.method, PercentileMethod::TDigest);
        }
    }
}

#[test]
fn a_merge_checks_for_the_end_of_the_work_before_each_large_state() {
    for kind in ["percentiles", "cardinality", "median_absolute_deviation"] {
        let metric = parse(kind, json!({"field": "n"}));
        let of_buckets = |buckets: u32| {
            let mut state = Accumulator::new(&metric, false);
            let ordinals: Vec<u32> = (0..buckets).collect();
            let numbers: Vec<f64> = ordinals.iter().map(|ordinal| f64::from(*ordinal)).collect();
            let hashes: Vec<u64> = numbers.iter().map(|number| hash_double(*number)).collect();
            let values = match Accumulator::input(&metric) {
                Input::Hashes => Values::Hashes(&hashes),
                _ => Values::Numbers(&numbers),
            };
            state.collect(Ordinals::Each(&ordinals), values).unwrap();
            state
        };
        let work = QueryContext::default();
        drop(work.until_dropped());
        let (mut own, mut before) = (of_buckets(2), of_buckets(2));
        own.merge(of_buckets(50), None, &work).unwrap_err();
        for ordinal in 0..50 {
            let (own, before) = (own.reduce(ordinal), before.reduce(ordinal));
            assert!(near(&own, &before), "{kind}: {own:?} and {before:?}");
        }
    }
}
