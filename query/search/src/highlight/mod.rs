//! Highlighting: the parts of field values that a query asked for, marked up.
//!
//! A [`Marker`] holds what is wanted of one shard's hits: the fields of the request with their options,
//! and for each what [`extract`] found in the query. It is handed the source of a hit at a time by
//! [`crate::fetch`]. [`unified`], [`plain`] and [`fvh`] follow the highlighters of those names, in OpenSearch's
//! forms of them; values are measured in UTF-16 code units as there.

mod boundary;
mod extract;
mod fvh;
mod markup;
mod plain;
mod spans;
mod terms;
mod tokens;
mod unified;

use millrace_dsl::highlight::{Highlight, Options, Scanner};
use millrace_dsl::query::Query;
use millrace_mapping::Field;
use millrace_matching::table::resolve::{IndexContext, setting};
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

pub(crate) use self::extract::Shard;
use self::plain::Fragmenter;
use self::terms::HighlightTarget;
use self::tokens::{SEPARATOR, Tokenizer};
use crate::fetch::phases::matching;
use crate::fetch::source_values::SourceField;

/// Longest value that is analyzed for highlighting where the index does not say.
const MAX_ANALYZED_OFFSET: usize = 1_000_000;

/// Kind of the highlighter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unified,
    Plain(Fragmenter),
    FastVector,
}

/// A field to be marked up.
#[derive(Debug)]
struct MarkedField<'a> {
    /// Its name as asked for: an alias keeps its own.
    name: String,
    source: SourceField<'a>,
    options: &'a Options,
    kind: Kind,
    wanted: Vec<HighlightTarget>,
}

/// Marks up the hits of one shard.
#[derive(Debug)]
pub(crate) struct Marker<'a> {
    index: IndexContext<'a>,
    fields: Vec<MarkedField<'a>>,
}

impl<'a> Marker<'a> {
    /// Prepares what a request wants of an index, one of whose shards has the hits.
    ///
    /// # Errors
    /// An option that a field or the index does not allow.
    pub(crate) fn new(
        highlight: &'a Highlight,
        query: &Query,
        index: IndexContext<'a>,
        shard: Shard<'_>,
    ) -> Result<Self> {
        let mapping = index.mapping;
        let searched = extract::wanted(query, index, shard)?;
        let mut fields: Vec<MarkedField<'a>> = Vec::new();
        for (pattern, options) in &highlight.fields {
            let kind = kind(pattern, options)?;
            if options.force_source && !mapping.source_enabled() {
                return Err(Error::IllegalArgument(format!(
                    "source is forced for fields [{pattern}] but _source is disabled"
                )));
            }
            let own = options.query.as_ref().map(|query| extract::wanted(query, index, shard)).transpose()?;
            for name in matching(mapping, pattern) {
                let Some(source) = SourceField::find(mapping, &name, None)? else { continue };
                let field = source.field();
                // Of a pattern, the fields that cannot be marked up are left out.
                let suits = matches!(field.type_name(), "text" | "keyword")
                    && (options.kind != "fvh" || has_vectors(field));
                if pattern.contains('*') && !suits {
                    continue;
                }
                check(field, options)?;
                let wanted = own.as_ref().unwrap_or(&searched).iter();
                let wanted =
                    wanted.filter(|wanted| !options.require_field_match || wanted.field == field.id).cloned();
                let marked = MarkedField { wanted: wanted.collect(), name, source, options, kind };
                match fields.iter_mut().find(|other| other.name == marked.name) {
                    Some(other) => *other = marked,
                    None => fields.push(marked),
                }
            }
        }
        Ok(Self { index, fields })
    }

    /// Marks up a hit: fragments by field. Stored fields are taken from the whole `source`, others from
    /// what the mapping lets be seen of it. `id` and `row` name the document in errors.
    ///
    /// # Errors
    /// A value that is longer than the index allows.
    pub(crate) fn mark(
        &self,
        source: &Value,
        visible: &Value,
        id: &str,
        row: u32,
    ) -> Result<Map<String, Value>> {
        let mut marked = Map::new();
        for field in &self.fields {
            let stored = field.source.is_stored() && !field.options.force_source;
            let source = if stored { source } else { visible };
            let fragments = field.fragments(source, self.index, id, row)?;
            if !fragments.is_empty() {
                marked.insert(field.name.clone(), fragments.into_iter().map(Value::String).collect());
            }
        }
        Ok(marked)
    }
}

