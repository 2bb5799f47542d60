//! Expected answers are those of OpenSearch 2.19 over the same buckets.

use std::sync::Arc;

use millrace_dsl::aggs::validate;
use serde_json::{Value, json};

use super::*;
use crate::result::{Bucket, Buckets, BucketsKind, Detail, Key, Metric};

const VALUES: [f64; 10] = [3.5, 1.25, 7.0, 4.0, 9.5, 2.0, 8.0, 6.75, 11.0, 5.0];

fn parse(aggregations: &Value) -> Result<Aggregations> {
    let parsed = Aggregations::parse("aggs", aggregations)?;
    validate(&parsed)?;
    Ok(parsed)
}

fn entry(name: &str, outcome: Outcome) -> Entry {
    let header = Header { name: Arc::from(name), ..Header::default() };
    Entry { header: Arc::new(header), outcome }
}

/// A histogram `h` with the sum `s` in each bucket; an infinite value makes a bucket without documents.
fn histogram(values: &[f64]) -> Results {
    let bucket = |(at, value): (usize, &f64)| Bucket {
        key: Key::Double(at as f64),
        doc_count: u64::from(value.is_finite()),
        detail: Detail::None,
        subs: Results(vec![entry(
            "s",
            Outcome::Metric(Metric::Sum(if value.is_finite() { *value } else { 0.0 })),
        )]),
    };
    let buckets = values.iter().enumerate().map(bucket).collect();
    let buckets = Buckets { shape: BucketsKind::Histogram, keyed: false, buckets };
    Results(vec![entry("h", Outcome::Buckets(Box::new(buckets)))])
}

/// Runs one pipeline inside the histogram; returns its values by bucket.
fn inside_of(values: &[f64], pipeline: Value) -> Value {
    let request = json!({"h": {"histogram": {"field": "n", "interval": 1}, "aggs": {
        "s": {"sum": {"field": "v"}}, "p": pipeline,
    }}});
    let mut results = histogram(values);
    let ran = parse(&request).and_then(|parsed| apply(&parsed, &mut results, &QueryContext::default()));
    if let Err(error) = ran {
        return json!(error.to_string());
    }
    let rendered = results.to_value(false);
    let buckets = rendered["h"]["buckets"].as_array().cloned().unwrap_or_default();
    buckets.into_iter().map(|bucket| bucket["p"]["value"].clone()).collect()
}

fn beside(values: &[f64], pipeline: Value) -> Value {
    let request = json!({"h": {"histogram": {"field": "n", "interval": 1}, "aggs": {
        "s": {"sum": {"field": "v"}},
    }}, "p": pipeline});
    let mut results = histogram(values);
    match parse(&request).and_then(|parsed| apply(&parsed, &mut results, &QueryContext::default())) {
        Ok(()) => {
            let rendered = results.to_value(true);
            rendered
                .as_object()
                .unwrap()
                .iter()
                .next_back()
                .map(|(name, value)| json!({name: value}))
                .unwrap()
        }
        Err(error) => json!(error.to_string()),
    }
}

fn close(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b)),
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-12 * b.abs().max(1.0)
        }
        (a, b) => a == b,
    }
}

