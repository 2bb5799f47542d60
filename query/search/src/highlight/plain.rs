//! The plain highlighter: fragments of one length, scored by the distinct terms in them.
//!
//! It follows Lucene's original `Highlighter` with a `QueryScorer`: each value is analyzed for itself,
//! the best fragments of each are kept, and those of the first values come first unless ordered.

use std::collections::{BinaryHeap, HashMap, HashSet};

use millrace_dsl::highlight::Options;
use millrace_work::error::Result;

use super::markup::Markup;
use super::spans;
use super::terms::{HighlightTarget, TargetKind};
use super::tokens::{Token, Tokenizer};

/// Most tokens at one place that are looked at together.
const MAX_GROUP: usize = 50;

/// Fragmenter of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragmenter {
    /// Not at all.
    None,
    /// At a length.
    Simple,
    /// At a length, not within phrases.
    Span,
}

/// A term of the query in one value.
#[derive(Clone, Debug, Default)]
struct Weighted {
    weight: f32,
    /// The places that count, where not all do.
    spans: Option<Vec<(u32, u32)>>,
}

/// A piece of a value, marked.
#[derive(Clone, Debug)]
struct Fragment {
    number: usize,
    score: f32,
    from: usize,
    to: usize,
}

/// Marks up the values of a field, each up to a limit: the fragments in their order.
pub(super) fn highlight(
    wanted: &[&HighlightTarget],
    values: &[Vec<u16>],
    tokenizer: Tokenizer<'_>,
    options: &Options,
    fragmenter: Fragmenter,
    limit: Option<usize>,
) -> Result<Vec<String>> {
    let most = options.fragments.max(1);
    let mut fragments: Vec<(f32, String)> = Vec::new();
    for value in values {
        let value = &value[..limit.unwrap_or(usize::MAX).min(value.len())];
        let tokens = tokenizer.tokens(value, None);
        fragments.extend(best(wanted, value, &tokens, options, fragmenter, most)?);
    }
    if options.by_score {
        by_rounded_score(&mut fragments);
    }
    if options.fragments > 0 || values.len() <= 1 {
        fragments.truncate(most);
    }
    if fragments.is_empty() {
        return Ok(no_match(values, tokenizer, options).into_iter().collect());
    }
    Ok(fragments.into_iter().map(|(_, fragment)| fragment).collect())
}

/// Orders by score, falling; scores that differ by less than a half are equal. Such an order is none in
/// the strict sense, so that only insertion sort is safe with it; fragments beyond its reach go by score.
fn by_rounded_score(fragments: &mut [(f32, String)]) {
    const INSERTION: usize = 512;
    if fragments.len() > INSERTION {
        fragments.sort_by(|a, b| b.0.total_cmp(&a.0));
        return;
    }
    for at in 1..fragments.len() {
        let mut to = at;
        while to > 0 && (fragments[to].0 - fragments[to - 1].0 + 0.5).floor() > 0.0 {
            fragments.swap(to, to - 1);
            to -= 1;
        }
    }
}

/// Finds what of the query is in a value: terms with their weights and, of phrases, their places.
fn weigh(wanted: &[&HighlightTarget], tokens: &[Token]) -> HashMap<String, Weighted> {
    let mut terms: HashMap<String, Weighted> = HashMap::new();
    for wanted in wanted {
        let anywhere = Weighted { weight: wanted.boost, spans: None };
        match &wanted.what {
            TargetKind::Term(term) => {
                terms.insert(term.clone(), anywhere);
            }
            TargetKind::Pattern(pattern) => {
                for token in tokens.iter().filter(|token| pattern.fits(&token.term)) {
                    let weight = wanted.boost * pattern.boost(&token.term);
                    terms.insert(token.term.clone(), Weighted { weight, spans: None });
                }
            }
            TargetKind::Spans(wanted_spans) => {
                let found = spans::matches(wanted_spans, tokens);
                if found.is_empty() {
                    continue;
                }
                let places = wanted_spans.marked();
                let spans: Vec<(u32, u32)> = found.iter().map(|found| (found.first, found.last)).collect();
                let fitting: HashSet<&str> = tokens
                    .iter()
                    .map(|token| token.term.as_str())
                    .filter(|term| places.iter().any(|place| place.fits(term)))
                    .collect();
                for term in fitting {
                    match terms.get_mut(term) {
                        Some(Weighted { spans: Some(own), .. }) => own.extend(&spans),
                        Some(_) => {}
                        None => {
                            let weighted = Weighted { weight: wanted.boost, spans: Some(spans.clone()) };
                            terms.insert(term.to_owned(), weighted);
                        }
                    }
                }
            }
        }
    }
    terms
}

/// Neighbouring tokens that overlap.
#[derive(Debug, Default)]
struct Group {
    count: usize,
    end: usize,
    match_start: usize,
    match_end: usize,
    total: f32,
}

impl Group {
    fn add(&mut self, token: &Token, score: f32) {
        if self.count == MAX_GROUP {
            return;
        }
        if self.count == 0 {
            *self = Self {
                match_start: token.start,
                match_end: token.end,
                end: token.end,
                count: 0,
                total: score,
            };
        } else {
            self.end = self.end.max(token.end);
            if score > 0.0 {
                if self.total == 0.0 {
                    (self.match_start, self.match_end) = (token.start, token.end);
                } else {
                    self.match_start = self.match_start.min(token.start);
                    self.match_end = self.match_end.max(token.end);
                }
                self.total += score;
            }
        }
        self.count += 1;
    }
}

