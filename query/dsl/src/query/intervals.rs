//! `intervals`: documents with terms at certain places relative to each other, said by rules that
//! are made of rules.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Fuzziness, Parser, RegexpFlags, regexp};
use crate::json::{self, token};

/// An `intervals` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalsQuery {
    /// Field path.
    pub field: String,
    /// Rule of the intervals.
    pub rule: IntervalRule,
    /// Boost and name.
    pub common: Common,
}

/// Mode that relates the parts of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntervalMode {
    /// One behind the other.
    Ordered,
    /// Anyhow, even one within the other.
    #[default]
    Unordered,
    /// In any order, none within another.
    NoOverlap,
}

/// Relation of an interval to those of another rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Relation {
    Before,
    After,
    Containing,
    NotContaining,
    ContainedBy,
    NotContainedBy,
    Overlapping,
    NotOverlapping,
}

/// A condition on the intervals of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalFilter {
    /// The relation by name; which there are is found out with the mapping, as in OpenSearch.
    pub relation: Result<Relation, String>,
    /// The other rule.
    pub rule: IntervalRule,
}

/// Source of a rule's terms, where it is not the clause's field and its analyzer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermSource {
    /// Another analyzer.
    pub analyzer: Option<String>,
    /// Another field.
    pub use_field: Option<String>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub enum IntervalRule {
    /// The terms of a text.
    Match {
        /// The text.
        query: String,
        /// Most positions between the terms that are none of theirs; any number where negative.
        max_gaps: i32,
        /// Mode that relates the terms.
        mode: IntervalMode,
        /// Field and analyzer.
        source: TermSource,
        /// Condition.
        filter: Option<Box<IntervalFilter>>,
    },
    /// Terms that start with a text.
    Prefix {
        /// The text.
        prefix: String,
        /// Field and analyzer.
        source: TermSource,
    },
    /// Terms of a pattern of `*` and `?`.
    Wildcard {
        /// The pattern.
        pattern: String,
        /// Most terms of a segment, where said.
        max_expansions: Option<usize>,
        /// Field and analyzer.
        source: TermSource,
    },
    /// Terms of a regular expression.
    Regexp {
        /// The expression.
        pattern: String,
        /// Its optional operators.
        flags: RegexpFlags,
        /// Most terms of a segment, where said.
        max_expansions: Option<usize>,
        /// Field.
        source: TermSource,
    },
    /// Terms near another.
    Fuzzy {
        /// The term.
        term: String,
        /// Characters at the start that must be the same.
        prefix_length: usize,
        /// `true` if two characters swapped are one edit.
        transpositions: bool,
        /// Edits allowed.
        fuzziness: Fuzziness,
        /// Field and analyzer.
        source: TermSource,
    },
    /// All of several rules.
    AllOf {
        /// The rules.
        intervals: Vec<IntervalRule>,
        /// Mode that relates them.
        mode: IntervalMode,
        /// Most positions between them that are none of theirs; any number where negative.
        max_gaps: i32,
        /// Condition.
        filter: Option<Box<IntervalFilter>>,
    },
    /// Any of several rules.
    AnyOf {
        /// The rules.
        intervals: Vec<IntervalRule>,
        /// Condition.
        filter: Option<Box<IntervalFilter>>,
    },
}

