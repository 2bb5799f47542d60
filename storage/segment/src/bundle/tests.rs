//! Bundles against a naive model: rows of values, searched one by one.

use std::collections::{BTreeMap, BTreeSet};

use millrace_mapping::analysis::Analyzers;
use millrace_mapping::document::{Chunk, Column, Elements, Strings, Values};
use millrace_mapping::term::{MAX_TERM_BYTES, MAX_WILDCARD_BYTES, check_term, check_wildcard};
use millrace_mapping::{ColumnKind, PathId, Scalar};
use millrace_runtime::{Error, Kind};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tantivy::directory::OwnedBytes;
use tantivy::postings::Postings;
use tantivy::{DocSet, TERMINATED};

use super::*;

const BODY: PathId = PathId(1);
const BODY_RAW: PathId = PathId(2);
const HOST: PathId = PathId(3);
const STATUS: PathId = PathId(4);
const OK: PathId = PathId(5);
const CLIENT: PathId = PathId(6);
const LINE: PathId = PathId(7);
const NOTE: PathId = PathId(8);
const RATE: PathId = PathId(9);
const USER: PathId = PathId(10);
const RAW_LIMIT: usize = 6;

#[derive(Clone, Debug, Default)]
struct Row {
    body: Vec<String>,
    host: Vec<String>,
    status: Vec<i64>,
    ok: Vec<bool>,
    client: Vec<[u8; 16]>,
    line: Vec<String>,
    note: Vec<String>,
    rate: Vec<f64>,
    user: Vec<String>,
}

fn specs(analyzers: &Analyzers) -> Vec<FieldSpec<'_>> {
    let analyzer = analyzers.get("standard").unwrap();
    let exact = Indexing::Exact { ignore_above: None };
    let text = |record, norms| Indexing::Text { analyzer, record, norms, gap: 100 };
    let spec = |id, column, indexing| FieldSpec { id, path: "field", column, indexing };
    vec![
        spec(USER, USER, exact),
        spec(BODY, BODY, text(Record::Positions, true)),
        spec(BODY_RAW, BODY, Indexing::Exact { ignore_above: Some(RAW_LIMIT) }),
        spec(HOST, HOST, exact),
        spec(STATUS, STATUS, Indexing::Number),
        spec(OK, OK, exact),
        spec(CLIENT, CLIENT, exact),
        spec(LINE, LINE, text(Record::Rows, false)),
        spec(NOTE, NOTE, text(Record::Frequencies, false)),
        spec(RATE, RATE, Indexing::PresenceOnly),
    ]
}

fn column<T>(
    id: PathId,
    rows: &[Row],
    of: impl Fn(&Row) -> &Vec<T>,
    values: impl Fn(Vec<&T>) -> Values,
) -> Column {
    let mut numbers = Vec::new();
    let mut flat = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        for value in of(row) {
            numbers.push(number as u32);
            flat.push(value);
        }
    }
    Column { id, kind: ColumnKind::Str, rows: numbers, values: values(flat) }
}

fn strings(values: Vec<&String>) -> Values {
    let mut strings = Strings::default();
    let mut keys: BTreeMap<&str, u32> = BTreeMap::new();
    // A value that no row has: dictionaries may hold such after rows were left out.
    strings.bytes.extend_from_slice(b"unused");
    strings.ends.push(6);
    for value in values {
        let key = *keys.entry(value).or_insert_with(|| {
            strings.bytes.extend_from_slice(value.as_bytes());
            strings.ends.push(strings.bytes.len() as u32);
            strings.ends.len() as u32 - 1
        });
        strings.keys.push(key);
    }
    Values::Str(strings)
}

fn chunk(rows: &[Row]) -> Chunk {
    Chunk {
        rows: rows.len() as u32,
        columns: vec![
            column(BODY, rows, |row| &row.body, strings),
            column(HOST, rows, |row| &row.host, strings),
            column(STATUS, rows, |row| &row.status, |v| Values::I64(v.into_iter().copied().collect())),
            column(OK, rows, |row| &row.ok, |v| Values::Bool(v.into_iter().copied().collect())),
            column(CLIENT, rows, |row| &row.client, |v| Values::Ip(v.into_iter().copied().collect())),
            column(LINE, rows, |row| &row.line, strings),
            column(NOTE, rows, |row| &row.note, strings),
            column(RATE, rows, |row| &row.rate, |v| Values::F64(v.into_iter().copied().collect())),
            column(USER, rows, |row| &row.user, strings),
        ],
        ..Chunk::default()
    }
}

