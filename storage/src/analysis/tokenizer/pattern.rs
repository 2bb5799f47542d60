//! The `pattern` tokenizer: a regular expression that matches separators, or tokens.

use super::{Emitter, Tokenizer};
use crate::analysis::Token;
use crate::analysis::pattern::JavaPattern;
use crate::{Error, Result};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: JavaPattern,
    /// The group that is the token; `None` where matches separate tokens.
    group: Option<usize>,
}

impl Pattern {
    /// Compiles a pattern with Java's flags (`CASE_INSENSITIVE|DOTALL`); `group` is -1 to split.
    pub(crate) fn new(pattern: &str, flags: &str, group: i64) -> Result<Self> {
        let regex = JavaPattern::new(pattern, flags)?;
        let group = match usize::try_from(group) {
            Ok(group) if group > regex.groups() => {
                return Err(Error::IllegalArgument(format!(
                    "invalid group specified: pattern only has: {} capturing groups",
                    regex.groups()
                )));
            }
            Ok(group) => Some(group),
            Err(_) => None,
        };
        Ok(Self { regex, group })
    }
}

impl Tokenizer for Pattern {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        match self.group {
            Some(0) => {
                for found in self.regex.find_iter(text).filter(|found| !found.is_empty()) {
                    out.emit(text, found.start(), found.end());
                }
            }
            Some(group) => {
                for captures in self.regex.captures_iter(text) {
                    if let Some(found) = captures.get(group).filter(|found| !found.is_empty()) {
                        out.emit(text, found.start(), found.end());
                    }
                }
            }
            None => {
                let mut start = 0;
                for found in self.regex.find_iter(text) {
                    if found.start() > start {
                        out.emit(text, start, found.start());
                    }
                    start = found.end();
                }
                if start < text.len() {
                    out.emit(text, start, text.len());
                }
            }
        }
        out.next_position
    }
}
