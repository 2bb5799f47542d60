//! The `simple_pattern` and `simple_pattern_split` tokenizers: Lucene's own regular expressions, whose
//! longest match at a place counts.

use millrace_runtime::{Error, Result};

use super::{Emitter, Tokenizer};
use crate::analysis::Token;
use crate::automaton::{DEFAULT_EFFORT, Dfa, Fault, Flags, TooLarge};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SimplePattern {
    automaton: Dfa,
    /// Matches separate tokens instead of being them.
    split: bool,
}

impl SimplePattern {
    /// Takes the matches of an expression, or what is between them.
    ///
    /// # Errors
    /// What is no expression, or has too large an automaton.
    pub(crate) fn new(pattern: &str, split: bool) -> Result<Self> {
        let automaton = Dfa::regexp(pattern, Flags::ALL, false, DEFAULT_EFFORT).map_err(|fault| {
            Error::IllegalArgument(match fault {
                Fault::Syntax(message) => message,
                Fault::Number(digits) => format!("For input string: \"{digits}\""),
                Fault::TooLarge(TooLarge::Effort(limit)) => {
                    format!("Determinizing {pattern} would require more than {limit} effort.")
                }
                Fault::TooLarge(TooLarge::States(most)) => {
                    format!("an automaton of more than {most} states is not built")
                }
            })
        })?;
        Ok(Self { automaton, split })
    }
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