fn built(analyzers: &Analyzers, rows: &[Row]) -> Vec<u8> {
    build_fields(&specs(analyzers), &chunk(rows)).unwrap()
}

fn opened(bytes: Vec<u8>) -> Bundle {
    Bundle::open(OwnedBytes::new(bytes), "test.bundle", true).unwrap()
}

fn drain<P: Postings>(postings: Option<P>) -> Vec<u32> {
    let mut rows = Vec::new();
    if let Some(mut postings) = postings {
        while postings.doc() != TERMINATED {
            rows.push(postings.doc());
            postings.advance();
        }
    }
    rows
}

/// Rows for which `holds`.
fn expected(rows: &[Row], holds: impl Fn(&Row) -> bool) -> Vec<u32> {
    (0..rows.len() as u32).filter(|&row| holds(&rows[row as usize])).collect()
}

/// Positions of each term of a field's values, by the rules of Lucene.
fn positions(analyzers: &Analyzers, values: &[String]) -> BTreeMap<String, Vec<u32>> {
    let mut terms: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut base = 0;
    for value in values {
        let outcome = analyzers.get("standard").unwrap().run(value, &mut |token| {
            terms.entry(token.text.clone()).or_default().push(base + token.position);
        });
        base += outcome.positions + 100;
    }
    terms
}

fn check(analyzers: &Analyzers, bundle: &Bundle, rows: &[Row]) {
    assert_eq!(bundle.rows(), rows.len() as u32);
    let raw = |row: &Row| -> Vec<String> {
        row.body.iter().filter(|value| value.encode_utf16().count() <= RAW_LIMIT).cloned().collect()
    };
    let user = |row: &Row| -> Vec<String> { row.user.clone() };
    let host = |row: &Row| -> Vec<String> { row.host.clone() };
    check_strings(bundle, rows, BODY_RAW, raw);
    check_strings(bundle, rows, HOST, host);
    check_strings(bundle, rows, USER, user);
    for status in -3..4 {
        let found = drain(bundle.postings(STATUS, &Scalar::I64(status)).unwrap());
        assert_eq!(found, expected(rows, |row| row.status.contains(&status)));
        assert_eq!(bundle.doc_freq(STATUS, &Scalar::I64(status)).unwrap(), found.len() as u32);
    }
    for (from, to) in [(-3, 3), (-1, 1), (0, 0), (2, 1)] {
        let range = (&Scalar::I64(from), &Scalar::I64(to));
        let found = bundle.few_rows(STATUS, range, 6, u32::MAX).unwrap().expect("few terms");
        let wanted = expected(rows, |row| row.status.iter().any(|status| (from..=to).contains(status)));
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted);
        let occurrences = rows.iter().map(|row| {
            let own: BTreeSet<i64> = row.status.iter().copied().collect();
            own.range(from..=to.max(from)).filter(|status| **status <= to).count()
        });
        let most: usize = occurrences.sum();
        if most > 0 {
            assert!(bundle.few_rows(STATUS, range, 6, most as u32 - 1).unwrap().is_none());
            assert!(bundle.few_rows(STATUS, range, 0, u32::MAX).unwrap().is_none());
        }
    }
    for ok in [false, true] {
        let found = drain(bundle.postings(OK, &Scalar::Bool(ok)).unwrap());
        assert_eq!(found, expected(rows, |row| row.ok.contains(&ok)));
    }
    for client in rows.iter().flat_map(|row| &row.client) {
        let found = drain(bundle.postings(CLIENT, &Scalar::Ip(*client)).unwrap());
        assert_eq!(found, expected(rows, |row| row.client.contains(client)));
    }
    assert_eq!(drain(bundle.exists(BODY).unwrap()), expected(rows, |row| !row.body.is_empty()));
    assert_eq!(drain(bundle.exists(STATUS).unwrap()), expected(rows, |row| !row.status.is_empty()));
    assert_eq!(drain(bundle.exists(RATE).unwrap()), expected(rows, |row| !row.rate.is_empty()));
    if rows.iter().any(|row| !row.rate.is_empty()) {
        assert!(!bundle.has_exact(RATE));
    }
    check_text(analyzers, bundle, rows, BODY, Record::Positions, |row| &row.body);
    check_text(analyzers, bundle, rows, LINE, Record::Rows, |row| &row.line);
    check_text(analyzers, bundle, rows, NOTE, Record::Frequencies, |row| &row.note);
}

