//! The fast vector highlighter: fragments around matches, cut at punctuation.
//!
//! It follows Lucene's `FastVectorHighlighter` as OpenSearch builds it. Terms of the query that follow each other as a
//! phrase does are marked as one; fragments of one length are laid around the matches, then grown to characters that
//! separate words. Values are highlighted apart. Spans other than phrases are not marked, as there.

use std::collections::{HashMap, HashSet};

use millrace_dsl::highlight::{Options, Scanner};
use millrace_scoring::spans::expression::Span;
use millrace_work::error::{Error, Result};

use super::boundary::{Boundaries, Unit};
use super::markup::Markup;
use super::terms::{HighlightTarget, Pattern, PositionTerms, TargetKind};
use super::tokens::{SEPARATOR, Token, Tokenizer};

/// Least length of fragments.
const MIN_FRAGMENT: i64 = 18;
/// Characters before a match that belong to its fragment at least.
const MARGIN: i64 = 6;
/// Most matches of a document.
const MAX_PHRASES: usize = 256;
/// Most characters that are searched for a boundary.
const MAX_SCAN: usize = 20;
/// Characters that are boundaries.
const BOUNDARIES: &str = ".,!? \t\n";
/// End of a fragment that has everything.
const UNBOUNDED: i64 = i32::MAX as i64;

/// One position of a phrase.
#[derive(Clone, Copy, Debug)]
enum Slot<'a> {
    Term(&'a str),
    Pattern(&'a Pattern),
    Place(&'a PositionTerms),
}

impl Slot<'_> {
    fn fits(&self, term: &str) -> bool {
        match self {
            Self::Term(own) => *own == term,
            Self::Pattern(pattern) => pattern.fits(term),
            Self::Place(place) => place.fits(term),
        }
    }
}

/// A term or a phrase of the query.
#[derive(Debug)]
struct Phrase<'a> {
    slots: Vec<Slot<'a>>,
    slop: i64,
    boost: f32,
}

/// The terms and phrases of the query.
#[derive(Debug, Default)]
struct Phrases<'a> {
    all: Vec<Phrase<'a>>,
    /// Those whose first slot is a term, and the others.
    by_first: HashMap<&'a str, Vec<usize>>,
    by_pattern: Vec<usize>,
    /// Terms of all slots, and the slots that have patterns.
    terms: HashSet<&'a str>,
    patterns: Vec<Slot<'a>>,
}

impl<'a> Phrases<'a> {
    fn new(wanted: &'a [HighlightTarget]) -> Self {
        let mut phrases = Self::default();
        for wanted in wanted {
            let (slots, slop) = match &wanted.what {
                TargetKind::Term(term) => (vec![Slot::Term(term)], 0),
                TargetKind::Pattern(pattern) => (vec![Slot::Pattern(pattern)], 0),
                TargetKind::Spans(spans) => {
                    let place = |part: &Span| match part {
                        Span::Leaf(leaf) => spans.places.get(*leaf).filter(|place| place.marked),
                        _ => None,
                    };
                    let (parts, slop) = match &spans.root {
                        Span::Near { parts, slop, .. } => (parts.as_slice(), *slop),
                        root => (std::slice::from_ref(root), 0),
                    };
                    match parts.iter().map(|part| place(part).map(Slot::Place)).collect() {
                        Some(slots) => (slots, slop),
                        None => continue,
                    }
                }
            };
            phrases.add(Phrase { slots, slop, boost: wanted.boost });
        }
        phrases
    }

    fn add(&mut self, phrase: Phrase<'a>) {
        let number = self.all.len();
        for (nth, slot) in phrase.slots.iter().enumerate() {
            match *slot {
                Slot::Term(term) => {
                    self.terms.insert(term);
                    if nth == 0 {
                        self.by_first.entry(term).or_default().push(number);
                    }
                    continue;
                }
                Slot::Place(place) if place.pattern.is_none() => {
                    self.terms.extend(place.terms.iter().map(String::as_str));
                }
                slot => self.patterns.push(slot),
            }
            if nth == 0 {
                self.by_pattern.push(number);
            }
        }
        self.all.push(phrase);
    }

