//! `more_like_this`: the terms of examples, of which each shard takes the most interesting.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use millrace_dsl::json::text;
use millrace_dsl::query::{Example, MAX_CLAUSES, MoreLikeThisQuery, TermSelection};
use millrace_mapping::pattern::matches;
use millrace_mapping::{Field, FieldType};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::interesting_terms::InterestingTerms;
use millrace_scoring::node::{ExpandedScore, Expansion, ExpansionSelection, Node};
use millrace_scoring::operands::Weight;
use millrace_scoring::path_values::each_value_at;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::full_text::any_of;
use super::{LowerClause, Resolver};
use crate::table::values;

/// Most tokens of a text that are looked at, as Lucene has it.
const MAX_TOKENS: usize = 5_000;
/// Most bytes of a text that are cut into tokens: the tokens that are looked at are among them.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Most terms of the examples of a field, and of one document, that are counted; those that come first.
const MAX_TERMS: usize = 1 << 16;

/// Most fields that are asked; more are refused.
const MAX_FIELDS: usize = 1_024;

/// Frequencies of terms in examples, and the place of each by its first occurrence.
type Frequencies = BTreeMap<String, (u32, u32)>;

impl LowerClause for MoreLikeThisQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let names = names(self, resolver)?;
        let Some(first) = names.first() else { return Ok(Node::None) };
        let documents = &self.like.documents;
        let mut skipped: HashSet<(&str, String)> = HashSet::new();
        for unlike in &self.unlike.texts {
            texts_terms(self, resolver, first, unlike, &mut |term| {
                if skipped.len() < MAX_TERMS {
                    skipped.insert((first, term.to_owned()));
                }
            })?;
        }
        // Documents are compared with documents only.
        for unlike in self.unlike.documents.iter().filter(|_| !documents.is_empty()) {
            each_term(resolver, unlike, &names, self.fields.is_none(), &mut |field, term| {
                if skipped.len() < MAX_TERMS {
                    skipped.insert((&field.path, term.to_owned()));
                }
            })?;
        }
        let selection = &self.selection;
        let mut any = Vec::new();
        if !documents.is_empty() {
            let mut by_field: BTreeMap<&str, (&Field, Frequencies)> = BTreeMap::new();
            for like in documents {
                // The terms of a document come in their order.
                let mut own: BTreeMap<(&str, String), (&Field, u32)> = BTreeMap::new();
                each_term(resolver, like, &names, self.fields.is_none(), &mut |field, term| {
                    let key = (field.path.as_ref(), term.to_owned());
                    if own.len() < MAX_TERMS || own.contains_key(&key) {
                        own.entry(key).or_insert((field, 0)).1 += 1;
                    }
                })?;
                for (key, (field, often)) in own {
                    let (_, terms) = by_field.entry(key.0).or_insert((field, Frequencies::new()));
                    if !skipped.contains(&key) {
                        add(terms, selection, &key.1, often);
                    }
                }
            }
            let mut slots = Vec::new();
            for (field, terms) in by_field.into_values() {
                slots.extend(telling(self, resolver, &[field], terms, weight));
            }
            any.push(Node::ManyExpanded { slots, minimum: self.minimum_should_match.clone() });
        }
        if !self.like.texts.is_empty() {
            let mut terms = Frequencies::new();
            for like in &self.like.texts {
                let mut left = MAX_TOKENS;
                texts_terms(self, resolver, first, like, &mut |term| {
                    if left > 0 && !skipped.contains(&(first, term.to_owned())) {
                        add(&mut terms, selection, term, 1);
                    }
                    left = left.saturating_sub(1);
                })?;
            }
            let mapping = resolver.index.mapping;
            let fields: Vec<&Field> = names.iter().filter_map(|name| mapping.field(name)).collect();
            let slots = telling(self, resolver, &fields, terms, weight);
            any.push(Node::ManyExpanded { slots, minimum: self.minimum_should_match.clone() });
        }
        let like = any_of(any).unwrap_or(Node::None);
        let ids: Vec<String> = documents.iter().filter_map(|document| document.id.clone()).collect();
        if self.include || ids.is_empty() {
            return Ok(like);
        }
        let own = Node::Ids { values: ids.into(), weight: Weight::None };
        Ok(Node::And(vec![like, Node::Not(Box::new(own))]))
    }
}

/// Lists the names of the fields that are asked.
fn names(query: &MoreLikeThisQuery, resolver: &Resolver<'_>) -> Result<Vec<String>> {
    let Some(given) = &query.fields else {
        let names = resolver.default_field_names();
        let free = !query.like.texts.is_empty() || !query.unlike.texts.is_empty();
        if free && names.iter().map(String::as_str).eq(["*"]) {
            return Err(Error::IllegalArgument(
                "[more_like_this] query cannot infer the field to analyze the free text, you should update the [index.query.default_field] index setting to a field that exists in the mapping or set the [fields] option in the query."
                    .to_owned(),
            ));
        }
        return Ok(names);
    };
    if given.len() > MAX_FIELDS {
        return Err(Error::IllegalArgument(format!(
            "[more_like_this] names more than [{MAX_FIELDS}] fields, give fewer"
        )));
    }
    let (mut names, mut known) = (Vec::with_capacity(given.len()), HashSet::new());
    for name in given {
        let field = resolver.index.mapping.field(name);
        let supported = |field: &Field| matches!(field.field_type, FieldType::Text | FieldType::Keyword);
        if !field.is_none_or(supported) {
            if query.fail_on_unsupported_field {
                return Err(Error::IllegalArgument(format!(
                    "more_like_this only supports text/keyword fields: [{name}]"
                )));
            }
            continue;
        }
        match field {
            // A field that is named twice would score twice.
            Some(field) if known.insert(field.path.as_ref()) => names.push(field.path.to_string()),
            None if known.insert(name.as_str()) => names.push(name.clone()),
            _ => {}
        }
    }
    Ok(names)
}