fn check_strings(bundle: &Bundle, rows: &[Row], path: PathId, of: impl Fn(&Row) -> Vec<String>) {
    let values: BTreeSet<String> = rows.iter().flat_map(&of).collect();
    assert!(bundle.has_exact(path));
    let mut listed = Vec::new();
    bundle
        .for_each_value(path, &mut |value, count| {
            listed.push((String::from_utf8(value.to_vec()).unwrap(), count));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    let counts: Vec<(String, u32)> = values
        .iter()
        .map(|value| (value.clone(), expected(rows, |row| of(row).contains(value)).len() as u32))
        .collect();
    assert_eq!(listed, counts);
    for value in values.iter().chain([&"unused".to_owned()]) {
        let scalar = Scalar::Str(value.clone());
        assert_eq!(
            drain(bundle.postings(path, &scalar).unwrap()),
            expected(rows, |row| of(row).contains(value))
        );
    }
    let looked_up: Vec<Scalar> =
        values.iter().chain([&"unused".to_owned()]).cloned().map(Scalar::Str).collect();
    let of_values = |most: u64| {
        let mut found = vec![Vec::new(); values.len() + 1];
        let mut add = |place: usize, rows: &[u32]| found[place].extend_from_slice(rows);
        let few = bundle.rows_of_values(path, &looked_up, most, &|| true, &mut add).unwrap();
        few.then_some(found)
    };
    let found: Vec<Vec<u32>> =
        looked_up.iter().map(|value| drain(bundle.postings(path, value).unwrap())).collect();
    let most = found.iter().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(of_values(most), Some(found));
    assert!(most == 0 || of_values(most - 1).is_none());
    let prefix: String =
        values.iter().next().map(|value| value.chars().take(1).collect()).unwrap_or_default();
    let found: Vec<u32> = bundle.prefix_rows(path, prefix.as_bytes(), &|| true).unwrap().iter().collect();
    assert_eq!(found, expected(rows, |row| of(row).iter().any(|value| value.starts_with(&prefix))));
    if let (Some(low), Some(high)) = (values.first(), values.last()) {
        for (low_in, high_in) in [(true, true), (false, false), (true, false)] {
            let found: Vec<u32> = bundle
                .range_rows(path, Some((low.as_bytes(), low_in)), Some((high.as_bytes(), high_in)), &|| true)
                .unwrap()
                .iter()
                .collect();
            let within = |value: &String| {
                (value > low || (low_in && value == low)) && (value < high || (high_in && value == high))
            };
            assert_eq!(found, expected(rows, |row| of(row).iter().any(within)));
        }
    }
    let all: Vec<u32> = bundle.range_rows(path, None, None, &|| true).unwrap().iter().collect();
    assert_eq!(all, expected(rows, |row| !of(row).is_empty()));
    assert_eq!(all, drain(bundle.exists(path).unwrap()));
    assert_eq!(bundle.exists_count(path).unwrap(), all.len() as u32);
}

fn check_text(
    analyzers: &Analyzers,
    bundle: &Bundle,
    rows: &[Row],
    path: PathId,
    record: Record,
    of: impl Fn(&Row) -> &Vec<String>,
) {
    let rows: Vec<BTreeMap<String, Vec<u32>>> =
        rows.iter().map(|row| positions(analyzers, of(row))).collect();
    let doc_count = rows.iter().filter(|row| !row.is_empty()).count() as u32;
    let Some(text) = bundle.text(path) else {
        assert_eq!(doc_count, 0);
        return;
    };
    assert!(!bundle.has_exact(path));
    assert_eq!(text.doc_count(), doc_count);
    let frequency = |positions: &Vec<u32>| match record {
        Record::Rows => 1,
        _ => positions.len() as u64,
    };
    assert_eq!(text.total_tokens(), rows.iter().flat_map(|row| row.values()).map(frequency).sum::<u64>());
    let terms: BTreeSet<&String> = rows.iter().flat_map(|row| row.keys()).collect();
    let mut listed = Vec::new();
    text.for_each_term("", &mut |term, _| {
        listed.push(String::from_utf8(term.to_vec()).unwrap());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(listed.iter().eq(terms.iter().copied()));
    for term in terms {
        let mut postings = text.postings(term).unwrap().expect("the term is there");
        let mut count = 0;
        for (row, terms) in rows.iter().enumerate() {
            let Some(expected) = terms.get(term) else { continue };
            count += 1;
            assert_eq!(postings.doc(), row as u32);
            if record != Record::Rows {
                assert_eq!(postings.term_freq(), expected.len() as u32);
            }
            if record == Record::Positions {
                let mut found = Vec::new();
                postings.positions(&mut found);
                assert_eq!(&found, expected);
            }
            postings.advance();
        }
        assert_eq!(postings.doc(), TERMINATED);
        assert_eq!(text.doc_freq(term).unwrap(), count);
        let found: Vec<u32> = text.prefix_rows(&term[..1], &|| true).unwrap().iter().collect();
        let with_prefix =
            |row: &BTreeMap<String, Vec<u32>>| row.keys().any(|other| other.starts_with(&term[..1]));
        let expected: Vec<u32> =
            (0..rows.len() as u32).filter(|&row| with_prefix(&rows[row as usize])).collect();
        assert_eq!(found, expected);
    }
    if text.has_norms() {
        for (number, row) in rows.iter().enumerate() {
            let length: usize = row.values().map(Vec::len).sum();
            assert!(length < 40, "exactly encoded");
            assert_eq!(text.norm(number as u32), length as u32);
        }
    }
}

fn row() -> impl Strategy<Value = Row> {
    let word = prop::sample::select(vec!["alpha", "beta", "gamma", "delta", "Gamma", "be", "x1"]);
    let sentence = prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "));
    let texts = move || prop::collection::vec(sentence.clone(), 0..3);
    let name = prop::sample::select(vec!["a", "b", "ab", "", "Ab", "host-1", "zé"]).prop_map(str::to_owned);
    let names = move || prop::collection::vec(name.clone(), 0..3);
    (
        (texts(), names(), prop::collection::vec(-2i64..3, 0..3)),
        (prop::collection::vec(any::<bool>(), 0..2), prop::collection::vec(0u8..4, 0..2)),
        (texts(), texts(), prop::collection::vec(any::<u8>(), 0..2), names()),
    )
        .prop_map(|((body, host, status), (ok, client), (line, note, rate, user))| Row {
            body,
            host,
            status,
            ok,
            client: client.into_iter().map(|last| [last; 16]).collect(),
            line,
            note,
            rate: rate.into_iter().map(f64::from).collect(),
            user,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn answers_as_the_model(rows in prop::collection::vec(row(), 0..200)) {
        let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
        check(&analyzers, &opened(built(&analyzers, &rows)), &rows);
    }

    #[test]
    fn merging_equals_building(
        parts in prop::collection::vec(prop::collection::vec((row(), prop::bool::weighted(0.7)), 0..120), 1..4),
        interleave in any::<bool>(),
    ) {
        let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
        let bundles: Vec<Bundle> = parts
            .iter()
            .map(|part| opened(built(&analyzers, &part.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>())))
            .collect();
        let live: Vec<(usize, usize)> = parts
            .iter()
            .enumerate()
            .flat_map(|(at, part)| (0..part.len()).filter(move |&row| part[row].1).map(move |row| (at, row)))
            .collect();
        let mut order = live.clone();
        if interleave {
            // A sort key that has nothing to do with the order of writing.
            order.sort_by_key(|&(at, row)| (row * 7919 % 13, at, row));
        }
        let mut maps: Vec<Vec<u32>> = parts.iter().map(|part| vec![u32::MAX; part.len()]).collect();
        for (target, &(at, row)) in order.iter().enumerate() {
            maps[at][row] = target as u32;
        }
        let inputs: Vec<(&Bundle, RowMap)> =
            bundles.iter().zip(&maps).map(|(bundle, map)| (bundle, RowMap::Table(map.clone().into()))).collect();
        let scratch = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        merge(&inputs, order.len() as u32, scratch.path(), &mut out).unwrap();
        let rows: Vec<Row> = order.iter().map(|&(at, row)| parts[at][row].0.clone()).collect();
        check(&analyzers, &opened(out), &rows);
        prop_assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}

fn sample(rows: usize) -> Vec<Row> {
    (0..rows)
        .map(|row| Row {
            body: vec![format!("alpha {} beta", ["x", "y", "z y y"][row % 3])],
            host: vec![format!("host-{}", row % 5)],
            status: vec![(row % 3) as i64],
            ok: vec![row % 2 == 0],
            note: if row % 50 == 0 { vec!["rare note".to_owned()] } else { vec![] },
            ..Row::default()
        })
        .collect()
}

#[test]
fn long_posting_lists_survive_build_and_merge() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let rows = sample(1500);
    let (first, second) = (opened(built(&analyzers, &rows[..700])), opened(built(&analyzers, &rows[700..])));
    check(&analyzers, &first, &rows[..700]);
    let scratch = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let inputs = [(&first, RowMap::Offset(0)), (&second, RowMap::Offset(700))];
    merge(&inputs, 1500, scratch.path(), &mut out).unwrap();
    let merged = opened(out);
    check(&analyzers, &merged, &rows);
    // Without deletions a merge is what building would have made, to the byte.
    assert_eq!(built(&analyzers, &rows).len(), merged.size_bytes());
}

#[test]
fn block_maxima_bound_every_score() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let bundle = opened(built(&analyzers, &sample(1000)));
    let text = bundle.text(BODY).unwrap();
    let weight =
        tantivy::query::Bm25Weight::for_one_term_without_explain(1000, 1000, text.block_max_average());
    let mut postings = text.postings("y").unwrap().unwrap();
    let mut blocks = {
        let info = text.reader.terms().get([&1u32.to_be_bytes()[..], b"y"].concat()).unwrap().unwrap();
        text.reader.read_block_postings_from_terminfo(&info, Record::Positions.option()).unwrap()
    };
    while !blocks.docs().is_empty() {
        for _ in 0..blocks.docs().len() {
            let score = weight.score(text.norm_id(postings.doc()), postings.term_freq());
            assert!(blocks.block_max_score(&reader_of(text, 1000), &weight) >= score - 1e-6);
            postings.advance();
        }
        blocks.advance();
    }
}

/// tantivy reads the positions of each row on its own; so do we where a block has many.
#[test]
fn positions_are_those_that_tantivy_reads() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let mut random = StdRng::seed_from_u64(3);
    let rows: Vec<Row> = (0..3000)
        .map(|row| {
            // Few words a row, then many, then few.
            let most = if (1000..1600).contains(&row) { 40 } else { 4 };
            let words: Vec<&str> = (0..random.random_range(0..most))
                .map(|_| ["x", "y", "z"][random.random_range(0..3)])
                .collect();
            Row { body: vec![words.join(" ")], ..Row::default() }
        })
        .collect();
    let bundle = opened(built(&analyzers, &rows));
    let text = bundle.text(BODY).unwrap();
    let info = text.reader.terms().get([&1u32.to_be_bytes()[..], b"y"].concat()).unwrap().unwrap();
    for most in [1, 3, 200, 700] {
        let mut ours = text.postings("y").unwrap().unwrap();
        let mut theirs = text.reader.read_postings_from_terminfo(&info, Record::Positions.option()).unwrap();
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        while theirs.doc() != TERMINATED {
            assert_eq!((ours.doc(), ours.term_freq()), (theirs.doc(), theirs.term_freq()));
            if random.random_bool(0.7) {
                // Twice, as one asks who counts first and looks then.
                for _ in 0..2 {
                    ours.positions_with_offset(2, &mut found);
                    theirs.positions_with_offset(2, &mut expected);
                    assert_eq!(found, expected);
                }
            }
            if random.random_bool(0.3) {
                assert_eq!(ours.advance(), theirs.advance());
            } else {
                let target = (theirs.doc() + random.random_range(1..=most)).min(TERMINATED);
                assert_eq!(ours.seek(target), theirs.seek(target));
            }
        }
        assert_eq!((ours.doc(), ours.advance(), ours.seek(TERMINATED)), (TERMINATED, TERMINATED, TERMINATED));
    }
}

#[test]
fn impacts_describe_the_best_row_of_each_run() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let bundle = opened(built(&analyzers, &sample(1000)));
    let text = bundle.text(BODY).unwrap();
    let average = text.block_max_average();
    let ratio =
        |freq: u32, length: u32| f64::from(freq) / (0.25 + 0.75 * f64::from(length) / f64::from(average));
    for term in ["x", "y"] {
        let Some(impacts) = text.impacts(term).unwrap() else { continue };
        let mut postings = text.postings(term).unwrap().unwrap();
        assert_eq!(impacts.len(), postings.size_hint() as usize / 128 + 1);
        for (run, impact) in impacts.iter().enumerate() {
            let (mut rows, mut last, mut best) = (0, 0, 0.0f64);
            while postings.doc() <= impact.last && postings.doc() != TERMINATED {
                (rows, last) = (rows + 1, postings.doc());
                best = best.max(ratio(postings.term_freq(), text.norm(postings.doc())));
                postings.advance();
            }
            if run + 1 < impacts.len() {
                assert_eq!((rows, last), (128, impact.last));
                assert!((ratio(impact.freq, impact.length) - best).abs() < 1e-6 * best);
            }
        }
        assert_eq!(postings.doc(), TERMINATED);
    }
    assert!(text.impacts("y").unwrap().is_some());
    assert!(bundle.text(NOTE).unwrap().impacts("y").unwrap().is_none());
}

fn reader_of(text: &TextIndex, rows: u32) -> tantivy::fieldnorm::FieldNormReader {
    super::norms::lengths((0..rows).map(|row| text.norm_id(row)).collect()).unwrap()
}

#[test]
fn numbers_are_terms_while_they_are_few() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let rows = |range: std::ops::Range<i64>| -> Vec<Row> {
        range.map(|number| Row { status: vec![number], ..Row::default() }).collect()
    };
    let many = opened(built(&analyzers, &rows(0..2000)));
    assert!(!many.has_exact(STATUS));
    assert!(many.postings(STATUS, &Scalar::I64(5)).unwrap().is_none());
    assert_eq!(many.exists_count(STATUS).unwrap(), 2000);
    // Small segments keep them; what merging makes too many is dropped.
    let (low, high) = (opened(built(&analyzers, &rows(0..900))), opened(built(&analyzers, &rows(900..1800))));
    assert!(low.has_exact(STATUS) && high.has_exact(STATUS));
    let merged = |inputs: &[(&Bundle, RowMap)], rows: u32| {
        let scratch = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        merge(inputs, rows, scratch.path(), &mut out).unwrap();
        opened(out)
    };
    let both = merged(&[(&low, RowMap::Offset(0)), (&high, RowMap::Offset(900))], 1800);
    assert!(!both.has_exact(STATUS));
    assert_eq!(both.exists_count(STATUS).unwrap(), 1800);
    let mixed = merged(&[(&low, RowMap::Offset(0)), (&many, RowMap::Offset(900))], 2900);
    assert!(!mixed.has_exact(STATUS));
    assert!(mixed.postings(STATUS, &Scalar::I64(5)).unwrap().is_none());
}

#[test]
fn every_damaged_byte_is_found() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let bytes = built(&analyzers, &sample(40));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = Bundle::open(OwnedBytes::new(damaged), "segment/index.bundle", true).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "byte {at}: {error}");
        assert!(matches!(error, Error::Corrupt { file, .. } if file == "segment/index.bundle"));
    }
    for len in 0..bytes.len() {
        let error = Bundle::open(OwnedBytes::new(bytes[..len].to_vec()), "f", true).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "length {len}: {error}");
    }
}

