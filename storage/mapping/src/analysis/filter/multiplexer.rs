//! The `multiplexer` filter: each token through several chains, side by side.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{Filter, InSynonyms, Stage, TextEnd};
use crate::analysis::Token;
use crate::analysis::allowance::Allowance;
use crate::analysis::analyzer::chain;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Multiplexer {
    /// The chains; an empty one hands tokens on as they are.
    pub(crate) chains: Vec<Vec<Arc<dyn Filter>>>,
    pub(crate) preserve_original: bool,
}

impl Filter for Multiplexer {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Splitter {
            filter: self,
            allowance: Allowance::default(),
            cut: false,
            last_position: None,
            seen: HashSet::new(),
            next,
        })
    }

    fn reports_keywords(&self) -> bool {
        self.chains.iter().flatten().any(|filter| filter.reports_keywords())
    }

    fn growth(&self) -> usize {
        let of_chain = |chain: &Vec<Arc<dyn Filter>>| {
            chain.iter().map(|filter| filter.growth()).fold(1, usize::saturating_mul)
        };
        self.chains.iter().map(of_chain).fold(1, usize::saturating_add)
    }

    fn disables_graph(&self) -> bool {
        self.chains.iter().flatten().any(|filter| filter.disables_graph())
    }

    fn in_synonyms(&self) -> InSynonyms {
        if self.preserve_original { InSynonyms::Nothing } else { InSynonyms::Refused }
    }
}

struct Splitter<'a> {
    filter: &'a Multiplexer,
    allowance: Allowance,
    /// True if a chain left tokens out.
    cut: bool,
    /// Position of the last token that came in.
    last_position: Option<u32>,
    /// Positions and texts put out since that position was reached, also of the tokens before at the same one.
    seen: HashSet<(u32, String)>,
    next: Box<dyn Stage + 'a>,
}

/// Collects what a chain makes of one token.
struct Collect<'a>(&'a mut Vec<Token>);

impl Stage for Collect<'_> {
    fn token(&mut self, token: &mut Token) {
        self.0.push(token.clone());
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        end
    }
}

impl Stage for Splitter<'_> {
    fn token(&mut self, token: &mut Token) {
        if self.allowance.is_exhausted() {
            return;
        }
        self.allowance.take(token.text.len());
        let mut made = Vec::new();
        if self.filter.preserve_original || self.filter.chains.is_empty() {
            made.push(token.clone());
        }
        for filters in &self.filter.chains {
            // Each chain sees the token as a text of its own.
            let mut alone = Token { position: 0, ..token.clone() };
            let from = made.len();
            let mut stage = chain(filters, Box::new(Collect(&mut made)));
            stage.token(&mut alone);
            let end = stage.end(TextEnd { positions: 1, offset: token.end, cut: false });
            self.cut |= end.cut;
            drop(stage);
            for token_made in &mut made[from..] {
                token_made.position += token.position;
            }
        }
        if self.last_position != Some(token.position) {
            self.last_position = Some(token.position);
            self.seen.clear();
        }
        for mut token in made {
            if self.seen.insert((token.position, token.text.clone())) {
                if !self.allowance.spend(token.text.len()) {
                    break;
                }
                self.next.token(&mut token);
            }
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(TextEnd { cut: end.cut || self.cut || self.allowance.is_exhausted(), ..end })
    }
}
