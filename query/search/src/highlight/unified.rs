//! The unified highlighter: passages, each scored as a small document of its own.
//!
//! It follows Lucene's `UnifiedHighlighter` without the weight's own matches, as OpenSearch runs it:
//! terms are marked wherever they stand, phrases only where they match. A passage is made around the
//! first match that no earlier passage holds; the best are kept, by Lucene's made-up BM25.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use millrace_dsl::highlight::{Options, Scanner};
use millrace_work::error::Result;

use super::boundary::{Boundaries, Unit};
use super::markup::Markup;
use super::spans;
use super::terms::{HighlightTarget, Pattern, Spans, TargetKind};
use super::tokens::{SEPARATOR, Token, Tokenizer};

/// The character that separates paragraphs.
const PARAGRAPH: char = '\u{2029}';

/// Query of one field.
#[derive(Debug, Default)]
pub(super) struct Query<'a> {
    /// Every term, those of spans included, in order.
    terms: BTreeSet<&'a str>,
    /// Those that are marked wherever they stand.
    anywhere: BTreeSet<&'a str>,
    patterns: Vec<&'a Pattern>,
    spans: Vec<&'a Spans>,
}

impl<'a> Query<'a> {
    /// Sorts what is wanted.
    pub(super) fn new(wanted: impl Iterator<Item = &'a HighlightTarget>) -> Self {
        let mut query = Self::default();
        for wanted in wanted {
            match &wanted.what {
                TargetKind::Term(term) => {
                    query.terms.insert(term);
                    if !wanted.hidden {
                        query.anywhere.insert(term);
                    }
                }
                TargetKind::Pattern(pattern) => query.patterns.push(pattern),
                TargetKind::Spans(spans) => {
                    for place in spans.marked() {
                        query.terms.extend(place.terms.iter().map(String::as_str));
                    }
                    if !wanted.hidden {
                        query.spans.push(spans);
                    }
                }
            }
        }
        query
    }

    /// Returns whether terms must be compared with patterns.
    pub(super) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
            || self.spans.iter().any(|spans| spans.places.iter().any(|place| place.pattern.is_some()))
    }

    /// Returns whether nothing can be marked.
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty() && self.patterns.is_empty() && self.spans.is_empty()
    }

    /// Lists the occurrences in a text, in order.
    fn occurrences(&self, tokens: &[Token]) -> Vec<Occurrence> {
        let anywhere = if self.spans.is_empty() { &self.terms } else { &self.anywhere };
        let mut frequencies: HashMap<&str, u32> = HashMap::new();
        for token in tokens {
            *frequencies.entry(&token.term).or_default() += 1;
        }
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found = Vec::new();
        let mut add = |token: &Token, number: usize, frequency: u32| {
            found.push(Occurrence { start: token.start, end: token.end, term: number, frequency });
        };
        for token in tokens {
            if anywhere.contains(token.term.as_str()) {
                let next = numbers.len();
                let number = *numbers.entry(&token.term).or_insert(next);
                add(token, number, frequencies[token.term.as_str()]);
            }
        }
        let mut in_spans: BTreeSet<usize> = BTreeSet::new();
        for wanted in &self.spans {
            for found in spans::matches(wanted, tokens) {
                in_spans.extend(found.tokens);
            }
        }
        let in_spans =
            in_spans.into_iter().map(|at| &tokens[at]).filter(|t| !anywhere.contains(t.term.as_str()));
        for token in in_spans {
            let next = numbers.len();
            let number = *numbers.entry(&token.term).or_insert(next);
            add(token, number, frequencies[token.term.as_str()]);
        }
        for (at, pattern) in self.patterns.iter().enumerate() {
            let fitting: Vec<&Token> = tokens.iter().filter(|token| pattern.fits(&token.term)).collect();
            let frequency = fitting.len() as u32;
            fitting.into_iter().for_each(|token| add(token, usize::MAX - at, frequency));
        }
        found.sort_by_key(|occurrence| (occurrence.start, occurrence.end));
        found
    }
}

/// A place to be marked.
#[derive(Clone, Copy, Debug)]
struct Occurrence {
    start: usize,
    end: usize,
    /// Number of the term or pattern.
    term: usize,
    /// Frequency of that in the text.
    frequency: u32,
}

/// A part of the text with matches in it.
#[derive(Clone, Debug, Default)]
struct Passage {
    start: usize,
    end: usize,
    matches: Vec<Occurrence>,
    score: f32,
}

