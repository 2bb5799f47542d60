//! Statements over elements of nested paths, and highlights.

use serde_json::{Value, json};

use crate::fixture::Store;
use crate::sql::answers_cases;
use crate::sql_bounds::explained;

/// Makes an index `staff` with two nested paths, one of which holds another, and an index without them.
pub(crate) async fn staff() -> Store {
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
    store.index("staff-old", &[json!({"name": "Eve", "level": 9})]).await;
    store
}

#[tokio::test]
async fn statements_over_elements_answer_as_the_data_file_says() {
    answers_cases(&staff().await, &[include_str!("sql/nested.txt")]).await;
}

/// Conditions on elements find documents by the index of the elements.
#[tokio::test]
async fn conditions_on_elements_reach_the_index() {
    let store = staff().await;
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
    let store = staff().await;
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
