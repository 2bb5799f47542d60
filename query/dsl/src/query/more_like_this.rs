//! `more_like_this`: documents that have the most interesting terms of texts and of other documents.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use millrace_work::bytes_of;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::size::{STRING_BYTES, written};
use super::{Clause, Common, Lookup, Parser, span};
use crate::json::{self, text, token};
use crate::minimum_should_match::MinimumShouldMatch;

/// Name of the clause in errors.
const CLAUSE: &str = "mlt";
/// Most texts and documents of one clause; more are refused.
const MAX_EXAMPLES: usize = 4_096;
/// Most documents that one clause names to be read: one more than a query may read, so that more are noticed.
const MAX_LOOKUPS: usize = 4_097;

/// A `more_like_this` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct MoreLikeThisQuery {
    /// Field paths; the default fields of the index where absent.
    pub fields: Option<Vec<String>>,
    /// Examples that the documents shall be like.
    pub like: Examples,
    /// Examples whose terms are not taken.
    pub unlike: Examples,
    /// Selection of the terms.
    pub selection: TermSelection,
    /// Name of the analyzer of texts; that of the field where absent.
    pub analyzer: Option<String>,
    /// Number of the terms that must match.
    pub minimum_should_match: MinimumShouldMatch,
    /// `true` if the documents that were given by their ids are found as well.
    pub include: bool,
    /// `true` if a field whose values are no strings is refused.
    pub fail_on_unsupported_field: bool,
    /// Boost and name.
    pub common: Common,
}

/// Texts and documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    /// The texts.
    pub texts: Vec<String>,
    /// The documents.
    pub documents: Vec<Example>,
}

/// A document that others are compared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example {
    /// Index of the document; the one that is searched where absent.
    pub index: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// Its source, where it is not stored.
    pub source: Option<Value>,
    /// The sources that its id has, by index: those that were read.
    pub read: Sources,
    /// The fields whose terms are taken.
    pub fields: Option<Vec<String>>,
    /// Names of analyzers by field, instead of those of the fields.
    pub analyzers: BTreeMap<String, String>,
    /// Its routing value.
    pub routing: Option<String>,
}

/// Sources that were read, by index.
#[derive(Clone, Default, PartialEq)]
pub struct Sources(Vec<(String, Value)>);

impl fmt::Debug for Sources {
    /// Plans tell clauses apart by what this writes, for which it is enough where sources are from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(index, _)| index)).finish()
    }
}

/// Selection of the terms.
#[derive(Clone, Debug, PartialEq)]
pub struct TermSelection {
    /// Most terms, of each field of documents and of all texts.
    pub max_query_terms: usize,
    /// Smallest frequency of a term in the examples.
    pub min_term_freq: i32,
    /// Fewest documents of a shard that have it.
    pub min_doc_freq: i32,
    /// Most documents of a shard that have it.
    pub max_doc_freq: i32,
    /// Shortest term, where there is a bound.
    pub min_word_length: i32,
    /// Longest term, where there is a bound.
    pub max_word_length: i32,
    /// Terms that are not taken.
    pub stop_words: BTreeSet<String>,
    /// Factor of boosts by the weight of terms; without boosts where not above 0.
    pub boost_terms: f32,
}

impl TermSelection {
    /// Returns whether a term is of no interest at any frequency.
    pub fn is_noise(&self, term: &str) -> bool {
        let length = term.encode_utf16().count() as i64;
        (self.min_word_length > 0 && length < i64::from(self.min_word_length))
            || (self.max_word_length > 0 && length > i64::from(self.max_word_length))
            || self.stop_words.contains(term)
    }
}

impl Default for MoreLikeThisQuery {
    fn default() -> Self {
        Self {
            fields: None,
            like: Examples::default(),
            unlike: Examples::default(),
            selection: TermSelection {
                max_query_terms: 25,
                min_term_freq: 2,
                min_doc_freq: 5,
                max_doc_freq: i32::MAX,
                min_word_length: 0,
                max_word_length: 0,
                stop_words: BTreeSet::new(),
                boost_terms: 0.0,
            },
            analyzer: None,
            minimum_should_match: MinimumShouldMatch::percent(30),
            include: false,
            fail_on_unsupported_field: true,
            common: Common::default(),
        }
    }
}