impl Clause for IntervalsQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut entries = fields.iter();
        let Some((field, body)) = entries.next() else { return Err(expected("FIELD_NAME", "END_OBJECT")) };
        let Value::Object(members) = body else { return Err(expected("START_OBJECT", token(body))) };
        let mut common = Common::default();
        let mut rule: Option<(&str, IntervalRule)> = None;
        for (key, value) in members {
            if common.take("intervals", key, value)? {
                continue;
            }
            if let Some((first, _)) = &rule {
                return Err(Error::Parsing(format!(
                    "Only one interval rule can be specified, found [{first}] and [{key}]"
                )));
            }
            rule = Some((key, parse_rule(parser, key, value)?));
        }
        if entries.next().is_some() {
            return Err(expected("END_OBJECT", "FIELD_NAME"));
        }
        let Some((_, rule)) = rule else {
            return Err(Error::Parsing("Missing intervals from interval query definition".to_owned()));
        };
        Ok(Self { field: field.clone(), rule, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}

fn expected(wanted: &str, found: &str) -> Error {
    Error::Parsing(format!("Expected [{wanted}] but got [{found}]"))
}

fn parse_rule(parser: &mut Parser, name: &str, body: &Value) -> Result<IntervalRule> {
    parser.below(|parser| match name {
        "match" => parse_match(parser, body),
        "prefix" => parse_prefix(body),
        "wildcard" => parse_wildcard(body),
        "regexp" => parse_regexp(body),
        "fuzzy" => parse_fuzzy(body),
        "all_of" => parse_all_of(parser, body),
        "any_of" => parse_any_of(parser, body),
        _ => Err(Error::Parsing(format!(
            "Unknown interval type [{name}], expecting one of [match, any_of, all_of, prefix, wildcard, regexp]"
        ))),
    })
}

/// Parses an object whose one member is a rule.
fn only_rule(parser: &mut Parser, value: &Value) -> Result<IntervalRule> {
    let Value::Object(members) = value else { return Err(expected("FIELD_NAME", token(value))) };
    let mut entries = members.iter();
    let Some((name, body)) = entries.next() else { return Err(expected("FIELD_NAME", "END_OBJECT")) };
    let rule = parse_rule(parser, name, body)?;
    match entries.next() {
        Some(_) => Err(expected("END_OBJECT", "FIELD_NAME")),
        None => Ok(rule),
    }
}

fn parse_filter(parser: &mut Parser, value: &Value) -> Result<Box<IntervalFilter>> {
    let Value::Object(members) = value else { return Err(expected("FIELD_NAME", token(value))) };
    let mut entries = members.iter();
    let Some((name, body)) = entries.next() else { return Err(expected("FIELD_NAME", "END_OBJECT")) };
    if name == "script" {
        return Err(Error::IllegalArgument(
            "filters of intervals that are scripts are not supported by this server".to_owned(),
        ));
    }
    let Value::Object(_) = body else { return Err(expected("START_OBJECT", token(body))) };
    let rule = only_rule(parser, body)?;
    if entries.next().is_some() {
        return Err(expected("END_OBJECT", "FIELD_NAME"));
    }
    let relation = match name.to_lowercase().as_str() {
        "before" => Ok(Relation::Before),
        "after" => Ok(Relation::After),
        "containing" => Ok(Relation::Containing),
        "not_containing" => Ok(Relation::NotContaining),
        "contained_by" => Ok(Relation::ContainedBy),
        "not_contained_by" => Ok(Relation::NotContainedBy),
        "overlapping" => Ok(Relation::Overlapping),
        "not_overlapping" => Ok(Relation::NotOverlapping),
        other => Err(other.to_owned()),
    };
    Ok(Box::new(IntervalFilter { relation, rule }))
}

fn parse_match(parser: &mut Parser, body: &Value) -> Result<IntervalRule> {
    let (mut query, mut filter) = (None, None);
    let mut place = GapsAndOrder::default();
    let mut source = TermSource::default();
    each_member("match", body, &mut |key, value| match key {
        "query" => string(value).map(|text| query = Some(text)),
        "filter" => parse_filter(parser, value).map(|own| filter = Some(own)),
        _ if place.take(key, value)? => Ok(()),
        _ if source.take(key, value)? => Ok(()),
        _ => Err(unknown("match", key)),
    })?;
    let (max_gaps, mode) = place.finish("match")?;
    Ok(IntervalRule::Match { query: required("query", query)?, max_gaps, mode, source, filter })
}

fn parse_all_of(parser: &mut Parser, body: &Value) -> Result<IntervalRule> {
    let (mut intervals, mut filter) = (None, None);
    let mut place = GapsAndOrder::default();
    each_member("all_of", body, &mut |key, value| match key {
        "intervals" => rules(parser, value).map(|own| intervals = Some(own)),
        "filter" => parse_filter(parser, value).map(|own| filter = Some(own)),
        _ if place.take(key, value)? => Ok(()),
        _ => Err(unknown("all_of", key)),
    })?;
    let (max_gaps, mode) = place.finish("all_of")?;
    Ok(IntervalRule::AllOf { intervals: required("intervals", intervals)?, mode, max_gaps, filter })
}

fn parse_any_of(parser: &mut Parser, body: &Value) -> Result<IntervalRule> {
    let (mut intervals, mut filter) = (None, None);
    each_member("any_of", body, &mut |key, value| match key {
        "intervals" => rules(parser, value).map(|own| intervals = Some(own)),
        "filter" => parse_filter(parser, value).map(|own| filter = Some(own)),
        _ => Err(unknown("any_of", key)),
    })?;
    Ok(IntervalRule::AnyOf { intervals: required("intervals", intervals)?, filter })
}

fn parse_prefix(body: &Value) -> Result<IntervalRule> {
    let mut prefix = None;
    let mut source = TermSource::default();
    each_member("prefix", body, &mut |key, value| match key {
        "prefix" => string(value).map(|text| prefix = Some(text)),
        _ if source.take(key, value)? => Ok(()),
        _ => Err(unknown("prefix", key)),
    })?;
    Ok(IntervalRule::Prefix { prefix: required("prefix", prefix)?, source })
}

fn parse_wildcard(body: &Value) -> Result<IntervalRule> {
    let (mut pattern, mut max_expansions) = (None, None);
    let mut source = TermSource::default();
    each_member("wildcard", body, &mut |key, value| match key {
        "pattern" => string(value).map(|text| pattern = Some(text)),
        "max_expansions" => expansions(value).map(|most| max_expansions = most),
        _ if source.take(key, value)? => Ok(()),
        _ => Err(unknown("wildcard", key)),
    })?;
    Ok(IntervalRule::Wildcard { pattern: required("pattern", pattern)?, max_expansions, source })
}

fn parse_regexp(body: &Value) -> Result<IntervalRule> {
    let (mut pattern, mut max_expansions) = (None, None);
    let (mut flags, mut flags_value) = (None, None);
    let mut source = TermSource::default();
    each_member("regexp", body, &mut |key, value| match key {
        "pattern" => string(value).map(|text| pattern = Some(text)),
        "flags" => regexp::flags(&string(value)?).map(|own| flags = Some(own)),
        "flags_value" => {
            let number = json::integer(value)?;
            flags_value = Some(RegexpFlags(u32::try_from(number).unwrap_or(RegexpFlags::ALL.0)));
            Ok(())
        }
        "max_expansions" => expansions(value).map(|most| max_expansions = most),
        "use_field" => string(value).map(|field| source.use_field = Some(field)),
        _ => Err(unknown("regexp", key)),
    })?;
    let flags = flags_value.or(flags).unwrap_or(RegexpFlags::ALL);
    Ok(IntervalRule::Regexp { pattern: required("pattern", pattern)?, flags, max_expansions, source })
}

fn parse_fuzzy(body: &Value) -> Result<IntervalRule> {
    let (mut term, mut prefix_length) = (None, 0);
    let (mut transpositions, mut fuzziness) = (true, Fuzziness::AUTO);
    let mut source = TermSource::default();
    each_member("fuzzy", body, &mut |key, value| match key {
        "term" => string(value).map(|text| term = Some(text)),
        "prefix_length" => {
            prefix_length = usize::try_from(json::integer(value)?)
                .map_err(|_| Error::IllegalArgument("prefixLength cannot be less than 0".to_owned()))?;
            Ok(())
        }
        "transpositions" => json::boolean(value).map(|flag| transpositions = flag),
        "fuzziness" => Fuzziness::parse(value).map(|own| fuzziness = own),
        _ if source.take(key, value)? => Ok(()),
        _ => Err(unknown("fuzzy", key)),
    })?;
    let term = required("term", term)?;
    Ok(IntervalRule::Fuzzy { term, prefix_length, transpositions, fuzziness, source })
}

/// Gaps and order as they are given; `ordered`, which is older, comes before `mode`.
#[derive(Default)]
struct GapsAndOrder {
    max_gaps: Option<i32>,
    ordered: Option<bool>,
    mode: Option<String>,
}

impl GapsAndOrder {
    fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            "max_gaps" => self.max_gaps = Some(int(value)?),
            "ordered" => self.ordered = Some(json::boolean(value)?),
            "mode" => self.mode = Some(string(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(self, rule: &str) -> Result<(i32, IntervalMode)> {
        let mode = match (self.ordered, self.mode) {
            (Some(true), _) => IntervalMode::Ordered,
            (Some(false), _) | (None, None) => IntervalMode::Unordered,
            (None, Some(name)) => match name.to_lowercase().as_str() {
                "ordered" => IntervalMode::Ordered,
                "unordered" => IntervalMode::Unordered,
                "unordered_no_overlap" => IntervalMode::NoOverlap,
                _ => {
                    return Err(Error::Content {
                        reason: format!("Failed to build [{rule}] after last required field arrived"),
                        cause: Some(Box::new(Error::IllegalArgument(format!(
                            "no mode can be parsed from ordinal {name}"
                        )))),
                    });
                }
            },
        };
        Ok((self.max_gaps.unwrap_or(-1), mode))
    }
}

impl TermSource {
    fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            "analyzer" => self.analyzer = Some(string(value)?),
            "use_field" => self.use_field = Some(string(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl IntervalRule {
    /// Calls `visit` with the fields that rules name themselves.
    pub fn fields<'a>(&'a self, visit: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Match { source, .. }
            | Self::Prefix { source, .. }
            | Self::Wildcard { source, .. }
            | Self::Regexp { source, .. }
            | Self::Fuzzy { source, .. } => source.use_field.iter().for_each(|field| visit(field)),
            Self::AllOf { intervals, .. } | Self::AnyOf { intervals, .. } => {
                intervals.iter().for_each(|rule| rule.fields(visit));
            }
        }
    }
}

/// Calls `each` with the members of a rule's object.
fn each_member(rule: &str, body: &Value, each: &mut dyn FnMut(&str, &Value) -> Result<()>) -> Result<()> {
    let Value::Object(members) = body else {
        return Err(Error::Content {
            reason: format!("[{rule}] Expected START_OBJECT but was: {}", token(body)),
            cause: None,
        });
    };
    for (key, value) in members {
        each(key, value).map_err(|error| match error {
            // What is wrong deeper is said there.
            unread @ (Error::Content { .. } | Error::TooManyClauses(_)) => unread,
            cause => Error::unread_member(rule, key, cause),
        })?;
    }
    Ok(())
}

fn unknown(rule: &str, member: &str) -> Error {
    Error::unknown_member(rule, member)
}

fn required<T>(member: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::IllegalArgument(format!("Required [{member}]")))
}

fn string(value: &Value) -> Result<String> {
    json::text(value)
        .ok_or_else(|| Error::IllegalArgument(format!("doesn't support values of type: {}", token(value))))
}

fn int(value: &Value) -> Result<i32> {
    let number = json::integer(value)?;
    i32::try_from(number)
        .map_err(|_| Error::IllegalArgument(format!("Numeric value ({number}) out of range of int")))
}

fn expansions(value: &Value) -> Result<Option<usize>> {
    Ok(usize::try_from(json::integer(value)?).ok().filter(|most| *most > 0))
}

fn rules(parser: &mut Parser, value: &Value) -> Result<Vec<IntervalRule>> {
    match value {
        Value::Array(items) => items.iter().map(|item| only_rule(parser, item)).collect(),
        one => Ok(vec![only_rule(parser, one)?]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::query::parse;

    #[test]
    fn malformed_rules_are_named() {
        let refused = [
            (json!({"t": {}}), "Missing intervals from interval query definition"),
            (json!({"t": []}), "Expected [START_OBJECT] but got [START_ARRAY]"),
            (json!({"t": {"match": {"query": "a"}}, "u": {}}), "Expected [END_OBJECT] but got [FIELD_NAME]"),
            (
                json!({"t": {"match": {"query": "a"}, "any_of": {"intervals": []}}}),
                "Only one interval rule can be specified, found [match] and [any_of]",
            ),
            (json!({"t": {"match": {"max_gaps": 1}}}), "Required [query]"),
            (json!({"t": {"match": {"query": "a", "x": 1}}}), "[match] unknown field [x]"),
            (
                json!({"t": {"match": {"query": "a", "mode": "nope"}}}),
                "Failed to build [match] after last required field arrived",
            ),
            (
                json!({"t": {"match": {"query": "a", "max_gaps": "x"}}}),
                "[match] failed to parse field [max_gaps]",
            ),
            (
                json!({"t": {"span": {}}}),
                "Unknown interval type [span], expecting one of [match, any_of, all_of, prefix, wildcard, regexp]",
            ),
        ];
        for (body, text) in refused {
            let error = parse(&json!({"intervals": body})).unwrap_err();
            assert_eq!(error.to_string(), text, "{body}");
        }
    }

    #[test]
    fn rules_nest_within_bounds() {
        let mut rule = json!({"match": {"query": "a"}});
        for _ in 0..100 {
            rule = json!({"any_of": {"intervals": [rule]}});
        }
        assert!(parse(&json!({"intervals": {"t": rule}})).is_err());
    }
}
