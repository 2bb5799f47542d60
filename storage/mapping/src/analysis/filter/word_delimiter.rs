//! The `word_delimiter_graph` and `word_delimiter` filters: the parts of words, alone and joined.

use std::cmp::Reverse;

use hashbrown::HashSet;

use super::subwords::{ALPHA, DIGIT, Subword, WordBoundaries, cut};
use super::{Filter, InSynonyms, Increments, Stage, TextEnd};
use crate::analysis::Token;

/// Options for the parts of a word.
#[derive(Debug)]
pub(crate) struct WordDelimiter {
    pub(crate) cuts: WordBoundaries,
    pub(crate) generate_word_parts: bool,
    pub(crate) generate_number_parts: bool,
    pub(crate) catenate_words: bool,
    pub(crate) catenate_numbers: bool,
    pub(crate) catenate_all: bool,
    pub(crate) preserve_original: bool,
    pub(crate) ignore_keywords: bool,
    pub(crate) adjust_offsets: bool,
    pub(crate) protected: HashSet<String>,
    /// Keeps the graph, as the newer of the two filters does.
    pub(crate) graph: bool,
}

impl WordDelimiter {
    fn generates(&self, class: u8) -> bool {
        (self.generate_word_parts && class & ALPHA != 0) || (self.generate_number_parts && class & DIGIT != 0)
    }

    fn joins(&self, class: u8) -> bool {
        (self.catenate_words && class & ALPHA != 0) || (self.catenate_numbers && class & DIGIT != 0)
    }
}

impl Filter for WordDelimiter {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Splitter {
            filter: self,
            increments: Increments::default(),
            pending: 0,
            position: -1,
            taken: 0,
            last_start: 0,
            first: true,
            next,
        })
    }

    fn reports_keywords(&self) -> bool {
        true
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

/// Parts that are joined.
#[derive(Default)]
struct CatenatedParts {
    units: Vec<u16>,
    class: u8,
    count: usize,
    start: usize,
    end: usize,
    position: u32,
}

impl CatenatedParts {
    fn append(&mut self, word: &[u16], part: Subword, position: u32) {
        if self.count == 0 {
            self.class = part.class;
            self.start = part.start;
            self.position = position;
        }
        self.units.extend_from_slice(&word[part.start..part.end]);
        self.count += 1;
        self.end = part.end;
    }
}

/// A token to be: text, first and last position within the word, place within the word.
struct DelimitedToken {
    units: Vec<u16>,
    from: u32,
    to: u32,
    start: usize,
    end: usize,
}

struct Splitter<'a> {
    filter: &'a WordDelimiter,
    increments: Increments,
    /// Increments of words that left no token.
    pending: u32,
    /// Position of the last token put out.
    position: i64,
    /// Positions of the text that came in.
    taken: u32,
    last_start: u32,
    first: bool,
    next: Box<dyn Stage + 'a>,
}

impl Stage for Splitter<'_> {
    fn token(&mut self, token: &mut Token) {
        let increment = self.increments.of(token);
        self.taken = token.position + 1;
        if self.filter.ignore_keywords && token.keyword {
            return self.put(token, increment);
        }
        self.pending += increment;
        let word: Vec<u16> = token.text.encode_utf16().collect();
        let cut = cut(&word, &self.filter.cuts);
        let whole = cut.parts.first().is_some_and(|part| part.start == 0 && part.end == word.len());
        if whole || self.filter.protected.contains(token.text.as_str()) {
            let pending = std::mem::take(&mut self.pending);
            return self.put(token, pending);
        }
        if cut.parts.is_empty() {
            if self.filter.preserve_original {
                let pending = std::mem::take(&mut self.pending);
                self.put(token, pending);
            } else if !self.filter.graph && increment == 1 && !self.first {
                self.pending -= 1;
            }
            return;
        }
        if self.filter.graph {
            self.graph(token, &word, &cut.parts, cut.single);
        } else {
            self.overlay(token, &word, &cut.parts, cut.single);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        // Words that left no token at the end leave no hole either.
        let trailing = end.positions.saturating_sub(self.taken);
        let after = u32::try_from(self.position + 1).unwrap_or(0);
        self.next.end(TextEnd { positions: after + trailing, ..end })
    }
}

