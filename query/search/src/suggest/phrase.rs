//! A text with the words that were most likely meant: a noisy channel over the n-grams of a shard.
//!
//! Each word of the text has candidates, the terms near it. Each way through the candidates is as likely
//! as its words are typed for those of the text, and as they stand behind each other in the field.

use std::cmp::Ordering;
use std::collections::HashMap;

use millrace_dsl::suggest::{Generator, PhraseSuggester, Smoothing, SpellingOptions, SuggestMode};
use millrace_mapping::analysis::{Analyzer, Token};
use millrace_work::error::{Error, Result};

use super::spelling::{Dictionary, SuggestedTerm};

/// Most ways through the candidates that are looked at.
const MAX_STEPS: usize = 200_000;
/// Small constant that keeps quotients finite.
const LITTLE: f64 = 0.000_000_000_01;
/// Base of the logarithm by which frequent words need more frequent candidates.
const POPULARITY_BASE: f64 = 5.0;

/// A generator with what it needs of an index and a shard.
pub(super) struct Source<'a> {
    pub generator: &'a Generator,
    pub dictionary: Dictionary,
    pub pre_filter: Option<&'a Analyzer>,
    pub post_filter: Option<&'a Analyzer>,
}

/// Context of the correction of a phrase in a shard.
pub(super) struct Phrase<'a> {
    pub suggester: &'a PhraseSuggester,
    /// The field whose n-grams are counted.
    pub grams: Dictionary,
    pub sources: Vec<Source<'a>>,
    pub analyzer: &'a Analyzer,
    pub gram_size: usize,
}

/// An option.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Correction {
    /// The words.
    pub text: String,
    /// The same with tags around what was changed, where asked for.
    pub highlighted: Option<String>,
    /// Score of the candidate.
    pub score: f64,
}

/// A word that may be meant.
#[derive(Clone, Debug)]
struct Candidate {
    term: String,
    occurrences: u64,
    /// Similarity to the word of the text.
    channel: f64,
    score: f64,
    /// `true` if it is the word of the text.
    given: bool,
}

impl Candidate {
    /// Compares by what is to come first.
    fn order(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.term.cmp(&other.term))
    }
}

/// A word of the text with its candidates.
struct Word {
    given: Candidate,
    candidates: Vec<Candidate>,
}

/// The words of a way, each by its place among candidates; `None` is the word of the text.
type WordPath = Vec<Option<usize>>;

