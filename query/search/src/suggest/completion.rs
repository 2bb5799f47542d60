//! Inputs that start with a text: the terms of a completion field, the heaviest first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_dsl::suggest::{CategoryContext, CompletionQuery, CompletionSuggester, contexts_of};
use millrace_mapping::analysis::paths;
use millrace_mapping::document::Completion;
use millrace_mapping::{Contexts, Field, FieldType, PathId, Scalar};
use millrace_matching::table::{TableIndex, TableSegment};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::collect::Address;
use millrace_work::compute::Stop;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use tantivy::{DocSet, TERMINATED};

/// Lookup in an index.
#[derive(Debug)]
pub(super) struct CompletionLookup {
    path: PathId,
    contexts: Contexts,
    ways: Vec<CompletionPattern>,
    fuzzy: bool,
    /// Most documents.
    size: usize,
    skip_duplicates: bool,
    /// Ends the walks over terms.
    stop: Arc<Stop>,
}

/// One pattern of terms, in one context where the field has any.
#[derive(Debug)]
struct CompletionPattern {
    pattern: Pattern,
    /// The path that is looked for, of which edits may be made.
    asked: String,
    /// Patterns of paths alone.
    of_path: Option<Pattern>,
    boost: f32,
}

/// A document with the input that completes a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompletionHit {
    /// Address of the document.
    pub address: Address,
    /// Weight, with what boosts it.
    pub score: f32,
    /// The input.
    pub input: String,
    /// Its terms.
    path: String,
    /// Values of its contexts that were looked for, by name.
    pub contexts: BTreeMap<String, Vec<String>>,
}

impl CompletionHit {
    /// Compares by what is to come first.
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let score = other.score.total_cmp(&self.score);
        score.then_with(|| self.input.cmp(&other.input)).then_with(|| self.address.cmp(&other.address))
    }
}

impl CompletionLookup {
    /// Makes what is looked for in an index.
    pub(super) fn new(
        suggester: &CompletionSuggester,
        text: &str,
        index: &TableIndex,
        stop: &Arc<Stop>,
    ) -> Result<Self> {
        let field = index.mapping.field(&suggester.field).ok_or_else(|| super::unmapped(&suggester.field))?;
        if field.field_type != FieldType::Completion {
            return Err(Error::IllegalArgument(format!(
                "Field [{}] is not a completion suggest field",
                suggester.field
            )));
        }
        let contexts = field.contexts();
        let leads = leads(suggester, &contexts)?;
        let mut ways = Vec::new();
        let asked = match suggester.query {
            CompletionQuery::Regex { .. } => vec![text.to_owned()],
            _ => asked(suggester, text, field, index)?,
        };
        for (lead, open, boost) in &leads {
            for asked in &asked {
                ways.push(CompletionPattern::new(suggester.query, asked, lead, *open, *boost)?);
            }
        }
        Ok(Self {
            path: field.id,
            contexts,
            ways,
            fuzzy: matches!(suggester.query, CompletionQuery::Fuzzy { .. }),
            size: suggester.size,
            skip_duplicates: suggester.skip_duplicates,
            stop: Arc::clone(stop),
        })
    }