/// Counts a term, unless it is of no interest.
fn add(terms: &mut Frequencies, selection: &TermSelection, term: &str, often: u32) {
    if selection.is_noise(term) {
        return;
    }
    let place = terms.len();
    if let Some((count, _)) = terms.get_mut(term) {
        *count = count.saturating_add(often);
    } else if place < MAX_TERMS {
        terms.insert(term.to_owned(), (often, place as u32));
    }
}

/// Cuts a text into the terms of a field.
fn texts_terms(
    query: &MoreLikeThisQuery,
    resolver: &Resolver<'_>,
    name: &str,
    given: &str,
    each: &mut dyn FnMut(&str),
) -> Result<()> {
    let given = &given[..given.floor_char_boundary(MAX_TEXT_BYTES)];
    let mapping = resolver.index.mapping;
    let (analyzers, field) = (mapping.analyzers(), mapping.field(name));
    let named = query.analyzer.as_deref().and_then(|name| analyzers.get(name));
    let own = match field {
        Some(field) => resolver.search_analyzer(field),
        None => analyzers.get("default").or_else(|| analyzers.get("standard")),
    };
    match (named.or(own), field) {
        (Some(analyzer), _) => {
            analyzer.analyze(given, &mut |token| each(&token.text));
        }
        (None, Some(field)) => each(&values::keyword(mapping, field, &Value::String(given.to_owned()))?),
        (None, None) => {}
    }
    Ok(())
}

/// Calls `each` with the terms of a document in the fields that are asked of it.
fn each_term<'a>(
    resolver: &Resolver<'a>,
    document: &Example,
    names: &[String],
    all: bool,
    each: &mut dyn FnMut(&'a Field, &str),
) -> Result<()> {
    let mapping = resolver.index.mapping;
    let Some(source) = document.source_for(&resolver.index.meta.name) else { return Ok(()) };
    let stored = document.id.is_some();
    let wanted = |field: &Field| match &document.fields {
        Some(patterns) if !patterns.is_empty() => {
            patterns.iter().any(|pattern| matches(pattern, &field.path))
        }
        // A document that is not stored is taken whole.
        _ => all || !stored || names.iter().any(|name| *name == *field.path),
    };
    let is_string = |field: &Field| field.field_type.is_text() || field.field_type == FieldType::Keyword;
    for field in mapping.fields().filter(|field| field.index && is_string(field) && wanted(field)) {
        // A multi-field has the values of the field that it is of.
        let path = match field.path.rsplit_once('.') {
            Some((parent, _)) if mapping.field(parent).is_some() => parent,
            _ => &field.path,
        };
        let named = document.analyzers.get(field.path.as_ref()).map(String::as_str);
        let own = field.field_type.is_text().then_some(field.analyzer.as_ref());
        let analyzer = named.or(own).and_then(|name| mapping.analyzers().get(name));
        let mut refused = Ok(());
        each_value_at(source, path, &mut |value| match analyzer {
            Some(analyzer) => {
                analyzer.analyze(&text(value).unwrap_or_default(), &mut |token| each(field, &token.text));
            }
            None => match values::keyword(mapping, field, value) {
                Ok(term) => each(field, &term),
                Err(error) => refused = Err(error),
            },
        });
        refused?;
    }
    Ok(())
}

/// Notes that the most interesting of some terms are to be found in fields: one expansion each.
fn telling(
    query: &MoreLikeThisQuery,
    resolver: &mut Resolver<'_>,
    fields: &[&Field],
    mut terms: Frequencies,
    weight: Weight,
) -> Vec<usize> {
    let selection = &query.selection;
    let words = terms.len();
    terms.retain(|_, (count, _)| i64::from(*count) >= i64::from(selection.min_term_freq));
    if terms.is_empty() {
        return Vec::new();
    }
    let pattern = Arc::new(Pattern::one_of(terms.keys().cloned().collect()));
    let number = |bound: i32| u64::try_from(bound).unwrap_or(0);
    let telling = Arc::new(InterestingTerms {
        fields: fields.iter().map(|field| (field.id, field.field_type.is_text())).collect(),
        frequencies: terms,
        words,
        most: selection.max_query_terms.min(MAX_CLAUSES),
        doc_freqs: (number(selection.min_doc_freq), number(selection.max_doc_freq)),
        boost_terms: selection.boost_terms,
    });
    let (boost, score) = match weight {
        Weight::Constant(boost) => (boost, ExpandedScore::Own),
        _ => (0.0, ExpandedScore::Boost),
    };
    let first = resolver.expansions.len();
    let (nested, rules) = (resolver.nested_id(), resolver.rules);
    resolver.expansions.extend(fields.iter().map(|field| Expansion {
        path: field.id,
        nested,
        field: Arc::clone(&field.path),
        text: field.field_type.is_text(),
        pattern: Arc::clone(&pattern),
        lead: String::new(),
        keep: ExpansionSelection::InterestingTerms(Arc::clone(&telling)),
        score,
        boost,
        rules,
    }));
    (first..resolver.expansions.len()).collect()
}
