//! `_analyze`: the tokens that an analyzer makes of a text, at once or step by step.

use millrace_catalog::metadata::{BlockLevel, IndicesOptions, check_block};
use millrace_mapping::FieldType;
use millrace_mapping::analysis::{Analyzer, Analyzers, Component, Token};
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response, json as syntax, offload};

/// `index.analyze.max_token_count` where no index says otherwise.
const MAX_TOKENS: usize = 10_000;

/// Request of `_analyze`.
#[derive(Debug, Default)]
struct AnalyzeRequest {
    text: Vec<String>,
    analyzer: Option<String>,
    normalizer: Option<String>,
    field: Option<String>,
    tokenizer: Option<Component>,
    char_filters: Vec<Component>,
    filters: Vec<Component>,
    explain: bool,
    /// Names of attributes to show, in lower case; all where empty.
    attributes: Vec<String>,
}

/// `_analyze` and `{index}/_analyze`.
pub(crate) async fn analyze(
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
) -> Result<Response, Error> {
    let index = match request.params.take("index") {
        Some(name) if index.is_none() => Some(name),
        _ => index.map(str::to_owned),
    };
    let options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    request.params.take_bool("prefer_local")?;
    request.finish()?;
    let Some(body) = request.json()? else {
        return Err(Error::new(400, "parse_exception", "request body or source parameter is required"));
    };
    let asked = AnalyzeRequest::read(&body)?;
    asked.validate(index.is_some())?;
    let answer = match index {
        None => {
            let analyzers = Analyzers::global()?;
            let custom;
            let named = match &asked.analyzer {
                _ if asked.is_custom() => {
                    custom = asked.custom(&analyzers)?;
                    NamedAnalyzer { analyzer: &custom, name: "" }
                }
                Some(name) => NamedAnalyzer {
                    analyzer: analyzers.get(name).ok_or_else(|| {
                        Error::illegal_argument(if name == "standard_html_strip" {
                            // Older clients ask for it.
                            "[standard_html_strip] analyzer is not supported for new indices, use a custom analyzer \
                             using [standard] tokenizer and [html_strip] char_filter, plus [lowercase] filter"
                                .to_owned()
                        } else {
                            format!("failed to find global analyzer [{name}]")
                        })
                    })?,
                    name,
                },
                None if asked.field.is_some() => {
                    return Err(Error::illegal_argument(
                        "analysis based on a specific field requires an index",
                    ));
                }
                None => NamedAnalyzer {
                    analyzer: analyzers.get("standard").ok_or_else(|| {
                        Error::illegal_argument("failed to find global analyzer [standard]")
                    })?,
                    name: "standard",
                },
            };
            // Only what is put together for the request leaves a gap between texts.
            answer(&asked, &named, if asked.is_custom() { 100 } else { 0 }, MAX_TOKENS)?
        }
        Some(name) => {
            let metas = api.session.metadata().resolve(&name, &options, api.session.clock().now_ms())?;
            let [meta] = metas.as_slice() else {
                if metas.is_empty() {
                    return Err(Error::index_not_found(&name));
                }
                let names: Vec<&str> = metas.iter().map(|meta| &*meta.name).collect();
                return Err(Error::illegal_argument(format!(
                    "unable to return a single index as the index and options provided got resolved to multiple \
                     indices: [{}]",
                    names.join(", ")
                )));
            };
            check_block(meta, BlockLevel::Read)?;
            let index = api.session.index(&meta.name)?;
            index.check_supported()?;
            let mapping = api.session.mapping(&index);
            let limit = meta.integer("index.analyze.max_token_count").unwrap_or(MAX_TOKENS as i64);
            let limit = usize::try_from(limit).unwrap_or(MAX_TOKENS);
            let analyzers = mapping.analyzers();
            let custom;
            let mut gap = None;
            let named = if asked.is_custom() {
                custom = asked.custom(analyzers)?;
                NamedAnalyzer { analyzer: &custom, name: "" }
            } else if let Some(name) = &asked.analyzer {
                let analyzer = find(analyzers, name)
                    .ok_or_else(|| Error::illegal_argument(format!("failed to find analyzer [{name}]")))?;
                NamedAnalyzer { analyzer, name }
            } else if let Some(name) = &asked.normalizer {
                let analyzer = analyzers.normalizer(name).ok_or_else(|| {
                    Error::illegal_argument(format!("failed to find normalizer under [{name}]"))
                })?;
                NamedAnalyzer { analyzer, name }
            } else if let Some(field) = asked.field.as_deref().and_then(|path| mapping.field(path)) {
                let refused = || {
                    Error::illegal_argument(format!(
                        "Can't process field [{}], Analysis requests are only supported on tokenized fields",
                        field.path
                    ))
                };
                if field.field_type.is_text() {
                    gap = field.params.get("position_increment_gap").and_then(Value::as_u64);
                    let analyzer = find(analyzers, &field.analyzer).ok_or_else(refused)?;
                    NamedAnalyzer { analyzer, name: &field.analyzer }
                } else if field.field_type == FieldType::Keyword {
                    match &field.normalizer {
                        Some(name) => {
                            NamedAnalyzer { analyzer: analyzers.normalizer(name).ok_or_else(refused)?, name }
                        }
                        None => {
                            let analyzer = analyzers.get("keyword").ok_or_else(refused)?;
                            NamedAnalyzer { analyzer, name: "_keyword" }
                        }
                    }
                } else {
                    return Err(refused());
                }
            } else {
                let analyzer = find(analyzers, "default")
                    .ok_or_else(|| Error::illegal_argument("failed to find analyzer [default]"))?;
                NamedAnalyzer { analyzer, name: "default" }
            };
            let gap = gap.or_else(|| named.analyzer.position_increment_gap().map(u64::from)).unwrap_or(100);
            answer(&asked, &named, u32::try_from(gap).unwrap_or(u32::MAX), limit)?
        }
    };
    Ok(Response::json(200, answer))
}

