//! Highlights: OpenSearch's answers to the same requests, and that they are parts of their sources.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::Store;

const TEXT: &str = "The quick brown fox. It runs, e.g. over 3.5 dogs! Another Fox (quick) follows.";

async fn store() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "t": {"type": "text", "fields": {"kw": {"type": "keyword", "ignore_above": 20}}},
        "k": {"type": "keyword"},
        "vectors": {"type": "text", "term_vector": "with_positions_offsets"},
        "al": {"type": "alias", "path": "t"},
    }}});
    store.create("a", &mapping).await;
    let documents = [
        json!({"t": TEXT, "k": ["fox", "dog"], "vectors": "a quick fox"}),
        json!({"t": ["One <fox> & more", "two foxes"], "k": "cat"}),
    ];
    store.index("a", &documents).await;
    store
}

async fn marked(store: &Store, id: &str, query: Value, highlight: Value) -> Value {
    let query = json!({"bool": {"must": {"ids": {"values": [id]}}, "should": query}});
    let body = json!({"query": query, "highlight": highlight});
    store.search("a", &[], body).await.unwrap()["hits"]["hits"][0]["highlight"].clone()
}

#[tokio::test]
async fn matches_are_marked_as_opensearch_marks_them() {
    let store = store().await;
    let fox = json!({"match": {"t": "fox runs"}});
    let cases = [
        (
            json!({"fields": {"t": {}}}),
            json!({"t": [
                "The quick brown <em>fox</em>. It <em>runs</em>, e.g. over 3.5 dogs! Another <em>Fox</em> (quick) follows."
            ]}),
        ),
        (
            json!({"fields": {"t": {"number_of_fragments": 0}}, "tags_schema": "styled"}),
            json!({"t": [format!("{}", TEXT
                .replace("fox", "<em class=\"hlt1\">fox</em>")
                .replace("Fox", "<em class=\"hlt1\">Fox</em>")
                .replace("runs", "<em class=\"hlt1\">runs</em>"))]}),
        ),
        (
            json!({"fields": [{"al": {"boundary_scanner": "word", "number_of_fragments": 2}}]}),
            json!({"al": ["<em>fox</em>", "<em>runs</em>"]}),
        ),
        (json!({"fields": {"k": {}}}), Value::Null),
        (
            json!({"fields": {"k": {"require_field_match": false}}, "pre_tags": ["["], "post_tags": ["]"]}),
            json!({"k": ["[fox]"]}),
        ),
        (
            json!({"fields": {"t": {"type": "plain", "fragment_size": 30}}}),
            json!({"t": ["The quick brown <em>fox</em>. It <em>runs</em>", " <em>Fox</em> (quick) follows."]}),
        ),
        (json!({"fields": {"vectors": {"no_match_size": 3}}}), json!({"vectors": ["a quick"]})),
        (
            json!({"fields": {"t": {"highlight_query": {"prefix": {"t": "follow"}}}}}),
            json!({"t": ["Another Fox (quick) <em>follows</em>."]}),
        ),
    ];
    for (highlight, expected) in cases {
        assert_eq!(marked(&store, "1", fox.clone(), highlight.clone()).await, expected, "{highlight}");
    }
    let html = json!({"encoder": "html", "fields": {"t": {}}});
    let expected = json!({"t": ["One &lt;<em>fox</em>&gt; &amp; more"]});
    assert_eq!(marked(&store, "2", fox, html).await, expected);
}

#[tokio::test]
async fn patterns_leave_out_fields_without_vectors() {
    let store = store().await;
    let query = json!({"multi_match": {"query": "fox", "fields": ["t", "vectors"]}});
    for (fields, expected) in [
        (json!({"*": {}}), json!({"vectors": ["a quick <em>fox</em>"]})),
        (json!({"t*": {}, "vec*": {}}), json!({"vectors": ["a quick <em>fox</em>"]})),
        (json!({"t*": {}}), Value::Null),
    ] {
        let highlight = json!({"type": "fvh", "fields": fields});
        assert_eq!(marked(&store, "1", query.clone(), highlight).await, expected, "{fields}");
    }
}

