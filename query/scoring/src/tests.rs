use std::sync::Arc;

use millrace_mapping::Scalar;
use millrace_segment::ValueRange;
use millrace_work::QueryContext;
use millrace_work::compute::Stop;
use millrace_work::error::Error;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use roaring::RoaringBitmap;

use crate::END;
use crate::bm25::{Bm25, Statistics, idf};
use crate::collect::{self, Address, Cursor, SegmentPass, Top, Totals};
use crate::condition::{Condition, RowCount, SharedCondition};
use crate::fixture::{Fixture, KEYWORD, NUMBER, TEXT};
use crate::functions::ShardFunctions;
use crate::match_all::MatchAllScorer;
use crate::node::Node;
use crate::operands::{ExactValue, Weight};
use crate::phrase::{Phrase, PhrasePosition, PlaceTerms};
use crate::prepare::prepare;
use crate::reader::{SegmentReader, TextReader};
use crate::scaled::Scaled;
use crate::source::Source;

fn fixture() -> Arc<Fixture> {
    Fixture::new(&[
        ("disk full on node", "error", 1),
        ("disk ok", "info", 2),
        ("node joined", "info", 3),
        ("disk disk full", "error", 4),
        ("cluster green", "info", 5),
    ])
}

fn text(term: &str, slot: usize) -> Node {
    Node::Text { path: TEXT, term: term.into(), weight: Weight::Bm25(slot) }
}

fn keyword(value: &str) -> Node {
    let value = ExactValue { value: Scalar::Str(value.into()), range: None };
    Node::Exact { path: KEYWORD, column: KEYWORD, value, weight: Weight::None }
}

fn range(from: i64, to: i64) -> Node {
    Node::ColumnRange { column: NUMBER, terms: None, range: ValueRange::I64(from, to), weight: Weight::None }
}

/// Functions of `disk` (3 of 5 documents) and `full` (2 of 5), 13 tokens.
fn functions() -> ShardFunctions {
    let of = |doc_freq| Arc::new(Bm25::new(1.0, Statistics { docs: 5, doc_freq, tokens: 13 }));
    ShardFunctions { functions: vec![of(3), of(2)], expansions: Vec::new() }
}

fn prepared(node: &Node) -> (Source, SharedCondition) {
    let reader = fixture();
    let source = Source {
        number: 0,
        shard: 0,
        inverted: reader.inverted().unwrap(),
        reader,
        functions: Arc::new(functions()),
        ruled: None,
        work: QueryContext::default(),
    };
    let prepared = prepare(node, &source, None).unwrap();
    (source, prepared)
}

fn rows(node: Node) -> Vec<u32> {
    let (source, prepared) = prepared(&node);
    let mut scorer = prepared.scorer(source.inverted.as_ref(), 5).unwrap();
    let mut rows = Vec::new();
    while scorer.doc() != END {
        rows.push(scorer.doc());
        scorer.advance();
    }
    rows
}

#[test]
fn a_conjunction_ends_at_what_matches_nothing() {
    let matching = |value: &str| Node::Matching {
        path: KEYWORD,
        text: false,
        column: None,
        pattern: Arc::new(crate::automaton::Pattern::one_of([value.to_owned()].into_iter().collect())),
        weight: Weight::None,
    };
    let several = || Node::AtLeast(1, vec![matching("info"), matching("error")]);
    assert_eq!(rows(Node::And(vec![several(), matching("info"), keyword("info")])), [1, 2, 4]);
    for parts in [
        vec![several(), matching("nowhere")],
        vec![matching("nowhere"), several()],
        vec![several(), keyword("nowhere")],
        vec![several(), text("disk", 0), keyword("nowhere")],
    ] {
        assert_eq!(format!("{:?}", prepared(&Node::And(parts)).1), "MatchNoneScorer");
    }
    let optional = Node::AtLeast(0, vec![matching("nowhere")]);
    assert_eq!(rows(Node::And(vec![matching("info"), optional])), [1, 2, 4]);
}

#[test]
fn combinations_find_their_rows() {
    let not = |node| Node::Not(Box::new(node));
    assert_eq!(rows(Node::And(vec![text("disk", 0), text("full", 1)])), [0, 3]);
    assert_eq!(rows(Node::AtLeast(1, vec![text("full", 1), text("joined", 0)])), [0, 2, 3]);
    assert_eq!(rows(Node::AtLeast(2, vec![text("disk", 0), text("full", 1), text("node", 0)])), [0, 3]);
    assert_eq!(rows(Node::And(vec![keyword("info"), range(3, 9)])), [2, 4]);
    assert_eq!(rows(not(keyword("info"))), [0, 3]);
    assert_eq!(rows(Node::And(vec![not(keyword("error")), text("disk", 0)])), [1]);
    assert_eq!(rows(Node::And(vec![keyword("info"), Node::AtLeast(0, vec![text("disk", 0)])])), [1, 2, 4]);
    assert_eq!(rows(Node::AtLeast(0, vec![text("disk", 0)])), [0, 1, 2, 3, 4]);
    let ids: Arc<[String]> = vec!["1".to_owned(), "4".to_owned()].into();
    assert_eq!(rows(Node::Ids { values: ids, weight: Weight::None }), [1, 4]);
}