/// Elements of the rows that `count` gives some to, with the row number as their host.
fn nested_chunk(path: u32, outer: Option<u32>, parents: Vec<u32>, within: Vec<u32>) -> Elements {
    let hosts: Vec<String> = parents.iter().map(|row| format!("row{row}")).collect();
    let column = Column {
        id: HOST,
        kind: ColumnKind::Str,
        rows: (0..parents.len() as u32).collect(),
        values: strings(hosts.iter().collect()),
    };
    let chunk = Chunk { rows: parents.len() as u32, columns: vec![column], ..Chunk::default() };
    Elements { path: PathId(path), outer: outer.map(PathId), parents, within, chunk }
}

#[test]
fn elements_go_with_their_rows() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let mut rows = chunk(&sample(6));
    rows.nested = vec![
        nested_chunk(1 << 30, None, vec![0, 0, 2, 3, 5, 5], vec![]),
        nested_chunk((1 << 30) + 1, Some(1 << 30), vec![0, 0, 3, 5], vec![0, 1, 3, 4]),
    ];
    let bytes = build_fields(&specs(&analyzers), &rows).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = Bundle::open(OwnedBytes::new(damaged), "f", true).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "byte {at}: {error}");
    }
    let first = opened(bytes);
    let plain = opened(built(&analyzers, &sample(3)));
    let places = |bundle: &Bundle, path: u32| {
        let places = &bundle.nested_of(PathId(path)).unwrap().places;
        (places.parents.clone(), places.within.clone())
    };
    assert_eq!(places(&first, 1 << 30), (vec![0, 0, 2, 3, 5, 5], vec![]));
    assert!(plain.nested().is_empty());

    // Row 0 falls away; the others come behind those of a bundle without elements, or in reverse.
    let drop = u32::MAX;
    let cases = [
        (vec![drop, 3, 4, 5, 6, 7], vec![4, 5, 7, 7], vec![5, 7], vec![1, 2]),
        (vec![drop, 7, 6, 5, 4, 3], vec![3, 3, 5, 6], vec![3, 5], vec![0, 2]),
    ];
    for (map, parents, inner, within) in cases {
        let scratch = tempfile::tempdir().unwrap();
        let mut merged = Vec::new();
        let inputs = [(&plain, RowMap::Offset(0)), (&first, RowMap::Table(map.clone().into()))];
        merge(&inputs, 8, scratch.path(), &mut merged).unwrap();
        let merged = opened(merged);
        assert_eq!(places(&merged, 1 << 30), (parents.clone(), vec![]));
        assert_eq!(places(&merged, (1 << 30) + 1), (inner, within));
        let elements = &merged.nested_of(PathId(1 << 30)).unwrap().bundle;
        for (old, new) in map.iter().enumerate() {
            let host = Scalar::Str(format!("row{old}"));
            let expected: Vec<u32> =
                (0..parents.len() as u32).filter(|element| parents[*element as usize] == *new).collect();
            assert_eq!(drain(elements.postings(HOST, &host).unwrap()), expected, "row {old}");
        }
    }
    let scratch = tempfile::tempdir().unwrap();
    let mut merged = Vec::new();
    let map = RowMap::Table([drop, 0, drop, drop, 1, drop].into());
    merge(&[(&first, map)], 2, scratch.path(), &mut merged).unwrap();
    assert!(opened(merged).nested().is_empty());
}

