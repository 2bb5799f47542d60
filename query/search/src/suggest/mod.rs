//! Suggesters: likely intended texts, or likely continuations, by the terms of each shard.
//!
//! [`run`] is handed the suggestions of a request with a pinned snapshot, asks every shard on a compute
//! thread, joins what the shards say, and makes the member `suggest` of the answer. Where rules of roles show some documents
//! only, dictionaries are read as if they had the words of those alone (`part`).

mod completion;
mod distance;
mod part;
mod phrase;
mod spelling;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_dsl::source_filter::SourceFilter;
use millrace_dsl::suggest::{
    CompletionSuggester, Generator, PhraseSuggester, Suggester, Suggestion, TermSuggester,
};
use millrace_mapping::analysis::{Analyzer, Token};
use millrace_mapping::{Field, FieldType};
use millrace_matching::order::number;
use millrace_matching::table::{TableIndex, TableSegment, TableSnapshot};
use millrace_segment::RowParts;
use millrace_work::compute::Stop;
use millrace_work::error::{Error, Result, ShardFailure};
use millrace_work::{PARSED_SHARE, QueryContext, bytes_of};
use roaring::RoaringBitmap;
use serde_json::{Map, Value, json};

use self::completion::{CompletionHit, CompletionLookup};
use self::part::{Terms, VisibleRows, VisibleSegment};
use self::phrase::{Correction, Phrase, Source};
use self::spelling::{Dictionary, SuggestedTerm};
use crate::fetch;
use crate::fetch::phases::Extras;
use crate::response::{Hit, HitList, RenderOptions};
use crate::searcher::{Searcher, index_failures};

/// Most tokens of a text that terms are looked for.
const MAX_TOKENS: usize = 1_000;

/// The suggestions of an answer.
#[derive(Debug)]
pub struct Suggestions {
    /// The member `suggest`.
    pub answer: Value,
    /// Shards that could not answer.
    pub failures: Vec<ShardFailure>,
}

/// Options of the shards for one suggestion.
#[derive(Debug)]
enum ShardSuggestions {
    /// The words of the text, each with the terms near it.
    Terms(Vec<(Token, Vec<SuggestedTerm>)>),
    Phrases(Vec<Correction>),
    Completions(Vec<CompletionHit>),
}

/// Answers the suggestions of a request; of work whose time is over with what was found by then.
///
/// # Errors
/// Where every shard refuses a suggestion.
pub fn run<'a>(
    searcher: &'a Searcher,
    snapshot: &'a Arc<TableSnapshot>,
    suggestions: &'a [Suggestion],
    shown: &'a RenderOptions,
    typed: bool,
    work: &'a QueryContext,
) -> BoxFuture<'a, Result<Suggestions>> {
    Box::pin(async move {
        let mut answer = Map::new();
        let mut failures: Vec<ShardFailure> = Vec::new();
        let (all, holder) = (Arc::clone(snapshot), work.clone());
        let seen = Arc::new(searcher.compute.run(move || part::seen(&all, &holder)).await?);
        for suggestion in suggestions {
            let (snapshot, asked) = (Arc::clone(snapshot), suggestion.clone());
            let (stop, seen) = (Arc::clone(work.stop()), Arc::clone(&seen));
            let shared = SuggestShards { snapshot: Arc::clone(&snapshot), seen, stop };
            let (said, failed) = searcher.compute.run(move || Ok(suggest(&shared, &asked))).await?;
            for (place, error) in failed {
                for failure in index_failures(&snapshot, place, error) {
                    let known =
                        |other: &ShardFailure| other.index == failure.index && other.shard == failure.shard;
                    if !failures.iter().any(known) {
                        failures.push(failure);
                    }
                }
            }
            if !failures.is_empty() && failures.len() >= snapshot.shards as usize {
                return Err(Error::SearchPhase { failures });
            }
            let text = suggestion.text.as_deref().unwrap_or_default();
            let entries = match said {
                ShardSuggestions::Terms(words) => words.iter().map(term_entry).collect(),
                ShardSuggestions::Phrases(options) => {
                    vec![entry(text, 0, units(text), options.iter().map(phrase_option).collect())]
                }
                ShardSuggestions::Completions(found) => {
                    let options = completion_options(searcher, &snapshot, found, shown, work).await?;
                    vec![entry(text, 0, units(text), options)]
                }
            };
            let kind = suggestion.suggester.kind();
            let name = if typed { format!("{kind}#{}", suggestion.name) } else { suggestion.name.clone() };
            answer.insert(name, Value::Array(entries));
        }
        Ok(Suggestions { answer: Value::Object(answer), failures })
    })
}