    /// Finds the best documents of a segment.
    pub(super) fn find(
        &self,
        (number, segment): (u32, &TableSegment),
        seen: Option<&RoaringBitmap>,
        best: &mut TopCompletions,
    ) -> Result<()> {
        let inverted = segment.reader.inverted()?;
        let in_contexts = !self.contexts.list().is_empty();
        for way in &self.ways {
            let mut failed = None;
            inverted.for_each_match(self.path, way.pattern.until(&self.stop), &mut |term, _| {
                let Some((completion, score)) = way.weigh(term, in_contexts, self) else {
                    return ControlFlow::Continue(());
                };
                if !best.takes(score, completion.input) {
                    return ControlFlow::Continue(());
                }
                let rows = match inverted.exact(self.path, &Scalar::Str(term.to_owned())) {
                    Ok(Some(rows)) => rows,
                    Ok(None) => return ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                };
                let is_seen =
                    |row| !segment.deleted.contains(row) && seen.is_none_or(|seen| seen.contains(row));
                self.take(rows, (number, &is_seen), &completion, score, best);
                ControlFlow::Continue(())
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Takes the documents with an input, as long as they are among the best.
    fn take(
        &self,
        mut rows: Box<dyn tantivy::postings::Postings>,
        (number, is_seen): (u32, &dyn Fn(u32) -> bool),
        completion: &Completion<'_>,
        score: f32,
        best: &mut TopCompletions,
    ) {
        let mut row = rows.doc();
        while row != TERMINATED {
            if is_seen(row) {
                let mut completed = CompletionHit {
                    address: Address { segment: number, row },
                    score,
                    input: completion.input.to_owned(),
                    path: completion.path.to_owned(),
                    contexts: BTreeMap::new(),
                };
                if let Some((place, value)) = completion.context
                    && let Some(context) = self.contexts.list().get(place)
                {
                    completed.contexts.insert(context.name.clone(), vec![value.to_owned()]);
                }
                if !best.offer(completed) {
                    break;
                }
            }
            row = rows.advance();
        }
    }

    /// Starts the list of the best documents of a shard.
    pub(super) fn best(&self) -> TopCompletions {
        TopCompletions {
            // A document that has several of the inputs is given once in the end.
            size: if self.skip_duplicates { self.size.saturating_mul(4) } else { self.size },
            by_input: self.skip_duplicates,
            ranked: BTreeSet::new(),
            kept: HashMap::new(),
        }
    }
}

/// Lists the prefixes of terms in the contexts asked for, whether the context may go on, and its boost.
fn leads(suggester: &CompletionSuggester, contexts: &Contexts) -> Result<Vec<(String, bool, f32)>> {
    let given = suggester.contexts.as_ref();
    if contexts.list().is_empty() {
        return match given.filter(|given| !given.is_empty()) {
            None => Ok(vec![(String::new(), false, 0.0)]),
            Some(_) => Err(Error::IllegalArgument(format!(
                "suggester [{}] doesn't expect any context",
                suggester.field
            ))),
        };
    }
    let values = match given {
        Some(given) => contexts_of(given, contexts)?,
        None => Vec::new(),
    };
    if values.is_empty() {
        return Err(Error::IllegalArgument("Missing mandatory contexts in context query".to_owned()));
    }
    let lead = |context: CategoryContext| {
        (Completion::lead(context.place, &context.value, !context.starts), context.starts, context.boost)
    };
    Ok(values.into_iter().map(lead).collect())
}

/// Cuts the text into the paths that inputs are to start with.
fn asked(
    suggester: &CompletionSuggester,
    text: &str,
    field: &Field,
    index: &TableIndex,
) -> Result<Vec<String>> {
    let name = suggester.analyzer.as_deref().unwrap_or(&field.search_analyzer);
    let keys = field.completion_keys();
    Ok(paths(super::named(index, name)?, keys.separators, keys.increments, text))
}

impl CompletionPattern {
    fn new(query: CompletionQuery, asked: &str, lead: &str, open: bool, boost: f32) -> Result<Self> {
        let (whole, of_path) = match query {
            CompletionQuery::Prefix => (Pattern::prefix(asked, false)?, None),
            CompletionQuery::Fuzzy { edits, transpositions, min_length, prefix_length } => {
                let length = asked.chars().count();
                match edits == 0 || length < min_length || length <= prefix_length {
                    true => (Pattern::prefix(asked, false)?, None),
                    false => {
                        let pattern = Pattern::near(asked, edits, prefix_length, transpositions).starting();
                        (pattern.clone(), Some(pattern))
                    }
                }
            }
            CompletionQuery::Regex { flags, max_states } => {
                // What is no expression by itself could be one within brackets.
                Pattern::regexp(asked, flags, false, max_states)?;
                let pattern = Pattern::regexp(&format!("({asked}).*"), flags, false, max_states)?;
                (pattern.clone(), Some(pattern))
            }
        };
        let pattern = match open {
            // Where the context ends is not known: paths are compared one by one.
            true => Pattern::prefix(lead, false)?,
            false => whole.clone().behind(lead),
        };
        let of_path = of_path.or(open.then_some(whole));
        Ok(Self { pattern, asked: asked.to_owned(), of_path, boost })
    }

    /// Takes a term apart and weighs it; `None` where it is none that is looked for.
    fn weigh<'t>(
        &self,
        term: &'t str,
        in_contexts: bool,
        wanted: &CompletionLookup,
    ) -> Option<(Completion<'t>, f32)> {
        let completion = Completion::new(term, in_contexts)?;
        if self.of_path.as_ref().is_some_and(|pattern| !pattern.matches(completion.path)) {
            return None;
        }
        let mut boost = self.boost;
        if wanted.fuzzy {
            boost += self.common_start(completion.path) as f32;
        }
        let weight = completion.weight as f32;
        let score = match (boost, completion.weight) {
            (0.0, _) => weight,
            (boost, 0) => boost,
            (boost, _) => weight * boost,
        };
        Some((completion, score))
    }

    /// Counts the characters that a path has in common with the one asked for, as far as it is read until
    /// it is known to match.
    fn common_start(&self, path: &str) -> usize {
        let read = match &self.of_path {
            None => self.asked.chars().count(),
            Some(pattern) => {
                let ends = path.char_indices().map(|(at, _)| at).chain([path.len()]);
                let matched =
                    |(_, end): &(usize, usize)| path.get(..*end).is_some_and(|start| pattern.matches(start));
                ends.enumerate().find(matched).map_or(0, |(count, _)| count)
            }
        };
        self.asked.chars().zip(path.chars()).take(read).take_while(|(asked, own)| asked == own).count()
    }
}

/// The best documents so far.
#[derive(Debug)]
pub(super) struct TopCompletions {
    size: usize,
    /// `true` if documents with the same input are one.
    by_input: bool,
    ranked: BTreeSet<RankedDocument>,
    kept: HashMap<Key, CompletionHit>,
}

/// Key of the deduplication.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Row(u32, u32),
    Input(String),
}

/// A kept document by its rank.
#[derive(Clone, Debug, PartialEq)]
struct RankedDocument(CompletionHit, Key);

impl Eq for RankedDocument {}

impl Ord for RankedDocument {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.order(&other.0)
    }
}

impl PartialOrd for RankedDocument {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl TopCompletions {
    /// Returns whether an input of a score can be among the best.
    fn takes(&self, score: f32, input: &str) -> bool {
        self.kept.len() < self.size
            || self.ranked.last().is_none_or(|RankedDocument(worst, _)| {
                score > worst.score || score == worst.score && input <= worst.input.as_str()
            })
    }