#[tokio::test]
async fn fast_vector_fragments_are_those_of_opensearch() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "v": {"type": "text", "term_vector": "with_positions_offsets"},
    }}});
    store.create("a", &mapping).await;
    let long = "The quick brown fox. It runs, e.g. over 3.5 dogs! Another Fox (quick) follows, and the brown dog \
                sleeps under a very old tree\n";
    let values = ["one <quick> fox & more", "", "two foxes, a quick brown fox jumps", "nothing here"];
    store.index("a", &[json!({"v": long}), json!({"v": values})]).await;
    for (id, query, highlight, expected) in [
        (
            "1",
            json!({"match": {"v": "fox"}}),
            json!({"type": "fvh", "fields": {"v": {}}}),
            json!([
                "The quick brown <em>fox</em>. It runs, e.g. over 3.5 dogs! Another <em>Fox</em> (quick) follows, and the brown dog sleeps"
            ]),
        ),
        (
            "1",
            json!({"match": {"v": "fox"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 18}}}),
            json!(["quick brown <em>fox</em>. It runs", "Another <em>Fox</em> (quick)"]),
        ),
        (
            "1",
            json!({"match": {"v": "fox dog quick"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 30, "number_of_fragments": 2, "order": "score"}}}),
            json!([
                "The <em>quick</em> brown <em>fox</em>. It runs, e",
                "dogs! Another <em>Fox</em> (<em>quick</em>) follows,"
            ]),
        ),
        (
            "1",
            json!({"match": {"v": "fox"}}),
            json!({"type": "fvh", "fields": {"v": {"number_of_fragments": 0}}}),
            json!([
                "The quick brown <em>fox</em>. It runs, e.g. over 3.5 dogs! Another <em>Fox</em> (quick) follows, and the brown dog sleeps under a very old tree\n"
            ]),
        ),
        (
            "1",
            json!({"match_phrase": {"v": "quick brown fox"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 20}}}),
            json!(["The <em>quick brown fox</em>. It"]),
        ),
        (
            "1",
            json!({"match_phrase": {"v": {"query": "quick fox", "slop": 1}}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 40}}}),
            json!(["The <em>quick</em> brown <em>fox</em>. It runs, e.g. over 3"]),
        ),
        (
            "1",
            json!({"bool": {"should": [{"match_phrase": {"v": "brown dog"}}, {"match": {"v": "brown"}}]}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 25}}}),
            json!(["The quick <em>brown</em> fox. It runs", "and the <em>brown dog</em> sleeps under"]),
        ),
        (
            "1",
            json!({"match_phrase_prefix": {"v": "brown d"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 25}}}),
            json!(["and the <em>brown dog</em> sleeps under"]),
        ),
        (
            "1",
            json!({"prefix": {"v": "f"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 25, "boundary_scanner": "word"}}}),
            json!([
                "quick brown <em>fox</em>. It runs, e.g",
                "Another <em>Fox</em> (quick) <em>follows</em>, and"
            ]),
        ),
        (
            "1",
            json!({"match": {"v": "dogs"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 25, "boundary_scanner": "sentence"}}}),
            json!([
                "It runs, e.g. over 3.5 <em>dogs</em>! Another Fox (quick) follows, and the brown dog sleeps under a very old tree\n "
            ]),
        ),
        (
            "1",
            json!({"match": {"v": "cat"}}),
            json!({"type": "fvh", "fields": {"v": {"no_match_size": 12}}}),
            json!(["The quick brown"]),
        ),
        (
            "2",
            json!({"match": {"v": "quick fox"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 100}}}),
            json!([
                "one <<em>quick</em>> <em>fox</em> & more",
                "two foxes, a <em>quick</em> brown <em>fox</em> jumps"
            ]),
        ),
        (
            "2",
            json!({"match": {"v": "quick fox"}}),
            json!({"type": "fvh", "fields": {"v": {"number_of_fragments": 0}}}),
            json!([
                "one <<em>quick</em>> <em>fox</em> & more",
                "two foxes, a <em>quick</em> brown <em>fox</em> jumps"
            ]),
        ),
        (
            "2",
            json!({"match": {"v": "quick fox"}}),
            json!({"type": "fvh", "fields": {"v": {"fragment_size": 20, "order": "score", "number_of_fragments": 3}}, "encoder": "html"}),
            json!([
                "one &lt;<em>quick</em>&gt; <em>fox</em> &amp; more",
                "foxes, a <em>quick</em> brown fox"
            ]),
        ),
    ] {
        let found = marked(&store, id, query.clone(), highlight.clone()).await;
        assert_eq!(found["v"], expected, "{query} {highlight}");
    }
}