impl Phrase<'_> {
    /// Finds the options of a text, the best first.
    pub(super) fn run(&self, text: &str) -> Result<Vec<Correction>> {
        let mut scorer = Scorer::new(self)?;
        let mut words = self.words(text)?;
        if words.is_empty() || words.len() >= self.suggester.token_limit {
            return Ok(Vec::new());
        }
        for word in &mut words {
            self.draw(word)?;
        }
        let mut cutoff = f64::MIN_POSITIVE;
        if self.suggester.confidence > 0.0 {
            let given: WordPath = vec![None; words.len()];
            let mut sum = 0.0;
            for at in 0..words.len() {
                sum += scorer.score(&words, &given, at)?;
            }
            cutoff = sum.exp() * self.suggester.confidence;
        }
        let errors = match self.suggester.max_errors {
            errors if errors >= 1.0 => errors as usize,
            share => (share * words.len() as f32).round() as usize,
        };
        let mut search = Search { scorer, words: &words, cutoff, best: Vec::new(), steps: 0 };
        search.walk(&mut Vec::with_capacity(words.len()), errors.max(1), 0.0)?;
        let best = std::mem::take(&mut search.best);
        Ok(best.iter().map(|(score, way)| self.corrected(&words, way, *score)).collect())
    }

    /// Cuts the text into words.
    fn words(&self, text: &str) -> Result<Vec<Word>> {
        let mut tokens: Vec<Token> = Vec::new();
        self.analyzer.analyze(text, &mut |token| tokens.push(token.clone()));
        let mut words: Vec<Word> = Vec::new();
        let mut last = None;
        let mut alone = false;
        let forced = self.suggester.force_unigrams;
        for token in &tokens {
            if forced && token.kind == "shingle" {
                continue;
            }
            alone = true;
            let beside = last.replace(token.position) == Some(token.position);
            match words.last_mut() {
                Some(word) if beside && token.kind == "SYNONYM" => {
                    let candidate = self.candidate(&token.text, self.suggester.real_word_likelihood, true)?;
                    if candidate.occurrences > 0 {
                        word.candidates.push(candidate);
                    }
                }
                _ => {
                    let given = self.candidate(&token.text, 1.0, true)?;
                    words.push(Word { given, candidates: Vec::new() });
                }
            }
        }
        if forced && !alone && !tokens.is_empty() {
            return Err(Error::Exception {
                kind: "illegal_state_exception",
                status: 500,
                reason: "At least one unigram is required but all tokens were ngrams".to_owned(),
            });
        }
        Ok(words)
    }

    /// Makes a candidate by what the first generator knows of a word.
    fn candidate(&self, term: &str, channel: f64, given: bool) -> Result<Candidate> {
        let (occurrences, all) = match self.sources.first() {
            Some(source) => {
                let known = filtered(source.pre_filter, term).pop().unwrap_or_else(|| term.to_owned());
                (source.dictionary.occurrences(&known)?, source.dictionary.tokens()?)
            }
            None => (0, 0),
        };
        Ok(Candidate {
            term: term.to_owned(),
            occurrences,
            channel,
            score: weight(channel, occurrences, all),
            given,
        })
    }

    /// Finds the candidates of a word.
    fn draw(&self, word: &mut Word) -> Result<()> {
        for source in &self.sources {
            let asked = filtered(source.pre_filter, &word.given.term).pop();
            let asked = asked.unwrap_or_else(|| word.given.term.clone());
            let all = source.dictionary.tokens()?;
            for SuggestedTerm { term, score, .. } in source.near(&asked)? {
                // What is counted is the term of the generator's field.
                let occurrences = source.dictionary.occurrences(&term)?;
                let found = match source.post_filter {
                    None => vec![term],
                    Some(filter) => filtered(Some(filter), &term),
                };
                for term in found {
                    let channel = f64::from(score);
                    let candidate = Candidate {
                        score: weight(channel, occurrences, all),
                        term,
                        occurrences,
                        channel,
                        given: false,
                    };
                    // The first of equal words stays.
                    if !word.candidates.iter().any(|known| known.term == candidate.term) {
                        word.candidates.push(candidate);
                    }
                }
            }
            word.candidates.sort_by(Candidate::order);
            word.candidates.truncate(self.suggester.shard_size);
        }
        Ok(())
    }

    fn corrected(&self, words: &[Word], way: &WordPath, score: f64) -> Correction {
        let chosen: Vec<&Candidate> = words.iter().zip(way).map(|(word, at)| word.at(*at)).collect();
        let terms: Vec<&str> = chosen.iter().map(|candidate| candidate.term.as_str()).collect();
        let highlighted = self.suggester.highlight.as_ref().map(|(before, behind)| {
            let given = |at: Option<usize>| at.and_then(|at| chosen.get(at)).is_none_or(|word| word.given);
            let tagged = chosen.iter().enumerate().map(|(at, word)| match word.given {
                true => word.term.clone(),
                false => {
                    let before = if given(at.checked_sub(1)) { before.as_str() } else { "" };
                    let behind = if given(at.checked_add(1)) { behind.as_str() } else { "" };
                    format!("{before}{}{behind}", word.term)
                }
            });
            tagged.collect::<Vec<_>>().join(" ")
        });
        Correction { text: terms.join(" "), highlighted, score }
    }
}

impl Word {
    fn at(&self, place: Option<usize>) -> &Candidate {
        place.and_then(|at| self.candidates.get(at)).unwrap_or(&self.given)
    }
}