impl Splitter<'_> {
    /// Puts a token out, `increment` positions behind the last.
    fn put(&mut self, token: &mut Token, increment: u32) {
        self.position += i64::from(increment);
        token.position = u32::try_from(self.position.max(0)).unwrap_or(u32::MAX);
        self.first = false;
        self.next.token(token);
    }

    fn graph(&mut self, token: &Token, word: &[u16], parts: &[Subword], single: bool) {
        let filter = self.filter;
        let mut pieces: Vec<DelimitedToken> = Vec::new();
        let mut at = 0u32;
        if single {
            let part = parts[0];
            pieces.push(piece(word, part.start, part.end, 0, 1));
            at = 1;
        } else {
            let mut joined = CatenatedParts::default();
            let mut all = CatenatedParts::default();
            let mut last_count = 0;
            for &part in parts {
                if joined.count > 0 && joined.class & part.class == 0 {
                    flush(filter, &mut joined, &mut at, &mut last_count, &mut pieces);
                }
                if filter.joins(part.class) {
                    joined.append(word, part, at);
                }
                if filter.catenate_all {
                    all.append(word, part, at);
                }
                if filter.generates(part.class) {
                    pieces.push(piece(word, part.start, part.end, at, at + 1));
                    at += 1;
                }
            }
            if joined.count > 0 {
                flush(filter, &mut joined, &mut at, &mut last_count, &mut pieces);
            }
            if all.count > last_count {
                write(all, &mut at, &mut pieces);
            }
        }
        if filter.preserve_original {
            at = at.max(1);
            pieces.insert(0, piece(word, 0, word.len(), 0, at));
        }
        pieces.sort_by_key(|piece| (piece.from, Reverse(piece.to), piece.start, Reverse(piece.end)));
        let legal = filter.adjust_offsets && (token.end - token.start) as usize == word.len();
        let mut from = 0;
        for piece in pieces {
            let (start, end) = if legal {
                (token.start + piece.start as u32, token.start + piece.end as u32)
            } else {
                (token.start, token.end)
            };
            let start = start.max(self.last_start);
            let end = end.max(self.last_start);
            self.last_start = start;
            let mut part = Token {
                text: String::from_utf16_lossy(&piece.units),
                start,
                end,
                position_length: piece.to - piece.from,
                ..token.clone()
            };
            let increment = std::mem::take(&mut self.pending) + piece.from - from;
            from = piece.from;
            self.put(&mut part, increment);
        }
    }

    fn overlay(&mut self, token: &Token, word: &[u16], parts: &[Subword], single: bool) {
        let filter = self.filter;
        let legal = filter.adjust_offsets && (token.end - token.start) as usize == word.len();
        let blank = Token { kind: token.kind, payload: token.payload.clone(), ..Token::default() };
        let mut has_output = false;
        let mut follows_original = !filter.preserve_original;
        if filter.preserve_original {
            let pending = std::mem::take(&mut self.pending);
            self.put(&mut token.clone(), pending);
        }
        let mut pending = self.pending;
        let mut increment_of = |inject: bool, has_output: &mut bool| {
            let increment = pending;
            if *has_output {
                pending = 0;
                return if inject { 0 } else { increment.max(1) };
            }
            *has_output = true;
            if !follows_original {
                follows_original = true;
                return 0;
            }
            pending = 0;
            increment.max(1)
        };
        let offsets = |start: usize, end: usize| {
            if legal {
                (token.start + start as u32, token.start + end as u32)
            } else {
                (token.start, token.end)
            }
        };
        if single {
            let part = parts[0];
            let (mut start, mut end) = offsets(part.start, part.end);
            if !legal && token.start + part.start as u32 <= token.end {
                (start, end) = (token.start + part.start as u32, token.end);
            }
            let text = String::from_utf16_lossy(&word[part.start..part.end]);
            let increment = increment_of(false, &mut has_output);
            self.pending = 0;
            return self.put(&mut Token { text, start, end, ..blank }, increment);
        }
        // Text, increment and offsets, sorted by where they start before they go on.
        let mut pieces: Vec<(Token, u32)> = Vec::new();
        let mut joined = CatenatedParts::default();
        let mut all = CatenatedParts::default();
        let mut last_count = 0;
        let mut push = |units: &[u16], start: usize, end: usize, increment: u32| {
            let (start, end) = offsets(start, end);
            let text = String::from_utf16_lossy(units);
            pieces.push((Token { text, start, end, ..blank.clone() }, increment));
        };
        for &part in parts {
            if joined.count > 0 && joined.class & part.class == 0 {
                last_count = joined.count;
                let done = std::mem::take(&mut joined);
                if done.count != 1 || !filter.generates(done.class) {
                    push(&done.units, done.start, done.end, increment_of(true, &mut has_output));
                }
                has_output = false;
            }
            if filter.joins(part.class) {
                joined.append(word, part, 0);
            }
            if filter.catenate_all {
                all.append(word, part, 0);
            }
            if filter.generates(part.class) {
                let increment = increment_of(false, &mut has_output);
                push(&word[part.start..part.end], part.start, part.end, increment);
            }
        }
        if joined.count > 0 {
            last_count = joined.count;
            if joined.count != 1 || !filter.generates(joined.class) {
                push(&joined.units, joined.start, joined.end, increment_of(true, &mut has_output));
            }
        }
        if all.count > last_count {
            push(&all.units, all.start, all.end, increment_of(true, &mut has_output));
        }
        self.pending = pending;
        if !pieces.is_empty() {
            self.pending = 0;
        }
        pieces.sort_by_key(|(token, increment)| (token.start, Reverse(*increment)));
        for (mut token, mut increment) in pieces {
            if self.first && increment == 0 {
                increment = 1;
            }
            self.put(&mut token, increment);
        }
    }
}

fn piece(word: &[u16], start: usize, end: usize, from: u32, to: u32) -> DelimitedToken {
    DelimitedToken { units: word[start..end].to_vec(), from, to, start, end }
}

fn flush(
    filter: &WordDelimiter,
    joined: &mut CatenatedParts,
    at: &mut u32,
    last_count: &mut usize,
    pieces: &mut Vec<DelimitedToken>,
) {
    let done = std::mem::take(joined);
    *last_count = done.count;
    if done.count != 1 || !filter.generates(done.class) {
        write(done, at, pieces);
    }
}

fn write(joined: CatenatedParts, at: &mut u32, pieces: &mut Vec<DelimitedToken>) {
    if *at == joined.position {
        *at += 1;
    }
    pieces.push(DelimitedToken {
        units: joined.units,
        from: joined.position,
        to: *at,
        start: joined.start,
        end: joined.end,
    });
}
