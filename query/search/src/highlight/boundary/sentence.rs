//! Sentences: ended by a mark, the closing marks behind it, and white space.
//!
//! An exclamation or question mark always ends a sentence. A full stop does where white space and a
//! letter that is not lower case follow, or where opening marks and a letter do. A paragraph separator
//! (U+2029) ends one in any case; line breaks are white space like any other.

use super::class::{Category, category};
use super::{Cell, cells};

/// Property of a character for sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentenceProperty {
    Lower,
    Letter,
    Space,
    /// Opens or closes.
    Quote,
    Opening,
    Closing,
    /// In the midst of a sentence only.
    Inner,
    Terminator,
    FullStop,
    Paragraph,
    Danda,
    /// Can begin a sentence, before its first letter.
    Leading,
}

/// State of the scan within a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Body,
    /// Behind a terminator; behind its white space.
    Terminated,
    TerminatedSpace,
    Danda,
    /// Behind a full stop and closing marks; the last of them may open the next sentence.
    Stopped {
        opened: bool,
    },
    /// Behind their white space: one character of it, or several.
    StoppedSpace {
        several: bool,
    },
    /// Behind a full stop and what may open the next sentence. The JDK's tables lack the way back to
    /// the body of the sentence for some of these places: what does not fit there ends the sentence
    /// before the full stop.
    Opened {
        fragile: bool,
    },
}

pub(super) fn boundaries(text: &[u16], boundaries: &mut Vec<usize>, resumptions: &mut Vec<(usize, usize)>) {
    let cells = cells(text, part);
    let mut at = 0;
    while at < cells.len() {
        at = next(&cells, at);
        boundaries.push(cells[at - 1].end);
    }
    if boundaries.last() != Some(&text.len()) {
        boundaries.push(text.len());
    }
    resume(&cells, resumptions);
}

/// Finds full stops behind which come closing marks, white space, opening marks and what can begin a
/// sentence, in this order and but for the last each or none.
fn resume(cells: &[Cell<SentenceProperty>], resumptions: &mut Vec<(usize, usize)>) {
    use SentenceProperty::{Closing, Danda, FullStop, Leading, Opening, Quote, Space};
    let start = |at: usize| at.checked_sub(1).map_or(0, |before| cells[before].end);
    // The last full stop, and how far what comes behind it got: marks, white space, opening marks.
    let mut open: Option<(usize, u8)> = None;
    for (at, cell) in cells.iter().enumerate() {
        open = match (cell.class, open) {
            (FullStop, _) => Some((at, 0)),
            (Closing, Some((stop, 0))) => Some((stop, 0)),
            (Quote, Some((stop, step))) => Some((stop, if step == 0 { 0 } else { 2 })),
            (Space, Some((stop, 0 | 1))) => Some((stop, 1)),
            (Opening, Some((stop, _))) => Some((stop, 2)),
            (Leading | Danda, Some((stop, _))) => {
                resumptions.push((start(stop), start(at)));
                None
            }
            _ => None,
        };
    }
}

/// Returns the number of cells before the end of the sentence that begins at one.
fn next(cells: &[Cell<SentenceProperty>], from: usize) -> usize {
    use SentenceProperty::*;
    let mut state = State::Body;
    // Where the sentence ends if what follows begins another.
    let mut candidate = from;
    // Where it ends if what follows tells nothing before the text ends.
    let mut certain = from + 1;
    for (at, cell) in cells.iter().enumerate().skip(from) {
        let part = cell.class;
        if part == Paragraph {
            return at + 1;
        }
        state = match (state, part) {
            (State::Terminated, Terminator | FullStop | Quote | Closing) => State::Terminated,
            (State::Terminated | State::TerminatedSpace, Space) => State::TerminatedSpace,
            (State::Danda, Space) => State::Danda,
            (State::Terminated | State::TerminatedSpace | State::Danda, _) => return at,
            (State::StoppedSpace { .. } | State::Opened { .. } | State::Stopped { opened: true }, Letter)
            | (
                State::StoppedSpace { several: true }
                | State::Opened { .. }
                | State::Stopped { opened: true },
                Lower,
            ) => return candidate,
            (State::Stopped { .. }, Quote) => State::Stopped { opened: true },
            (State::Stopped { opened }, Opening | Leading | Danda) => State::Opened { fragile: opened },
            (State::StoppedSpace { several }, Quote | Opening | Leading | Danda) => {
                State::Opened { fragile: several }
            }
            (State::Opened { .. }, Quote | Opening | Leading | Danda) => State::Opened { fragile: false },
            (State::Opened { fragile: true }, _) => return certain,
            (_, Terminator) => State::Terminated,
            (_, Danda) => State::Danda,
            (State::Stopped { .. }, Closing) | (_, FullStop) => State::Stopped { opened: false },
            (State::Stopped { .. }, Space) => State::StoppedSpace { several: false },
            (State::StoppedSpace { .. }, Space) => State::StoppedSpace { several: true },
            _ => State::Body,
        };
        match state {
            State::Stopped { .. } | State::StoppedSpace { .. } => candidate = at + 1,
            State::Opened { .. } => {}
            _ => certain = at + 1,
        }
    }
    if candidate == cells.len() { candidate } else { certain }
}

fn part(c: char) -> Option<SentenceProperty> {
    Some(match c {
        '"' | '\'' => SentenceProperty::Quote,
        '!' | '?' | '\u{3002}' | '\u{ff01}' | '\u{ff1f}' => SentenceProperty::Terminator,
        '.' | '\u{ff0e}' => SentenceProperty::FullStop,
        ',' => SentenceProperty::Inner,
        '\u{2029}' => SentenceProperty::Paragraph,
        '\u{964}' | '\u{965}' => SentenceProperty::Danda,
        '\t' | '\r' | '\n' | '\u{c}' | '\u{2028}' => SentenceProperty::Space,
        _ => match category(c) {
            Category::Mark | Category::Format => return None,
            Category::Lower => SentenceProperty::Lower,
            Category::OtherLetter => SentenceProperty::Letter,
            Category::Space => SentenceProperty::Space,
            Category::Opening => SentenceProperty::Opening,
            Category::Closing => SentenceProperty::Closing,
            Category::Number => SentenceProperty::Inner,
            _ => SentenceProperty::Leading,
        },
    })
}
