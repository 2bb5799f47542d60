//! Statements over elements of nested paths, and highlights.

use millrace_catalog::access::Action;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::delete_by_query::{rights, session};
use crate::fixture::{Store, physical_plan};
use crate::sql::answers_cases;

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
        let plan = physical_plan(&store, query).await;
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

/// A document of the random test: its level, and the year and title of each of its jobs.
type Person = (Option<i64>, Vec<(Option<i64>, Option<&'static str>)>);

/// The row that a condition is evaluated over.
type Row = (Option<i64>, Option<i64>, Option<&'static str>);

/// A condition with what it means, in three truth values.
type Evaluation = Box<dyn Fn(Row) -> Option<bool>>;

/// Makes a condition over elements, and over documents where `mixed`.
fn condition(rng: &mut StdRng, depth: usize, mixed: bool) -> (String, Evaluation) {
    let number = rng.random_range(0..6);
    let title = ["Cook", "Guard", "None"][rng.random_range(0..3)];
    match rng.random_range(0..if depth == 0 { 5 } else { 8 }) {
        0 => (format!("p.year > {number}"), Box::new(move |(_, year, _)| year.map(|own| own > number))),
        1 => (format!("p.year <> {number}"), Box::new(move |(_, year, _)| year.map(|own| own != number))),
        2 => (format!("p.title = '{title}'"), Box::new(move |(.., own)| own.map(|own| own == title))),
        3 => ("p.title IS NULL".to_owned(), Box::new(|(.., own)| Some(own.is_none()))),
        4 if mixed => {
            (format!("e.level < {number}"), Box::new(move |(level, ..)| level.map(|own| own < number)))
        }
        4 => (
            format!("p.year IN ({number}, 1)"),
            Box::new(move |(_, year, _)| year.map(|own| own == number || own == 1)),
        ),
        5 => {
            let (text, inner) = condition(rng, depth - 1, mixed);
            (format!("NOT ({text})"), Box::new(move |row| inner(row).map(|own| !own)))
        }
        kind => {
            let and = kind == 6;
            let ((left, one), (right, other)) =
                (condition(rng, depth - 1, mixed), condition(rng, depth - 1, mixed));
            let meaning = move |row| match (one(row), other(row)) {
                (Some(own), _) | (_, Some(own)) if own != and => Some(own),
                (Some(_), Some(_)) => Some(and),
                _ => None,
            };
            (format!("({left} {} {right})", if and { "AND" } else { "OR" }), Box::new(meaning))
        }
    }
}

/// Random conditions over elements in several segments find what an evaluation over plain values finds.
#[tokio::test]
async fn random_conditions_on_elements_are_as_evaluated() {
    let store = Store::open().await;
    let mut rng = StdRng::seed_from_u64(7);
    store.create("r", &json!({"mappings": {"properties": {
        "n": {"type": "integer"}, "level": {"type": "integer"},
        "jobs": {"type": "nested", "properties": {"year": {"type": "integer"}, "title": {"type": "keyword"}}}
    }}})).await;
    let mut people: Vec<Person> = Vec::new();
    for round in 0..4 {
        let mut writes = Vec::new();
        for _ in 0..20 {
            let level = rng.random_bool(0.8).then(|| rng.random_range(0..6));
            let jobs = (0..rng.random_range(0..4)).map(|_| {
                let title = ["Cook", "Guard"][rng.random_range(0..2)];
                (rng.random_bool(0.8).then(|| rng.random_range(0..6)), rng.random_bool(0.8).then_some(title))
            });
            let person: Person = (level, jobs.collect());
            let jobs = person.1.iter().map(|(year, title)| json!({"year": year, "title": title}));
            let document = json!({"n": people.len(), "level": level, "jobs": jobs.collect::<Vec<_>>()});
            writes.push((people.len().to_string(), Some(document)));
            people.push(person);
        }
        store.write("r", writes).await;
        if round < 3 {
            let index = store.engine.index("r").unwrap();
            store.engine.flush(&[index]).await.unwrap();
        }
    }
    for _ in 0..60 {
        let (text, holds) = condition(&mut rng, 2, true);
        let (own_text, own_holds) = condition(&mut rng, 2, false);
        let (mut inner, mut outer, mut exists) = (Vec::new(), Vec::new(), Vec::new());
        for (n, (level, jobs)) in people.iter().enumerate() {
            let found = |year: Option<i64>, title| holds((*level, year, title)) == Some(true);
            for (year, title) in jobs {
                inner.extend(found(*year, *title).then(|| json!([n, year])));
                outer.extend(found(*year, *title).then(|| json!([n, year])));
            }
            outer.extend((jobs.is_empty() && found(None, None)).then(|| json!([n, null])));
            let any = jobs.iter().any(|(year, title)| own_holds((None, *year, *title)) == Some(true));
            exists.extend(any.then(|| json!([n])));
        }
        let whole = own_text.replace("p.", "jobs.");
        for (query, expected) in [
            (format!("SELECT e.n, p.year FROM r AS e, e.jobs AS p WHERE {text}"), &inner),
            (format!("SELECT e.n, p.year FROM r e LEFT JOIN e.jobs p WHERE {text}"), &outer),
            (format!("SELECT n FROM r e WHERE EXISTS (SELECT * FROM e.jobs p WHERE {own_text})"), &exists),
            (format!("SELECT n FROM r WHERE nested(jobs, {whole})"), &exists),
        ] {
            let body = json!({"query": query, "fetch_size": 0});
            let outcome = store.service.sql(&store.session, Vec::new(), Some(body)).await;
            let answer = crate::fixture::value(outcome);
            let Some(rows) = answer["datarows"].as_array() else {
                assert!(answer.to_string().contains("does not answer"), "{query}: {answer}");
                continue;
            };
            let sorted = |rows: &[Value]| {
                let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
                rows.sort();
                rows
            };
            assert_eq!(sorted(rows), sorted(expected), "{query}");
        }
    }
}

/// Rules of roles on documents and fields hold for elements and for highlights.
#[tokio::test]
async fn elements_keep_the_rules_of_their_reader() {
    let store = Store::open().await;
    store.create("numbers", &json!({"mappings": {"properties": {
        "n": {"type": "integer"}, "note": {"type": "text"},
        "jobs": {"type": "nested", "properties": {"title": {"type": "keyword"}, "year": {"type": "integer"}}}
    }}})).await;
    let document = |n: i64| json!({"n": n, "note": "urgent", "jobs": [{"title": "Cook", "year": n}]});
    store.index("numbers", &[document(1), document(2)]).await;
    let few = rights(Some(r#"{"range":{"n":{"lt":2}}}"#), None);
    let years = rights(None, Some("jobs.year"));
    let ask = async |rights: &_, query: &str| {
        let session = session(&store, Action::Sql, [rights, rights], 0);
        let outcome = store.service.sql(&session, Vec::new(), Some(json!({"query": query}))).await;
        (outcome.status, crate::fixture::value(outcome))
    };
    for (query, expected) in [
        ("SELECT p.year FROM numbers e, e.jobs p", json!([[1]])),
        ("SELECT nested(jobs.year) FROM numbers", json!([[1]])),
        (
            "SELECT n FROM numbers e WHERE EXISTS (SELECT * FROM e.jobs p WHERE p.title = 'Cook')",
            json!([[1]]),
        ),
        ("SELECT n FROM numbers WHERE nested(jobs, jobs.year > 0)", json!([[1]])),
        ("SELECT COUNT(*) FROM numbers GROUP BY nested(jobs.title)", json!([[1]])),
        ("SELECT highlight(note) FROM numbers WHERE match(note, 'urgent')", json!([[["<em>urgent</em>"]]])),
    ] {
        let (_, answer) = ask(&few, query).await;
        assert_eq!(answer["datarows"], expected, "{query}: {answer}");
    }
    let (_, answer) = ask(&years, "SELECT p, p.year FROM numbers e, e.jobs p ORDER BY 2").await;
    assert_eq!(answer["datarows"], json!([[{"year": 1}, 1], [{"year": 2}, 2]]), "{answer}");
    for query in [
        "SELECT p.title FROM numbers e, e.jobs p",
        "SELECT p.year FROM numbers e, e.jobs p WHERE p.title = 'Cook'",
        "SELECT nested(jobs.title) FROM numbers",
        "SELECT COUNT(*) FROM numbers WHERE nested(jobs, jobs.title = 'Cook')",
        "SELECT highlight(note) FROM numbers",
    ] {
        assert_eq!(ask(&years, query).await.0, 400, "{query}");
    }
}
