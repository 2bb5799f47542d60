//! LIKE on strings that hardly repeat: these are looked for in their columns, one condition in the rows that another leaves.

use serde_json::{Value, json};

use crate::fixture::Store;
use crate::sql_dynamic_filters::{numbers, rows_of};

/// Enough for columns to be read instead of dictionaries.
const ROWS: i64 = 12_000;

fn url(n: i64) -> String {
    let host = ["example.com", "Google.com", "maps.google.de", "a.org"][(n % 4) as usize];
    format!("https://{host}/a/long/path/of/pages/that/do/not/repeat/{n}?q={}", n * 7_919 % 1_000)
}

fn title(n: i64) -> String {
    let word = if n % 97 == 0 { "GOOGLE" } else { "page" };
    format!("Title {n} of a {word} in a long line of text that nobody else has {}", n * 31)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_find_what_texts_contain() {
    let store = Store::open().await;
    let body = json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": {
        "n": {"type": "long"}, "url": {"type": "keyword"}, "title": {"type": "keyword"}, "kind": {"type": "keyword"}
    }}});
    store.create("pages", &body).await;
    let kind = |n: i64| format!("kind{}", n % 199);
    let document = |n: i64| {
        let mut document = json!({"n": n, "url": url(n), "kind": kind(n)});
        if n % 11 > 0 {
            document["title"] = json!(title(n));
        }
        (n.to_string(), Some(document))
    };
    store.write("pages", (0..ROWS).map(document).collect()).await;
    store.engine.flush(&[store.engine.index("pages").unwrap()]).await.unwrap();
    store.write("pages", (0..ROWS).filter(|n| n % 13 == 1).map(|n| (n.to_string(), None)).collect()).await;
    let left: Vec<i64> = (0..ROWS).filter(|n| n % 13 != 1).collect();
    let has = |text: String, part: &str| text.to_lowercase().contains(part);
    type Condition<'c> = &'c dyn Fn(i64) -> bool;
    let in_url = |n: i64| has(url(n), "google");
    let has_title = |n: i64| n % 11 > 0;
    let in_title = |n: i64| has_title(n) && has(title(n), "google");
    let conditions: [(&str, Condition<'_>); 9] = [
        ("url LIKE '%google%'", &in_url),
        ("url NOT LIKE '%google%'", &|n| !in_url(n)),
        ("title LIKE '%Google%'", &in_title),
        ("title NOT LIKE '%google%'", &|n| has_title(n) && !in_title(n)),
        ("url NOT LIKE '%.google.%' AND title LIKE '%google%'", &|n| in_title(n) && !has(url(n), ".google.")),
        ("title LIKE '%google%' AND url LIKE '%.org/%' AND url LIKE '%9?q=%'", &|n| {
            in_title(n) && url(n).contains(".org/") && url(n).contains("9?q=")
        }),
        ("kind = 'kind7' AND url LIKE '%google%' AND url NOT LIKE '%maps%'", &|n| {
            kind(n) == "kind7" && in_url(n) && !has(url(n), "maps")
        }),
        ("kind = 'kind7' AND (url LIKE '%google%' OR title LIKE '%google%')", &|n| {
            kind(n) == "kind7" && (in_url(n) || in_title(n))
        }),
        ("url LIKE 'https://maps%' AND title LIKE '%page%0'", &|n| {
            url(n).starts_with("https://maps")
                && has_title(n)
                && has(title(n), "page")
                && title(n).ends_with('0')
        }),
    ];
    for (condition, holds) in conditions {
        let query = format!("SELECT n FROM pages WHERE {condition}");
        let expected: Vec<Value> = left.iter().filter(|n| holds(**n)).map(|n| json!([n])).collect();
        assert!(!expected.is_empty(), "{condition}");
        assert_eq!(numbers(rows_of(&store, &store.session, &query).await), numbers(expected), "{condition}");
    }
}
