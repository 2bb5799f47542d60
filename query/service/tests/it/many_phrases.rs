//! Phrases in more rows than a window has, most of them short: the hits by bits of positions must be those of a look at every
//! document, with scores by how often the phrase is there.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, ids};

const WORDS: &[&str] = &["alpha", "beta", "gamma", "delta"];
/// Lengths up to this are kept exactly.
const EXACT: usize = 39;

fn text(rng: &mut StdRng) -> Vec<&'static str> {
    let length =
        if rng.random_range(0..40) == 0 { rng.random_range(50..150) } else { rng.random_range(1..14) };
    (0..length).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect()
}

async fn check(store: &Store, rows: &BTreeMap<usize, Vec<&str>>, rng: &mut StdRng, state: &str) {
    let average = rows.values().map(Vec::len).sum::<usize>() as f64 / rows.len() as f64;
    for round in 0..12 {
        let width = 2 + round % 3;
        let phrase: Vec<&str> = (0..width).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect();
        let count = |row: &Vec<&str>| row.windows(width).filter(|own| *own == phrase).count();
        let expected: BTreeMap<String, (usize, usize)> = rows
            .iter()
            .map(|(place, row)| (place.to_string(), (count(row), row.len())))
            .filter(|(_, (count, _))| *count > 0)
            .collect();
        let query = json!({"match_phrase": {"text": phrase.join(" ")}});
        let body = json!({"size": 10_000, "track_total_hits": true, "_source": false, "query": query});
        let all = store.search("many", &[], body).await.unwrap();
        assert_eq!(all["hits"]["total"]["value"], expected.len(), "{state}: {phrase:?}");
        let mut found = ids(&all);
        let first = found.iter().take(10).cloned().collect::<Vec<_>>();
        found.sort();
        assert_eq!(found, expected.keys().cloned().collect::<Vec<_>>(), "{state}: {phrase:?}");
        // Scores are those of BM25 but for what all have in common.
        let weight = |(count, length): (usize, usize)| {
            let count = count as f64;
            count / (count + 1.2 * (0.25 + 0.75 * length as f64 / average))
        };
        let scored = all["hits"]["hits"].as_array().unwrap().iter().filter_map(|hit| {
            let own = expected[hit["_id"].as_str().unwrap()];
            (own.1 <= EXACT).then(|| hit["_score"].as_f64().unwrap() / weight(own))
        });
        let scored: Vec<f64> = scored.collect();
        assert!(scored.iter().all(|own| (own / scored[0] - 1.0).abs() < 1e-3), "{state}: {phrase:?}");
        // The best alone are found with others left out.
        let body = json!({"size": 10, "track_total_hits": false, "_source": false, "query": query});
        let best = store.search("many", &[], body).await.unwrap();
        assert_eq!(ids(&best), first, "{state}: {phrase:?}");
        let body = json!({"size": 0, "track_total_hits": true, "query": {"bool": {
            "filter": [query], "must_not": [{"match": {"text": WORDS[0]}}],
        }}});
        let without = store.search("many", &[], body).await.unwrap();
        let left = expected.keys().filter(|id| !rows[&id.parse::<usize>().unwrap()].contains(&WORDS[0]));
        assert_eq!(without["hits"]["total"]["value"], left.count(), "{state}: {phrase:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phrases_are_found_as_one_by_one() {
    let mut rng = StdRng::seed_from_u64(23);
    let store = Store::open().await;
    let mapping = json!({
        "settings": {"number_of_shards": 1},
        "mappings": {"properties": {"text": {"type": "text"}}},
    });
    store.create("many", &mapping).await;
    let mut rows = BTreeMap::new();
    for state in ["first", "second"] {
        let made: Vec<(usize, Vec<&str>)> =
            (rows.len()..rows.len() + 9_000).map(|place| (place, text(&mut rng))).collect();
        for chunk in made.chunks(2_000) {
            let document = |row: &Vec<&str>| Some(json!({"text": row.join(" ")}));
            let writes = chunk.iter().map(|(place, row)| (place.to_string(), document(row)));
            store.write_unseen("many", writes.collect::<Vec<(String, Option<Value>)>>()).await;
        }
        rows.extend(made);
        let index = store.engine.index("many").unwrap();
        store.engine.refresh(std::slice::from_ref(&index)).await.unwrap();
        check(&store, &rows, &mut rng, &format!("{state}, refreshed")).await;
        store.engine.flush(&[index]).await.unwrap();
        check(&store, &rows, &mut rng, &format!("{state}, flushed")).await;
    }
    let index = store.engine.index("many").unwrap();
    store.engine.force_merge(&[index], 1).await.unwrap();
    check(&store, &rows, &mut rng, "merged").await;
}
