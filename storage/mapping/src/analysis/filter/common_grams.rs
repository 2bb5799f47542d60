//! The `common_grams` filter: common words joined with their neighbours.

use hashbrown::HashSet;

use super::lowercase::lower;
use super::{Filter, InSynonyms, Stage, whole};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CommonGrams {
    pub(crate) words: HashSet<String>,
    pub(crate) ignore_case: bool,
    /// Leaves out the words that a pair has made needless, for queries.
    pub(crate) query_mode: bool,
}

impl Filter for CommonGrams {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(|tokens, end| (self.run(tokens), end), next)
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

impl CommonGrams {
    fn is_common(&self, token: &Token) -> bool {
        if self.ignore_case {
            self.words.contains(&token.text.chars().map(lower).collect::<String>())
        } else {
            self.words.contains(token.text.as_str())
        }
    }

    fn run(&self, tokens: Vec<Token>) -> Vec<Token> {
        let common: Vec<bool> = tokens.iter().map(|token| self.is_common(token)).collect();
        let mut out = Vec::with_capacity(tokens.len() * 2);
        let mut after_gram = false;
        for (at, token) in tokens.iter().enumerate() {
            let gram = at + 1 < tokens.len() && (common[at] || common[at + 1]);
            let needless = self.query_mode && (gram || (after_gram && at + 1 == tokens.len()));
            if !needless {
                out.push(token.clone());
            }
            if gram {
                let next = &tokens[at + 1];
                out.push(Token {
                    text: format!("{}_{}", token.text, next.text),
                    kind: "gram",
                    end: next.end,
                    position_length: if self.query_mode { 1 } else { 2 },
                    ..token.clone()
                });
            }
            after_gram = gram;
        }
        out
    }
}
