use std::ops::Range;

use millrace_dsl::sort::Mode;
use millrace_mapping::ColumnKind;
use millrace_scoring::collect::{SegmentPass, Totals};
use millrace_scoring::fixture::{Fixture, KEYWORD};
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::row_set::RowSet;
use millrace_work::QueryContext;
use millrace_work::compute::Stop;

use super::terms::Terms;
use super::*;
use crate::table::keys::{MissingKey, Rescale};

fn keyword_key() -> Key {
    let source = KeySource {
        column: KEYWORD,
        terms: Some(KEYWORD),
        kind: ColumnKind::Str,
        ignore_above: None,
        rescale: Rescale::None,
        single: false,
        distance: None,
        derived: None,
    };
    Key {
        name: "k".into(),
        kind: KeyKind::Str,
        nulls_first: false,
        mode: Mode::Min,
        fill: MissingKey::Null,
        sources: vec![Some(source)],
    }
}

/// The runs of rows that terms give of some matches, and whether they give up.
fn given(
    segment: &Arc<Fixture>,
    matches: Range<u32>,
    sought: bool,
    asked: TopRowsRequest,
) -> (Vec<Vec<u32>>, bool) {
    let rows = SegmentReader::rows(segment.as_ref());
    let source = Source {
        number: 0,
        shard: 0,
        inverted: segment.inverted().unwrap(),
        reader: Arc::clone(segment) as Arc<dyn SegmentReader>,
        functions: Arc::default(),
        ruled: None,
        work: QueryContext::default(),
    };
    let prepared = RowSet { rows: matches.collect(), score: 0.0 };
    // All are found where all are counted.
    let totals = Totals::new((!sought).then_some(u64::MAX));
    let (stop, deleted) = (Stop::default(), RoaringBitmap::new());
    let pass = SegmentPass {
        segment: 0,
        rows,
        range: 0..rows,
        prepared: &prepared,
        inverted: source.inverted.as_ref(),
        deleted: &deleted,
        totals: &totals,
        budget: None,
        stop: &stop,
    };
    let (key, part) = (keyword_key(), RowPartition { segment: 0, rows: 0..rows });
    let threshold = Threshold::of_key(&key, asked).unwrap();
    let matches = Matches::count(pass).unwrap();
    if !sought {
        matches.all().unwrap();
    }
    let place = KeyPart { source: &source, part: &part, key: &key, matches: &matches, threshold: &threshold };
    let of = key.sources[0].as_ref().unwrap();
    let Some(mut terms) = Terms::open(place, of).unwrap() else { return (Vec::new(), true) };
    let mut runs = Vec::new();
    loop {
        match terms.next(&threshold).unwrap() {
            SourceStep::Done => return (runs, false),
            SourceStep::GivenUp => return (runs, true),
            SourceStep::Run(run) => {
                let rows: Vec<u32> = run.rows.iter().collect();
                let (_, values) = run.values.unwrap();
                let keys = threshold.compared(&values).unwrap();
                threshold.admit(0, &rows, &keys, Some(&values)).unwrap();
                runs.push(rows);
            }
        }
    }
}

fn segment(keyword: impl Fn(u32) -> u32) -> Arc<Fixture> {
    let keywords: Vec<String> = (0..6_000).map(|row| format!("{:04}", keyword(row))).collect();
    let rows: Vec<(&str, &str, i64)> = keywords.iter().map(|keyword| ("", keyword.as_str(), 0)).collect();
    Fixture::new(&rows)
}

const ASKED: TopRowsRequest =
    TopRowsRequest { limit: 5, grouped: false, descending: false, by_address: true, after: None };

#[test]
fn a_walk_over_terms_without_wanted_rows_is_given_up() {
    let segment = segment(|row| row);
    // Thousands of terms come before those of the last rows.
    assert!(given(&segment, 5_900..6_000, false, ASKED) == (vec![], true));
    let first = vec![100, 101, 102, 103, 104];
    assert!(given(&segment, 100..200, false, ASKED) == (vec![first], false));
}

#[test]
fn rows_of_first_terms_are_looked_for_among_matches() {
    // Fifty rows a term, of which the first are behind the others.
    let segment = segment(|row| (5_999 - row) / 50);
    let first = vec![5_950, 5_951, 5_952, 5_953, 5_954];
    for sought in [false, true] {
        assert!(given(&segment, 0..6_000, sought, ASKED) == (vec![first.clone()], false));
    }
    // Where other keys decide between rows that tie, all of a term are.
    let first: Vec<u32> = (5_950..6_000).collect();
    let tied = TopRowsRequest { by_address: false, ..ASKED };
    assert!(given(&segment, 0..6_000, true, tied) == (vec![first], false));
    let last = TopRowsRequest { descending: true, ..ASKED };
    assert!(given(&segment, 0..6_000, false, last) == (vec![vec![0, 1, 2, 3, 4]], false));
}

#[test]
fn terms_go_on_until_there_are_enough_groups() {
    let segment = segment(|row| row / 20);
    for sought in [false, true] {
        let (runs, gave_up) = given(&segment, 10..6_000, sought, TopRowsRequest { grouped: true, ..ASKED });
        let rows: Vec<u32> = runs.concat();
        // The first four groups with all rows, and one row at least of the fifth.
        assert!(rows.len() >= 71 && rows[..71].iter().copied().eq(10..81) && !gave_up);
        assert!(rows.len() <= 400 && rows.is_sorted_by(|a, b| a < b));
    }
}