#[test]
fn empty_chunks_and_sparse_fields() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let empty = opened(build_fields(&[], &Chunk::default()).unwrap());
    assert_eq!(empty.rows(), 0);
    assert!(empty.exists(HOST).unwrap().is_none());
    let no_fields = opened(built(&analyzers, &vec![Row::default(); 10]));
    check(&analyzers, &no_fields, &vec![Row::default(); 10]);

    // A thousand text fields, each in a few rows of many.
    let analyzer = analyzers.get("standard").unwrap();
    let specs: Vec<FieldSpec<'_>> = (0..1000)
        .map(|id| FieldSpec {
            id: PathId(id),
            path: "sparse",
            column: PathId(id),
            indexing: Indexing::Text { analyzer, record: Record::Positions, norms: true, gap: 100 },
        })
        .collect();
    let columns = (0..1000)
        .map(|id| Column {
            id: PathId(id),
            kind: ColumnKind::Str,
            rows: vec![id, id + 1],
            values: strings(vec![&"one word".to_owned(), &format!("word {id}")]),
        })
        .collect();
    let bytes = build_fields(&specs, &Chunk { rows: 2000, columns, ..Chunk::default() }).unwrap();
    assert!(bytes.len() < 150_000, "{} bytes", bytes.len());
    let bundle = opened(bytes);
    for id in [0, 500, 999] {
        let text = bundle.text(PathId(id)).unwrap();
        assert_eq!(drain(text.postings("word").unwrap()), [id, id + 1]);
        assert_eq!((text.norm(id), text.norm(id + 1), text.norm(id + 2)), (2, 2, 0));
    }
}

