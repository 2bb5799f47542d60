//! Time zones of queries and aggregations: bounds, date math and buckets around changes of the clock.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, value};

async fn search(store: &Store, index: &str, body: Value) -> Value {
    value(store.service.search(&store.session, index, Vec::new(), Some(body)).await.unwrap())
}

async fn aggregate(store: &Store, index: &str, query: Value, aggregation: Value) -> Value {
    let body = json!({"size": 0, "query": query, "aggs": {"a": aggregation}});
    search(store, index, body).await["aggregations"]["a"].take()
}

/// The ids of what a query finds, as one text.
async fn ids(store: &Store, query: Value) -> String {
    let answer = search(store, "t", json!({"size": 100, "query": query, "sort": [{"at": "asc"}]})).await;
    answer["hits"]["hits"].as_array().unwrap().iter().map(|hit| hit["_id"].as_str().unwrap()).collect()
}

async fn store(instants: &[(&str, &str)]) -> Store {
    let store = Store::open().await;
    create(&store, "t").await;
    let writes = instants.iter().map(|(id, at)| ((*id).to_owned(), Some(json!({"at": at, "ns": at}))));
    store.write("t", writes.collect()).await;
    store
}

async fn create(store: &Store, index: &str) {
    let fields = json!({"at": {"type": "date"}, "ns": {"type": "date_nanos"}});
    let settings = json!({"number_of_shards": 1});
    store.create(index, &json!({"settings": settings, "mappings": {"properties": fields}})).await;
}

#[tokio::test]
async fn bounds_of_ranges_are_local_times_of_the_zone() {
    let store = store(&[
        ("a", "2024-03-09T16:30:00Z"),
        ("b", "2024-03-09T17:30:00Z"),
        ("c", "2024-03-10T15:30:00Z"),
        ("d", "2024-03-10T16:30:00Z"),
        ("e", "2024-03-10T17:30:00Z"),
        ("f", "2024-03-15T00:30:00Z"),
        ("g", "2024-03-15T04:30:00Z"),
        ("h", "2024-03-16T02:00:00Z"),
        ("i", "2024-03-16T05:00:00Z"),
        ("j", "2150-07-01T03:30:00Z"),
        ("k", "2150-07-01T04:30:00Z"),
    ])
    .await;
    let cases = [
        // A date that names its zone is rounded in the zone of the query.
        (json!({"gte": "2024-03-15T10:00:00Z||/d", "lt": "2024-03-15T10:00:00Z||+1d/d"}), "gh"),
        (json!({"gte": "2024-03-15T06:00:00-04:00||/d", "lte": "2024-03-15T06:00:00-04:00||/d"}), "gh"),
        // An offset in a format without a T counts once.
        (
            json!({"gte": "2024-03-15 00:00:00-04:00", "lt": "2024-03-16", "format": "yyyy-MM-dd HH:mm:ssXXX||yyyy-MM-dd"}),
            "gh",
        ),
        // Hours are exact time over a change of the clock, days are local.
        (json!({"gte": "2024-03-10T13:00:00||-24h", "lt": "2024-03-10T13:00:00"}), "bcd"),
        (json!({"gte": "2024-03-10T12:45:00||-1d", "lt": "2024-03-10T13:00:00"}), "cd"),
        (json!({"gte": "2024-03-10||+12h", "lt": "2024-03-11"}), "e"),
        // Numbers are instants.
        (json!({"gte": 1_710_091_800_000_i64, "lt": 1_710_091_800_001_i64}), "e"),
        (json!({"gte": "2150-07-01"}), "k"),
    ];
    for (mut range, expected) in cases {
        range["time_zone"] = json!("America/New_York");
        for field in ["at", "ns"] {
            assert_eq!(ids(&store, json!({"range": {field: range}})).await, expected, "{field} {range}");
        }
    }
    let strings = [
        ("at:[\"2024-03-15T10:00:00Z||/d\" TO \"2024-03-15T10:00:00Z||/d\"]", "gh"),
        ("at:[\"2024-03-10||+12h\" TO 2024-03-14]", "ef"),
        ("at:>=2024-03-10 AND at:<2024-03-15", "cdef"),
    ];
    for (text, expected) in strings {
        let query = json!({"query_string": {"query": text, "time_zone": "America/New_York"}});
        assert_eq!(ids(&store, query).await, expected, "{text}");
    }
}