/// Asks the shards of every index; an error is that of the index at a place. Once it is stopped, nobody sees the answer.
fn suggest(shards: &SuggestShards, suggestion: &Suggestion) -> (ShardSuggestions, Vec<(usize, Error)>) {
    let mut failed = Vec::new();
    let mut said = match &suggestion.suggester {
        Suggester::Term(_) => ShardSuggestions::Terms(Vec::new()),
        Suggester::Phrase(_) => ShardSuggestions::Phrases(Vec::new()),
        Suggester::Completion(_) => ShardSuggestions::Completions(Vec::new()),
    };
    for (place, index) in shards.snapshot.indices.iter().enumerate() {
        let asked = match (&suggestion.text, &suggestion.suggester, &mut said) {
            (None, ..) => Err(Error::IllegalArgument("The required text option is missing".to_owned())),
            (Some(text), Suggester::Term(suggester), ShardSuggestions::Terms(words)) => {
                ask_terms(shards, (place, index), suggester, text, words)
            }
            (Some(text), Suggester::Phrase(suggester), ShardSuggestions::Phrases(options)) => {
                ask_phrases(shards, (place, index), suggester, text, options)
            }
            (Some(text), Suggester::Completion(suggester), ShardSuggestions::Completions(found)) => {
                ask_completions(shards, (place, index), suggester, text, found)
            }
            _ => Ok(()),
        };
        if let Err(error) = asked {
            failed.push((place, error));
        }
    }
    match (&suggestion.suggester, &mut said) {
        (Suggester::Term(suggester), ShardSuggestions::Terms(words)) => {
            for (_, options) in words {
                options.sort_by(|a, b| a.order(b, suggester.spelling.sort));
                options.truncate(suggester.size);
            }
        }
        (Suggester::Phrase(suggester), ShardSuggestions::Phrases(options)) => {
            options.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.text.cmp(&b.text)));
            options.truncate(suggester.size);
        }
        (Suggester::Completion(suggester), ShardSuggestions::Completions(found)) => {
            *found = completion::joined(std::mem::take(found), suggester);
        }
        _ => {}
    }
    (said, failed)
}

/// The shards that are asked, with what is seen of them.
struct SuggestShards {
    snapshot: Arc<TableSnapshot>,
    seen: Arc<VisibleRows>,
    stop: Arc<Stop>,
}

impl SuggestShards {
    fn seen(&self, segment: usize) -> Option<&Arc<RoaringBitmap>> {
        self.seen.get(segment).and_then(Option::as_ref)
    }

    /// The segments of which any row is seen, by number.
    fn segments(&self) -> impl Iterator<Item = (usize, &TableSegment)> {
        let any = |number: usize| self.seen(number).is_none_or(|seen| !seen.is_empty());
        self.snapshot.segments.iter().enumerate().filter(move |(number, _)| any(*number))
    }

    /// Numbers of the shards of an index in the snapshot, those without segments left out.
    fn shards(&self, place: usize) -> Vec<u32> {
        let own = self.segments().filter(|(_, segment)| segment.index == place);
        let mut shards: Vec<u32> = own.map(|(_, segment)| segment.shard).collect();
        shards.dedup();
        shards
    }

    fn dictionary(&self, shard: u32, field: &Field) -> Dictionary {
        let own = self.segments().filter(|(_, segment)| segment.shard == shard);
        let part = |(number, segment): (usize, &TableSegment)| VisibleSegment {
            reader: Arc::clone(&segment.reader),
            seen: self.seen(number).cloned(),
        };
        Dictionary {
            parts: own.map(part).collect(),
            terms: Terms { path: field.id, text: field.field_type.is_text() },
            stop: Arc::clone(&self.stop),
        }
    }
}

/// Finds a field whose terms are words.
fn field_of<'s>(index: &'s TableIndex, path: &str) -> Result<&'s Field> {
    let field = index.mapping.field(path).ok_or_else(|| unmapped(path))?;
    let words = field.field_type.is_text()
        || matches!(field.field_type, FieldType::Keyword | FieldType::ConstantKeyword | FieldType::Wildcard);
    match words && field.index {
        true => Ok(field),
        false => Err(Error::IllegalArgument(format!(
            "field [{path}] of type [{}] has no words to suggest: use a text or keyword field that is indexed",
            field.type_name()
        ))),
    }
}

