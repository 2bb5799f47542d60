//! The `pattern` tokenizer: a regular expression that matches separators, or tokens.

use millrace_runtime::{Error, Result};

use super::{Emitter, Tokenizer};
use crate::analysis::Token;
use crate::analysis::pattern::JavaPattern;

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
            Some(group) => {
                let mut matches =
                    if group == 0 { self.regex.find_all(text) } else { self.regex.captures_all(text) };
                while matches.find_next().is_some() {
                    if let Some(found) = matches.group(group).filter(|found| !found.is_empty()) {
                        out.emit(text, found.start, found.end);
                    }
                }
            }
            None => {
                let mut start = 0;
                let mut matches = self.regex.find_all(text);
                while let Some(found) = matches.find_next() {
                    if found.start > start {
                        out.emit(text, start, found.start);
                    }
                    start = found.end;
                }
                if start < text.len() {
                    out.emit(text, start, text.len());
                }
            }
        }
        out.next_position
    }
}