/// One of the two zones has the offset 0 at each of the two times.
#[tokio::test]
async fn bounds_of_buckets_are_local_times_whatever_the_offset_is_today() {
    let store = store(&[("l", "2024-06-30T23:00:00Z"), ("z", "2024-01-10T01:00:00Z")]).await;
    let cases = [
        ("Europe/London", "2024-07-01", "l", 1_719_788_400_000_i64),
        ("Atlantic/Azores", "2024-01-10", "z", 1_704_848_400_000),
    ];
    for season in ["November", "July"] {
        for (zone, day, id, start) in cases {
            let own = json!({"ids": {"values": [id]}});
            let ranges = json!({"date_range": {"field": "at", "time_zone": zone, "ranges": [{"from": day}]}});
            let bucket = aggregate(&store, "t", own.clone(), ranges).await["buckets"][0].take();
            assert_eq!(
                (&bucket["from"], &bucket["doc_count"]),
                (&json!(start as f64), &json!(1)),
                "{zone} {season}"
            );
            let bounds = json!({"min": day, "max": format!("{day}T01:00")});
            for (name, query, expected) in [
                ("hard_bounds", own.clone(), json!([start])),
                ("extended_bounds", json!({"match_none": {}}), json!([start, start + 3_600_000])),
            ] {
                let histogram =
                    json!({"field": "at", "time_zone": zone, "fixed_interval": "1h", name: bounds});
                let answer = aggregate(&store, "t", query, json!({"date_histogram": histogram})).await;
                let keys: Vec<&Value> =
                    answer["buckets"].as_array().unwrap().iter().map(|bucket| &bucket["key"]).collect();
                assert_eq!(json!(keys), expected, "{zone} {season} {name}");
            }
        }
        store.clock.advance_ms(20_000_000_000);
    }
}

/// As OpenSearch 2.19.3 answers.
#[tokio::test]
async fn bounds_are_rounded_without_the_offset() {
    let store =
        store(&[("a", "2024-07-01T12:00:00Z"), ("b", "2024-07-02T12:00:00Z"), ("c", "2024-07-03T12:00:00Z")])
            .await;
    let cases = [
        (
            "hard_bounds",
            "+6h",
            json!({"min": "2024-07-02T02:00:00"}),
            ["2024-07-02T06:00", "2024-07-03T06:00"],
        ),
        (
            "hard_bounds",
            "-6h",
            json!({"max": "2024-07-02T10:00:00"}),
            ["2024-06-30T18:00", "2024-07-01T18:00"],
        ),
        (
            "extended_bounds",
            "+6h",
            json!({"min": "2024-06-28T02:00:00"}),
            ["2024-06-28T06:00", "2024-07-03T06:00"],
        ),
        (
            "extended_bounds",
            "-6h",
            json!({"max": "2024-07-05T23:00:00"}),
            ["2024-06-30T18:00", "2024-07-04T18:00"],
        ),
        (
            "extended_bounds",
            "-18h",
            json!({"min": "2024-06-28T23:00:00"}),
            ["2024-06-27T06:00", "2024-07-03T06:00"],
        ),
    ];
    for (name, offset, bounds, [first, last]) in cases {
        let histogram = json!({"field": "at", "calendar_interval": "day", "offset": offset, name: bounds,
            "time_zone": "Europe/Berlin"});
        let query = json!({"match_all": {}});
        let answer = aggregate(&store, "t", query, json!({"date_histogram": histogram})).await;
        let buckets = answer["buckets"].as_array().unwrap();
        let ends = [&buckets[0], &buckets[buckets.len() - 1]]
            .map(|bucket| &bucket["key_as_string"].as_str().unwrap()[..16]);
        assert_eq!(ends, [first, last], "{name} {offset} {bounds}");
    }
}

/// As OpenSearch 2.19.3 answers.
#[tokio::test]
async fn extended_bounds_lie_in_the_buckets_of_hard_bounds() {
    let store = store(&[("a", "2024-07-01T12:00:00Z"), ("b", "2024-07-03T12:00:00Z")]).await;
    let cases = [
        (json!({"min": "2024-07-02T01:00:00"}), true),
        (json!({"min": "2024-07-01T23:00:00"}), false),
        (json!({"max": "2024-07-04T23:00:00"}), true),
        (json!({"max": "2024-07-05T01:00:00"}), false),
        // A bound is compared with the one of the same end.
        (json!({"max": "2024-07-01T01:00:00"}), true),
        (json!({"min": "2024-07-06T01:00:00"}), true),
    ];
    for (extended, is_inside) in cases {
        let histogram = json!({"field": "at", "calendar_interval": "day", "time_zone": "Europe/Berlin",
            "hard_bounds": {"min": "2024-07-02T12:00:00", "max": "2024-07-04T12:00:00"}, "extended_bounds": extended});
        let body = json!({"size": 0, "aggs": {"a": {"date_histogram": histogram}}});
        let answer = store.service.search(&store.session, "t", Vec::new(), Some(body)).await;
        assert_eq!(answer.is_ok(), is_inside, "{extended}");
    }
}

