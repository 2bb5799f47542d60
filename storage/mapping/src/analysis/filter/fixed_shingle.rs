//! Shingles of one size, as `search_as_you_type` indexes them: so many neighbouring tokens joined, with
//! nothing between two separators where a position is empty.

use super::{Filter, InSynonyms, Stage, TextEnd, whole};
use crate::analysis::Token;
use crate::analysis::allowance::Allowance;

/// Most ways through tokens that share positions, from one token on.
const MAX_WAYS: usize = 1000;
const SEPARATOR: char = ' ';

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FixedShingle {
    /// Tokens of a shingle.
    pub(crate) size: u32,
    /// `true` if shingles may go on behind the last token, over empty positions.
    pub(crate) trailing: bool,
}

impl Filter for FixedShingle {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(
            |tokens, end| {
                let (tokens, cut) = self.join(&tokens, end.positions);
                (tokens, TextEnd { cut: end.cut || cut, ..end })
            },
            next,
        )
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

impl FixedShingle {
    /// Joins the tokens of a text that takes at least so many positions; tells whether too much would come of it.
    pub(crate) fn join(&self, tokens: &[Token], positions: u32) -> (Vec<Token>, bool) {
        let mut allowance = Allowance::default();
        tokens.iter().for_each(|token| allowance.take(token.text.len()));
        let last = tokens.last().map_or(0, |token| token.position.saturating_add(1)).max(positions);
        let positions = last.saturating_add(if self.trailing { self.size - 1 } else { 0 });
        let mut out = Vec::new();
        for (at, first) in tokens.iter().enumerate() {
            if first.position.saturating_add(self.size) > positions {
                break;
            }
            let mut ways = vec![Token { kind: "shingle", position_length: 1, ..first.clone() }];
            let mut rest = tokens.get(at + 1..).unwrap_or_default();
            for position in first.position + 1..first.position + self.size {
                let behind = rest.partition_point(|token| token.position < position);
                rest = rest.get(behind..).unwrap_or_default();
                let here = rest.partition_point(|token| token.position == position);
                ways = joined(&ways, rest.get(..here).unwrap_or_default());
            }
            if !ways.iter().all(|way| allowance.spend(way.text.len())) {
                break;
            }
            out.append(&mut ways);
        }
        (out, allowance.is_exhausted())
    }
}

/// Goes on with each of some tokens, or with an empty position where there are none.
fn joined(ways: &[Token], here: &[Token]) -> Vec<Token> {
    let mut longer = Vec::with_capacity(ways.len() * here.len().max(1));
    for way in ways {
        let mut with = |text: &str, end: u32| {
            if longer.len() < MAX_WAYS {
                let mut token = Token { end, ..way.clone() };
                token.text.push(SEPARATOR);
                token.text.push_str(text);
                longer.push(token);
            }
        };
        match here {
            [] => with("", way.end),
            here => here.iter().for_each(|token| with(&token.text, token.end)),
        }
    }
    longer
}
