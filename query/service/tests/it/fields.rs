//! Fields of hits: by source, by column, stored.

use serde_json::{Value, json};

use crate::fixture::Store;

async fn store() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "t": {"type": "text", "fields": {"kw": {"type": "keyword"}}},
        "k": {"type": "keyword", "ignore_above": 5},
        "n": {"type": "long"},
        "d": {"type": "date"},
        "dd": {"type": "date", "format": "yyyy-MM-dd"},
        "f": {"type": "float"},
        "g": {"type": "geo_point"},
        "al": {"type": "alias", "path": "k"},
        "st": {"type": "long", "store": true},
        "nodv": {"type": "keyword", "doc_values": false},
        "norm": {"type": "keyword", "normalizer": "lowercase"},
        "nv": {"type": "keyword", "null_value": "NULL"},
        "im": {"type": "integer", "ignore_malformed": true},
        "fo": {"type": "flat_object"},
    }}});
    store.create("a", &mapping).await;
    let document = json!({
        "t": "Some text", "k": ["b", "a", "a", "toolong"], "n": ["5", 3, 3.7], "d": ["2020-01-02T03:04:05Z", 0],
        "dd": "2021-02-03", "f": 1.1, "g": [{"lat": 1.5, "lon": 2.5}, "3.5,4.5"], "st": ["7", 6],
        "nodv": "x", "norm": "ABC", "nv": null, "im": "bad", "fo": {"a": {"b": "c"}},
        "o": [{"x": "p"}, {"x": "q"}],
    });
    store.index("a", &[document]).await;
    store
}

async fn fields(store: &Store, body: Value) -> Value {
    store.search("a", &[], body).await.unwrap()["hits"]["hits"][0]["fields"].clone()
}

#[tokio::test]
async fn fields_come_from_the_source_through_the_mapping() {
    let store = store().await;
    let cases = [
        (json!(["k"]), json!({"k": ["b", "a", "a"]})),
        (json!(["al"]), json!({"al": ["b", "a", "a"]})),
        (json!(["t*"]), json!({"t": ["Some text"], "t.kw": ["Some text"]})),
        (json!(["n", "f"]), json!({"n": [5, 3, 3], "f": [1.1]})),
        (json!(["d"]), json!({"d": ["2020-01-02T03:04:05.000Z", "1970-01-01T00:00:00.000Z"]})),
        (json!([{"field": "d", "format": "yyyy"}]), json!({"d": ["2020", "1970"]})),
        (json!(["dd"]), json!({"dd": ["2021-02-03"]})),
        (json!([{"field": "g", "format": "wkt"}]), json!({"g": ["POINT (2.5 1.5)", "POINT (4.5 3.5)"]})),
        (json!(["norm", "nv", "im", "zzz"]), json!({"norm": ["abc"], "nv": ["NULL"]})),
        (json!(["o.*"]), json!({"o.x": ["p", "q"], "o.x.keyword": ["p", "q"]})),
        (json!(["fo.a.b"]), json!({"fo.a.b": ["c"]})),
        (json!(["o", "_id"]), Value::Null),
    ];
    for (asked, expected) in cases {
        assert_eq!(fields(&store, json!({"fields": asked})).await, expected, "{asked}");
    }
}

#[tokio::test]
async fn docvalue_fields_come_from_columns() {
    let store = store().await;
    let cases = [
        (json!(["k"]), json!({"k": ["a", "b"]})),
        (json!(["n"]), json!({"n": [3, 3, 5]})),
        (json!([{"field": "n", "format": "000.0"}]), json!({"n": ["003.0", "003.0", "005.0"]})),
        (json!(["f"]), json!({"f": [1.100000023841858]})),
        (
            json!(["g"]),
            json!({"g": ["1.4999999944120646, 2.4999999348074198", "3.4999999590218067, 4.499999983236194"]}),
        ),
        (json!(["fo.a.b"]), json!({"fo.a.b": ["c"]})),
        (json!(["_id", "_seq_no"]), json!({"_id": ["1"], "_seq_no": [0]})),
        (json!(["zzz"]), Value::Null),
    ];
    for (asked, expected) in cases {
        assert_eq!(fields(&store, json!({"docvalue_fields": asked})).await, expected, "{asked}");
    }
}

#[tokio::test]
async fn stored_fields_show_what_is_stored() {
    let store = store().await;
    let answer = store.search("a", &[], json!({"stored_fields": ["st", "k"]})).await.unwrap();
    let hit = &answer["hits"]["hits"][0];
    assert_eq!(hit["fields"], json!({"st": [7, 6]}));
    assert!(hit.get("_source").is_none());
    let answer = store.search("a", &[], json!({"stored_fields": "_none_", "docvalue_fields": ["k"]})).await;
    let hit = answer.unwrap()["hits"]["hits"][0].clone();
    assert!(hit.get("_id").is_none() && hit["fields"] == json!({"k": ["a", "b"]}));
}