fn top(node: Node, limit: usize, cursor: Option<Cursor>) -> (Vec<(u32, f32)>, u64) {
    let (source, prepared) = prepared(&node);
    let (totals, stop, deleted) = (Totals::new(Some(u64::MAX)), Stop::default(), RoaringBitmap::new());
    let mut top = Top::new(limit, true, cursor);
    let pass = SegmentPass {
        segment: 0,
        rows: 5,
        range: 0..5,
        prepared: prepared.as_ref(),
        inverted: source.inverted.as_ref(),
        deleted: &deleted,
        totals: &totals,
        budget: None,
        stop: &stop,
    };
    collect::collect_top(&pass, &mut top, true).unwrap();
    let found = top.into_sorted().into_iter().map(|found| (found.address.row, found.score)).collect();
    (found, totals.read().0)
}

#[test]
fn scores_add_up_and_order() {
    let node = Node::AtLeast(1, vec![text("disk", 0), text("full", 1)]);
    let (found, total) = top(node, 2, None);
    assert_eq!(total, 3);
    assert_eq!(found.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [3, 0]);
    // Row 3: "disk" twice and "full" once in three tokens, 2.6 on average.
    let part = |idf: f32, tf: f32| 2.2 * idf * tf / (tf + 1.2 * (0.25 + 0.75 * 3.0 / 2.6));
    let expected = part(idf(5, 3), 2.0) + part(idf(5, 2), 1.0);
    assert!((found[0].1 - expected).abs() < 1e-5, "{} is not {expected}", found[0].1);
}

#[test]
fn filters_do_not_score_and_optional_clauses_do() {
    let (found, _) = top(Node::And(vec![keyword("error"), range(0, 9)]), 10, None);
    assert_eq!(found, [(0, 0.0), (3, 0.0)]);
    let optional = Node::AtLeast(0, vec![text("disk", 0)]);
    let (found, _) = top(Node::And(vec![keyword("info"), optional]), 10, None);
    assert_eq!(found.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2, 4]);
    assert!(found[0].1 > 0.0 && found[1].1 == 0.0);
    let constant = Node::Constant(3.0, Box::new(keyword("error")));
    assert_eq!(top(constant, 10, None).0, [(0, 3.0), (3, 3.0)]);
}

#[test]
fn a_cursor_goes_on_behind_ties() {
    let all = || Node::All(Weight::Constant(1.0));
    let (found, _) = top(all(), 2, None);
    assert_eq!(found, [(0, 1.0), (1, 1.0)]);
    let address = Some(Address { segment: 0, row: 1 });
    let (found, total) = top(all(), 2, Some(Cursor { score: Some(1.0), address }));
    assert_eq!((found, total), (vec![(2, 1.0), (3, 1.0)], 5));
    let (found, _) = top(all(), 2, Some(Cursor { score: Some(1.0), address: None }));
    assert!(found.is_empty());
}

#[test]
fn counts_come_from_the_index_where_nothing_is_deleted() {
    let (source, prepared) = prepared(&keyword("info"));
    let inverted = source.inverted.as_ref();
    let none = RoaringBitmap::new();
    let of = |deleted| RowCount { inverted, rows: 5, deleted, all: true };
    assert_eq!(prepared.known_count(&of(&none)).unwrap(), Some(3));
    let some: RoaringBitmap = [1].into_iter().collect();
    assert_eq!(prepared.known_count(&of(&some)).unwrap(), None);
    assert_eq!(MatchAllScorer(1.0).known_count(&of(&some)).unwrap(), Some(4));
}

#[test]
fn totals_stop_beyond_what_is_tracked() {
    let totals = Totals::new(Some(2));
    let (source, prepared) = prepared(&Node::All(Weight::None));
    let (stop, deleted) = (Stop::default(), RoaringBitmap::new());
    let pass = SegmentPass {
        segment: 0,
        rows: 5,
        range: 0..5,
        prepared: prepared.as_ref(),
        inverted: source.inverted.as_ref(),
        deleted: &deleted,
        totals: &totals,
        budget: None,
        stop: &stop,
    };
    collect::count(&pass).unwrap();
    assert_eq!(totals.read(), (2, true));
}

