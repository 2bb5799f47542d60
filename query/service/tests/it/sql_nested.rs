//! Statements over elements of nested paths, and highlights.

use serde_json::{Value, json};

use crate::fixture::Store;
use crate::sql::answers_cases;
use crate::sql_bounds::explained;

/// Makes an index `staff` with two nested paths, one of which holds another, and an index without them. Its documents are in
/// memory, or in several segments on disk, one of which has lost a document.
async fn staff(stored: bool) -> Store {
    let store = Store::open().await;
    let keyword = json!({"type": "keyword"});
    let mappings = json!({"mappings": {"properties": {
        "name": keyword,
        "bio": {"type": "text"},
        "level": {"type": "integer"},
        "jobs": {"type": "nested", "properties": {
            "title": {"type": "text", "fields": {"keyword": keyword}},
            "year": {"type": "integer"},
            "skills": keyword,
            "when": {"properties": {"from": {"type": "date", "format": "yyyyMMdd"}}},
            "places": {"type": "nested", "properties": {"town": keyword, "size": {"type": "long"}}}
        }},
        "notes": {"type": "nested", "properties": {"body": {"type": "text"}, "stars": {"type": "long"}}}
    }}});
    store.create("staff", &mappings).await;
    let plain = json!({"mappings": {"properties": {"name": keyword, "level": {"type": "integer"}}}});
    store.create("staff-old", &plain).await;
    let documents = [
        json!({"name": "Ann", "bio": "builds engines and more engines", "level": 1, "jobs": [
            {"title": "Cook", "year": 1990, "skills": ["bake", "fry"], "when": {"from": "19900102"},
             "places": [{"town": "Rome", "size": 3}, {"town": "Oslo", "size": 1}]},
            {"title": "Night guard", "year": 1999, "skills": "watch", "places": {"town": "Bern", "size": 2}},
            {"title": "Guard", "year": 2015}],
            "notes": {"body": "kind and quick", "stars": 3}}),
        json!({"name": "Bob", "bio": "sells engines", "level": 2, "jobs": [],
            "notes": [{"body": "slow but kind", "stars": 1}, {"body": "quick", "stars": 5}]}),
        json!({"name": "Cy", "bio": "rests", "level": [2, 3], "jobs": [
            {"title": "Guard", "year": 1998}, {"title": "Cook", "year": 2015, "places": [{"town": "Rome"}]}]}),
        json!({"name": "Dee", "level": 4, "jobs": null}),
    ];
    store.index("staff", &documents).await;
    if stored {
        let more = json!({"name": "Fay", "jobs": [{"title": "Cook", "year": 2001}, {"title": "Guard"}], "notes": {"stars": 9}});
        for (at, document) in documents.iter().enumerate() {
            let id = (at + 1).to_string();
            store
                .write("staff", vec![(id, Some(document.clone())), ("fay".to_owned(), Some(more.clone()))])
                .await;
            let index = store.engine.index("staff").unwrap();
            store.engine.flush(&[index]).await.unwrap();
        }
        store.write("staff", vec![("fay".to_owned(), None)]).await;
    }
    store.index("staff-old", &[json!({"name": "Eve", "level": 9})]).await;
    store
}

#[tokio::test]
async fn statements_over_elements_answer_as_the_data_file_says() {
    for stored in [false, true] {
        answers_cases(&staff(stored).await, &[include_str!("sql/nested.txt")]).await;
    }
}

/// A document whose elements make too many rows is refused; others come in several batches.
#[tokio::test]
async fn combinations_of_elements_are_bounded() {
    let store = staff(false).await;
    let jobs = |count: i64| (0..count).map(|year| json!({"year": year})).collect::<Vec<_>>();
    let notes = |count: i64| (0..count).map(|stars| json!({"stars": stars})).collect::<Vec<_>>();
    let document = |name: &str, count: i64| json!({"name": name, "jobs": jobs(count), "notes": notes(count)});
    store
        .create(
            "many",
            &json!({"mappings": {"properties": {
                "name": {"type": "keyword"}, "jobs": {"type": "nested"}, "notes": {"type": "nested"}
            }}}),
        )
        .await;
    store.index("many", &[document("a", 200), document("b", 300), document("c", 600)]).await;
    let query = "SELECT COUNT(*), SUM(j.year), SUM(n.stars) FROM many AS e, e.jobs AS j, e.notes AS n WHERE e.name <= ";
    let ask = async |name: &str| {
        let body = json!({"query": format!("{query}'{name}'")});
        store.service.sql(&store.session, Vec::new(), Some(body)).await
    };
    let sum = |count: i64| count * count * (count - 1) / 2;
    let answer = crate::fixture::value(ask("b").await);
    assert_eq!(answer["datarows"], json!([[130_000, sum(200) + sum(300), sum(200) + sum(300)]]), "{answer}");
    let outcome = ask("c").await;
    assert_eq!(outcome.status, 400);
    assert!(crate::fixture::value(outcome).to_string().contains("combinations of nested elements"));
}

/// Conditions on elements find documents by the index of the elements.
#[tokio::test]
async fn conditions_on_elements_reach_the_index() {
    let store = staff(true).await;
    for query in [
        "SELECT name FROM staff WHERE nested(jobs.year) = 1999",
        "SELECT name FROM staff WHERE nested(jobs, jobs.year > 1995 AND jobs.title = 'Guard')",
        "SELECT e.name, p.title FROM staff AS e, e.jobs AS p WHERE p.year > 2000",
        "SELECT e.name FROM staff e JOIN e.jobs p ON p.year > 2000",
        "SELECT name FROM staff e WHERE EXISTS (SELECT * FROM e.jobs p WHERE p.year > 2000)",
        "SELECT name FROM staff e WHERE NOT EXISTS (SELECT * FROM e.jobs p WHERE p.title LIKE 'gu%')",
    ] {
        let plan = explained(&store, query).await;
        assert!(plan.contains("nested(jobs"), "{query}: {plan}");
    }
}

#[tokio::test]
async fn columns_of_elements_have_types() {
    let store = staff(true).await;
    let body = json!({"query": "SELECT p.title, p.year, p.skills, p.when, nested(notes.stars) AS s FROM staff e, e.jobs p LIMIT 1"});
    let outcome = store.service.sql(&store.session, Vec::new(), Some(body)).await;
    let answer: Value = crate::fixture::value(outcome);
    assert_eq!(
        answer["schema"],
        json!([
            {"name": "jobs.title", "type": "text"},
            {"name": "jobs.year", "type": "integer"},
            {"name": "jobs.skills", "type": "keyword"},
            {"name": "jobs.when", "type": "object"},
            {"name": "nested(notes.stars)", "alias": "s", "type": "long"},
        ]),
        "{answer}"
    );
    assert_eq!(answer["datarows"][0], json!(["Cook", 1990, ["bake", "fry"], {"from": "19900102"}, 3]));
}
