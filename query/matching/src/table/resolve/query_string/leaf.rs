//! The conditions of a query string, each against the fields that it names or the default ones.

use millrace_dsl::json;
use millrace_dsl::query::{
    Bound, ExistsQuery, FieldBoosts, Fuzziness, FuzzyOptions, FuzzyQuery, MatchType, Normalize, Operator,
    QueryStringQuery, RangeQuery, RegexpFlags, RegexpQuery, WildcardQuery,
};
use millrace_dsl::query_string::number;
use millrace_dsl::query_string::syntax::Leaf;
use millrace_mapping::FieldType;
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::table::resolve::fields::{Fields, has_terms, plain};
use crate::table::resolve::multi_match::{TextOptions, best_of, scaled, unforgivable};
use crate::table::resolve::{LowerClause, Resolver, setting};
use crate::table::values;

/// The field name that asks whether a document has a field.
const EXISTS: &str = "_exists_";

/// A query string's options, read for an index.
pub(super) struct Strings<'q> {
    query: &'q QueryStringQuery,
    /// Fields of conditions that name none, where there is no default field.
    fields: Fields,
    /// The default field.
    default: Option<String>,
    lenient: bool,
    tie_breaker: f32,
}

impl<'q> Strings<'q> {
    /// Reads the options; returns with them the field that stands for none.
    pub(super) fn new(
        resolver: &Resolver<'_>,
        query: &'q QueryStringQuery,
    ) -> Result<(Self, Option<String>)> {
        const CLAUSE: &str = "query_string";
        if query.default_field.is_some() && !query.fields.is_empty() {
            let reason = "Validation Failed: 1: [query_string] cannot use [fields] parameter in conjunction with [default_field];";
            return Err(Error::QueryShard {
                reason: format!("failed to create query: {reason}"),
                caused_by: Some(("query_validation_exception".to_owned(), reason.to_owned())),
            });
        }
        let everything = |fields: &FieldBoosts| fields.all().then(|| "*".to_owned());
        let (default, named) = match (&query.default_field, query.fields.is_empty()) {
            (Some(field), _) => (Some(field.clone()), None),
            (None, false) => (None, Some(query.fields.clone())),
            (None, true) => {
                let fields = resolver.default_fields(CLAUSE)?;
                match everything(&fields) {
                    Some(all) => (Some(all), None),
                    None => (None, Some(fields)),
                }
            }
        };
        let all = default.as_deref() == Some("*") || named.as_ref().is_some_and(FieldBoosts::all);
        let fields = match &named {
            Some(named) => resolver.fields(named, None)?,
            None => Fields::new(),
        };
        resolver.known_analyzer(CLAUSE, "analyzer", query.analyzer.as_deref())?;
        resolver.known_analyzer(CLAUSE, "quote_analyzer", query.quote_analyzer.as_deref())?;
        resolver.rewrite_known(query.rewrite.as_ref())?;
        // Near terms score in one way, whatever is said; a wrong name is refused all the same.
        resolver.rewrite_known(query.fuzzy_rewrite.as_ref())?;
        query.time_zone.as_deref().map(values::known_zone).transpose()?;
        let settings = &resolver.index.meta.settings;
        let lenient = settings.get("index.query_string.lenient").and_then(json::text);
        let strings = Self {
            query,
            fields,
            default: default.clone(),
            lenient: query.lenient.unwrap_or(all || lenient.as_deref() == Some("true")),
            tie_breaker: query.tie_breaker.unwrap_or(query.match_type.tie_breaker()),
        };
        Ok((strings, default))
    }

    /// Returns the operator between clauses that nothing joins.
    pub(super) fn operator(&self) -> Operator {
        self.query.operator
    }

    fn normalize(&self) -> Normalize {
        Normalize::Analyzer(self.query.analyzer.clone())
    }

    /// Refuses a pattern without a fixed start, where such are not allowed.
    fn starts_fixed(&self, pattern: &str) -> Result<()> {
        if self.query.allow_leading_wildcard || !pattern.starts_with(['*', '?']) {
            return Ok(());
        }
        let text = &self.query.query;
        let reason = "'*' or '?' not allowed as first character in WildcardQuery";
        Err(Error::QueryShard {
            reason: format!("Failed to parse query [{text}]"),
            caused_by: Some(("parse_exception".to_owned(), format!("Cannot parse '{text}': {reason}"))),
        })
    }