fn unmapped(path: &str) -> Error {
    Error::IllegalArgument(format!("no mapping found for field [{path}]"))
}

/// Finds an analyzer by the name that a request gives it.
fn named<'s>(index: &'s TableIndex, name: &str) -> Result<&'s Analyzer> {
    let found = index.mapping.analyzers().get(name);
    found.ok_or_else(|| Error::IllegalArgument(format!("analyzer [{name}] doesn't exists")))
}

/// Finds the analyzer of a suggestion's text.
fn analyzer<'s>(index: &'s TableIndex, name: Option<&str>, field: &Field) -> Result<&'s Analyzer> {
    named(
        index,
        match name {
            Some(name) => name,
            None if field.field_type.is_text() => &field.search_analyzer,
            None => "keyword",
        },
    )
}

fn ask_terms(
    shards: &SuggestShards,
    (place, index): (usize, &TableIndex),
    suggester: &TermSuggester,
    text: &str,
    words: &mut Vec<(Token, Vec<SuggestedTerm>)>,
) -> Result<()> {
    let field = field_of(index, &suggester.field)?;
    let mut tokens: Vec<Token> = Vec::new();
    analyzer(index, suggester.analyzer.as_deref(), field)?.analyze(text, &mut |token| {
        if tokens.len() < MAX_TOKENS {
            tokens.push(token.clone());
        }
    });
    let known = |words: &[(Token, Vec<SuggestedTerm>)], token: &Token| {
        let same = |(other, _): &(Token, Vec<SuggestedTerm>)| {
            other.text == token.text && other.start == token.start && other.end == token.end
        };
        words.iter().position(same)
    };
    for shard in shards.shards(place) {
        let dictionary = shards.dictionary(shard, field);
        for token in &tokens {
            let found = dictionary.near(&token.text, suggester.shard_size, &suggester.spelling)?;
            let at = match known(words, token) {
                Some(at) => at,
                None => {
                    words.push((token.clone(), Vec::new()));
                    words.len() - 1
                }
            };
            let Some((_, options)) = words.get_mut(at) else { continue };
            for suggested in found {
                match options.iter_mut().find(|known| known.term == suggested.term) {
                    Some(known) => {
                        known.freq += suggested.freq;
                        known.score = known.score.max(suggested.score);
                    }
                    None => options.push(suggested),
                }
            }
        }
    }
    for token in &tokens {
        if known(words, token).is_none() {
            words.push((token.clone(), Vec::new()));
        }
    }
    Ok(())
}

fn ask_phrases(
    shards: &SuggestShards,
    (place, index): (usize, &TableIndex),
    suggester: &PhraseSuggester,
    text: &str,
    options: &mut Vec<Correction>,
) -> Result<()> {
    let field = field_of(index, &suggester.field)?;
    let own = analyzer(index, None, field)?;
    let shingles = own.shingles();
    let no_words = shingles.is_some_and(|shingles| shingles.min > 1 && !shingles.single);
    if no_words && suggester.gram_size.is_none() && suggester.analyzer.is_none() {
        return Err(Error::IllegalArgument(format!(
            "The default analyzer for field: [{}] doesn't emit unigrams. If this is intentional try to set the analyzer explicitly",
            suggester.field
        )));
    }
    if no_words && suggester.generators.is_empty() && suggester.force_unigrams {
        return Err(Error::IllegalArgument(format!(
            "The default candidate generator for phrase suggest can't operate on field: [{}] since it doesn't emit unigrams. If this is intentional try to set the candidate generator field explicitly",
            suggester.field
        )));
    }
    let default = [Generator::new(&suggester.field)];
    let generators = match suggester.generators.as_slice() {
        [] => default.as_slice(),
        given => given,
    };
    for shard in shards.shards(place) {
        let mut sources = Vec::with_capacity(generators.len());
        for generator in generators {
            let filter = |name: &Option<String>| name.as_deref().map(|name| named(index, name)).transpose();
            sources.push(Source {
                generator,
                dictionary: shards.dictionary(shard, field_of(index, &generator.field)?),
                pre_filter: filter(&generator.pre_filter)?,
                post_filter: filter(&generator.post_filter)?,
            });
        }
        let phrase = Phrase {
            suggester,
            grams: shards.dictionary(shard, field),
            sources,
            analyzer: analyzer(index, suggester.analyzer.as_deref(), field)?,
            gram_size: suggester.gram_size.or(shingles.map(|shingles| shingles.max)).unwrap_or(1),
        };
        for corrected in phrase.run(text)? {
            match options.iter_mut().find(|known| known.text == corrected.text) {
                Some(known) => known.score = known.score.max(corrected.score),
                None => options.push(corrected),
            }
        }
    }
    Ok(())
}