#[tokio::test]
async fn pages_of_local_days_end_and_lose_nothing() {
    let store = Store::open().await;
    create(&store, "t").await;
    let start = 1_719_700_000_000_i64;
    let documents: Vec<Value> = (0..60).map(|n| json!({"at": start + n * 7_200_000})).collect();
    store.index("t", &documents).await;
    for order in ["asc", "desc"] {
        let source = json!({"date_histogram": {"field": "at", "calendar_interval": "day", "order": order,
            "time_zone": "Europe/London", "format": "yyyy-MM-dd"}});
        let (mut after, mut days, mut rows) = (None::<Value>, 0, 0);
        while days <= 6 {
            let mut composite = json!({"size": 1, "sources": [{"day": source}]});
            if let Some(after) = &after {
                composite["after"] = after.clone();
            }
            let page =
                aggregate(&store, "t", json!({"match_all": {}}), json!({"composite": composite})).await;
            let Some(bucket) = page["buckets"].get(0) else { break };
            days += 1;
            rows += bucket["doc_count"].as_u64().unwrap();
            after = Some(page["after_key"].clone());
        }
        assert_eq!((days, rows), (6, 60), "{order}");
    }
}

#[tokio::test]
async fn a_missing_date_is_local_time() {
    let store = Store::open().await;
    create(&store, "t").await;
    store.index("t", &[json!({"other": 1})]).await;
    let histogram = json!({"field": "at", "calendar_interval": "day", "time_zone": "America/New_York",
        "missing": "2024-07-01T22:00"});
    let answer = aggregate(&store, "t", json!({"match_all": {}}), json!({"date_histogram": histogram})).await;
    assert_eq!(answer["buckets"][0]["key_as_string"], json!("2024-07-01T00:00:00.000-04:00"));
}

/// The order of documents and the segments that they are in do not change buckets.
#[tokio::test]
async fn order_and_segments_do_not_change_buckets() {
    const CHANGES: [(&str, i64); 7] = [
        ("America/St_Johns", 1_289_097_060),
        ("Pacific/Chatham", 1_712_412_000),
        ("Antarctica/Troll", 1_729_990_800),
        ("Australia/Lord_Howe", 1_712_415_600),
        ("America/Caracas", 1_197_183_600),
        ("Europe/London", 1_729_990_800),
        ("Pacific/Apia", 1_325_239_200),
    ];
    let mut rng = StdRng::seed_from_u64(7);
    for (zone, change) in CHANGES {
        let store = Store::open().await;
        let mut times: Vec<i64> =
            (0..240).map(|_| change * 1000 + rng.random_range(-100_000_000..100_000_000)).collect();
        for (index, segments) in [("sorted", 1), ("shuffled", 1), ("split", 7)] {
            create(&store, index).await;
            if index == "sorted" {
                times.sort_unstable()
            } else {
                times.shuffle(&mut rng)
            }
            for (at, own) in times.chunks(times.len().div_ceil(segments)).enumerate() {
                let writes = own.iter().enumerate();
                let writes = writes.map(|(n, at_ms)| (format!("{at}-{n}"), Some(json!({"at": at_ms}))));
                store.write(index, writes.collect()).await;
            }
        }
        let intervals = [
            json!({"calendar_interval": "hour"}),
            json!({"calendar_interval": "day"}),
            json!({"calendar_interval": "day", "offset": "-18h"}),
            json!({"calendar_interval": "week"}),
            json!({"fixed_interval": "45m"}),
            json!({"fixed_interval": "90m"}),
            json!({"fixed_interval": "1000s"}),
            json!({"fixed_interval": "36h"}),
        ];
        for mut histogram in intervals {
            histogram["field"] = json!("at");
            histogram["time_zone"] = json!(zone);
            histogram["min_doc_count"] = json!(1);
            let aggregation = json!({"date_histogram": histogram});
            let all = json!({"match_all": {}});
            let expected = aggregate(&store, "sorted", all.clone(), aggregation.clone()).await;
            let rows = expected["buckets"].as_array().unwrap().iter();
            assert_eq!(rows.map(|bucket| bucket["doc_count"].as_u64().unwrap()).sum::<u64>(), 240);
            for index in ["shuffled", "split"] {
                let answer = aggregate(&store, index, all.clone(), aggregation.clone()).await;
                assert_eq!(answer, expected, "{zone} {index} {histogram}");
            }
        }
    }
}
