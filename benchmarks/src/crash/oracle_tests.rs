//! The oracle must accept what a correct server may do, and nothing else.

use super::*;
use serde_json::json;

fn operation(id: &str, change: Change) -> Operation {
    Operation { id: Some(id.to_owned()), change }
}

fn answer(status: u16, id: &str, version: u64, seq_no: u64) -> Answer {
    Answer { status, id: id.to_owned(), version, seq_no, primary_term: 1 }
}

fn stored(version: u64, seq_no: u64, source: Value) -> ServedDocument {
    ServedDocument { version, seq_no, primary_term: 1, source }
}

fn source(token: &str) -> Value {
    json!({"token": token, "n": 1})
}

/// A model with document `a` at version 1.
fn model() -> Model {
    let mut model = Model::default();
    model.acknowledge(&operation("a", Change::Index(source("t1"))), &answer(201, "a", 1, 4)).unwrap();
    model
}

#[test]
fn an_acknowledged_document_must_be_there_as_it_was() {
    model().observe("a", Some(&stored(1, 4, source("t1")))).unwrap();
    for wrong in [
        None,
        Some(stored(2, 4, source("t1"))),
        Some(stored(1, 5, source("t1"))),
        Some(stored(1, 4, source("t2"))),
    ] {
        assert!(model().observe("a", wrong.as_ref()).is_err(), "{wrong:?}");
    }
    assert!(model().observe("never", None).is_err());
}

#[test]
fn a_request_that_was_cut_off_leaves_any_prefix() {
    let operations = [
        operation("a", Change::Index(source("t2"))),
        operation("b", Change::Create(source("t3"))),
        operation("a", Change::Update(json!({"n": 2}))),
        operation("a", Change::Delete),
    ];
    let mut lost = model();
    lost.lose(&operations);
    for right in [
        Some(stored(1, 4, source("t1"))),
        Some(stored(2, 7, source("t2"))),
        Some(stored(3, 9, json!({"token": "t2", "n": 2}))),
        None,
    ] {
        lost.clone().observe("a", right.as_ref()).unwrap();
    }
    for wrong in [stored(3, 9, source("t2")), stored(2, 8, json!({"token": "t1", "n": 2}))] {
        assert!(lost.clone().observe("a", Some(&wrong)).is_err(), "{wrong:?}");
    }
    lost.clone().observe("b", None).unwrap();
    lost.observe("b", Some(&stored(1, 8, source("t3")))).unwrap();
    // What was observed once is the truth from then on.
    assert!(lost.observe("b", None).is_err());
}

#[test]
fn answers_must_fit_what_was_acknowledged() {
    let refuse = |operation: Operation, answer: Answer| {
        assert!(model().acknowledge(&operation, &answer).is_err(), "{operation:?} {answer:?}");
    };
    refuse(operation("a", Change::Create(source("t2"))), answer(201, "a", 1, 5));
    refuse(operation("a", Change::Index(source("t2"))), answer(201, "a", 1, 5));
    refuse(operation("a", Change::Index(source("t2"))), answer(200, "a", 3, 5));
    refuse(operation("a", Change::Index(source("t2"))), answer(200, "a", 2, 4));
    refuse(operation("a", Change::Index(source("t2"))), answer(200, "b", 2, 5));
    refuse(operation("b", Change::Update(source("t2"))), answer(200, "b", 1, 5));
    refuse(operation("a", Change::Swap { seq_no: 3, source: source("t2") }), answer(200, "a", 2, 5));
    refuse(operation("a", Change::Swap { seq_no: 4, source: source("t2") }), answer(409, "a", 0, 0));
    let mut model = model();
    model.acknowledge(&operation("a", Change::Create(source("t2"))), &answer(409, "a", 0, 0)).unwrap();
    model
        .acknowledge(
            &operation("a", Change::Swap { seq_no: 4, source: source("t3") }),
            &answer(200, "a", 2, 5),
        )
        .unwrap();
    assert_eq!(model.sequence("a"), Some((5, 1)));
    model.acknowledge(&operation("a", Change::Delete), &answer(200, "a", 3, 6)).unwrap();
    assert_eq!(model.sequence("a"), None);
    // Whether a version goes on after a delete depends on how long ago that was.
    model.acknowledge(&operation("a", Change::Index(source("t4"))), &answer(201, "a", 4, 7)).unwrap();
    model.observe("a", Some(&stored(4, 7, source("t4")))).unwrap();
}

#[test]
fn a_generated_document_is_stored_at_most_once() {
    let generated = |token: &str| Operation { id: None, change: Change::Index(source(token)) };
    let mut model = Model::default();
    model.acknowledge(&generated("g1"), &answer(201, "id-1", 1, 1)).unwrap();
    assert!(model.clone().acknowledge(&generated("g9"), &answer(201, "id-1", 1, 2)).is_err());
    model.lose(&[generated("g2")]);
    assert!(model.observe_hit("id-1", &source("g1")).unwrap());
    assert!(model.observe_hit("id-2", &source("g2")).unwrap());
    // The same token under another id, and a token that nobody sent.
    assert!(!model.observe_hit("id-3", &source("g2")).unwrap());
    assert!(!model.observe_hit("id-4", &source("g1")).unwrap());
    assert!(model.observe_hit("id-1", &source("other")).is_err());
    model.observe("id-2", Some(&stored(1, 5, source("g2")))).unwrap();
}

#[test]
fn the_model_forgets_what_is_gone() {
    let mut model = model();
    model.acknowledge(&operation("g", Change::Index(source("t"))), &answer(201, "g", 1, 8)).unwrap();
    model.acknowledge(&operation("g", Change::Delete), &answer(200, "g", 2, 9)).unwrap();
    model.forget_absent(|id| id == "g");
    assert_eq!(model.ids().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn counters_count_every_acknowledged_increment() {
    let mut counter = Counter::default();
    for value in [1, 3, 2] {
        counter.acknowledge(value).unwrap();
    }
    assert!(counter.clone().acknowledge(2).is_err());
    assert!(counter.clone().observe(2).is_err());
    assert!(counter.clone().observe(4).is_err());
    counter.lose();
    counter.clone().observe(3).unwrap();
    counter.observe(4).unwrap();
    assert!(counter.clone().acknowledge(4).is_err());
    counter.acknowledge(5).unwrap();
    counter.observe(5).unwrap();
}
