//! The query of a search: conditions as clauses of `bool`, in the form in which OpenSearch's first engine writes them.

use serde_json::{Map, Value, json};

use crate::push::Clause;

/// Writes the query of conditions that all hold; `None` where there are none. Conditions count towards scores if `scored`.
pub(super) fn query(conditions: &[&Clause], filter: Option<&Clause>, scored: bool) -> Option<Value> {
    let mut inner = BoolMembers::default();
    if let Some(filter) = filter {
        inner.filter.push(clause(filter, false));
    }
    match conditions {
        [Clause::Or(parts)] if filter.is_none() => {
            inner.should = parts.iter().map(|part| alternative(part, scored)).collect();
        }
        several => several.iter().for_each(|condition| inner.add(condition, scored)),
    }
    if inner.is_empty() {
        return None;
    }
    let occurrence = if scored { "must" } else { "filter" };
    Some(json!({"bool": {occurrence: [inner.into_json()]}}))
}

/// The members of a `bool` clause.
#[derive(Default)]
struct BoolMembers {
    filter: Vec<Value>,
    must: Vec<Value>,
    should: Vec<Value>,
    must_not: Vec<Value>,
}

impl BoolMembers {
    /// Adds a condition that holds, too.
    fn add(&mut self, condition: &Clause, scored: bool) {
        match condition {
            Clause::And(parts) => parts.iter().for_each(|part| self.add(part, scored)),
            Clause::Not(inner) => self.must_not.push(clause(inner, false)),
            // A condition without a score of its own would count as 1.
            other if scored && !has_score(other) => self.filter.push(clause(other, false)),
            other => self.must.push(clause(other, scored)),
        }
    }

    fn is_empty(&self) -> bool {
        [&self.filter, &self.must, &self.should, &self.must_not].iter().all(|clauses| clauses.is_empty())
    }

    fn into_json(self) -> Value {
        let Self { filter, must, should, must_not } = self;
        let mut members = Map::new();
        for (name, clauses) in
            [("filter", filter), ("must", must), ("should", should), ("must_not", must_not)]
        {
            if !clauses.is_empty() {
                members.insert(name.to_owned(), Value::Array(clauses));
            }
        }
        json!({"bool": members})
    }
}

/// Returns whether a clause has a score of its own.
fn has_score(clause: &Clause) -> bool {
    match clause {
        Clause::Scored(..) => true,
        Clause::And(parts) | Clause::Or(parts) => parts.iter().any(has_score),
        Clause::All | Clause::Leaf(_) | Clause::Read(..) | Clause::Not(_) => false,
    }
}

/// Writes one of several conditions of which any holds.
fn alternative(part: &Clause, scored: bool) -> Value {
    match scored && !has_score(part) {
        true => json!({"bool": {"filter": [clause(part, false)]}}),
        false => clause(part, scored),
    }
}

/// Writes a condition.
pub(super) fn clause(of: &Clause, scored: bool) -> Value {
    match of {
        Clause::All => json!({"match_all": {}}),
        Clause::Leaf(body) | Clause::Read(body, _) => canonical(body),
        Clause::Scored(body, boost) => boosted(canonical(body), if scored { *boost } else { 1.0 }),
        Clause::Or(parts) => {
            let parts: Vec<Value> = parts.iter().map(|part| alternative(part, scored)).collect();
            json!({"bool": {"should": parts}})
        }
        Clause::And(_) | Clause::Not(_) => {
            let mut all = BoolMembers::default();
            all.add(of, scored);
            all.into_json()
        }
    }
}

/// Gives a clause a boost.
fn boosted(mut clause: Value, boost: f32) -> Value {
    if boost == 1.0 {
        return clause;
    }
    let body = clause.as_object_mut().and_then(|clause| clause.values_mut().next());
    let Some(mut body) = body else { return clause };
    // A clause of one field has its options below the field.
    if body.get("query").is_none_or(Value::is_object) && body.get("value").is_none_or(Value::is_object) {
        match body.as_object_mut().and_then(|fields| fields.values_mut().next()) {
            Some(options) => body = options,
            None => return clause,
        }
    }
    let own = body.get("boost").and_then(Value::as_f64).unwrap_or(1.0);
    if let Some(options) = body.as_object_mut() {
        options.insert("boost".to_owned(), json!(own * f64::from(boost)));
    }
    clause
}

/// Writes a clause with the defaults that OpenSearch writes out.
fn canonical(clause: &Value) -> Value {
    let Some((name, body)) = clause.as_object().filter(|members| members.len() == 1).and_then(single) else {
        return clause.clone();
    };
    let body = match name {
        "bool" => bool_canonical(body),
        "range" => of_field(body, range_canonical),
        "match" => of_field(body, |options| with_default(options, "operator", json!("OR"))),
        "multi_match" => multi_match_canonical(body),
        _ => body.clone(),
    };
    json!({name: body})
}

