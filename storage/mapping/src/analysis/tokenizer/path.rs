//! The `path_hierarchy` tokenizer: each part of a path with those before it.

use super::{Tokenizer, Units};
use crate::analysis::Token;
use crate::term::MAX_TERM_BYTES;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PathHierarchy {
    pub(crate) delimiter: char,
    pub(crate) replacement: char,
    pub(crate) skip: usize,
    /// From the last part backwards, as domains are read.
    pub(crate) reverse: bool,
}

/// Most parts of a path: each part repeats those before it, so that the terms grow with the square.
const MAX_PARTS: usize = 10_000;

impl Tokenizer for PathHierarchy {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut units = Units::new(text);
        let mut emit = |start: usize, end: usize| {
            // A term is cut behind so many bytes anyway; each of thousands of parts would copy all of a long path.
            let text_of = |part: &str| {
                part[..part.ceil_char_boundary(4 * (MAX_TERM_BYTES + 1))]
                    .chars()
                    .map(|c| if c == self.delimiter { self.replacement } else { c })
                    .collect::<String>()
            };
            let mut token = Token {
                text: text_of(&text[start..end]),
                start: units.at(text, start),
                end: units.at(text, end),
                ..Token::default()
            };
            sink(&mut token);
        };
        let delimiters: Vec<usize> = text
            .char_indices()
            .filter(|(_, c)| *c == self.delimiter)
            .map(|(at, _)| at)
            .take(MAX_PARTS)
            .collect();
        if self.reverse {
            self.backwards(text, &delimiters, &mut emit);
        } else {
            Self::forwards(text, &delimiters, self.skip, &mut emit);
        }
        // All tokens lie at the first position.
        u32::from(!text.is_empty())
    }

    fn growth(&self, bytes: usize) -> usize {
        if bytes > MAX_PARTS { usize::MAX } else { bytes }
    }

    fn cuts(&self, text: &str) -> bool {
        text.len() > MAX_PARTS && text.chars().filter(|c| *c == self.delimiter).nth(MAX_PARTS).is_some()
    }
}

impl PathHierarchy {
    fn forwards(text: &str, delimiters: &[usize], skip: usize, emit: &mut dyn FnMut(usize, usize)) {
        // Ends of the parts; a part begins with its delimiter.
        let mut ends: Vec<usize> = delimiters.iter().copied().filter(|&at| at > 0).collect();
        ends.push(text.len());
        let start = match skip.checked_sub(1).map(|last| ends.get(last)) {
            None => 0,
            Some(Some(&at)) => at,
            Some(None) => return,
        };
        for &end in ends.iter().skip(skip).filter(|&&end| end > start) {
            emit(start, end);
        }
    }

    fn backwards(&self, text: &str, delimiters: &[usize], emit: &mut dyn FnMut(usize, usize)) {
        let width = self.delimiter.len_utf8();
        let mut starts: Vec<usize> = vec![0];
        starts.extend(delimiters.iter().map(|at| at + width).filter(|&at| at < text.len()));
        // The end moves before the parts that are skipped.
        let mut end = text.len();
        if self.skip > 0 {
            if self.skip >= starts.len() {
                return;
            }
            end = starts[starts.len() - self.skip];
            starts.truncate(starts.len() - self.skip);
        }
        for start in starts {
            if start < end {
                emit(start, end);
            }
        }
    }
}
