//! The `pattern_replace` character filter: a regular expression and what stands for its matches.

use millrace_runtime::Result;

use super::{CharFilter, Corrections, units};
use crate::analysis::pattern::{JavaPattern, Replacement};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PatternReplace {
    pattern: JavaPattern,
    replacement: Replacement,
    /// Bytes of the replacement as it is written.
    written: usize,
}

impl PatternReplace {
    pub(crate) fn new(pattern: &str, flags: &str, replacement: &str) -> Result<Self> {
        let pattern = JavaPattern::new(pattern, flags)?;
        let written = replacement.len();
        let replacement = pattern.replacement(replacement)?;
        Ok(Self { pattern, replacement, written })
    }
}

impl CharFilter for PatternReplace {
    fn growth(&self) -> usize {
        // Each reference to a group stands for no more than the match, of which there is one a byte at most.
        self.written.saturating_mul(2).saturating_add(1)
    }

    fn apply(&self, text: &str, most: usize) -> (String, Corrections) {
        let mut out = String::with_capacity(text.len());
        let mut corrections = Corrections::default();
        let (mut last, mut written) = (0, 0u32);
        let mut difference = 0i64;
        let mut matches = self.pattern.captures_all(text);
        while let Some(whole) = matches.find_next() {
            let between = &text[last..whole.start];
            out.push_str(between);
            written += units(between);
            let from = out.len();
            if !self.replacement.expand(text, &matches, &mut out, most) {
                // Of a replacement that is not whole, nothing: offsets would lead nowhere.
                out.truncate(from);
                corrections.cut = true;
                return (out, corrections);
            }
            let (before, after) = (units(&text[whole.clone()]), units(&out[from..]));
            if before != after {
                let first = written;
                written += after;
                difference += i64::from(before) - i64::from(after);
                if before < after {
                    // What was put in points at the end of what it replaces.
                    let start = corrections.last_difference();
                    for (nth, at) in (first + before..written).enumerate() {
                        corrections.add(at, start - 1 - nth as i64);
                    }
                } else {
                    corrections.add(written, difference);
                }
            } else {
                written += after;
            }
            last = whole.end;
        }
        out.push_str(&text[last..]);
        (out, corrections)
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}