fn single(members: &Map<String, Value>) -> Option<(&str, &Value)> {
    members.iter().next().map(|(name, value)| (name.as_str(), value))
}

fn bool_canonical(body: &Value) -> Value {
    let Some(members) = body.as_object() else { return body.clone() };
    let written = members.iter().map(|(name, clauses)| {
        let clauses = match clauses {
            Value::Array(clauses) => clauses.iter().map(canonical).collect(),
            // One clause stands without a list.
            Value::Object(_) => Value::Array(vec![canonical(clauses)]),
            other => other.clone(),
        };
        (name.clone(), clauses)
    });
    Value::Object(written.collect())
}

/// Writes the options of a clause of one field.
fn of_field(body: &Value, written: impl Fn(&Map<String, Value>) -> Value) -> Value {
    match body.as_object().filter(|fields| fields.len() == 1).and_then(single) {
        Some((field, Value::Object(options))) => json!({field: written(options)}),
        _ => body.clone(),
    }
}

fn with_default(options: &Map<String, Value>, name: &str, default: Value) -> Value {
    let mut options = options.clone();
    options.entry(name.to_owned()).or_insert(default);
    Value::Object(options)
}

fn range_canonical(options: &Map<String, Value>) -> Value {
    let (mut range, mut rest) = (Map::new(), Map::new());
    for (name, value) in [
        ("from", Value::Null),
        ("to", Value::Null),
        ("include_lower", json!(true)),
        ("include_upper", json!(true)),
    ] {
        range.insert(name.to_owned(), value);
    }
    for (name, value) in options {
        let (end, includes, included) = match name.as_str() {
            "gt" => ("from", "include_lower", false),
            "gte" => ("from", "include_lower", true),
            "lt" => ("to", "include_upper", false),
            "lte" => ("to", "include_upper", true),
            _ => {
                rest.insert(name.clone(), value.clone());
                continue;
            }
        };
        range.insert(end.to_owned(), value.clone());
        range.insert(includes.to_owned(), json!(included));
    }
    range.extend(rest);
    Value::Object(range)
}

fn multi_match_canonical(body: &Value) -> Value {
    let Some(options) = body.as_object() else { return body.clone() };
    let mut options = options.clone();
    if let Some(Value::Array(fields)) = options.get_mut("fields") {
        for field in fields {
            if let Value::String(name) = field
                && !name.contains('^')
            {
                name.push_str("^1.0");
            }
        }
    }
    options.entry("type").or_insert(json!("best_fields"));
    options.entry("operator").or_insert(json!("OR"));
    Value::Object(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(value: i64) -> Clause {
        Clause::Leaf(json!({"term": {"a": {"value": value}}}))
    }

    #[test]
    fn conditions_are_those_of_one_bool() {
        let (one, other) = (term(1), Clause::Not(Box::new(term(2))));
        let term = |value: i64| json!({"term": {"a": {"value": value}}});
        assert_eq!(query(&[], None, false), None);
        assert_eq!(
            query(&[&Clause::And(vec![one.clone(), other.clone()])], None, false),
            Some(json!({"bool": {"filter": [{"bool": {"must": [term(1)], "must_not": [term(2)]}}]}}))
        );
        let either = Clause::Or(vec![one, other]);
        let should = json!([term(1), {"bool": {"must_not": [term(2)]}}]);
        assert_eq!(
            query(&[&either], None, false),
            Some(json!({"bool": {"filter": [{"bool": {"should": should}}]}}))
        );
        let range = Clause::Leaf(json!({"range": {"b": {"lt": 3}}}));
        let written =
            json!({"range": {"b": {"from": null, "to": 3, "include_lower": true, "include_upper": false}}});
        // Beside a filter `should` would not have to hold.
        assert_eq!(
            query(&[&either], Some(&range), false),
            Some(
                json!({"bool": {"filter": [{"bool": {"filter": [written], "must": [{"bool": {"should": should}}]}}]}})
            )
        );
    }

    #[test]
    fn conditions_without_a_score_do_not_change_it() {
        let scored = Clause::Scored(json!({"match": {"t": {"query": "x"}}}), 2.0);
        let shown = json!({"match": {"t": {"query": "x", "operator": "OR", "boost": 2.0}}});
        let term = json!({"term": {"a": {"value": 1}}});
        assert_eq!(
            query(&[&scored, &self::term(1)], None, true),
            Some(json!({"bool": {"must": [{"bool": {"filter": [term], "must": [shown]}}]}}))
        );
        assert_eq!(
            query(&[&Clause::Or(vec![scored, self::term(1)])], None, true),
            Some(json!({"bool": {"must": [{"bool": {"should": [shown, {"bool": {"filter": [term]}}]}}]}}))
        );
    }
}