    /// Returns the options of the search for a text in fields.
    fn text(&self, match_type: MatchType, analyzer: Option<&'q str>, slop: u32) -> TextOptions<'q> {
        TextOptions {
            match_type,
            operator: self.query.operator,
            minimum_should_match: None,
            analyzer,
            slop,
            fuzziness: None,
            fuzzy: FuzzyOptions::default(),
            tie_breaker: self.tie_breaker,
            lenient: self.lenient,
            zero_terms: None,
            synonym_phrases: self.query.synonym_phrases,
            gaps: self.query.position_increments,
        }
    }
}

impl Resolver<'_> {
    /// A condition; `None` where analysis leaves nothing of it.
    pub(super) fn string_leaf(
        &mut self,
        strings: &Strings<'_>,
        field: Option<&str>,
        leaf: &Leaf,
        weight: Weight,
    ) -> Result<Option<Node>> {
        match leaf {
            Leaf::Word(text) | Leaf::Words(text) => self.words(strings, field, text, weight),
            Leaf::Phrase { text, .. } if field == Some(EXISTS) => self.has_field(text, weight).map(Some),
            Leaf::Phrase { text, slop } => {
                let fields = self.string_fields(strings, field, true)?;
                let slop = slop.unwrap_or(strings.query.phrase_slop);
                let slop = u32::try_from(slop)
                    .map_err(|_| Error::IllegalArgument(format!("slop must be >= 0, got {slop}")))?;
                let analyzer = strings.query.quote_analyzer.as_deref().or(strings.query.analyzer.as_deref());
                self.text(&strings.text(MatchType::Phrase, analyzer, slop), &fields, text, weight)
            }
            Leaf::Wildcard(text) if text == "*" => match field.or(strings.default.as_deref()) {
                Some("*") => Ok(Some(Node::All(weight))),
                Some(field) => self.has_field(field, weight).map(Some),
                None => {
                    let fields = strings.fields.clone();
                    self.each_field(strings, &fields, weight, &mut |resolver, name, weight| {
                        resolver.has_field(name, weight).map(Some)
                    })
                }
            },
            Leaf::Prefix(text) => {
                let fields = self.string_fields(strings, field, false)?;
                self.each_field(strings, &fields, weight, &mut |resolver, name, weight| {
                    resolver.string_prefix(strings, name, text, weight)
                })
            }
            _ => {
                match leaf {
                    Leaf::Regexp(text) => self.short_enough(text)?,
                    Leaf::Wildcard(text) => strings.starts_fixed(text)?,
                    _ => {}
                }
                let edits = match leaf {
                    Leaf::Fuzzy { text, fuzziness } => {
                        edits(strings.query.fuzziness, fuzziness.as_deref(), text)?
                    }
                    _ => 0,
                };
                let fields = self.string_fields(strings, field, false)?;
                self.each_field(strings, &fields, weight, &mut |resolver, name, weight| {
                    resolver.string_pattern(strings, name, leaf, edits, weight).map(Some)
                })
            }
        }
    }

    /// Words, or what only looks like them: a range of one bound, a date, a field that exists.
    fn words(
        &mut self,
        strings: &Strings<'_>,
        field: Option<&str>,
        text: &str,
        weight: Weight,
    ) -> Result<Option<Node>> {
        if field == Some(EXISTS) {
            return self.has_field(text, weight).map(Some);
        }
        if let Some(name) = field
            && let Some((from, to)) = self.half_range(strings, name, text)
        {
            let fields = self.string_fields(strings, field, false)?;
            return self.each_field(strings, &fields, weight, &mut |resolver, name, weight| {
                resolver.string_range(strings, name, (from.clone(), to.clone()), weight).map(Some)
            });
        }
        let fields = self.string_fields(strings, field, false)?;
        let options =
            strings.text(strings.query.match_type, strings.query.analyzer.as_deref(), phrase_slop(strings)?);
        self.text(&options, &fields, text, weight)
    }

