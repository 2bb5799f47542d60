//! A small reading of queries, enough for the rules that are tested here: the values of sources, without a mapping.

use millrace_rules::definition::Definition;
use millrace_rules::engine::{Frame, Matcher, RuleMatches};
use serde_json::Value;

/// Matches one rule's query.
pub(crate) struct Filter {
    pub(crate) rule: &'static str,
    pub(crate) query: Value,
    pub(crate) second: Option<Value>,
}

impl Filter {
    /// Matches what a rule does.
    pub(crate) fn new(rule: &'static str, definition: &Definition) -> Self {
        let second = definition.second().map(|body| body["query"].clone());
        Self { rule, query: definition.query().cloned().unwrap_or_default(), second }
    }
}

impl Matcher for Filter {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        let (mut places, mut second) = (Vec::new(), Vec::new());
        for (place, event) in frame.events.iter().enumerate() {
            let also = self.second.as_ref().map(|query| matches(query, &event.source));
            match (matches(&self.query, &event.source), also.transpose()) {
                (Ok(true), Ok(also)) => {
                    places.push(place);
                    if also == Some(true) {
                        second.push(place);
                    }
                }
                (Ok(false), Ok(_)) => {}
                (Err(reason), _) | (_, Err(reason)) => {
                    return vec![RuleMatches { rule: self.rule.to_owned(), outcome: Err(reason), second }];
                }
            }
        }
        vec![RuleMatches { rule: self.rule.to_owned(), outcome: Ok(places), second }]
    }
}

fn matches(query: &Value, source: &Value) -> Result<bool, String> {
    let members = query.as_object().filter(|members| members.len() == 1);
    let Some((clause, body)) = members.and_then(|members| members.iter().next()) else {
        return Err(format!("no query: {query}"));
    };
    let field = || body.as_object().and_then(|members| members.iter().next()).ok_or("no field".to_owned());
    match clause.as_str() {
        "match_all" => Ok(true),
        "bool" => {
            for filter in body["filter"].as_array().into_iter().flatten() {
                if !matches(filter, source)? {
                    return Ok(false);
                }
            }
            let mut should = body["should"].as_array().into_iter().flatten().peekable();
            if should.peek().is_none() {
                return Ok(true);
            }
            should.try_fold(false, |any, clause| Ok(any || matches(clause, source)?))
        }
        "term" | "match_phrase" => {
            let (name, wanted) = field()?;
            Ok(texts(source, name).contains(&text(wanted)))
        }
        "terms" => {
            let (name, wanted) = field()?;
            let found = texts(source, name);
            Ok(wanted.as_array().into_iter().flatten().any(|wanted| found.contains(&text(wanted))))
        }
        "range" => {
            let (name, bounds) = field()?;
            let least = bounds["gte"].as_f64().ok_or("only gte is there")?;
            Ok(texts(source, name).iter().any(|text| text.parse::<f64>().is_ok_and(|number| number >= least)))
        }
        "wildcard" => {
            let (name, pattern) = field()?;
            // The sub-field of a text holds the text.
            let name = name.strip_suffix(".keyword").unwrap_or(name);
            let pattern = text(pattern);
            Ok(texts(source, name).iter().any(|text| matches_wildcard(text, &pattern)))
        }
        other => Err(format!("[{other}] is not there")),
    }
}

/// Tells whether a text has the parts between the stars of a pattern, in their order.
fn matches_wildcard(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, behind)) = text.split_once(part) else { return false };
        text = behind;
    }
    text.ends_with(last)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn texts(source: &Value, path: &str) -> Vec<String> {
    match source.get(path) {
        Some(Value::Array(list)) => list.iter().map(text).collect(),
        Some(Value::Null | Value::Object(_)) => Vec::new(),
        Some(value) => vec![text(value)],
        None => match path.split_once('.') {
            Some((head, rest)) => source.get(head).map(|inner| texts(inner, rest)).unwrap_or_default(),
            None => Vec::new(),
        },
    }
}