/// Marks up a text: the fragments in their order. `limit` bounds analysis.
pub(super) fn highlight(
    query: &Query<'_>,
    text: &[u16],
    tokenizer: Tokenizer<'_>,
    options: &Options,
    limit: Option<i64>,
) -> Result<Vec<String>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = tokenizer.tokens(text, limit);
    let whole = options.fragments == 0 || !tokenizer.cuts();
    let most = if options.fragments == 0 { usize::MAX } else { options.fragments };
    let breaks = PassageBreaks::new(text, if whole { None } else { Some(options) });
    let mut passages = best(query.occurrences(&tokens), breaks, most, text.len());
    if passages.is_empty() {
        passages.extend(no_match(text, options.no_match_size));
    }
    let mut fragments: Vec<(f32, String)> = Vec::with_capacity(passages.len());
    for passage in &passages {
        let fragment = format(passage, text, options)?;
        if fragment.chars().any(|c| !c.is_whitespace()) {
            fragments.push((passage.score, fragment));
        }
    }
    if options.by_score {
        fragments.sort_by(|a, b| b.0.total_cmp(&a.0));
    }
    Ok(fragments.into_iter().map(|(_, fragment)| fragment).collect())
}

/// Gathers occurrences into passages and keeps the best, in the order of the text.
fn best(
    occurrences: Vec<Occurrence>,
    mut breaks: PassageBreaks<'_>,
    most: usize,
    length: usize,
) -> Vec<Passage> {
    let mut kept: BinaryHeap<Reverse<Passage>> = BinaryHeap::new();
    let mut keep = |mut passage: Passage| {
        if passage.matches.is_empty() {
            return;
        }
        passage.score = score(&passage, length);
        if kept.len() == most && kept.peek().is_some_and(|Reverse(least)| passage.score < least.score) {
            return;
        }
        kept.push(Reverse(passage));
        if kept.len() > most {
            kept.pop();
        }
    };
    let mut current = Passage::default();
    for occurrence in occurrences {
        if occurrence.start < length && occurrence.end > length {
            continue;
        }
        if current.matches.is_empty() || occurrence.start >= current.end {
            keep(std::mem::take(&mut current));
            if occurrence.start >= length {
                break;
            }
            (current.start, current.end) = breaks.around(occurrence.start);
        }
        current.matches.push(occurrence);
    }
    keep(current);
    let mut passages: Vec<Passage> = kept.into_iter().map(|Reverse(passage)| passage).collect();
    passages.sort_by_key(|passage| passage.start);
    passages
}

impl PartialEq for Passage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Passage {}

impl PartialOrd for Passage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Passage {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.start.cmp(&other.start))
    }
}

/// Scores a passage as Lucene's `PassageScorer` does, with its constants: k1 = 1.2, b = 0.75, pivot = 87.
fn score(passage: &Passage, length: usize) -> f32 {
    const K1: f32 = 1.2;
    const B: f32 = 0.75;
    const PIVOT: f32 = 87.0;
    let mut terms: Vec<(u32, u32)> = Vec::new();
    let mut places: HashMap<usize, usize> = HashMap::new();
    for occurrence in &passage.matches {
        let at = *places.entry(occurrence.term).or_insert(terms.len());
        match terms.get_mut(at) {
            Some((count, _)) => *count += 1,
            None => terms.push((1, occurrence.frequency)),
        }
    }
    let documents = 1.0 + length as f32 / PIVOT;
    let norm = K1 * ((1.0 - B) + B * ((passage.end - passage.start) as f32 / PIVOT));
    let mut sum = 0.0_f64;
    for (count, frequency) in terms {
        let rarity = 1.0 + (f64::from(documents) + 0.5) / (f64::from(frequency) + 0.5);
        let weight = (K1 + 1.0) * rarity.ln() as f32;
        let tf = count as f32 / (count as f32 + norm);
        sum += f64::from(tf * weight);
    }
    let early = 1.0 + 1.0 / f64::from(PIVOT + passage.start as f32).ln() as f32;
    (sum * f64::from(early)) as f32
}

/// The start of a text without matches, to the end of a word.
fn no_match(text: &[u16], size: i32) -> Option<Passage> {
    let size = usize::try_from(size).ok().filter(|size| *size > 0)?;
    let start = text.iter().position(|unit| *unit != SEPARATOR)?;
    let mut end =
        text[start..].iter().position(|unit| *unit == SEPARATOR).map_or(text.len(), |at| start + at);
    if start.saturating_add(size) < end {
        end = Boundaries::new(text, Unit::Word).following(start + size).unwrap_or(text.len());
    }
    Some(Passage { start, end, matches: Vec::new(), score: f32::NAN })
}

fn format(passage: &Passage, text: &[u16], options: &Options) -> Result<String> {
    let mut markup = Markup::new(options);
    let mut at = passage.start;
    let mut matches = passage.matches.iter().peekable();
    while let Some(found) = matches.next() {
        let mut end = found.end;
        while let Some(next) = matches.next_if(|next| next.start < end) {
            end = next.end;
        }
        let start = found.start.clamp(at, passage.end);
        let end = end.clamp(start, passage.end);
        markup.text(&text[at..start]);
        markup.marked(&text[start..end]);
        at = end;
    }
    markup.text(&text[at..passage.end.max(at)]);
    let mut fragment = markup.finish()?;
    if fragment.ends_with([PARAGRAPH, '\0']) {
        fragment.pop();
    }
    Ok(fragment.trim_matches(|c: char| c <= ' ').to_owned())
}