impl Source<'_> {
    /// Finds the terms near a word. Frequent words have candidates that are more frequent only.
    fn near(&self, asked: &str) -> Result<Vec<SuggestedTerm>> {
        let options = &self.generator.spelling;
        if options.mode == SuggestMode::Always {
            return self.dictionary.near(asked, self.generator.size, options);
        }
        let freq = self.dictionary.count(asked)?;
        if freq == 0 {
            let options = SpellingOptions { min_doc_freq: 0.0, ..options.clone() };
            return self.dictionary.near(asked, self.generator.size, &options);
        }
        if options.mode == SuggestMode::Missing {
            return Ok(Vec::new());
        }
        let plateau = match options.min_doc_freq {
            rows if rows >= 1.0 => rows as u64,
            share => (share * self.dictionary.rows() as f32) as u64,
        };
        let above = freq.saturating_sub(plateau) as f64;
        let threshold = freq as f64 * (above.log10() / POPULARITY_BASE.log10()) + 1.0;
        let options = SpellingOptions { min_doc_freq: threshold.round().max(0.0) as f32, ..options.clone() };
        self.dictionary.near(asked, self.generator.size, &options)
    }
}

/// Applies an analyzer to a word.
fn filtered(analyzer: Option<&Analyzer>, term: &str) -> Vec<String> {
    let mut terms = Vec::new();
    match analyzer {
        None => terms.push(term.to_owned()),
        Some(analyzer) => {
            analyzer.analyze(term, &mut |token| terms.push(token.text.clone()));
        }
    }
    terms
}

fn weight(channel: f64, occurrences: u64, all: u64) -> f64 {
    channel * ((occurrences as f64 + 1.0) / (all as f64 + 1.0))
}

/// Scorer of the words of a field.
struct Scorer<'a> {
    phrase: &'a Phrase<'a>,
    tokens: f64,
    terms: f64,
    counts: HashMap<String, u64>,
}

impl<'a> Scorer<'a> {
    fn new(phrase: &'a Phrase<'a>) -> Result<Self> {
        let tokens = phrase.grams.tokens()? as f64;
        let mut terms = 0.0;
        // Lucene knows how many terms there are in a single segment only.
        if phrase.grams.parts.len() == 1 {
            let all = millrace_scoring::automaton::Pattern::prefix("", false)?;
            phrase.grams.for_each(&all, &mut |_, _| terms += 1.0)?;
        }
        Ok(Self { phrase, tokens, terms, counts: HashMap::new() })
    }

    fn count(&mut self, terms: &[&str]) -> Result<f64> {
        let term = terms.join(&self.phrase.suggester.separator);
        if let Some(count) = self.counts.get(&term) {
            return Ok(*count as f64);
        }
        let count = self.phrase.grams.occurrences(&term)?;
        self.counts.insert(term, count);
        Ok(count as f64)
    }

    /// The logarithm of how likely the word at a place is.
    fn score(&mut self, words: &[Word], way: &WordPath, at: usize) -> Result<f64> {
        let Some(word) = words.get(at) else { return Ok(0.0) };
        let chosen = word.at(way.get(at).copied().flatten());
        let before = |back: usize| {
            let at = at.checked_sub(back)?;
            Some(words.get(at)?.at(way.get(at).copied().flatten()))
        };
        let channel = match chosen.channel == 1.0 {
            true => self.phrase.suggester.real_word_likelihood,
            false => chosen.channel,
        };
        let likely = match (self.phrase.gram_size, before(1), before(2)) {
            (1, ..) | (_, None, _) => self.unigram(&chosen.term)?,
            (2, Some(first), _) | (_, Some(first), None) => self.bigram(chosen, first)?,
            (_, Some(first), Some(second)) => self.trigram(chosen, first, second)?,
        };
        Ok((channel * likely).log10())
    }

    fn unigram(&mut self, term: &str) -> Result<f64> {
        let count = self.count(&[term])?;
        Ok(match self.phrase.suggester.smoothing {
            Smoothing::Laplace(alpha) => (alpha + count) / (self.tokens + alpha * self.terms),
            _ => (1.0 + count) / (self.tokens + self.terms),
        })
    }