#[test]
fn moving_functions_give_what_opensearch_gives() {
    let n = Value::Null;
    let cases = [
        ("MovingFunctions.max(values)", 8, 0, json!([n, 3.5, 3.5, 7.0, 7.0, 9.5, 9.5, 9.5, 9.5, 11.0])),
        (
            "MovingFunctions.sum(values)",
            3,
            1,
            json!([3.5, 4.75, 11.75, 12.25, 20.5, 15.5, 19.5, 16.75, 25.75, 22.75]),
        ),
        ("MovingFunctions.sum(values)", 3, -2, json!([0, 0, 0, 3.5, 4.75, 11.75, 12.25, 20.5, 15.5, 19.5])),
        (
            "MovingFunctions.stdDev(values, MovingFunctions.unweightedAvg(values))",
            8,
            0,
            json!([
                n,
                0.0,
                1.125,
                2.3658449277630647,
                2.049199538844375,
                2.882707061079915,
                2.8665334271361442,
                2.9167881412993455,
                2.7866871012009944,
                3.261398281412437
            ]),
        ),
        (
            "MovingFunctions.linearWeightedAvg(values)",
            8,
            0,
            json!([
                n,
                1.75,
                1.5,
                3.857142857142857,
                3.909090909090909,
                5.65625,
                4.659090909090909,
                5.4655172413793105,
                5.743243243243243,
                6.986486486486487
            ]),
        ),
        (
            "MovingFunctions.ewma(values, 0.3)",
            8,
            0,
            json!([
                n,
                3.5,
                2.8249999999999997,
                4.0775,
                4.05425,
                5.687975,
                4.5815825,
                5.607107749999999,
                5.949975424999999,
                7.335274774999999
            ]),
        ),
        (
            "MovingFunctions.holt(values, 0.3, 0.1)",
            8,
            0,
            json!([
                n,
                3.5,
                2.8249999999999997,
                4.03025,
                4.0630175,
                5.734064225,
                4.76677500575,
                5.8066693021025,
                6.225395230486175,
                8.004834080277274
            ]),
        ),
        (
            "if (values.length>=6) {MovingFunctions.holtWinters(values,0.3,0.1,0.2,3,false)} else {0}",
            8,
            0,
            json!([
                0,
                0,
                0,
                0,
                0,
                0,
                4.595170019503546,
                6.387455014131205,
                5.974374583350886,
                8.571105617562074
            ]),
        ),
        (
            "if (values.length>=6) {MovingFunctions.holtWinters(values,0.3,0.1,0.2,3,true)} else {0}",
            8,
            0,
            json!([
                0,
                0,
                0,
                0,
                0,
                0,
                8.814423599776909,
                6.999064440530487,
                14.676708795832814,
                9.210811776219389
            ]),
        ),
        (
            "if (values.length > 5) {MovingFunctions.max(values)}",
            8,
            0,
            json!([0, 0, 0, 0, 0, 0, 9.5, 9.5, 9.5, 11.0]),
        ),
    ];
    for (script, window, shift, expected) in cases {
        let pipeline =
            json!({"moving_fn": {"buckets_path": "s", "window": window, "shift": shift, "script": script}});
        let found = inside_of(&VALUES, pipeline);
        assert!(close(&found, &expected), "{script}: {found}");
    }
}

#[test]
fn gaps_are_skipped_or_zero() {
    let gap = [1.0, f64::INFINITY, 4.0, 2.0];
    let n = Value::Null;
    let cases = [
        (json!({"derivative": {"buckets_path": "s"}}), json!([n, n, n, -2.0])),
        (
            json!({"derivative": {"buckets_path": "s", "gap_policy": "insert_zeros"}}),
            json!([n, -1.0, 4.0, -2.0]),
        ),
        (json!({"cumulative_sum": {"buckets_path": "s"}}), json!([1.0, 1.0, 5.0, 7.0])),
        (json!({"serial_diff": {"buckets_path": "s", "lag": 2}}), json!([n, n, 3.0, n])),
        (json!({"derivative": {"buckets_path": "_count"}}), json!([n, -1.0, 1.0, 0.0])),
        (
            json!({"moving_fn": {"buckets_path": "s", "window": 2, "script": "MovingFunctions.sum(values)"}}),
            json!([0.0, n, 1.0, 5.0]),
        ),
        (
            json!({"bucket_script": {"buckets_path": {"a": "s", "k": "_key"}, "script": "params.a * 10 + params.k"}}),
            json!([10.0, n, 42.0, 23.0]),
        ),
        (json!({"bucket_sort": {"sort": [{"s": "desc"}], "size": 2}}), json!([n, n])),
        (json!({"bucket_selector": {"buckets_path": {"a": "s"}, "script": "params.a >= 2"}}), json!([n, n])),
        (
            json!({"bucket_selector": {"buckets_path": "s", "script": "params._value"}}),
            json!("runtime error: cannot cast def [double] to boolean"),
        ),
    ];
    for (pipeline, expected) in cases {
        let found = inside_of(&gap, pipeline.clone());
        assert!(close(&found, &expected), "{pipeline}: {found}");
    }
}