impl MarkedField<'_> {
    fn fragments(&self, source: &Value, index: IndexContext<'_>, id: &str, row: u32) -> Result<Vec<String>> {
        let field = self.source.field();
        let options = self.options;
        let tokenizer = Tokenizer::new(index.mapping, field);
        let values = || {
            self.source.values(source).into_iter().map(|value| match value {
                Value::String(text) => text.encode_utf16().collect::<Vec<u16>>(),
                other => other.to_string().encode_utf16().collect(),
            })
        };
        let most = setting(index.meta, "index.highlight.max_analyzed_offset", MAX_ANALYZED_OFFSET);
        let too_long = |document: &dyn std::fmt::Display, remedy: &str| {
            Error::IllegalArgument(format!(
                "The length of [{}] field of [{document}] doc of [{}] index has exceeded [{most}] - maximum allowed to be analyzed for highlighting. This maximum can be set by changing the [index.highlight.max_analyzed_offset] index level setting. {remedy}",
                field.path, index.meta.name
            ))
        };
        match self.kind {
            Kind::Unified => {
                let query = unified::Query::new(self.wanted.iter());
                if query.is_empty() && options.no_match_size <= 0 {
                    return Ok(Vec::new());
                }
                let text = values().collect::<Vec<_>>().join(&SEPARATOR);
                let unlimited = options.max_analyzer_offset.is_none_or(|limit| limit > most as i64);
                if unlimited && !has_offsets(field) && text.len() > most {
                    return Err(too_long(
                        &row,
                        "For large texts, indexing with offsets or term vectors is recommended!",
                    ));
                }
                // Known offsets need no analysis, unless terms are to be found among them.
                let analyzed = !has_vectors(field) && (!has_offsets(field) || query.has_patterns());
                let limit = options.max_analyzer_offset.filter(|_| analyzed);
                unified::highlight(&query, &text, tokenizer, options, limit)
            }
            Kind::FastVector => {
                let values: Vec<Vec<u16>> = values().collect();
                fvh::highlight(&self.wanted, &values, tokenizer, options)
            }
            Kind::Plain(fragmenter) => {
                let values: Vec<Vec<u16>> = values().collect();
                let limit = options.max_analyzer_offset.filter(|limit| *limit <= most as i64);
                let limit = limit.map(|limit| limit as usize);
                if limit.is_none() && values.iter().any(|value| value.len() > most) {
                    return Err(too_long(
                        &id,
                        "For large texts, indexing with offsets or term vectors, and highlighting with unified or fvh highlighter is recommended!",
                    ));
                }
                let wanted: Vec<&HighlightTarget> = self.wanted.iter().collect();
                plain::highlight(&wanted, &values, tokenizer, options, fragmenter, limit)
            }
        }
    }
}

fn kind(pattern: &str, options: &Options) -> Result<Kind> {
    match options.kind.as_str() {
        "unified" => Ok(Kind::Unified),
        "fvh" => Ok(Kind::FastVector),
        "plain" if options.fragments == 0 => Ok(Kind::Plain(Fragmenter::None)),
        "plain" => match options.fragmenter.as_deref() {
            None | Some("span") => Ok(Kind::Plain(Fragmenter::Span)),
            Some("simple") => Ok(Kind::Plain(Fragmenter::Simple)),
            Some(other) => Err(Error::IllegalArgument(format!(
                "unknown fragmenter option [{other}] for the field [{pattern}]"
            ))),
        },
        other => Err(Error::IllegalArgument(format!(
            "unknown highlighter type [{other}] for the field [{pattern}]"
        ))),
    }
}

/// Returns whether the field was indexed so that OpenSearch knows where its terms are without analyzing again.
fn has_offsets(field: &Field) -> bool {
    field.params.get("index_options").and_then(Value::as_str) == Some("offsets") || has_vectors(field)
}

fn has_vectors(field: &Field) -> bool {
    let vectors = field.params.get("term_vector").and_then(Value::as_str);
    vectors.is_some_and(|vectors| vectors.starts_with("with_positions_offsets"))
}

/// Checks options against a field.
fn check(field: &Field, options: &Options) -> Result<()> {
    if options.kind == "fvh" && !has_vectors(field) {
        return Err(Error::IllegalArgument(format!(
            "the field [{}] should be indexed with term vector with position offsets to be used with fast vector highlighter",
            field.path
        )));
    }
    let scanned = options.kind == "unified" && options.fragments > 0 && field.field_type.is_text();
    if scanned && options.scanner == Some(Scanner::Chars) {
        return Err(Error::IllegalArgument("Invalid boundary scanner type: CHARS".to_owned()));
    }
    Ok(())
}