/// An analyzer and what it is called.
struct NamedAnalyzer<'a> {
    analyzer: &'a Analyzer,
    name: &'a str,
}

/// Finds an analyzer of an index; `default` is `standard` unless the index has one of that name.
fn find<'a>(analyzers: &'a Analyzers, name: &str) -> Option<&'a Analyzer> {
    match (analyzers.get(name), name) {
        (None, "default" | "default_search") => {
            analyzers.get("default").or_else(|| analyzers.get("standard"))
        }
        (found, _) => found,
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::new(400, "x_content_parse_exception", format!("[analyze_request] {}", reason.into()))
}

impl AnalyzeRequest {
    fn read(body: &Value) -> Result<Self, Error> {
        let Value::Object(members) = body else {
            return Err(refused(format!("Expected START_OBJECT but was: {}", syntax::token(body))));
        };
        let mut asked = Self::default();
        let unsupported = |name: &str, value: &Value| {
            refused(format!("{name} doesn't support values of type: {}", syntax::token(value)))
        };
        let string = |name: &str, value: &Value| {
            value.as_str().map(str::to_owned).ok_or_else(|| unsupported(name, value))
        };
        let strings = |name: &str, value: &Value| -> Result<Vec<String>, Error> {
            match value {
                Value::String(text) => Ok(vec![text.clone()]),
                Value::Array(items) => items
                    .iter()
                    .map(|item| match item {
                        Value::String(text) => Ok(text.clone()),
                        Value::Number(_) | Value::Bool(_) => Ok(item.to_string()),
                        other => Err(unsupported(name, other)),
                    })
                    .collect(),
                other => Err(unsupported(name, other)),
            }
        };
        for (name, value) in members {
            match name.as_str() {
                "text" => asked.text = strings(name, value)?,
                "attributes" => {
                    asked.attributes = strings(name, value)?.iter().map(|name| name.to_lowercase()).collect();
                }
                "analyzer" => asked.analyzer = Some(string(name, value)?),
                "normalizer" => asked.normalizer = Some(string(name, value)?),
                "field" => asked.field = Some(string(name, value)?),
                "tokenizer" => asked.tokenizer = Some(component(name, value)?),
                "filter" => asked.filters = components(name, value)?,
                "char_filter" => asked.char_filters = components(name, value)?,
                "explain" => {
                    asked.explain = match value {
                        Value::Bool(flag) => *flag,
                        Value::String(text) if text == "true" => true,
                        Value::String(text) if text == "false" => false,
                        other => {
                            let given = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
                            return Err(refused("failed to parse field [explain]").caused_by(
                                "illegal_argument_exception",
                                format!(
                                    "Failed to parse value [{given}] as only [true] or [false] are allowed."
                                ),
                            ));
                        }
                    }
                }
                other => return Err(refused(format!("unknown field [{other}]"))),
            }
        }
        Ok(asked)
    }

