use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_segment::bundle::TextIndex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use roaring::RoaringBitmap;

use crate::bm25::{Bm25, Statistics};
use crate::condition::SharedCondition;
use crate::fixture::{Fixture, TEXT};
use crate::reader::SegmentReader;
use crate::row_set::RowSet;
use crate::term_windows::*;

const WORDS: [&str; 5] = ["disk", "full", "node", "rare", "never"];

/// Rows of some words, of which some rows have some several times.
fn fixture(rows: usize, rng: &mut StdRng) -> Arc<Fixture> {
    let texts: Vec<String> = (0..rows)
        .map(|_| {
            let mut words = Vec::new();
            for (word, odds) in WORDS.iter().zip([0.6, 0.2, 0.03, 0.001, 0.0]) {
                if rng.random_bool(odds) {
                    let times = if rng.random_bool(0.0005) { rng.random_range(2..90) } else { 1 };
                    words.extend(std::iter::repeat_n(*word, times));
                }
            }
            words.extend(std::iter::repeat_n("filler", rng.random_range(0..9)));
            words.join(" ")
        })
        .collect();
    let rows: Vec<(&str, &str, i64)> = texts.iter().map(|text| (text.as_str(), "", 0)).collect();
    Fixture::new(&rows)
}

#[test]
fn the_best_are_those_of_a_search_through_all() {
    let mut rng = StdRng::seed_from_u64(5);
    for round in 0..40 {
        let rows = [300, 9_000, 30_000][round % 3];
        let fixture = fixture(rows, &mut rng);
        let inverted = fixture.inverted().unwrap();
        let text = inverted.text(TEXT).unwrap();
        let words: Vec<&str> = (0..rng.random_range(1..4)).map(|_| WORDS[rng.random_range(0..4)]).collect();
        let functions: Vec<Bm25> = words
            .iter()
            .map(|word| {
                let doc_freq = text.count(word).unwrap().into();
                Bm25::new(1.0, Statistics { docs: rows as u64, doc_freq, tokens: rows as u64 * 5 })
            })
            .collect();
        let wanted = [RowCondition::Any, RowCondition::All][rng.random_range(0..2)];
        let among: RoaringBitmap = match rng.random_range(0..3) {
            0 => (0..rows as u32).collect(),
            1 => (0..60).map(|_| rng.random_range(0..rows as u32)).collect(),
            _ => (rows as u32 / 3..rows as u32).filter(|row| row % 7 != 0).collect(),
        };
        let mut expected: Vec<(Reverse<u32>, u32)> = Vec::new();
        let counts: Vec<Vec<u32>> = words.iter().map(|word| frequencies(text, word, rows)).collect();
        for row in &among {
            let here = counts.iter().map(|counts| counts[row as usize]);
            let matches = match wanted {
                RowCondition::Any => here.clone().any(|freq| freq > 0),
                RowCondition::All => here.clone().all(|freq| freq > 0),
            };
            if matches {
                let scores = here.zip(&functions).filter(|(freq, _)| *freq > 0);
                let length = TextIndex::decode_norm(text.norm_id(row));
                let score: f64 = scores.map(|(freq, function)| f64::from(function.score(freq, length))).sum();
                expected.push((Reverse((score as f32).to_bits()), row));
            }
        }
        expected.sort();
        let limit = [1, 10, 100][rng.random_range(0..3)];
        expected.truncate(limit);

        let terms: Option<Vec<Term>> =
            words.iter().map(|word| Term::open(text, &[(*word).to_owned()], true).unwrap()).collect();
        let ranking = Ranking::Sum(functions.iter().map(Scores::new).collect());
        let filter: SharedCondition = Arc::new(RowSet { rows: among, score: 0.0 });
        let mut found = Vec::new();
        if let Some(terms) = terms {
            let filter = filter.filter(inverted.as_ref(), rows as u32).unwrap();
            let windows = TermWindows::new(text, terms, wanted, ranking);
            let mut windows = windows.filtered(filter, Failure::default());
            let mut next = windows.seek(0);
            while next.0 != END {
                found.push((Reverse(next.1.to_bits()), next.0));
                found.sort();
                found.truncate(limit);
                if let Some((Reverse(worst), _)) = found.get(limit - 1) {
                    windows.raise_threshold(f32::from_bits(*worst));
                }
                next = windows.seek(next.0 + 1);
            }
        }
        assert_eq!(found, expected, "round {round}: {words:?} {wanted:?}");
    }
}

/// Counts a word in each row.
fn frequencies(text: &dyn TextReader, word: &str, rows: usize) -> Vec<u32> {
    let mut counts = vec![0; rows];
    if let Some(mut postings) = text.frequencies(word).unwrap() {
        let mut row = postings.seek_row(0);
        while row != END {
            counts[row as usize] = postings.freq();
            row = postings.seek_row(row + 1);
        }
    }
    counts
}

#[test]
fn rows_with_all_are_those_with_a_term_of_each() {
    let mut rng = StdRng::seed_from_u64(11);
    for round in 0..30 {
        let rows = [40, 5_000, 30_000][round % 3];
        let fixture = fixture(rows, &mut rng);
        let inverted = fixture.inverted().unwrap();
        let text = inverted.text(TEXT).unwrap();
        let groups: Vec<Vec<&str>> = (0..rng.random_range(1..4))
            .map(|_| (0..rng.random_range(1..3)).map(|_| WORDS[rng.random_range(0..4)]).collect())
            .collect();
        let terms: Option<Vec<Term>> = groups
            .iter()
            .map(|words| {
                let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
                Term::open(text, &words, round % 2 == 0).unwrap()
            })
            .collect();
        let Some(terms) = terms else { continue };
        let mut candidates = TermWindows::new(text, terms, RowCondition::All, Ranking::Flat);
        let listed = |word: &&str| {
            let mut set = BTreeSet::new();
            let mut rows = text.row_postings(word).unwrap();
            let mut row = rows.as_mut().map_or(END, |rows| rows.seek_row(0));
            while let Some(rows) = rows.as_mut().filter(|_| row != END) {
                set.insert(row);
                row = rows.seek_row(row + 1);
            }
            set
        };
        let expected = groups
            .iter()
            .map(|words| words.iter().flat_map(listed).collect::<BTreeSet<u32>>())
            .reduce(|all, some| &all & &some)
            .unwrap();
        let most = [1, 3, 900][rng.random_range(0..3)];
        let mut target = 0;
        loop {
            let (found, _) = candidates.seek(target);
            assert_eq!(found, expected.range(target..).next().copied().unwrap_or(END), "{groups:?} {target}");
            if found == END {
                break;
            }
            // Behind it, on it, and before it.
            target = target.max(found.saturating_sub(1)).max(target + rng.random_range(0..most))
                + rng.random_range(0..3);
        }
    }
}
