//! Phrases in fields that keep no positions: values are read and cut into tokens again.

use std::collections::HashMap;

use millrace_mapping::PathId;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::conjunction::ConjunctionScorer;
use crate::disjunction::AtLeast;
use crate::lists::for_each_string;
use crate::operands::AnalyzedColumn;
use crate::phrase::{Phrase, PhrasePosition};
use crate::sloppy::Sloppy;
use crate::source::{Source, visit};
use crate::term::Text;
use crate::windows::few_rows;

/// Bytes of values that are cut into tokens between two looks at the stop.
const SEEN_BYTES: usize = 1 << 20;
/// Positions between two values of a field, as Lucene has them.
const POSITION_GAP: u32 = 100;

/// Finds the rows of a phrase.
pub(super) fn rows(
    source: &Source,
    path: PathId,
    phrase: &Phrase,
    values: &AnalyzedColumn,
    among: Option<&RoaringBitmap>,
) -> Result<RoaringBitmap> {
    let mut found = RoaringBitmap::new();
    let Phrase::Places(places, slop) = phrase else { return Ok(found) };
    let Some(mut candidates) = candidates(source, path, places)? else { return Ok(found) };
    if let Some(among) = among {
        candidates &= among;
    }
    if candidates.is_empty() {
        return Ok(found);
    }
    let analyzer = values
        .analyzers
        .get(&values.analyzer)
        .ok_or_else(|| Error::Execution(format!("analyzer [{}] is gone", values.analyzer)))?;
    let mut sloppy = Sloppy::new(places, *slop);
    let mut of_term: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, place) in places.iter().enumerate() {
        for term in place.fixed() {
            of_term.entry(term).or_default().push(at);
        }
    }
    let mut row = Row { positions: vec![Vec::new(); places.len()], next: 0 };
    // What is found once it has stopped is of no use to anybody: whoever prepared it looks, too.
    let (mut unseen, mut stopped) = (0, false);
    visit(source, values.column, Some(candidates), &mut |batch, array| {
        let mut current: Option<usize> = None;
        let mut finish = |at: usize, row: &mut Row| {
            row.positions.iter_mut().for_each(|list| list.sort_unstable());
            if row.matches(places, *slop, &mut sloppy) {
                found.insert(batch.rows[at]);
            }
            row.clear();
        };
        for_each_string(array, None, &mut |at, value| {
            if let Some(before) = current.replace(at)
                && before != at
            {
                finish(before, &mut row);
            }
            if stopped {
                return;
            }
            unseen += value.len();
            if unseen >= SEEN_BYTES {
                (unseen, stopped) = (0, source.work.check().is_err());
            }
            row.add(value, analyzer, &of_term);
        })?;
        if let Some(last) = current {
            finish(last, &mut row);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Finds the rows that have a term for every place; `None` where a place has no term at all.
fn candidates(source: &Source, path: PathId, places: &[PhrasePosition]) -> Result<Option<RoaringBitmap>> {
    let term = |term: &String| Text::unscored(path, term);
    let mut parts = Vec::with_capacity(places.len());
    for place in places {
        if place.fixed().is_empty() {
            return Ok(None);
        }
        parts.push(AtLeast::of(1, place.fixed().iter().map(term).collect()));
    }
    few_rows(ConjunctionScorer::of(parts).as_ref(), source, source.reader.rows().into())
}

/// The positions of a phrase's terms in one row.
struct Row {
    positions: Vec<Vec<u32>>,
    next: u32,
}

impl Row {
    fn add(
        &mut self,
        value: &str,
        analyzer: &millrace_mapping::analysis::Analyzer,
        of_term: &HashMap<&str, Vec<usize>>,
    ) {
        let base = self.next;
        let mut last = base;
        let positions = &mut self.positions;
        analyzer.analyze(value, &mut |token| {
            last = base.saturating_add(token.position);
            for at in of_term.get(token.text.as_str()).into_iter().flatten() {
                positions[*at].push(last);
            }
        });
        self.next = last.saturating_add(1 + POSITION_GAP);
    }

    fn matches(&self, places: &[PhrasePosition], slop: u32, sloppy: &mut Sloppy) -> bool {
        if self.positions.iter().any(Vec::is_empty) {
            return false;
        }
        if slop > 0 {
            return sloppy.frequency(&self.positions, true) > 0.0;
        }
        let Some((first, rest)) = self.positions.split_first() else { return false };
        let base = i64::from(places[0].offset);
        first.iter().any(|position| {
            rest.iter().zip(&places[1..]).all(|(positions, place)| {
                u32::try_from(i64::from(*position) - base + i64::from(place.offset))
                    .is_ok_and(|wanted| positions.binary_search(&wanted).is_ok())
            })
        })
    }

    fn clear(&mut self) {
        self.positions.iter_mut().for_each(Vec::clear);
        self.next = 0;
    }
}