#[test]
fn wrong_row_maps_are_refused() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let bundle = opened(built(&analyzers, &sample(3)));
    let scratch = tempfile::tempdir().unwrap();
    for (map, rows) in [
        (RowMap::Table([0, 1].into()), 2),
        (RowMap::Table([0, 0, 1].into()), 3),
        (RowMap::Table([0, 1, 3].into()), 3),
        (RowMap::Table([0, u32::MAX, 1].into()), 3),
        (RowMap::Offset(1), 3),
    ] {
        let error = merge(&[(&bundle, map)], rows, scratch.path(), &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Internal);
    }
}

#[test]
fn immense_terms_are_refused_when_parsed_and_left_out_when_built() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let immense = "é".repeat(20_000);
    let row = Row { host: vec![immense.clone()], ..Row::default() };
    assert!(build_fields(&specs(&analyzers), &chunk(&[row])).is_ok());
    let error = check_term("field", immense.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    let message = error.to_string();
    assert!(
        message.starts_with("Document contains at least one immense term in field=\"field\""),
        "{message}"
    );
    assert!(message.contains("[-61, -87,") && message.ends_with("got 40000"), "{message}");
    assert!(check_term("f", &[b'x'; MAX_TERM_BYTES]).is_ok());
}

#[test]
fn values_of_wildcard_fields_may_be_longer_than_terms_of_lucene() {
    let longest = vec![b'x'; MAX_WILDCARD_BYTES];
    assert!(check_wildcard("w", &longest).is_ok());
    let error = check_wildcard("w", &[&longest[..], b"x"].concat()).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert!(error.to_string().contains("set [ignore_above]"), "{error}");
}