    fn validate(&self, index: bool) -> Result<(), Error> {
        let mut problems = Vec::new();
        let parts = !self.filters.is_empty() || !self.char_filters.is_empty() || self.tokenizer.is_some();
        if self.text.is_empty() {
            problems.push("text is missing");
        }
        if self.normalizer.is_some() {
            if !index {
                problems.push("index is required if normalizer is specified");
            }
            if self.tokenizer.is_some() || self.analyzer.is_some() {
                problems.push("tokenizer/analyze should be null if normalizer is specified");
            }
        }
        if self.analyzer.is_some() && parts {
            problems.push("cannot define extra components on a named analyzer");
        }
        if self.normalizer.is_some() && parts {
            problems.push("cannot define extra components on a named normalizer");
        }
        if self.field.is_some() && parts {
            problems.push("cannot define extra components on a field-specific analyzer");
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::validation(&problems)) }
    }

    /// Returns whether the request describes its analyzer by its parts.
    fn is_custom(&self) -> bool {
        self.tokenizer.is_some() || !self.filters.is_empty() || !self.char_filters.is_empty()
    }

    fn custom(&self, analyzers: &Analyzers) -> Result<Analyzer, Error> {
        Ok(analyzers.custom(self.tokenizer.as_ref(), &self.char_filters, &self.filters)?)
    }
}

fn component(name: &str, value: &Value) -> Result<Component, Error> {
    match value {
        Value::String(text) => Ok(Component::Named(text.clone())),
        Value::Object(definition) => Ok(Component::Inline(definition.clone())),
        other => {
            let reason = format!("Expected [VALUE_STRING] or [START_OBJECT], got {}", syntax::token(other));
            Err(refused(format!("failed to parse field [{name}]"))
                .caused_by("x_content_parse_exception", reason))
        }
    }
}

fn components(name: &str, value: &Value) -> Result<Vec<Component>, Error> {
    match value {
        Value::Array(items) => items.iter().map(|item| component(name, item)).collect(),
        single => Ok(vec![component(name, single)?]),
    }
}

/// Bytes of terms that an answer shows for a stage of the analysis.
const MAX_TOKEN_BYTES: usize = 8 << 20;

/// The tokens of several texts, one behind the other.
struct Tokens<'a> {
    asked: &'a AnalyzeRequest,
    /// `true` if attributes beyond the usual ones are shown.
    extended: bool,
    /// `true` if the keyword mark is among them.
    keywords: bool,
    limit: usize,
    tokens: Vec<Value>,
    exceeded: bool,
    /// Bytes of the terms shown.
    bytes: usize,
}

