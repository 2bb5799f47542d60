//! `_rollover`: the write index of an alias becomes another one once conditions are met.

use std::time::Duration;

use millrace_catalog::access::check_mapping;
use millrace_catalog::metadata::{CreateIndex, Uuid, parse_bytes, parse_time};
use millrace_query::check_kept_filter;
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// A condition, with the value as it was given.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Age(String, Duration),
    Docs(u64),
    Size(String, u64),
}

/// Figures of an index that conditions are about.
#[derive(Clone, Copy, Debug, Default)]
struct IndexSize {
    age_ms: i64,
    docs: u64,
    bytes: u64,
}

impl Condition {
    fn parse(name: &str, value: &Value) -> Result<Self, Error> {
        let refuse = |reason: String| Error::new(400, "parsing_exception", reason);
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return Err(refuse(format!("[conditions] {name} is [{other}], not a text or a number"))),
        };
        match name {
            "max_age" => match parse_time(&text) {
                Ok(Some(age)) => Ok(Self::Age(text, age)),
                _ => Err(refuse(format!("[conditions] max_age [{text}] is no age"))),
            },
            "max_docs" => match text.parse() {
                Ok(docs) => Ok(Self::Docs(docs)),
                Err(_) => Err(refuse(format!("[conditions] max_docs [{text}] is not a count"))),
            },
            "max_size" => match parse_bytes(&text) {
                Ok(Some(bytes)) => Ok(Self::Size(text, bytes)),
                _ => Err(refuse(format!("[conditions] max_size [{text}] is no size"))),
            },
            other => Err(refuse(format!("[conditions] unknown field [{other}]"))),
        }
    }

    fn is_met(&self, size: IndexSize) -> bool {
        match self {
            Self::Age(_, age) => i128::from(size.age_ms) >= age.as_millis() as i128,
            Self::Docs(docs) => size.docs >= *docs,
            Self::Size(_, bytes) => size.bytes >= *bytes,
        }
    }

    /// Names it as the answer does.
    fn label(&self) -> String {
        match self {
            Self::Age(text, _) => format!("[max_age: {text}]"),
            Self::Docs(docs) => format!("[max_docs: {docs}]"),
            Self::Size(text, _) => format!("[max_size: {text}]"),
        }
    }
}

/// `POST /<alias>/_rollover` and `POST /<alias>/_rollover/<index>`
pub(crate) async fn roll_over(
    api: &Api,
    request: &mut Request,
    alias: &str,
    target: Option<&str>,
) -> Result<Response, Error> {
    let dry_run = options::flag(&mut request.params, "dry_run")?;
    let include_type_name = options::flag(&mut request.params, "include_type_name")?;
    options::manager(&mut request.params)?;
    options::active_shards(&mut request.params)?;
    request.finish()?;
    let mut members = match request.json()? {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(Error::parsing("the body of a rollover must be an object")),
    };
    let conditions = match members.shift_remove("conditions") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(conditions)) => conditions
            .iter()
            .map(|(name, value)| Condition::parse(name, value))
            .collect::<Result<Vec<_>, _>>()?,
        Some(_) => return Err(Error::parsing("[conditions] must be an object")),
    };
    let now = api.session.clock().now_ms();
    let plan = api.session.metadata().plan_rollover(alias, target, now)?;
    let create = CreateIndex::parse(&plan.provided_target, &members.into(), include_type_name, now)?;
    let fields = api.session.access(&create.name).written_fields();
    check_mapping(create.mapping.as_ref().unwrap_or(&Value::Null), &fields, api.session.principal())?;
    for alias in create.aliases.values().filter(|alias| !alias["filter"].is_null()) {
        check_kept_filter(&alias["filter"], &fields)?;
    }
    let figures = api.session.index(&plan.source.name)?.figures();
    let mut size = IndexSize { age_ms: now - plan.source.created_ms, ..IndexSize::default() };
    for shard in &figures.shards {
        size.docs += shard.docs;
        size.bytes += shard.bytes();
    }
    let results: Vec<(String, bool)> =
        conditions.iter().map(|condition| (condition.label(), condition.is_met(size))).collect();
    let wanted = results.is_empty() || results.iter().any(|(_, met)| *met);
    let uuid = Uuid::new_v4();
    if dry_run {
        // What would be refused is refused.
        api.session.metadata().roll_over(&plan, &create, now, uuid)?;
    }
    let rolled_over = wanted && !dry_run;
    if rolled_over {
        let decide = |state: &millrace_catalog::metadata::Metadata| {
            let current = state.plan_rollover(alias, target, now)?;
            if current.source.uuid != plan.source.uuid {
                let reason = format!("alias [{alias}] was rolled over by another request meanwhile; retry");
                return Err(millrace_runtime::Error::Rejected(reason));
            }
            state.roll_over(&current, &create, now, uuid)
        };
        api.session.change(decide).await?;
    }
    let results: Map<String, Value> = results.into_iter().map(|(label, met)| (label, met.into())).collect();
    Ok(Response::json(
        200,
        json!({
            "acknowledged": rolled_over,
            "shards_acknowledged": rolled_over,
            "old_index": &*plan.source.name,
            "new_index": plan.target,
            "rolled_over": rolled_over,
            "dry_run": dry_run,
            "conditions": results,
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_met_at_their_value() {
        let size = IndexSize { age_ms: 60_000, docs: 10, bytes: 1024 };
        let met = |name: &str, value: Value| {
            let condition = Condition::parse(name, &value).unwrap();
            (condition.label(), condition.is_met(size))
        };
        assert_eq!(met("max_docs", json!(10)), ("[max_docs: 10]".to_owned(), true));
        assert_eq!(met("max_docs", json!(11)), ("[max_docs: 11]".to_owned(), false));
        assert_eq!(met("max_age", json!("1m")), ("[max_age: 1m]".to_owned(), true));
        assert_eq!(met("max_age", json!("61s")), ("[max_age: 61s]".to_owned(), false));
        assert_eq!(met("max_size", json!("1kb")), ("[max_size: 1kb]".to_owned(), true));
        assert_eq!(met("max_size", json!("2kb")), ("[max_size: 2kb]".to_owned(), false));
        for (name, value) in [("max_docs", json!("x")), ("max_age", json!("-1")), ("min_docs", json!(1))] {
            assert!(Condition::parse(name, &value).is_err(), "{name}");
        }
    }
}