    /// Reads `>5`, `>=5`, `<5`, `<=5`, and any date where there is a time zone for it, as a range.
    fn half_range(
        &self,
        strings: &Strings<'_>,
        field: &str,
        text: &str,
    ) -> Option<(Option<Bound>, Option<Bound>)> {
        // One character alone is a word.
        text.chars().nth(1)?;
        let bound = |text: &str, included| {
            (text != "*").then(|| Bound { value: Value::String(text.to_owned()), included })
        };
        let read = |rest: &str| match rest.strip_prefix('=') {
            Some(value) if !value.is_empty() => bound(value, true),
            _ => bound(rest, false),
        };
        if let Some(rest) = text.strip_prefix('>') {
            return Some((read(rest), None));
        }
        if let Some(rest) = text.strip_prefix('<') {
            return Some((None, read(rest)));
        }
        let date = self.target(field).is_some_and(|target| target.field.field_type.has_date_format());
        (date && strings.query.time_zone.is_some()).then(|| (bound(text, true), bound(text, true)))
    }

    /// Returns whether no field of a condition has a boost. Words are clauses themselves only there.
    pub(super) fn plain_fields(&self, strings: &Strings<'_>, field: Option<&str>) -> Result<bool> {
        Ok(plain(&self.string_fields(strings, field, false)?))
    }

    /// The fields of a condition.
    fn string_fields(&self, strings: &Strings<'_>, field: Option<&str>, quoted: bool) -> Result<Fields> {
        let suffix = strings.query.quote_field_suffix.as_deref().filter(|_| quoted);
        match field {
            Some(name) => self.named_fields(name, suffix),
            None => Ok(self.suffixed(&strings.fields, suffix)),
        }
    }

    /// A condition on each of several fields; the best counts.
    #[allow(clippy::type_complexity, reason = "a callback for each field, used here alone")]
    fn each_field(
        &mut self,
        strings: &Strings<'_>,
        fields: &Fields,
        weight: Weight,
        condition: &mut dyn FnMut(&mut Self, &str, Weight) -> Result<Option<Node>>,
    ) -> Result<Option<Node>> {
        let mut parts = Vec::with_capacity(fields.len());
        for (name, boost) in fields {
            if !self.is_mapped(name) {
                continue;
            }
            match condition(self, name, scaled(weight, *boost)) {
                Ok(part) => parts.extend(part),
                Err(error) if unforgivable(&error) => return Err(error),
                Err(_) if strings.lenient => parts.push(Node::None),
                Err(error) => return Err(error),
            }
        }
        if parts.is_empty() && !fields.is_empty() && fields.keys().any(|name| self.is_mapped(name)) {
            return Ok(None);
        }
        best_of(parts, strings.tie_breaker).map(Some)
    }

    fn has_field(&mut self, name: &str, weight: Weight) -> Result<Node> {
        let query = ExistsQuery { field: name.to_owned(), common: Default::default() };
        query.resolve(self, weight)
    }

    fn string_range(
        &mut self,
        strings: &Strings<'_>,
        name: &str,
        (from, to): (Option<Bound>, Option<Bound>),
        weight: Weight,
    ) -> Result<Node> {
        let date = self.target(name).is_some_and(|target| target.field.field_type.has_date_format());
        let query = RangeQuery {
            field: name.to_owned(),
            from: self.normalized_bound(strings, name, from)?,
            to: self.normalized_bound(strings, name, to)?,
            format: None,
            time_zone: strings.query.time_zone.clone().filter(|_| date),
            relation: Default::default(),
            common: Default::default(),
        };
        query.resolve(self, weight)
    }

    /// A bound as the terms of a text field are spelled.
    fn normalized_bound(
        &self,
        strings: &Strings<'_>,
        name: &str,
        bound: Option<Bound>,
    ) -> Result<Option<Bound>> {
        let Some(Bound { value: Value::String(text), included }) = bound else { return Ok(bound) };
        let text = match self.target(name) {
            Some(target) if target.field.field_type.is_text() => {
                self.normalized(&target, &text, &strings.normalize())?
            }
            _ => text,
        };
        Ok(Some(Bound { value: Value::String(text), included }))
    }