fn ask_completions(
    shards: &SuggestShards,
    (place, index): (usize, &TableIndex),
    suggester: &CompletionSuggester,
    text: &str,
    found: &mut Vec<CompletionHit>,
) -> Result<()> {
    let wanted = CompletionLookup::new(suggester, text, index, &shards.stop)?;
    let mut best = wanted.best();
    for (number, segment) in shards.segments().filter(|(_, segment)| segment.index == place) {
        wanted.find((number as u32, segment), shards.seen(number).map(AsRef::as_ref), &mut best)?;
    }
    found.extend(best.list());
    Ok(())
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

fn entry(text: &str, offset: u32, length: usize, options: Vec<Value>) -> Value {
    json!({"text": text, "offset": offset, "length": length, "options": options})
}

fn term_entry((token, options): &(Token, Vec<SuggestedTerm>)) -> Value {
    let option = |suggested: &SuggestedTerm| {
        json!({
            "text": suggested.term,
            "score": number(f64::from(suggested.score), true),
            "freq": suggested.freq,
        })
    };
    let length = token.end.saturating_sub(token.start) as usize;
    entry(&token.text, token.start, length, options.iter().map(option).collect())
}

fn phrase_option(corrected: &Correction) -> Value {
    let mut option = Map::new();
    option.insert("text".to_owned(), json!(corrected.text));
    if let Some(highlighted) = &corrected.highlighted {
        option.insert("highlighted".to_owned(), json!(highlighted));
    }
    option.insert("score".to_owned(), number(corrected.score, true));
    Value::Object(option)
}

/// Reads the documents of completions, as hits show them.
async fn completion_options(
    searcher: &Searcher,
    snapshot: &Arc<TableSnapshot>,
    found: Vec<CompletionHit>,
    shown: &RenderOptions,
    work: &QueryContext,
) -> Result<Vec<Value>> {
    let addresses: Vec<_> = found.iter().map(|completed| completed.address).collect();
    let parts =
        RowParts { source: shown.source != SourceFilter::None, versions: shown.version || shown.seq_no };
    let rows = match fetch::rows(snapshot, &addresses, parts, &searcher.compute, work).await {
        Err(Error::TimedOut) if work.timed_out() => return Ok(Vec::new()),
        rows => rows?,
    };
    let mut hits = Vec::with_capacity(rows.len());
    for (completed, row) in found.iter().zip(rows) {
        let index = fetch::segment(snapshot, completed.address.segment)?.index;
        let index = snapshot.indices.get(index).map(|index| index.meta.name.to_string());
        hits.push(Hit {
            index: index.unwrap_or_default(),
            nested: None,
            row,
            score: Some(completed.score),
            sort: None,
            matched_queries: Vec::new(),
            extras: Extras::default(),
            inner_hits: Vec::new(),
            explanation: None,
        });
    }
    let (compute, shown, holder) = (&searcher.compute, shown.clone(), work.clone());
    let render = async {
        let hits = fetch::conceal(snapshot, &addresses, hits, compute, work).await?;
        let render = move || {
            let list = HitList { total: None, max_score: None, hits };
            let text = list.to_text(&shown, &holder)?;
            let _parsed = holder.part_of(PARSED_SHARE.saturating_mul(text.len()))?;
            let rendered: Value = serde_json::from_slice(&text)
                .map_err(|error| Error::Execution(format!("completions are not JSON: {error}")))?;
            holder.hold(bytes_of(&rendered))?;
            Ok(rendered)
        };
        compute.run(render).await
    };
    let mut rendered = match render.await {
        Err(Error::TimedOut) if work.timed_out() => return Ok(Vec::new()),
        rendered => rendered?,
    };
    let rendered = rendered.get_mut("hits").and_then(Value::as_array_mut).map(std::mem::take);
    let options = found.into_iter().zip(rendered.unwrap_or_default()).map(|(completed, hit)| {
        let mut option = Map::new();
        option.insert("text".to_owned(), Value::String(completed.input));
        if let Value::Object(members) = hit {
            option.extend(members);
        }
        let contexts: BTreeMap<String, Vec<String>> = completed.contexts;
        if !contexts.is_empty() {
            option.insert("contexts".to_owned(), json!(contexts));
        }
        Value::Object(option)
    });
    Ok(options.collect())
}