/// Tests that rows which are skipped for their score are never among the best.
#[test]
fn the_best_are_found_without_visiting_all() {
    let mut rng = StdRng::seed_from_u64(17);
    let words = ["a", "b", "c", "d", "e"];
    for round in 0..60 {
        let rows: Vec<(String, String, i64)> = (0..rng.random_range(50..200))
            .map(|number| {
                let common = rng.random_range(0..3);
                let text: Vec<&str> = (0..rng.random_range(1..12))
                    .map(|_| words[rng.random_range(0..words.len()).min(rng.random_range(0..5) + common)])
                    .collect();
                (text.join(" "), words[rng.random_range(0..2)].to_owned(), number)
            })
            .collect();
        let rows: Vec<(&str, &str, i64)> =
            rows.iter().map(|row| (row.0.as_str(), row.1.as_str(), row.2)).collect();
        let reader = Fixture::new(&rows);
        let text_index: &dyn TextReader = reader.as_ref();
        let functions = words.map(|word| {
            let doc_freq = text_index.count(word).unwrap().into();
            // The shard's average is not the segment's.
            let tokens = text_index.tokens() * rng.random_range(1..4) / 2 + 1;
            let statistics = Statistics { docs: text_index.docs().into(), doc_freq, tokens };
            Arc::new(Bm25::new(rng.random_range(1..4) as f32, statistics))
        });
        let functions = Arc::new(ShardFunctions { functions: functions.to_vec(), expansions: Vec::new() });
        let term = |at: usize| text(words[at], at);
        let place = |offset: u32, at: usize| PhrasePosition {
            offset,
            terms: PlaceTerms::Fixed(vec![words[at].to_owned()]),
        };
        let phrase = |slop: u32| Node::Phrase {
            path: TEXT,
            phrase: Arc::new(Phrase::Places(vec![place(0, 0), place(1, 1)], slop)),
            values: None,
            weight: Weight::Bm25(2),
        };
        let nodes = [
            term(0),
            Node::AtLeast(1, vec![term(0), term(1), term(4)]),
            Node::AtLeast(1, vec![term(1), Node::And(vec![term(0), term(2)]), phrase(0)]),
            Node::And(vec![term(0), term(1), keyword("a")]),
            Node::And(vec![Node::AtLeast(1, vec![term(0), term(3)]), keyword("b")]),
            Node::And(vec![term(0), Node::Not(Box::new(term(4)))]),
            Node::And(vec![term(1), Node::AtLeast(0, vec![term(2), term(3)])]),
            Node::And(vec![term(1), Node::AtLeast(1, vec![term(2), term(3), term(0)])]),
            phrase(0),
            phrase(2),
        ];
        for (number, node) in nodes.iter().enumerate() {
            let source = Source {
                number: 0,
                shard: 0,
                inverted: reader.inverted().unwrap(),
                reader: Arc::clone(&reader) as Arc<dyn SegmentReader>,
                functions: Arc::clone(&functions),
                ruled: None,
                work: QueryContext::default(),
            };
            let prepared = prepare(node, &source, None).unwrap();
            let run = |limit: usize, track: Option<u64>| {
                let (totals, stop, deleted) = (Totals::new(track), Stop::default(), RoaringBitmap::new());
                let mut top = Top::new(limit, true, None);
                let pass = SegmentPass {
                    segment: 0,
                    rows: rows.len() as u32,
                    range: 0..rows.len() as u32,
                    prepared: prepared.as_ref(),
                    inverted: source.inverted.as_ref(),
                    deleted: &deleted,
                    totals: &totals,
                    budget: None,
                    stop: &stop,
                };
                collect::collect_top(&pass, &mut top, true).unwrap();
                top.into_sorted()
            };
            let all = run(rows.len(), Some(u64::MAX));
            for limit in [1, 3, 10] {
                assert_eq!(run(limit, None), all[..limit.min(all.len())], "round {round}, node {number}");
            }
        }
    }
}

#[test]
fn a_least_score_that_no_row_reaches_ends_with_its_work() {
    let work = QueryContext::default();
    drop(work.until_dropped());
    let scaled = Scaled::new(Arc::new(MatchAllScorer(1.0)), 1.0, Some(2.0), &work);
    let fixture = fixture();
    let mut scorer = scaled.scorer(fixture.as_ref(), 1 << 20).unwrap();
    assert_eq!((scorer.doc(), scorer.advance(), scorer.seek(1 << 19)), (END, END, END));
    assert!(matches!(scaled.failure(), Some(Error::TimedOut)));
}