    fn string_pattern(
        &mut self,
        strings: &Strings<'_>,
        name: &str,
        leaf: &Leaf,
        edits: i32,
        weight: Weight,
    ) -> Result<Node> {
        let (field, common) = (name.to_owned(), Default::default());
        let target = self.target(name).map(|target| target.field);
        let text = target.is_some_and(|field| field.field_type.is_text());
        let normalize = if text { strings.normalize() } else { Normalize::Field };
        let rewrite = strings.query.rewrite.clone();
        match leaf {
            Leaf::Wildcard(pattern) => {
                let (value, case_insensitive) = (pattern.clone(), false);
                let query = WildcardQuery { field, value, normalize, case_insensitive, rewrite, common };
                query.resolve(self, weight)
            }
            Leaf::Regexp(expression) => {
                // An expression describes terms as they are: other fields have none.
                let strings_only = target.is_some_and(|field| {
                    text || matches!(
                        field.field_type,
                        FieldType::Keyword
                            | FieldType::Wildcard
                            | FieldType::ConstantKeyword
                            | FieldType::FlatObject
                    )
                });
                if !strings_only {
                    return Ok(Node::None);
                }
                let query = RegexpQuery {
                    field,
                    value: expression.clone(),
                    normalize,
                    flags: RegexpFlags::ALL,
                    case_insensitive: false,
                    max_determinized_states: strings.query.max_determinized_states,
                    rewrite,
                    common,
                };
                query.resolve(self, weight)
            }
            Leaf::Fuzzy { text, .. } => {
                let edits = u8::try_from(edits).map_err(|_| {
                    Error::IllegalArgument(format!("Valid edit distances are [0, 1, 2] but was [{edits}]"))
                })?;
                let query = FuzzyQuery {
                    field,
                    value: text.clone(),
                    normalize,
                    fuzziness: Fuzziness::Edits(edits),
                    options: strings.query.fuzzy.clone(),
                    common,
                };
                query.resolve(self, weight)
            }
            Leaf::Range { from, to, include_from, include_to } => {
                let bound = |bound: &Option<String>, included| {
                    bound.as_ref().map(|text| Bound { value: Value::String(text.clone()), included })
                };
                let bounds = (bound(from, *include_from), bound(to, *include_to));
                self.string_range(strings, name, bounds, weight)
            }
            Leaf::Word(_) | Leaf::Words(_) | Leaf::Phrase { .. } | Leaf::Prefix(_) => Ok(Node::None),
        }
    }

    /// Returns the prefix of terms; where the start is analyzed, only its last term is a start.
    fn string_prefix(
        &mut self,
        strings: &Strings<'_>,
        name: &str,
        text: &str,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let Some(target) = self.target(name) else {
            return self
                .prefix_of(name, text, Normalize::Field, strings.query.rewrite.as_ref(), weight)
                .map(Some);
        };
        let field = target.field;
        if !has_terms(&field.field_type) {
            return Ok(Some(Node::None));
        }
        if !field.field_type.is_text() {
            return self
                .prefix_of(name, text, Normalize::Field, strings.query.rewrite.as_ref(), weight)
                .map(Some);
        }
        if !strings.query.analyze_wildcard {
            return self
                .prefix_of(name, text, strings.normalize(), strings.query.rewrite.as_ref(), weight)
                .map(Some);
        }
        let Some(tokens) = self.tokens(&target, strings.query.analyzer.as_deref(), false, text)? else {
            return Ok(None);
        };
        self.analyzed_prefix(name, &tokens, strings.query.operator, strings.query.rewrite.as_ref(), weight)
    }

    fn short_enough(&self, expression: &str) -> Result<()> {
        let limit = setting(self.index.meta, "index.max_regex_length", 1_000);
        let length = expression.encode_utf16().count();
        if length <= limit {
            return Ok(());
        }
        Err(Error::IllegalArgument(format!(
            "The length of regex [{length}] used in the [query_string] has exceeded the allowed maximum of [{limit}]. This maximum can be set by changing the [index.max_regex_length] index level setting."
        )))
    }
}

fn phrase_slop(strings: &Strings<'_>) -> Result<u32> {
    Ok(u32::try_from(strings.query.phrase_slop).unwrap_or(0))
}

/// Returns the number of edits for a word: the number behind its tilde, or the default.
fn edits(default: Fuzziness, given: Option<&str>, word: &str) -> Result<i32> {
    let Some(text) = given else { return Ok(default.edits(word).into()) };
    if text.to_uppercase().starts_with("AUTO") {
        return Ok(Fuzziness::parse(&Value::String(text.to_owned()))?.edits(word).into());
    }
    number(text).map(|edits| (edits as i32).min(2)).ok_or_else(|| json::not_a_number(&text.to_uppercase()))
}
