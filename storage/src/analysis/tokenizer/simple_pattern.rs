//! The `simple_pattern` and `simple_pattern_split` tokenizers: Lucene's own regular expressions, whose
//! longest match at a place counts.

use super::{Emitter, Tokenizer};
use crate::analysis::Token;
use crate::analysis::automaton::Automaton;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SimplePattern {
    pub(crate) automaton: Automaton,
    /// Matches separate tokens instead of being them.
    pub(crate) split: bool,
}

impl Tokenizer for SimplePattern {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        let mut start = 0;
        let mut at = 0;
        while at < text.len() {
            match self.automaton.longest_match(&text[at..]) {
                Some(length) if length > 0 => {
                    if !self.split {
                        out.emit(text, at, at + length);
                    } else if at > start {
                        out.emit(text, start, at);
                    }
                    at += length;
                    start = at;
                }
                _ => at += text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        if self.split && start < text.len() {
            out.emit(text, start, text.len());
        }
        out.next_position
    }
}