/// Begins and ends of passages. Each value of a field is cut for itself.
struct PassageBreaks<'a> {
    text: &'a [u16],
    /// Absent where a value is one passage.
    options: Option<&'a Options>,
    /// The value at hand: its place, and its boundaries.
    value: Option<(usize, usize, PassageCutter)>,
}

impl<'a> PassageBreaks<'a> {
    fn new(text: &'a [u16], options: Option<&'a Options>) -> Self {
        Self { text, options, value: None }
    }

    /// Returns the passage around a place; places come in ascending order.
    fn around(&mut self, place: usize) -> (usize, usize) {
        let inside = matches!(&self.value, Some((from, to, _)) if (*from..=*to).contains(&place));
        if !inside {
            let before = self.text[..place].iter().rposition(|unit| *unit == SEPARATOR);
            let from = before.map_or(0, |at| at + 1);
            let behind = self.text[place..].iter().position(|unit| *unit == SEPARATOR);
            let to = behind.map_or(self.text.len(), |at| place + at);
            self.value = Some((from, to, PassageCutter::new(&self.text[from..to], self.options)));
        }
        let Some((from, to, cutter)) = &mut self.value else { return (place, place) };
        let (start, end) = cutter.around(place - *from);
        (*from + start.min(place - *from), (*from + end).clamp(place, *to))
    }
}

/// Cuts one value.
enum PassageCutter {
    /// At boundaries of one kind.
    Plain(Boundaries),
    Sentences(Sentences),
    Bounded(BoundedSentences),
}

impl PassageCutter {
    fn new(value: &[u16], options: Option<&Options>) -> Self {
        let Some(options) = options else { return Self::Plain(Boundaries::new(value, Unit::Whole)) };
        match (options.scanner, usize::try_from(options.fragment_size)) {
            (Some(Scanner::Word), _) => Self::Plain(Boundaries::new(value, Unit::Word)),
            (_, Ok(size)) if size > 0 => Self::Bounded(BoundedSentences {
                sentences: Sentences::new(value),
                words: Boundaries::new(value, Unit::Word),
                size,
                window: None,
                end: 0,
            }),
            _ => Self::Sentences(Sentences::new(value)),
        }
    }

    fn around(&mut self, place: usize) -> (usize, usize) {
        match self {
            Self::Plain(boundaries) => {
                (boundaries.preceding(place + 1).unwrap_or(0), boundaries.following(place).unwrap_or(place))
            }
            Self::Sentences(sentences) => {
                (sentences.preceding(place + 1), sentences.following(place).unwrap_or(place))
            }
            Self::Bounded(bounded) => bounded.around(place),
        }
    }
}

/// The sentences of a value as the JDK's iterator finds them when it is asked in the midst: from the
/// place where it last was, or else from where it is sure of a boundary.
struct Sentences {
    boundaries: Boundaries,
    known: Option<usize>,
}

impl Sentences {
    fn new(value: &[u16]) -> Self {
        Self { boundaries: Boundaries::new(value, Unit::Sentence), known: None }
    }

    fn preceding(&mut self, position: usize) -> usize {
        let known = self.known.filter(|known| *known < position);
        let known = known.or_else(|| self.boundaries.resumption(position)).unwrap_or(0);
        let found = self.boundaries.preceding(position).unwrap_or(0).max(known);
        self.known = Some(found);
        found
    }

    fn following(&mut self, position: usize) -> Option<usize> {
        self.known = self.boundaries.following(position);
        self.known
    }
}

/// Sentences, gathered to a length, or cut at words where they are longer.
struct BoundedSentences {
    sentences: Sentences,
    words: Boundaries,
    size: usize,
    /// The sentences at hand.
    window: Option<(usize, usize)>,
    /// End of the last passage.
    end: usize,
}

impl BoundedSentences {
    fn around(&mut self, place: usize) -> (usize, usize) {
        let offset = place + 1;
        let (mut start, end) = match self.window {
            Some((from, to)) if offset > from && offset < to => (self.end, to),
            _ => {
                let start = self.sentences.preceding(offset);
                let mut end = self.sentences.following(place).unwrap_or(place);
                while end - start < self.size {
                    match self.sentences.following(end) {
                        Some(next) if next - start <= self.size => end = next,
                        _ => break,
                    }
                }
                self.window = Some((start, end));
                (start, end)
            }
        };
        self.end = end;
        if end.saturating_sub(start) > self.size {
            if offset > self.size && offset - self.size > start {
                start = start.max(self.words.preceding(offset - self.size).unwrap_or(0));
            }
            let remaining = self.size.saturating_sub(offset.saturating_sub(start));
            if offset + remaining < end {
                self.end = end.min(self.words.following(offset + remaining).unwrap_or(end));
            }
        }
        (start, self.end)
    }
}
