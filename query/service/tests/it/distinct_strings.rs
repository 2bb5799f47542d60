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

/// Texts of more bytes than a dictionary takes, each of its own, beside those of a small segment that are all the same.
#[tokio::test]
async fn many_distinct_strings_are_read_back_as_they_were_written() {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {"row": {"type": "integer"}, "text": {"type": "text"}, "tags": {"type": "keyword"}}}});
    store.create("texts", &body).await;
    let text = |row: usize| match row {
        0..10_000 => format!("{row} is the number of a line that is not there again"),
        10_000..20_000 if row.is_multiple_of(9) => String::new(),
        10_000..20_000 => format!("{row} is the number of a line of the second segment"),
        _ => "always the same".to_owned(),
    };
    let document = |row: usize| {
        let tags = [
            format!("first tag of {row} and of no other row"),
            format!("second tag of {row} and no other row"),
        ];
        json!({"row": row, "text": text(row), "tags": tags})
    };
    let index = [store.engine.index("texts").unwrap()];
    for (from, to) in [(0, 10_000), (10_000, 20_000), (20_000, 20_100)] {
        store.write("texts", (from..to).map(|row| (row.to_string(), Some(document(row)))).collect()).await;
        store.engine.flush(&index).await.unwrap();
    }
    for merged in [false, true] {
        if merged {
            store.engine.force_merge(&index, 1).await.unwrap();
            store.engine.refresh(&index).await.unwrap();
        }
        for row in [0, 4_095, 4_096, 9_999, 10_000, 10_001, 19_999, 20_000, 20_099] {
            let found = rows(&store, &format!("SELECT text, tags FROM texts WHERE row = {row}")).await;
            let document = document(row);
            assert_eq!(found, [json!([document["text"], document["tags"]])], "{merged}");
        }
        let counted = "SELECT COUNT(DISTINCT text), SUM(LENGTH(text)), MAX(text) FROM texts";
        let bytes: usize = (0..20_100).map(|row| text(row).len()).sum();
        let distinct =
            10_000 + 10_000 - (10_000..20_000_usize).filter(|row| row.is_multiple_of(9)).count() + 2;
        assert_eq!(rows(&store, counted).await, [json!([distinct, bytes, "always the same"])], "{merged}");
    }
}