impl Tokens<'_> {
    fn collect(
        asked: &AnalyzeRequest,
        analyzer: &Analyzer,
        filters: usize,
        gap: u32,
        limit: usize,
    ) -> Result<Value, Error> {
        let mut tokens = Tokens {
            asked,
            extended: asked.explain,
            keywords: analyzer.reports_keywords(filters),
            limit,
            tokens: Vec::new(),
            exceeded: false,
            bytes: 0,
        };
        let (mut position, mut offset) = (0u32, 0u32);
        for text in &asked.text {
            let outcome = analyzer.run_until(text, filters, &mut |token| tokens.add(token, position, offset));
            position = position.saturating_add(outcome.positions).saturating_add(gap);
            offset = offset.saturating_add(outcome.end).saturating_add(1);
            if tokens.bytes > MAX_TOKEN_BYTES {
                return Err(Error::new(
                    400,
                    "illegal_argument_exception",
                    format!(
                        "the tokens of [text] are longer than {MAX_TOKEN_BYTES} bytes together: analyze less of it at a time"
                    ),
                ));
            }
            if tokens.exceeded {
                // Who asked can mend it: not a fault of the server, as which OpenSearch answers it (500).
                return Err(Error::new(
                    400,
                    "illegal_state_exception",
                    format!(
                        "The number of tokens produced by calling _analyze has exceeded the allowed maximum of \
                         [{limit}]. This limit can be set by changing the [index.analyze.max_token_count] index \
                         level setting."
                    ),
                ));
            }
        }
        Ok(tokens.tokens.into())
    }

    fn add(&mut self, token: &Token, position: u32, offset: u32) {
        self.bytes = self.bytes.saturating_add(token.text.len());
        if self.bytes > MAX_TOKEN_BYTES {
            return;
        }
        if self.tokens.len() >= self.limit {
            self.exceeded = true;
            return;
        }
        let mut shown = Map::new();
        shown.insert("token".into(), token.text.as_str().into());
        shown.insert("start_offset".into(), (token.start + offset).into());
        shown.insert("end_offset".into(), (token.end + offset).into());
        shown.insert("type".into(), token.kind.into());
        shown.insert("position".into(), (token.position + position).into());
        if token.position_length > 1 {
            shown.insert("positionLength".into(), token.position_length.into());
        }
        if self.extended {
            self.attribute(&mut shown, "bytes", || hex(token.text.as_bytes()).into());
            if self.keywords {
                self.attribute(&mut shown, "keyword", || token.keyword.into());
            }
            if let Some(payload) = &token.payload {
                self.attribute(&mut shown, "payload", || hex(payload).into());
            }
            self.attribute(&mut shown, "positionLength", || token.position_length.into());
            self.attribute(&mut shown, "termFrequency", || token.frequency.into());
        }
        self.tokens.push(shown.into());
    }

    fn attribute(&self, shown: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
        let wanted = &self.asked.attributes;
        if wanted.is_empty() || wanted.contains(&name.to_lowercase()) {
            shown.insert(name.to_owned(), value());
        }
    }
}

/// Bytes as Lucene prints them.
fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:x}")).collect();
    format!("[{}]", digits.join(" "))
}

fn answer(asked: &AnalyzeRequest, named: &NamedAnalyzer<'_>, gap: u32, limit: usize) -> Result<Value, Error> {
    let bytes = asked.text.iter().map(String::len).sum();
    offload(bytes, || {
        let analyzer = named.analyzer;
        let tokens = |filters: usize| Tokens::collect(asked, analyzer, filters, gap, limit);
        if !asked.explain {
            return Ok(json!({ "tokens": tokens(analyzer.filter_count())? }));
        }
        let Some(parts) = analyzer.parts() else {
            let tokens = tokens(analyzer.filter_count())?;
            let analyzer = json!({ "name": named.name, "tokens": tokens });
            return Ok(json!({ "detail": { "custom_analyzer": false, "analyzer": analyzer } }));
        };
        let char_filters: Vec<Value> = parts
            .char_filters
            .iter()
            .enumerate()
            .map(|(nth, name)| {
                let texts: Vec<String> =
                    asked.text.iter().map(|text| analyzer.filtered_text(text, nth + 1)).collect();
                json!({ "name": name, "filtered_text": texts })
            })
            .collect();
        let tokenizer = json!({ "name": parts.tokenizer, "tokens": tokens(0)? });
        let filters = parts
            .filters
            .iter()
            .enumerate()
            .map(|(nth, name)| Ok(json!({ "name": name, "tokens": tokens(nth + 1)? })))
            .collect::<Result<Vec<Value>, Error>>()?;
        Ok(json!({ "detail": {
            "custom_analyzer": true,
            "charfilters": char_filters,
            "tokenizer": tokenizer,
            "tokenfilters": filters,
        } }))
    })
}
