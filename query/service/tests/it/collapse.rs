//! One hit a group, and the hits below it.

use serde_json::{Value, json};

use crate::fixture::{Store, ids};

async fn store() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "group": {"type": "integer"}, "tag": {"type": "keyword"}, "several": {"type": "keyword"},
    }}});
    store.create("a", &mapping).await;
    let document = |group: Value, tag: &str, sort: i64| json!({"group": group, "tag": tag, "sort": sort});
    store
        .index(
            "a",
            &[
                document(json!(1), "A", 10),
                document(json!(1), "B", 6),
                document(json!(1), "A", 24),
                document(json!(25), "B", 10),
                document(json!(25), "A", 5),
                document(json!(3), "B", 36),
                json!({"sort": 7, "several": ["x", "y"]}),
            ],
        )
        .await;
    store
}

#[tokio::test]
async fn each_group_shows_its_best_hit() {
    let store = store().await;
    let body = json!({"collapse": {"field": "group"}, "sort": [{"sort": "desc"}]});
    let answer = store.search("a", &[], body).await.unwrap();
    assert_eq!(ids(&answer), ["6", "3", "4", "7"]);
    assert_eq!(answer["hits"]["total"]["value"], 7);
    assert_eq!(answer["hits"]["hits"][1]["fields"], json!({"group": [1]}));
    assert!(answer["hits"]["hits"][3].get("fields").is_none());
    let body = json!({"collapse": {"field": "group"}, "sort": [{"sort": "desc"}], "from": 1, "size": 2});
    assert_eq!(ids(&store.search("a", &[], body).await.unwrap()), ["3", "4"]);
    let body = json!({"collapse": {"field": "tag"}, "query": {"match": {"tag": "A"}}});
    assert_eq!(ids(&store.search("a", &[], body).await.unwrap()), ["1"]);
}

#[tokio::test]
async fn groups_show_hits_below_their_best() {
    let store = store().await;
    let inner = json!([
        {"name": "asc", "size": 2, "sort": ["sort"], "_source": ["sort"]},
        {"name": "tags", "collapse": {"field": "tag"}, "sort": ["sort"]},
    ]);
    let body = json!({"collapse": {"field": "group", "inner_hits": inner}, "sort": [{"sort": "desc"}]});
    let answer = store.search("a", &[], body).await.unwrap();
    let hit = &answer["hits"]["hits"][1]["inner_hits"];
    assert_eq!(ids(&hit["asc"]), ["2", "1"]);
    assert_eq!(hit["asc"]["hits"]["total"]["value"], 3);
    assert_eq!(hit["asc"]["hits"]["hits"][0]["_source"], json!({"sort": 6}));
    assert_eq!(ids(&hit["tags"]), ["2", "1"]);
    let nothing = &answer["hits"]["hits"][3]["inner_hits"]["asc"];
    assert_eq!(ids(nothing), ["7"]);
}

#[tokio::test]
async fn what_cannot_be_grouped_is_refused() {
    let store = store().await;
    let mut texts = Vec::new();
    for (params, body) in [
        (&[][..], json!({"collapse": {"field": "zzz"}})),
        (&[], json!({"collapse": {"field": "_id"}})),
        (&[], json!({"collapse": {"field": "several"}})),
        (&[], json!({"collapse": {"field": "group"}, "search_after": [6], "sort": "sort"})),
        (&[("scroll", "1m")], json!({"collapse": {"field": "group"}})),
    ] {
        let error = store.search("a", params, body).await.unwrap_err();
        let body = error.to_body().unwrap();
        let cause = &body["error"]["root_cause"][0];
        texts.push(format!("{} {} {}", error.status(), cause["type"], cause["reason"]));
    }
    insta::assert_snapshot!(texts.join("\n"), @r#"
    400 "illegal_argument_exception" "no mapping found for `zzz` in order to collapse on"
    400 "illegal_argument_exception" "unknown type for collapse field `_id`, only keywords and numbers are accepted"
    400 "illegal_state_exception" "failed to collapse 6, the collapse field must be single valued"
    400 "search_exception" "cannot use `collapse` in conjunction with `search_after`"
    400 "search_exception" "cannot use `collapse` in a scroll context"
    "#);
}

#[tokio::test]
async fn groups_are_those_of_all_hits_in_order() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "even": {"type": "keyword"}, "skewed": {"type": "long"}, "words": {"type": "text"},
    }}});
    store.create("many", &mapping).await;
    for part in 0..3_u64 {
        let writes = (0..400)
            .map(|at| {
                let number = (at + part * 400) * 2_654_435_761 % 1_201;
                let mut document = json!({
                    "words": "needle ".repeat(1 + number as usize % 5) + &"hay ".repeat(number as usize % 7),
                    "even": format!("group {}", number % 13),
                    "number": number,
                });
                // Nearly all are one group, and some are none.
                match number % 50 {
                    0 => {}
                    1 => document["skewed"] = json!(number % 9),
                    _ => document["skewed"] = json!(-1),
                }
                (number.to_string(), Some(document))
            })
            .collect();
        store.write("many", writes).await;
    }
    for field in ["even", "skewed"] {
        for sort in [json!(["_score"]), json!([{"number": "desc"}]), json!([{"even": "asc"}, "_score"])] {
            for (from, size) in [(0, 5), (3, 4), (0, 20), (70, 5)] {
                let query = json!({"match": {"words": "needle"}});
                let body = json!({"query": query, "sort": sort, "size": 1_200});
                let all = store.search("many", &[], body).await.unwrap();
                let mut groups: Vec<&Value> = Vec::new();
                let mut expected = Vec::new();
                for hit in all["hits"]["hits"].as_array().unwrap() {
                    let group = &hit["_source"][field];
                    if !groups.contains(&group) {
                        groups.push(group);
                        expected.push(hit["_id"].as_str().unwrap());
                    }
                }
                let body = json!({
                    "query": query, "sort": sort, "from": from, "size": size, "collapse": {"field": field},
                });
                let answer = store.search("many", &[], body).await.unwrap();
                let expected: Vec<&str> = expected.into_iter().skip(from).take(size).collect();
                assert_eq!(ids(&answer), expected, "{field} {sort} {from} {size}");
                assert_eq!(answer["hits"]["total"], all["hits"]["total"]);
            }
        }
    }
}