impl Clause for MoreLikeThisQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut query = Self::default();
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("like", value) => query.like.take(parser, value)?,
                ("unlike", value) => query.unlike.take(parser, value)?,
                ("fields", Value::Array(items)) => query.fields = Some(texts(items)?),
                ("stop_words", Value::Array(items)) => {
                    query.selection.stop_words = texts(items)?.into_iter().collect()
                }
                (_, Value::Array(_) | Value::Object(_)) => return Err(unsupported(key)),
                // A null is no token that is looked at.
                (_, Value::Null) => {}
                (key, value) => query.option(key, value)?,
            }
        }
        if query.like.texts.is_empty() && query.like.documents.is_empty() {
            return Err(Error::Parsing("more_like_this requires 'like' to be specified".to_owned()));
        }
        if query.fields.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::Parsing("more_like_this requires 'fields' to be non-empty".to_owned()));
        }
        Ok(query)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} texts, {} documents", self.like.texts.len(), self.like.documents.len())
    }

    fn lookups(&self, searched: &[&str]) -> Vec<Lookup> {
        let documents = self.like.documents.iter().chain(&self.unlike.documents);
        let mut known = HashSet::new();
        let named = documents.flat_map(|document| document.lookups(searched));
        named.filter(|lookup| known.insert(lookup.clone())).take(MAX_LOOKUPS).collect()
    }

    fn fill(&mut self, searched: &[&str], values: &mut dyn FnMut(&Lookup) -> Vec<Value>) {
        for document in self.like.documents.iter_mut().chain(&mut self.unlike.documents) {
            for lookup in document.lookups(searched) {
                document.read.0.extend(values(&lookup).pop().map(|source| (lookup.index, source)));
            }
        }
    }

    fn bytes(&self) -> usize {
        let documents = self.like.documents.iter().chain(&self.unlike.documents);
        let document = |document: &Example| {
            let sources = document.source.iter().chain(document.read.0.iter().map(|(_, source)| source));
            let names = (&document.index, &document.id, &document.fields, &document.routing);
            size_of::<Example>()
                + written(&(names, &document.analyzers, &document.read))
                + sources.map(bytes_of).sum::<usize>()
        };
        let words = &self.selection.stop_words;
        let strings = words.len() + self.fields.as_ref().map_or(0, Vec::len);
        written(&(&self.like.texts, &self.unlike.texts, &self.fields, words))
            + strings * STRING_BYTES
            + documents.map(document).sum::<usize>()
    }
}

impl MoreLikeThisQuery {
    fn option(&mut self, key: &str, value: &Value) -> Result<()> {
        let selection = &mut self.selection;
        match key {
            "max_query_terms" => {
                selection.max_query_terms =
                    usize::try_from(span::int(value)?).ok().filter(|most| *most > 0).ok_or_else(|| {
                        Error::IllegalArgument("requires 'maxQueryTerms' to be greater than 0".to_owned())
                    })?;
            }
            "min_term_freq" => selection.min_term_freq = span::int(value)?,
            "min_doc_freq" => selection.min_doc_freq = span::int(value)?,
            "max_doc_freq" => selection.max_doc_freq = span::int(value)?,
            "min_word_length" => selection.min_word_length = span::int(value)?,
            "max_word_length" => selection.max_word_length = span::int(value)?,
            "boost_terms" => selection.boost_terms = json::float(value)?,
            "analyzer" => self.analyzer = text(value),
            "minimum_should_match" => {
                self.minimum_should_match = MinimumShouldMatch::parse(&text(value).unwrap_or_default())?;
            }
            "include" => self.include = json::boolean(value)?,
            "fail_on_unsupported_field" => self.fail_on_unsupported_field = json::boolean(value)?,
            _ if self.common.take("more_like_this", key, value)? => {}
            _ => return Err(unsupported(key)),
        }
        Ok(())
    }
}