/// Decides where fragments begin.
struct FragmentCutter<'a> {
    fragmenter: Fragmenter,
    size: i64,
    length: i64,
    pieces: i64,
    /// Position by the tokens asked about; the first of a value is not among them.
    position: i64,
    wait_for: i64,
    terms: &'a HashMap<String, Weighted>,
}

impl FragmentCutter<'_> {
    fn begins(&mut self, token: &Token, step: u32) -> bool {
        let end = token.end as i64;
        let reached = end >= self.size * self.pieces;
        let begins = match self.fragmenter {
            Fragmenter::None => false,
            Fragmenter::Simple => reached,
            Fragmenter::Span => {
                self.position += i64::from(step);
                if self.wait_for <= self.position {
                    self.wait_for = -1;
                } else if self.wait_for != -1 {
                    return false;
                }
                let spans = self.terms.get(&token.term).and_then(|term| term.spans.as_ref());
                let here = spans
                    .and_then(|spans| spans.iter().find(|(first, _)| i64::from(*first) == self.position));
                if let Some((_, last)) = here {
                    self.wait_for = i64::from(*last) + 1;
                }
                reached && self.length - end >= self.size / 2
            }
        };
        if begins {
            self.pieces += 1;
        }
        begins
    }
}

fn best(
    wanted: &[&HighlightTarget],
    value: &[u16],
    tokens: &[Token],
    options: &Options,
    fragmenter: Fragmenter,
    most: usize,
) -> Result<Vec<(f32, String)>> {
    let terms = weigh(wanted, tokens);
    let mut cutter = FragmentCutter {
        fragmenter,
        size: i64::from(options.fragment_size),
        length: value.len() as i64,
        pieces: 1,
        position: -1,
        wait_for: -1,
        terms: &terms,
    };
    let mut markup = Markup::new(options);
    let mut done: Vec<Fragment> = Vec::new();
    let mut current = Fragment { number: 0, score: 0.0, from: 0, to: 0 };
    let mut seen: HashSet<&str> = HashSet::new();
    let mut group = Group::default();
    let mut written = 0;
    let flush = |group: &Group, markup: &mut Markup<'_>, written: &mut usize| {
        if group.match_start > *written {
            markup.text(&value[*written..group.match_start]);
        }
        let matched = &value[group.match_start.min(group.match_end)..group.match_end];
        if group.total > 0.0 {
            markup.marked(matched);
        } else {
            markup.text(matched);
        }
        *written = group.match_end.max(*written);
    };
    let mut position = None;
    for token in tokens {
        let step = position.map_or(token.position + 1, |last| token.position.saturating_sub(last));
        position = Some(token.position);
        if group.count > 0 && token.start >= group.end {
            flush(&group, &mut markup, &mut written);
            group = Group::default();
            if cutter.begins(token, step) {
                current.to = markup.len();
                let next = Fragment { number: done.len() + 1, score: 0.0, from: markup.len(), to: 0 };
                done.push(std::mem::replace(&mut current, next));
                seen.clear();
            }
        }
        let score = match terms.get(&token.term) {
            Some(Weighted { weight, spans }) => {
                let counts = spans.as_ref().is_none_or(|spans| {
                    spans.iter().any(|(first, last)| (*first..=*last).contains(&token.position))
                });
                if counts { *weight } else { 0.0 }
            }
            None => 0.0,
        };
        if score != 0.0 && seen.insert(&token.term) {
            current.score += score;
        }
        group.add(token, score);
    }
    if group.count > 0 {
        flush(&group, &mut markup, &mut written);
    }
    if written < value.len() {
        markup.text(&value[written..]);
    }
    current.to = markup.len();
    done.push(current);
    let text = markup.finish()?;
    let fragments = select(done, most).into_iter();
    Ok(fragments.map(|part| (part.score, text[part.from..part.to].to_owned())).collect())
}

/// Keeps the best fragments, best first; of equal ones the earlier.
fn select(fragments: Vec<Fragment>, most: usize) -> Vec<Fragment> {
    let mut heap: BinaryHeap<(std::cmp::Reverse<Score>, usize)> = BinaryHeap::new();
    for fragment in fragments.iter().filter(|fragment| fragment.score > 0.0) {
        heap.push((std::cmp::Reverse(Score(fragment.score)), fragment.number));
        if heap.len() > most {
            heap.pop();
        }
    }
    heap.into_sorted_vec().into_iter().map(|(_, number)| fragments[number].clone()).collect()
}

/// A score with a total order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score(f32);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The start of the first value, to the end of a token.
fn no_match(values: &[Vec<u16>], tokenizer: Tokenizer<'_>, options: &Options) -> Option<String> {
    let size = usize::try_from(options.no_match_size).ok().filter(|size| *size > 0)?;
    let value = values.first()?;
    let mut end = 0;
    for token in tokenizer.tokens(value, None) {
        if token.end >= size {
            if token.end == size {
                end = size;
            }
            break;
        }
        end = token.end;
    }
    (end > 0).then(|| String::from_utf16_lossy(&value[..end]))
}