#[test]
fn siblings_read_all_buckets() {
    let values = [11.75, 15.5, 25.75, 5.0];
    let cases = [
        (json!({"avg_bucket": {"buckets_path": "h>s"}}), json!({"simple_value#p": {"value": 14.5}})),
        (
            json!({"max_bucket": {"buckets_path": "h>s", "format": "0.0"}}),
            json!({"bucket_metric_value#p": {"value": 25.75, "value_as_string": "25.8", "keys": ["2.0"]}}),
        ),
        (json!({"sum_bucket": {"buckets_path": "h>_count"}}), json!({"simple_value#p": {"value": 4.0}})),
        (
            json!({"percentiles_bucket": {"buckets_path": "h>s", "percents": [50, 12.5]}}),
            json!({"percentiles_bucket#p": {"values": {"50.0": 15.5, "12.5": 5.0}}}),
        ),
        (
            json!({"percentiles_bucket": {"buckets_path": "h>s", "percents": [25], "keyed": false, "format": "0.0"}}),
            json!({"percentiles_bucket#p": {"values": [{"key": 25.0, "value": 11.75, "25.0_as_string": "11.8"}]}}),
        ),
        (
            json!({"stats_bucket": {"buckets_path": "h>s"}}),
            json!({"stats_bucket#p": {"count": 4, "min": 5.0, "max": 25.75, "avg": 14.5, "sum": 58.0}}),
        ),
    ];
    for (pipeline, expected) in cases {
        assert_eq!(beside(&values, pipeline.clone()), expected, "{pipeline}");
    }
    let none = beside(&[], json!({"min_bucket": {"buckets_path": "h>s"}}));
    assert_eq!(none, json!({"bucket_metric_value#p": {"value": null, "keys": []}}));
}

#[test]
fn pipelines_read_each_other_in_their_order() {
    let request = json!({"h": {"histogram": {"field": "n", "interval": 1}, "aggs": {
        "second": {"derivative": {"buckets_path": "first"}},
        "first": {"derivative": {"buckets_path": "s"}},
        "s": {"sum": {"field": "v"}},
    }}, "best": {"max_bucket": {"buckets_path": "h>second"}}});
    let mut results = histogram(&[1.0, 2.0, 5.0]);
    apply(&parse(&request).unwrap(), &mut results, &QueryContext::default()).unwrap();
    let rendered = results.to_value(false);
    assert_eq!(rendered["h"]["buckets"][2]["second"]["value"], json!(2.0));
    assert_eq!(rendered["best"], json!({"value": 2.0, "keys": ["2.0"]}));
}

#[test]
fn what_cannot_run_is_refused_before() {
    let below = |kind: Value, pipeline: Value| {
        let mut aggregation = json!({"aggs": {"s": {"sum": {"field": "v"}}, "p": pipeline}});
        let members = aggregation.as_object_mut().unwrap();
        members.extend(kind.as_object().unwrap().clone());
        json!({"h": aggregation})
    };
    let terms = json!({"terms": {"field": "k"}});
    let sparse = json!({"histogram": {"field": "n", "interval": 1, "min_doc_count": 1}});
    let requests = [
        below(sparse.clone(), json!({"derivative": {"buckets_path": "s"}})),
        below(terms.clone(), json!({"cumulative_sum": {"buckets_path": "s"}})),
        below(terms.clone(), json!({"bucket_sort": {}})),
        below(terms.clone(), json!({"bucket_sort": {"sort": ["none"]}})),
        below(terms, json!({"bucket_script": {"buckets_path": {"a": "p"}, "script": "params.a"}})),
        below(sparse, json!({"derivative": {"buckets_path": "s>x"}})),
        json!({"p": {"derivative": {"buckets_path": "_count"}}}),
        json!({"p": {"avg_bucket": {"buckets_path": "s"}}}),
        json!({"s": {"sum": {"field": "v"}}, "p": {"avg_bucket": {"buckets_path": "s"}}}),
        json!({"p": {"bucket_sort": {"size": 1}}}),
    ];
    let texts: Vec<String> = requests.iter().map(|request| parse(request).unwrap_err().to_string()).collect();
    insta::assert_snapshot!(texts.join("\n"), @r"
    Validation Failed: 1: parent histogram of derivative aggregation [p] must have min_doc_count of 0;
    Validation Failed: 1: cumulative_sum aggregation [p] must have a histogram, date_histogram or auto_date_histogram as parent;
    Validation Failed: 1: [p] is configured to perform nothing. Please set either of [sort, size, from] to use bucket_sort;
    Validation Failed: 1: No aggregation found for path [none];
    Cyclical dependency found with pipeline aggregator p
    Validation Failed: 1: No aggregation [x] found for path [s>x];
    Validation Failed: 1: derivative aggregation [p] must have a histogram, date_histogram or auto_date_histogram as parent but doesn't have a parent;
    Validation Failed: 1: No aggregation found for path [s];
    Validation Failed: 1: The first aggregation in buckets_path must be a multi-bucket aggregation for aggregation [p] found :org.opensearch.search.aggregations.metrics.SumAggregationBuilder for buckets path: s;
    Validation Failed: 1: bucket_sort aggregation [p] must be declared inside of another aggregation;
    ");
}
