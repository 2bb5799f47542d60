//! Patterns over strings of which most rows have their own: they are looked for in the column, and the rows must be those of the dictionary.

use serde_json::{Value, json};

use crate::fixture::{Store, ids};
use crate::sql::rows;

/// Returns whether a string belongs to a pattern.
type Holds<'a> = &'a dyn Fn(&str) -> bool;

/// Rows of a segment whose dictionary is not walked to its end.
const ROWS: usize = 12_000;

/// The document of a row: a keyword of its own, long ones that the index ignores, several values, none.
fn document(row: usize) -> Value {
    let word = ["Needle", "hay", "NEEDLEs", "straw"][row % 4];
    match row % 7 {
        0 => json!({"row": row}),
        1 => json!({"row": row, "key": [format!("a{row:06} hay"), format!("b{row:06} {word} in it")]}),
        2 => json!({"row": row, "key": format!("a needle that is longer than the field takes {row:06}")}),
        _ => json!({"row": row, "key": format!("c{row:06} {word} é")}),
    }
}

#[tokio::test]
async fn patterns_over_many_distinct_strings_find_their_rows() {
    let store = Store::open().await;
    let field = json!({"type": "keyword", "ignore_above": 30});
    store
        .create("keys", &json!({"mappings": {"properties": {"row": {"type": "integer"}, "key": field}}}))
        .await;
    let documents: Vec<Value> = (0..ROWS).map(document).collect();
    store.index("keys", &documents).await;
    let index = [store.engine.index("keys").unwrap()];
    store.engine.flush(&index).await.unwrap();
    store.engine.force_merge(&index, 1).await.unwrap();
    store.engine.refresh(&index).await.unwrap();
    let has = |row: usize, holds: &dyn Fn(&str) -> bool| {
        let values = match &document(row)["key"] {
            Value::Array(values) => values.clone(),
            value => vec![value.clone()],
        };
        values.iter().filter_map(Value::as_str).any(|value| value.chars().count() <= 30 && holds(value))
    };
    let patterns: [(&str, Holds<'_>); 4] = [
        ("%needle%", &|value| value.to_lowercase().contains("needle")),
        ("%5%needle%", &|value| {
            value.split_once('5').is_some_and(|(_, rest)| rest.to_lowercase().contains("needle"))
        }),
        ("%straw é", &|value| value.to_lowercase().ends_with("straw é")),
        ("%no such text%", &|_| false),
    ];
    for (pattern, holds) in patterns {
        for most in [ROWS, 500] {
            let expected: Vec<usize> = (0..most).filter(|row| has(*row, holds)).collect();
            let sum = (!expected.is_empty()).then(|| expected.iter().sum::<usize>());
            let statement =
                format!("SELECT count(*), sum(row) FROM keys WHERE key LIKE '{pattern}' AND row < {most}");
            assert_eq!(rows(&store, &statement).await, [json!([expected.len(), sum])], "{pattern} {most}");
        }
    }
    // The wildcard of a search reads letters as they are.
    let query = json!({"query": {"wildcard": {"key": "*Needle*"}}, "size": 10_000, "track_total_hits": true});
    let found = ids(&store.search("keys", &[], query).await.unwrap()).len();
    assert_eq!(found, (0..ROWS).filter(|row| has(*row, &|value| value.contains("Needle"))).count());
}
