use std::sync::Arc;

use millrace_mapping::Scalar;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use roaring::RoaringBitmap;

use crate::END;
use crate::bits::{SetBuilder, restrict, up_to};
use crate::condition::SharedCondition;
use crate::conjunction::ConjunctionScorer;
use crate::disjunction::AtLeast;
use crate::disjunction_max::DisjunctionMax;
use crate::fixture::{Fixture, KEYWORD, TEXT};
use crate::functions::LeafScore;
use crate::match_all::MatchAllScorer;
use crate::negation::NegationScorer;
use crate::phrase::PhraseCondition;
use crate::phrase::{Phrase, PhrasePosition, PlaceTerms};
use crate::reader::SegmentReader;
use crate::row_set::RowSet;
use crate::term::{Exact, Text};
use crate::windows::*;

const WORDS: [&str; 4] = ["disk", "full", "node", "rare"];

fn fixture(rows: usize, rng: &mut StdRng) -> Arc<Fixture> {
    let texts: Vec<String> = (0..rows)
        .map(|_| {
            let drawn = WORDS.iter().zip([0.6, 0.2, 0.03, 0.001]).filter(|(_, odds)| rng.random_bool(*odds));
            drawn.map(|(word, _)| *word).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let rows: Vec<(&str, &str, i64)> =
        texts.iter().enumerate().map(|(at, text)| (text.as_str(), ["a", "b"][at / 3 % 2], 0)).collect();
    Fixture::new(&rows)
}

fn random(rows: u32, depth: u32, rng: &mut StdRng) -> SharedCondition {
    let parts = |rng: &mut StdRng| -> Vec<SharedCondition> {
        (0..rng.random_range(1..5)).map(|_| random(rows, depth - 1, rng)).collect()
    };
    match rng.random_range(0..if depth == 0 { 7 } else { 13 }) {
        0 => Arc::new(MatchAllScorer(1.0)),
        1 => Arc::new(Exact { path: KEYWORD, value: Scalar::Str("b".into()), score: 1.0 }),
        2 => {
            let from = rng.random_range(0..rows);
            let mut set = RoaringBitmap::new();
            set.insert_range(from..rng.random_range(from..=rows));
            set.extend((0..20).map(|_| rng.random_range(0..rows)));
            Arc::new(RowSet { rows: set, score: 1.0 })
        }
        3..6 => Arc::new(Text {
            path: TEXT,
            term: WORDS[rng.random_range(0..4)].into(),
            score: LeafScore::Flat(1.0),
        }),
        6 => {
            let place = |offset: u32| PhrasePosition {
                offset,
                terms: PlaceTerms::Fixed(vec![WORDS[offset as usize].into()]),
            };
            let phrase = Arc::new(Phrase::Places(vec![place(0), place(1)], 0));
            Arc::new(PhraseCondition { path: TEXT, phrase, score: LeafScore::Flat(1.0) })
        }
        7 | 8 => ConjunctionScorer::of(parts(rng)),
        9 => AtLeast::of(1, parts(rng)),
        10 => AtLeast::of(rng.random_range(0..5), parts(rng)),
        11 => Arc::new(NegationScorer(random(rows, depth - 1, rng))),
        _ => Arc::new(DisjunctionMax { tie_breaker: 0.5, parts: parts(rng) }),
    }
}

#[test]
fn windows_find_what_scorers_find() {
    let mut rng = StdRng::seed_from_u64(3);
    for rows in [1, 63, 4_095, 4_096, 4_097, 9_000] {
        let reader = fixture(rows as usize, &mut rng);
        let inverted = reader.inverted().unwrap();
        for _ in 0..60 {
            let prepared = random(rows, 3, &mut rng);
            let mut scorer = prepared.scorer(inverted.as_ref(), rows).unwrap();
            let mut expected = RoaringBitmap::new();
            while scorer.doc() != END {
                expected.insert(scorer.doc());
                scorer.advance();
            }
            let mut windows = Windows::open(prepared.as_ref(), inverted.as_ref(), rows).unwrap();
            let mut found = SetBuilder::default();
            while let Some((first, bits)) = windows.next().unwrap() {
                found.add(first, &bits);
            }
            assert_eq!(found.len(), expected.len(), "{prepared:?}");
            assert_eq!(found.finish(), expected, "{prepared:?}");

            // Those among some are found as among all.
            let share = [0.001, 0.02, 0.9][rng.random_range(0..3)];
            let some: RoaringBitmap = (0..rows).filter(|_| rng.random_bool(share)).collect();
            let mut windows = Windows::open(prepared.as_ref(), inverted.as_ref(), rows).unwrap();
            let mut found = SetBuilder::default();
            for first in (0..rows).step_by(WINDOW_ROWS as usize) {
                let (mut bits, wanted) = (up_to(rows - first), some.range(first..).next());
                let Some(next) = wanted.map(|row| windows.next_row(row)) else { break };
                if next / WINDOW_ROWS == first / WINDOW_ROWS {
                    restrict(first, &mut bits, &some);
                    windows.keep(first, &mut bits).unwrap();
                    found.add(first, &bits);
                }
            }
            assert_eq!(found.finish(), expected & some, "{prepared:?}");
        }
    }
}