impl Examples {
    /// Takes texts and documents, one or a list.
    fn take(&mut self, parser: &mut Parser, value: &Value) -> Result<()> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.take_one(parser, item)),
            Value::Null => Ok(()),
            other => self.take_one(parser, other),
        }
    }

    fn take_one(&mut self, parser: &mut Parser, value: &Value) -> Result<()> {
        if self.texts.len() + self.documents.len() >= MAX_EXAMPLES {
            return Err(Error::IllegalArgument(format!(
                "[more_like_this] has more than [{MAX_EXAMPLES}] texts and documents, give fewer"
            )));
        }
        parser.count()?;
        match (value, text(value)) {
            (Value::Object(members), _) => self.documents.push(Example::parse(members)?),
            (_, Some(text)) => self.texts.push(text),
            _ => {
                return Err(Error::IllegalArgument(
                    "Content of 'like' parameter should either be a string or an object".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

impl Example {
    fn parse(members: &Map<String, Value>) -> Result<Self> {
        let failed = |what: String| Error::Exception {
            kind: "parse_exception",
            status: 400,
            reason: format!("failed to parse More Like This item. {what}"),
        };
        let mut document = Self::default();
        for (key, value) in members {
            match (key.as_str(), value) {
                ("_index", value) => document.index = text(value),
                ("_id", value) => document.id = text(value),
                ("doc", value) => document.source = Some(value.clone()),
                ("fields", Value::Array(items)) => document.fields = Some(texts(items)?),
                ("fields", _) => return Err(failed("field [fields] must be an array".to_owned())),
                ("per_field_analyzer", Value::Object(analyzers)) => {
                    let named =
                        analyzers.iter().filter_map(|(field, name)| Some((field.clone(), text(name)?)));
                    document.analyzers = named.collect();
                }
                ("routing", value) => document.routing = text(value),
                // All documents are of the one type there is, and the newest version counts.
                ("_type" | "version" | "version_type", _) => {}
                _ => return Err(failed(format!("unknown field [{key}]"))),
            }
        }
        match (&document.id, &document.source) {
            (Some(_), Some(_)) => {
                Err(failed("either [id] or [doc] can be specified, but not both!".to_owned()))
            }
            (None, None) => Err(failed("neither [id] nor [doc] is specified!".to_owned())),
            _ => Ok(document),
        }
    }

    /// Names where the document is to be read, in each of the indices that are searched if it does not name its own.
    fn lookups(&self, searched: &[&str]) -> Vec<Lookup> {
        let Some(id) = &self.id else { return Vec::new() };
        let indices = match &self.index {
            Some(index) => vec![index.as_str()],
            None => searched.to_vec(),
        };
        let of = |index: &str| Lookup {
            index: index.to_owned(),
            id: id.clone(),
            path: None,
            routing: self.routing.clone(),
            lenient: true,
        };
        indices.into_iter().map(of).collect()
    }

    /// Returns the source that the document has for an index; `None` where it does not exist.
    pub fn source_for(&self, index: &str) -> Option<&Value> {
        let name = self.index.as_deref().unwrap_or(index);
        let read = || self.read.0.iter().find(|(own, _)| own == name).map(|(_, source)| source);
        self.source.as_ref().or_else(read)
    }
}

fn texts(items: &[Value]) -> Result<Vec<String>> {
    let one = |item: &Value| {
        text(item).ok_or_else(|| Error::Parsing(format!("[{CLAUSE}] unexpected token [{}]", token(item))))
    };
    items.iter().map(one).collect()
}

fn unsupported(key: &str) -> Error {
    Error::Parsing(format!("[{CLAUSE}] query does not support [{key}]"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::query::parse;

    fn like(ids: usize) -> Value {
        let documents: Vec<Value> = (0..ids).map(|id| json!({"_id": id.to_string()})).collect();
        json!({"more_like_this": {"fields": ["t"], "like": documents}})
    }

    #[test]
    fn too_many_examples_are_refused() {
        assert!(parse(&like(100)).is_ok());
        assert!(parse(&like(4_097)).is_err());
    }

    #[test]
    fn documents_and_stop_words_take_memory() {
        assert!(parse(&like(1_000)).unwrap().bytes() > 100_000);
        let words: Vec<String> = (0..1_000).map(|word| word.to_string()).collect();
        let query = json!({"more_like_this": {"fields": words, "like": "a", "stop_words": words}});
        assert!(parse(&query).unwrap().bytes() > 48_000);
    }
}