#[tokio::test]
async fn what_a_field_cannot_show_is_refused() {
    let store = store().await;
    let mut texts = Vec::new();
    for body in [
        json!({"docvalue_fields": ["t"]}),
        json!({"docvalue_fields": ["nodv"]}),
        json!({"docvalue_fields": ["fo"]}),
        json!({"docvalue_fields": [{"field": "k", "format": "x"}]}),
        json!({"docvalue_fields": vec!["k"; 101]}),
        json!({"fields": [{"field": "k", "format": "x"}]}),
        json!({"fields": [{"field": "t", "format": "x"}]}),
        json!({"fields": ["k"], "stored_fields": "_none_"}),
        json!({"stored_fields": ["o"]}),
        json!({"script_fields": {"a": {"script": "1"}}}),
    ] {
        let error = store.search("a", &[], body).await.unwrap_err();
        let body = error.to_body().unwrap();
        texts.push(format!(
            "{} {}",
            error.status(),
            body["error"]["root_cause"][0]["reason"].as_str().unwrap()
        ));
    }
    insta::assert_snapshot!(texts.join("\n"), @r"
    400 Text fields are not optimised for operations that require per-document field data like aggregations and sorting, so these operations are disabled by default. Please use a keyword field instead. Alternatively, set fielddata=true on [t] in order to load field data by uninverting the inverted index. Note that this can use significant memory.
    400 Can't load fielddata on [nodv] because fielddata is unsupported on fields of type [keyword]. Use doc values instead.
    400 Field [fo] of type [flat_object] does not support doc_value in root field
    400 Field [k] of type [keyword] does not support custom formats
    400 Trying to retrieve too many docvalue_fields. Must be less than or equal to: [100] but was [101]. This limit can be set by changing the [index.max_docvalue_fields_search] index level setting.
    400 Field [k] of type [keyword] doesn't support formats.
    400 Field [t] doesn't support formats.
    400 [stored_fields] cannot be disabled when using the [fields] option
    400 field [o] isn't a leaf field
    400 [script_fields] is not supported: cannot execute [search] scripts
    ");
}

#[tokio::test]
async fn a_normalizer_applies_once() {
    let store = Store::open().await;
    let body = json!({
        "settings": {"analysis": {
            "char_filter": {
                "behead": {"type": "pattern_replace", "pattern": "^.", "replacement": ""},
                "double": {"type": "mapping", "mappings": ["x => xx"]},
            },
            "normalizer": {
                "behead": {"type": "custom", "char_filter": ["behead"]},
                "double": {"type": "custom", "char_filter": ["double"]},
            },
        }},
        "mappings": {"properties": {
            "k": {"type": "keyword", "normalizer": "behead"},
            "long": {"type": "keyword", "normalizer": "double", "ignore_above": 3},
        }},
    });
    store.create("a", &body).await;
    store.index("a", &[json!({"k": "xyzw", "long": "xyx"}), json!({"k": "abzw", "long": "xyxy"})]).await;
    let asked = json!({
        "docvalue_fields": ["k", "long"], "sort": ["k", "long"], "query": {"term": {"k": "xyzw"}},
        "aggs": {"k": {"terms": {"field": "k"}}, "long": {"terms": {"field": "long"}}},
    });
    let answer = store.search("a", &[], asked).await.unwrap();
    let hit = &answer["hits"]["hits"][0];
    assert_eq!(hit["fields"], json!({"k": ["yzw"], "long": ["xxyxx"]}), "{answer}");
    assert_eq!(hit["sort"], json!(["yzw", "xxyxx"]));
    assert_eq!(answer["aggregations"]["k"]["buckets"], json!([{"key": "yzw", "doc_count": 1}]));
    assert_eq!(answer["aggregations"]["long"]["buckets"], json!([{"key": "xxyxx", "doc_count": 1}]));
    let queries = [
        (json!({"term": {"long": "xyx"}}), 1),
        (json!({"term": {"long": "xxyxx"}}), 0),
        (json!({"prefix": {"k": "xyz"}}), 1),
        (json!({"range": {"k": {"gte": "xyzw", "lt": "xyzx"}}}), 1),
        (json!({"exists": {"field": "long"}}), 1),
        (json!({"wildcard": {"k": "xyz*"}}), 1),
        (json!({"wildcard": {"k": "yz*"}}), 0),
        (json!({"regexp": {"k": "yz."}}), 0),
        (json!({"fuzzy": {"k": "xyzz"}}), 1),
        (json!({"terms": {"k": ["xyzw"]}}), 1),
    ];
    for (query, expected) in queries {
        let answer = store.search("a", &[], json!({"query": query})).await.unwrap();
        assert_eq!(answer["hits"]["total"]["value"], expected, "{query}");
    }
}