#[tokio::test]
async fn what_cannot_be_marked_is_refused() {
    let store = store().await;
    let mut texts = Vec::new();
    for highlight in [
        json!({"fields": {"t": {"type": "fvh"}}}),
        json!({"fields": {"vectors": {"type": "fvh", "fragment_size": 17}}}),
        json!({"fields": {"t": {"type": "nothing"}}}),
        json!({"fields": {"t": {"type": "plain", "fragmenter": "x"}}}),
        json!({"fields": {"t": {"boundary_scanner": "chars"}}}),
        json!({"fields": {"t": {"tag": 1}}}),
    ] {
        let error = store.search("a", &[], json!({"highlight": highlight})).await.unwrap_err();
        texts.push(error.to_body().unwrap()["error"]["root_cause"][0]["reason"].as_str().unwrap().to_owned());
    }
    insta::assert_snapshot!(texts.join("\n"), @r"
    the field [t] should be indexed with term vector with position offsets to be used with fast vector highlighter
    fragCharSize(17) is too small. It must be 18 or higher.
    unknown highlighter type [nothing] for the field [t]
    unknown fragmenter option [x] for the field [t]
    Invalid boundary scanner type: CHARS
    [highlight_field] unknown field [tag]
    ");
}

#[tokio::test]
async fn plain_marks_no_term_that_is_all_edits() {
    let store = Store::open().await;
    store.index("a", &[json!({"t": "as a at ab"})]).await;
    let query = json!({"match": {"t": {"query": "as", "fuzziness": 1}}});
    let search = json!({"query": query, "highlight": {"type": "plain", "fields": {"t": {}}}});
    let answer = store.search("a", &[], search).await.unwrap();
    // The term of one letter is found with the score 0, and not marked.
    let marked = json!(["<em>as</em> a <em>at</em> <em>ab</em>"]);
    assert_eq!(answer["hits"]["hits"][0]["highlight"]["t"], marked);
}

#[tokio::test]
async fn long_values_are_refused() {
    let store = Store::open().await;
    let body = json!({"settings": {"index.highlight.max_analyzed_offset": 10}});
    store.create("a", &body).await;
    store.index("a", &[json!({"t": "a text of more than ten letters"})]).await;
    let search =
        |options: Value| json!({"query": {"match": {"t": "text"}}, "highlight": {"fields": {"t": options}}});
    for kind in ["unified", "plain"] {
        let error = store.search("a", &[], search(json!({"type": kind}))).await.unwrap_err();
        assert_eq!(error.status(), 400);
        let reason = error.to_body().unwrap()["error"]["root_cause"][0]["reason"].to_string();
        assert!(reason.contains("index has exceeded [10] - maximum allowed to be analyzed"), "{reason}");
    }
    let answer = store.search("a", &[], search(json!({"max_analyzer_offset": 5}))).await.unwrap();
    assert_eq!(
        answer["hits"]["hits"][0]["highlight"]["t"],
        json!(["a <em>text</em> of more than ten letters"])
    );
}

/// Texts of words, marks and odd characters.
fn random_text(rng: &mut StdRng) -> String {
    const PIECES: &[&str] = &[
        "fox",
        "dog",
        "Quick",
        "é",
        "\u{301}",
        " ",
        " ",
        ". ",
        "! ",
        "\n",
        "\"",
        "(",
        ")",
        "3.5",
        "\u{2029}",
        "\u{1F600}",
        "\u{4e2d}",
        "\0",
        "-",
        "'",
        "\u{964}",
        "\t",
    ];
    (0..rng.random_range(1..80)).map(|_| PIECES[rng.random_range(0..PIECES.len())]).collect()
}

#[tokio::test]
async fn fragments_without_their_tags_are_parts_of_the_text() {
    let store = Store::open().await;
    let mut rng = StdRng::seed_from_u64(7);
    let texts: Vec<String> = (0..60).map(|_| random_text(&mut rng)).collect();
    store.index("a", &texts.iter().map(|text| json!({"t": text})).collect::<Vec<_>>()).await;
    let mut fragments = 0;
    for round in 0..60 {
        let kind = ["unified", "plain"][round % 2];
        let order = ["none", "score"][rng.random_range(0..2)];
        let scanner = ["word", "sentence"][rng.random_range(0..2)];
        let options = json!({
            "type": kind,
            "fragment_size": rng.random_range(0..60),
            "number_of_fragments": rng.random_range(0..4),
            "no_match_size": rng.random_range(0..20),
            "order": order,
            "boundary_scanner": scanner,
        });
        let query = json!({"bool": {
            "must": {"match_all": {}},
            "should": [{"match": {"t": "fox 3.5 é"}}, {"prefix": {"t": "q"}}],
        }});
        let body = json!({
            "query": query, "size": 100,
            "highlight": {"fields": {"t": options}, "pre_tags": ["\u{1}"], "post_tags": ["\u{2}"]},
        });
        let answer = store.search("a", &[], body).await.unwrap();
        for hit in answer["hits"]["hits"].as_array().unwrap() {
            let source = hit["_source"]["t"].as_str().unwrap();
            for fragment in hit["highlight"]["t"].as_array().into_iter().flatten() {
                let plain = fragment.as_str().unwrap().replace(['\u{1}', '\u{2}'], "");
                assert!(source.contains(&plain), "{options}: {plain:?} is no part of {source:?}");
                fragments += 1;
            }
        }
    }
    assert!(fragments > 1_000, "{fragments}");
}