    /// Returns true if a term is part of any phrase.
    fn has(&self, term: &str) -> bool {
        self.terms.contains(term) || self.patterns.iter().any(|slot| slot.fits(term))
    }

    /// Lists the phrases that begin with a term.
    fn starting(&self, term: &str) -> Vec<usize> {
        let fitting = |number: &&usize| self.all[**number].slots.first().is_some_and(|slot| slot.fits(term));
        let mut found: Vec<usize> = self.by_first.get(term).cloned().unwrap_or_default();
        found.extend(self.by_pattern.iter().filter(fitting));
        found
    }

    /// Lists those of some phrases that go on with a term behind so many.
    fn going_on(&self, phrases: &[usize], depth: usize, term: &str) -> Vec<usize> {
        let fits = |number: &usize| self.all[*number].slots.get(depth).is_some_and(|slot| slot.fits(term));
        phrases.iter().copied().filter(fits).collect()
    }

    /// Returns the boost of a phrase among some that tokens are the whole of, as near to each other as it asks for.
    fn complete(&self, phrases: &[usize], tokens: &[&Token]) -> Option<f32> {
        let mut latest = phrases.iter().rev().map(|number| &self.all[*number]);
        let phrase = latest.find(|phrase| phrase.slots.len() == tokens.len())?;
        let near = tokens
            .windows(2)
            .all(|pair| (i64::from(pair[1].position) - i64::from(pair[0].position) - 1).abs() <= phrase.slop);
        near.then_some(phrase.boost)
    }
}

/// A match: where it is marked.
#[derive(Clone, Debug)]
struct Match {
    spans: Vec<(i64, i64)>,
    boost: f32,
}

impl Match {
    fn new(tokens: &[&Token], boost: f32) -> Self {
        let mut spans: Vec<(i64, i64)> = Vec::new();
        for (nth, token) in tokens.iter().enumerate() {
            let follows = nth > 0 && token.position == tokens[nth - 1].position + 1;
            match spans.last_mut() {
                Some(last) if follows => last.1 = token.end as i64,
                _ => spans.push((token.start as i64, token.end as i64)),
            }
        }
        Self { spans, boost }
    }

    fn start(&self) -> i64 {
        self.spans.first().map_or(0, |span| span.0)
    }

    fn end(&self) -> i64 {
        self.spans.last().map_or(0, |span| span.1)
    }
}

/// Finds the matches in a text, the longest phrase first at each place.
fn matches(phrases: &Phrases<'_>, tokens: &[Token]) -> Vec<Match> {
    let mut stack: Vec<Vec<&Token>> = Vec::new();
    for token in tokens.iter().filter(|token| phrases.has(&token.term)) {
        match stack.last_mut() {
            Some(last) if last.iter().any(|other| other.position == token.position) => last.push(token),
            _ => stack.push(vec![token]),
        }
    }
    stack.iter_mut().for_each(|place| place.sort_by(|a, b| a.term.cmp(&b.term)));
    let mut found: Vec<Match> = Vec::new();
    let mut at = 0;
    while at < stack.len() && found.len() < MAX_PHRASES {
        let start = at;
        let mut candidate: Vec<&Token> = Vec::new();
        // The phrases that fit the tokens so far, by their number.
        let mut fitting: Vec<Vec<usize>> = Vec::new();
        while let Some(place) = stack.get(at) {
            let next = place.iter().copied().find_map(|token| {
                let going = match fitting.last() {
                    Some(so_far) => phrases.going_on(so_far, candidate.len(), &token.term),
                    None => phrases.starting(&token.term),
                };
                (!going.is_empty()).then_some((token, going))
            });
            let Some((token, going)) = next else { break };
            candidate.push(token);
            fitting.push(going);
            at += 1;
        }
        while let Some(phrases_so_far) = fitting.pop() {
            if let Some(boost) = phrases.complete(&phrases_so_far, &candidate) {
                add_apart(&mut found, Match::new(&candidate, boost));
                break;
            }
            candidate.pop();
        }
        // What is behind the match is looked at again.
        at = start + candidate.len().max(1);
    }
    found
}