    fn bigram(&mut self, word: &Candidate, before: &Candidate) -> Result<f64> {
        let count = self.count(&[&before.term, &word.term])?;
        let single = before.occurrences as f64;
        Ok(match self.phrase.suggester.smoothing {
            Smoothing::StupidBackoff(discount) if count < 1.0 => discount * self.unigram(&word.term)?,
            Smoothing::StupidBackoff(_) => count / (single + LITTLE),
            Smoothing::Laplace(alpha) => (alpha + count) / (single + alpha * self.terms),
            Smoothing::Linear { unigram, .. } if count < 1.0 => unigram * self.unigram(&word.term)?,
            Smoothing::Linear { bigram, unigram, .. } => {
                bigram * (count / (0.5 + single)) + unigram * self.unigram(&word.term)?
            }
        })
    }

    fn trigram(&mut self, word: &Candidate, first: &Candidate, second: &Candidate) -> Result<f64> {
        match self.phrase.suggester.smoothing {
            Smoothing::StupidBackoff(discount) => {
                let pair = self.count(&[&first.term, &word.term])?;
                if pair < 1.0 {
                    return Ok(discount * self.unigram(&word.term)?);
                }
                let triple = self.count(&[&second.term, &first.term, &word.term])?;
                Ok(match triple < 1.0 {
                    true => discount * (pair / (first.occurrences as f64 + LITTLE)),
                    false => triple / (pair + LITTLE),
                })
            }
            Smoothing::Laplace(alpha) => {
                let triple = self.count(&[&second.term, &first.term, &word.term])?;
                let pair = self.count(&[&first.term, &word.term])?;
                Ok((alpha + triple) / (alpha * self.terms + pair))
            }
            Smoothing::Linear { trigram, .. } => {
                // OpenSearch looks the words up in this order.
                let triple = self.count(&[&word.term, &first.term, &second.term])?;
                let pair = self.bigram(word, first)?;
                if triple < 1.0 {
                    return Ok(pair);
                }
                let together = self.count(&[&word.term, &first.term])?;
                Ok(trigram * (triple / (1.0 + together)) + pair)
            }
        }
    }
}

/// The search for the best ways.
struct Search<'a> {
    scorer: Scorer<'a>,
    words: &'a [Word],
    cutoff: f64,
    /// The best ways so far, the best first.
    best: Vec<(f64, WordPath)>,
    steps: usize,
}

impl Search<'_> {
    /// Goes on from a way with the words that follow; `errors` is how many of them may be others.
    fn walk(&mut self, way: &mut WordPath, errors: usize, score: f64) -> Result<()> {
        let at = way.len();
        let Some(word) = self.words.get(at) else {
            self.offer(way, score.exp());
            return Ok(());
        };
        let others = if errors > 0 { word.candidates.len() } else { 0 };
        for place in std::iter::once(None).chain((0..others).map(Some)) {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(Error::IllegalArgument(format!(
                    "the text has more than [{MAX_STEPS}] corrections to look at: lower [max_errors], [shard_size] or the [size] of generators"
                )));
            }
            way.push(place);
            let more = self.scorer.score(self.words, way, at)?;
            self.walk(way, errors - usize::from(place.is_some()), score + more)?;
            way.pop();
        }
        Ok(())
    }

    fn offer(&mut self, way: &WordPath, score: f64) {
        if score <= self.cutoff {
            return;
        }
        let words = self.words;
        let terms = |way: &WordPath| -> Vec<&str> {
            words.iter().zip(way).map(|(word, at)| word.at(*at).term.as_str()).collect()
        };
        let own = terms(way);
        let place = self.best.partition_point(|(known, other)| {
            known.total_cmp(&score).is_gt() || *known == score && terms(other) <= own
        });
        let most = self.scorer.phrase.suggester.shard_size;
        if place < most {
            self.best.insert(place, (score, way.clone()));
            self.best.truncate(most);
        }
    }
}