    /// Takes a document if it is among the best; false where none behind it with the same input is.
    fn offer(&mut self, mut completed: CompletionHit) -> bool {
        let key = match self.by_input {
            true => Key::Input(completed.input.clone()),
            false => Key::Row(completed.address.segment, completed.address.row),
        };
        if let Some(known) = self.kept.get(&key).cloned() {
            // The contexts are those of all inputs, of which the best is shown.
            let better = match completed.address == known.address && completed.score == known.score {
                // Of inputs that weigh the same, a document is given by the first.
                true => completed.path < known.path,
                false => completed.order(&known).is_lt(),
            };
            let mut merged = if better { completed.clone() } else { known.clone() };
            if known.address == completed.address {
                let rest =
                    if better { known.contexts.clone() } else { std::mem::take(&mut completed.contexts) };
                for (name, values) in rest {
                    let own = merged.contexts.entry(name).or_default();
                    own.extend(values.into_iter().filter(|value| !own.contains(value)).collect::<Vec<_>>());
                }
            }
            self.ranked.remove(&RankedDocument(known, key.clone()));
            self.ranked.insert(RankedDocument(merged.clone(), key.clone()));
            self.kept.insert(key, merged);
            return !self.by_input;
        }
        if self.kept.len() >= self.size {
            match self.ranked.last() {
                Some(RankedDocument(worst, _)) if completed.order(worst).is_lt() => {
                    if let Some(RankedDocument(_, key)) = self.ranked.pop_last() {
                        self.kept.remove(&key);
                    }
                }
                _ => return false,
            }
        }
        self.ranked.insert(RankedDocument(completed.clone(), key.clone()));
        self.kept.insert(key, completed);
        true
    }

    /// Lists them, the best first.
    pub(super) fn list(self) -> Vec<CompletionHit> {
        self.ranked.into_iter().map(|RankedDocument(completed, _)| completed).collect()
    }
}

/// Joins the best documents of several shards.
pub(super) fn joined(mut found: Vec<CompletionHit>, suggester: &CompletionSuggester) -> Vec<CompletionHit> {
    found.sort_by(CompletionHit::order);
    if suggester.skip_duplicates {
        let mut seen = BTreeSet::new();
        found.retain(|completed| seen.insert(completed.input.clone()));
        let mut given = BTreeSet::new();
        found.retain(|completed| given.insert(completed.address));
    }
    found.truncate(suggester.size);
    found
}