#[test]
fn the_postings_format_is_that_of_the_linked_tantivy() {
    let version = serde_json::to_value(tantivy::version()).unwrap();
    assert_eq!(version["index_format_version"], super::file::POSTINGS_FORMAT);
}

/// Rows of a term that is kept as bits are those of its postings.
#[test]
fn frequent_terms_are_kept_as_they_are() {
    let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
    let mut random = StdRng::seed_from_u64(23);
    let text = |random: &mut StdRng| {
        let mut words = Vec::new();
        for (word, odds) in [("x", 0.3), ("y", 0.05), ("z", 0.2), ("rare", 0.01)] {
            if random.random_bool(odds) {
                let most = if word == "z" { 400 } else { 6 };
                let times = if random.random_bool(0.1) { random.random_range(2..most) } else { 1 };
                words.extend(std::iter::repeat_n(
                    word,
                    if times > 6 && random.random_bool(0.99) { 6 } else { times },
                ));
            }
        }
        vec![words.join(" ")]
    };
    let count = 70_001;
    let rows: Vec<Row> = (0..count).map(|_| Row { note: text(&mut random), ..Row::default() }).collect();
    let bytes = built(&analyzers, &rows);
    let plain = opened(bytes.clone());
    let cache = std::sync::Arc::new(FrequentCache::default());
    let segment = uuid::Uuid::nil();
    // Read, and found again.
    for round in 0..2 {
        let mut keeping = opened(bytes.clone());
        keeping.keep_frequent(&FrequentTerms::new(&cache, segment));
        for (term, is_kept) in [("x", true), ("y", true), ("z", false), ("rare", false)] {
            let rows = |bundle: &Bundle| bundle.text(NOTE).unwrap().frequencies(term).unwrap().unwrap();
            let (mut ours, mut theirs) = (rows(&keeping), rows(&plain));
            assert_eq!(ours.count(), theirs.count());
            let mut first = 0;
            while first < count {
                match random.random_range(0..4) {
                    0 => {
                        let mut target = first;
                        for _ in 0..10 {
                            let row = ours.seek(target);
                            assert_eq!(row, theirs.seek(target), "{term} {target}");
                            if row >= first + 4_096 {
                                break;
                            }
                            assert_eq!(ours.freq(), theirs.freq(), "{term} {row}");
                            target = row + random.random_range(1..20);
                        }
                    }
                    1 => {
                        let (mut found, mut expected) = ([0; 64], [0; 64]);
                        ours.fill(first, &mut found);
                        theirs.fill(first, &mut expected);
                        assert_eq!(found, expected, "{term} {first}");
                    }
                    _ => {
                        let (mut found, mut expected) = (([0; 64], Vec::new()), ([0; 64], Vec::new()));
                        ours.fill_often(first, &mut found.0, &mut found.1);
                        theirs.fill_often(first, &mut expected.0, &mut expected.1);
                        assert_eq!(found, expected, "{term} {first}");
                    }
                }
                first += 4_096;
            }
            // All of it once more, so that it was worth it to keep it.
            let mut again = rows(&keeping);
            (0..count).step_by(4_096).for_each(|first| again.fill(first, &mut [0; 64]));
            let key = [&NOTE.0.to_be_bytes(), term.as_bytes()].concat();
            let kept = FrequentTerms::new(&cache, segment).get(&key);
            assert_eq!(kept.is_some(), is_kept, "{term} in round {round}");
        }
    }
}