/// Adds a match that overlaps none before.
fn add_apart(found: &mut Vec<Match>, new: Match) {
    let (start, end) = (new.start(), new.end());
    let overlaps = |other: &Match| {
        let (other_start, other_end) = (other.start(), other.end());
        (start <= other_start && other_start < end)
            || (start < other_end && other_end <= end)
            || (other_start <= start && start < other_end)
            || (other_start < end && end <= other_end)
    };
    if !found.iter().any(overlaps) {
        found.push(new);
    }
}

/// A part of the text with the matches in it.
#[derive(Clone, Debug)]
struct Fragment {
    start: i64,
    end: i64,
    matches: Vec<Match>,
    boost: f32,
}

impl Fragment {
    fn new(start: i64, end: i64, matches: Vec<Match>) -> Self {
        let boost = matches.iter().map(|one| one.boost).sum();
        Self { start, end, matches, boost }
    }
}

/// Lays fragments of a length around matches, which are in the order of the text.
fn fragments(matches: Vec<Match>, size: i64) -> Vec<Fragment> {
    let mut fragments = Vec::new();
    let mut from = 0;
    let mut matches = matches.into_iter().peekable();
    while let Some(first) = matches.next() {
        // It reaches into the fragment before.
        if first.start() < from {
            continue;
        }
        let fits = |one: &Match, length: i64| one.spans.len() <= 1 || length <= size;
        let (match_start, mut match_end) = (first.start(), first.end());
        let span_end = match_end.max((match_start - MARGIN).max(from) + size);
        let mut members = Vec::new();
        if fits(&first, match_end - match_start) {
            members.push(first);
        }
        while let Some(next) = matches.next_if(|next| next.end() <= span_end) {
            match_end = next.end();
            if fits(&next, match_end - match_start) {
                members.push(next);
            }
        }
        if members.is_empty() {
            continue;
        }
        let length = match_end - match_start;
        let start = (match_start - ((size - length) / 2).max(0)).max(from);
        from = start + length.max(size);
        fragments.push(Fragment::new(start, from, members));
    }
    fragments
}

/// Cuts fragments where a value ends.
fn by_value(fragments: Vec<Fragment>, values: &[Vec<u16>]) -> Vec<Fragment> {
    let mut result = Vec::new();
    for mut fragment in fragments {
        let mut end = 0;
        for value in values {
            if value.is_empty() {
                end += 1;
                continue;
            }
            let start = end;
            end += value.len() as i64 + 1;
            let within = |place: i64| (start..=end).contains(&place);
            if within(fragment.start) && within(fragment.end) {
                result.push(fragment);
                break;
            }
            let Some(first) = fragment.matches.first() else { break };
            if fragment.start >= end || first.start() >= end {
                continue;
            }
            let inside = |place: i64, otherwise: i64| {
                if place > start && place < end { place } else { otherwise }
            };
            let (from, to) = (inside(fragment.start, start), inside(fragment.end, end));
            let mut members = Vec::new();
            for one in &mut fragment.matches {
                let here = one.spans.iter().filter(|span| span.0 < end);
                let spans: Vec<(i64, i64)> = here
                    .map(|&(low, high)| (low.max(start), if high < end { high } else { end - 1 }))
                    .collect();
                one.spans.retain(|span| span.1 >= end);
                if !spans.is_empty() {
                    members.push(Match { spans, boost: one.boost });
                }
            }
            fragment.matches.retain(|one| !one.spans.is_empty());
            result.push(Fragment::new(from, to, members));
        }
    }
    result.sort_by_key(|fragment| fragment.start);
    result
}

/// The values, one after another as far as fragments need them.
struct Source<'a> {
    values: &'a [Vec<u16>],
    buffer: Vec<u16>,
    next: usize,
    scanner: Scanner,
}

