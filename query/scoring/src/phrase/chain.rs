//! Links of a phrase one behind the other, each of which may be said in several ways.

use millrace_work::error::Result;

use crate::END;
use crate::phrase::{PhrasePosition, PhrasePositions};
use crate::reader::TextReader;

/// Links one behind the other.
pub(super) struct Chain<'a> {
    links: Vec<Vec<PhrasePositions<'a>>>,
    doc: u32,
}

impl<'a> Chain<'a> {
    pub(super) fn open(links: &[Vec<Vec<PhrasePosition>>], text: &'a dyn TextReader) -> Result<Option<Self>> {
        let mut opened = Vec::with_capacity(links.len());
        for link in links {
            let mut ways = Vec::new();
            for way in link {
                ways.extend(PhrasePositions::open(way, text, None)?);
            }
            if ways.is_empty() {
                return Ok(None);
            }
            opened.push(ways);
        }
        Ok((!opened.is_empty()).then_some(Self { links: opened, doc: END }))
    }

    pub(super) fn cost(&self) -> u64 {
        let cost = |link: &Vec<PhrasePositions<'_>>| link.iter().map(PhrasePositions::cost).sum();
        self.links.iter().map(cost).min().unwrap_or(0)
    }

    pub(super) fn seek_match(&mut self, target: u32) -> u32 {
        let mut candidate = target;
        'candidate: while candidate != END {
            for link in &mut self.links {
                let doc = link.iter_mut().map(|way| way.seek_match(candidate)).min().unwrap_or(END);
                if doc != candidate {
                    candidate = doc;
                    continue 'candidate;
                }
            }
            break;
        }
        self.doc = candidate;
        candidate
    }

    /// Counts as Lucene's ordered spans without gaps do: from each start, each link takes the first
    /// of its places that does not begin before the end of the last.
    pub(super) fn frequency(&mut self) -> u32 {
        let doc = self.doc;
        let spans: Vec<Vec<(i64, i64)>> = self.links.iter_mut().map(|link| link_spans(link, doc)).collect();
        let Some((first, rest)) = spans.split_first() else { return 0 };
        let mut at = vec![0; rest.len()];
        let mut found = 0;
        for (_, end) in first {
            let mut end = *end;
            let mut gaps = 0;
            for (spans, at) in rest.iter().zip(&mut at) {
                while spans.get(*at).is_some_and(|(start, _)| *start < end) {
                    *at += 1;
                }
                let Some((start, next)) = spans.get(*at) else { return found };
                gaps += start - end;
                end = *next;
            }
            found += u32::from(gaps == 0);
        }
        found
    }
}

/// Lists where the ways of a link lie in a row: first position and the one behind the last.
fn link_spans(link: &mut [PhrasePositions<'_>], doc: u32) -> Vec<(i64, i64)> {
    let mut spans = Vec::new();
    for way in link {
        if way.seek_match(doc) != doc {
            continue;
        }
        way.read();
        let length = way.offsets.iter().max().map_or(1, |last| i64::from(*last) + 1);
        let Some((first, rest)) = way.positions.split_first() else { continue };
        let base = i64::from(way.offsets[0]);
        for position in first {
            let start = i64::from(*position) - base;
            let fits = rest.iter().zip(&way.offsets[1..]).all(|(positions, offset)| {
                u32::try_from(start + i64::from(*offset))
                    .is_ok_and(|wanted| positions.binary_search(&wanted).is_ok())
            });
            if fits {
                spans.push((start, start + length));
            }
        }
    }
    spans.sort_unstable();
    spans
}