impl Source<'_> {
    /// Writes a fragment, grown to boundaries.
    fn write(&mut self, fragment: &Fragment, options: &Options) -> Result<String> {
        while (self.buffer.len() as i64) < fragment.end
            && let Some(value) = self.values.get(self.next)
        {
            self.buffer.extend_from_slice(value);
            self.buffer.push(u16::from(b' '));
            self.next += 1;
        }
        // Behind the last value stands no separator.
        let length = self.buffer.len().saturating_sub(1) as i64;
        let end = if length < fragment.end { length } else { self.end(fragment.end) };
        let start = self.start(fragment.start);
        let mut markup = Markup::new(options);
        let mut written = start;
        let text = |from: i64, to: i64| {
            let range = usize::try_from(from).ok().zip(usize::try_from(to.min(end)).ok());
            range.and_then(|(from, to)| self.buffer.get(from..to)).unwrap_or_default()
        };
        for &(from, to) in fragment.matches.iter().flat_map(|one| &one.spans) {
            markup.text(text(written, from));
            markup.marked(text(from, to));
            written = to;
        }
        markup.text(text(written, end));
        markup.finish()
    }

    fn unit(&self) -> Option<Unit> {
        match self.scanner {
            Scanner::Chars => None,
            Scanner::Word => Some(Unit::Word),
            Scanner::Sentence => Some(Unit::Sentence),
        }
    }

    fn start(&self, start: i64) -> i64 {
        let Some(before) = usize::try_from(start).ok().and_then(|start| self.buffer.get(..start)) else {
            return start;
        };
        match self.unit() {
            Some(unit) => {
                let boundary = Boundaries::new(before, unit).preceding(before.len());
                boundary.map_or(start, |boundary| boundary as i64)
            }
            None => {
                let scanned = before.iter().rev().take(MAX_SCAN);
                match scanned.clone().position(|unit| is_boundary(*unit)) {
                    Some(distance) => start - distance as i64,
                    None if before.len() <= scanned.len() => 0,
                    None => start,
                }
            }
        }
    }

    fn end(&self, end: i64) -> i64 {
        let Some(behind) = usize::try_from(end).ok().and_then(|end| self.buffer.get(end..)) else {
            return end;
        };
        let distance = match self.unit() {
            Some(unit) => Boundaries::new(behind, unit).following(0),
            None => behind.iter().take(MAX_SCAN).position(|unit| is_boundary(*unit)),
        };
        end + distance.unwrap_or(0) as i64
    }
}

fn is_boundary(unit: u16) -> bool {
    u8::try_from(unit).is_ok_and(|unit| BOUNDARIES.contains(char::from(unit)))
}

/// Marks up the values of a field: the fragments in their order.
///
/// # Errors
/// Fragments that are too short.
pub(super) fn highlight(
    wanted: &[HighlightTarget],
    values: &[Vec<u16>],
    tokenizer: Tokenizer<'_>,
    options: &Options,
) -> Result<Vec<String>> {
    let size = i64::from(options.fragment_size);
    let whole = options.fragments == 0;
    if !whole && size < MIN_FRAGMENT {
        return Err(Error::IllegalArgument(format!(
            "fragCharSize({size}) is too small. It must be {MIN_FRAGMENT} or higher."
        )));
    }
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let phrases = Phrases::new(wanted);
    let found = match phrases.all.is_empty() {
        true => Vec::new(),
        false => matches(&phrases, &tokenizer.tokens(&values.join(&SEPARATOR), None)),
    };
    let mut source =
        Source { values, buffer: Vec::new(), next: 0, scanner: options.scanner.unwrap_or(Scanner::Chars) };
    let mut chosen = match (found.is_empty(), whole) {
        (true, _) => Vec::new(),
        (false, true) => vec![Fragment::new(0, UNBOUNDED, found)],
        (false, false) => fragments(found, size),
    };
    let mut most = if whole { usize::MAX } else { options.fragments };
    if chosen.is_empty() {
        if options.no_match_size <= 0 {
            return Ok(Vec::new());
        }
        chosen = vec![Fragment::new(0, i64::from(options.no_match_size), Vec::new())];
        most = 1;
    }
    if values.len() > 1 {
        chosen = by_value(chosen, values);
    }
    if options.by_score {
        chosen.sort_by(|a, b| b.boost.total_cmp(&a.boost).then(a.start.cmp(&b.start)));
    }
    chosen.iter().take(most).map(|fragment| source.write(fragment, options)).collect()
}
