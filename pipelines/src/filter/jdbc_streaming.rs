//! `jdbc_streaming`: puts the rows that a statement has for an event into the event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millrace_ingest::budget::AnswerAllowance;
use millrace_ingest::database::{DatabaseLookup, MAX_CONNECTIONS};
use millrace_ingest::{Event, Fault, FieldReference, Options, Setting, Template};
use millrace_runtime::{GenerationalCache, Instant};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::settings::{required_field, texts_or, value_of};
use super::{Outcome, RemoteFilter};

/// Answers that a cache may have.
const MAX_CACHE_SIZE: i64 = 1_000_000;
/// Bytes of all answers of a cache.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// Longest time that an answer may be kept, in seconds.
const MAX_CACHE_SECONDS: f64 = 31_536_000.0;

#[derive(Debug)]
struct JdbcStreaming {
    database: DatabaseLookup,
    parameters: Vec<(String, Parameter)>,
    positions: Vec<Parameter>,
    target: FieldReference,
    default: Map<String, Value>,
    cache: Option<RowCache>,
    tags_on_failure: Vec<String>,
    tags_on_default: Vec<String>,
}

/// Source of a parameter's value.
#[derive(Debug)]
enum Parameter {
    Field(FieldReference),
    Text(Template),
    Literal(Value),
}

/// Rows of an answer, and the time of their reading.
type CachedRows = (Arc<Vec<Value>>, Instant);

/// Rows by the parameters of their statement, each for a time.
#[derive(Debug)]
struct RowCache {
    lifetime: Duration,
    /// Least weight of an answer, which bounds their number.
    least: usize,
    answers: Mutex<GenerationalCache<String, CachedRows>>,
}

impl Parameter {
    /// Makes a parameter: a format, or the reference of a field.
    fn of_field(setting: &Setting) -> Option<Self> {
        let text = setting.as_text()?;
        let template = Template::parse(&text);
        if !template.is_constant() {
            return Some(Self::Text(template));
        }
        FieldReference::parse(&text).ok().map(Self::Field)
    }

    /// Makes a value for a `?`: a format, a reference in brackets, or a value that is always the same.
    fn of_position(setting: &Setting) -> Option<Self> {
        let text = setting.as_text()?;
        let template = Template::parse(&text);
        Some(match setting {
            _ if !template.is_constant() => Self::Text(template),
            Setting::Text(text) if text.starts_with('[') => Self::Field(FieldReference::parse(text).ok()?),
            other => Self::Literal(value_of(other.clone())),
        })
    }

    fn value(&self, event: &Event) -> Value {
        match self {
            Self::Field(field) => event.get(field).map_or(Value::Null, std::borrow::Cow::into_owned),
            Self::Text(template) => Value::String(template.render(event)),
            Self::Literal(value) => value.clone(),
        }
    }
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
    let target = required_field(&mut options, "target");
    let mut parameters = Vec::new();
    for (name, setting) in options.hash("parameters") {
        match Parameter::of_field(&setting) {
            Some(parameter) => parameters.push((name, parameter)),
            None => {
                options.fault_here(format!("the parameter [{name}] must be a field reference or a format"))
            }
        }
    }
    let positions =
        options.read("prepared_statement_bind_values", "an array of values", |setting| match setting {
            Setting::Array(values) => values.iter().map(Parameter::of_position).collect::<Option<Vec<_>>>(),
            single => Parameter::of_position(single).map(|parameter| vec![parameter]),
        });
    let positions = positions.unwrap_or_default();
    let default =
        options.hash("default_hash").into_iter().map(|(name, value)| (name, value_of(value))).collect();
    let is_cached = options.boolean("use_cache").unwrap_or(true);
    let seconds = options.float("cache_expiration").unwrap_or(5.0);
    if !(0.0..=MAX_CACHE_SECONDS).contains(&seconds) {
        options.fault_here(format!("option [cache_expiration] must be 0 to {MAX_CACHE_SECONDS} seconds"));
    }
    let size = options.integer("cache_size", 1..=MAX_CACHE_SIZE).unwrap_or(500);
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_jdbcstreamingfailure"]);
    let tags_on_default = texts_or(&mut options, "tag_on_default_use", &["_jdbcstreamingdefaultsused"]);
    let _ = options.ecs_compatibility();
    let database = DatabaseLookup::take(&mut options);
    if let Some(database) = &database
        && database.positions() != positions.len()
    {
        options.fault_here(format!(
            "the statement has {} question marks, but [prepared_statement_bind_values] has {} values",
            database.positions(),
            positions.len()
        ));
    }
    options.finish()?;
    let (Some(database), Some(target)) = (database, target) else { return Err(Vec::new()) };
    let lifetime = Duration::from_secs_f64(seconds.clamp(0.0, MAX_CACHE_SECONDS));
    let least = MAX_CACHE_BYTES / usize::try_from(size).unwrap_or(usize::MAX).max(2);
    let answers = Mutex::new(GenerationalCache::new(MAX_CACHE_BYTES));
    let cache = is_cached.then_some(RowCache { lifetime, least, answers });
    Ok(Arc::new(JdbcStreaming {
        database,
        parameters,
        positions,
        target,
        default,
        cache,
        tags_on_failure,
        tags_on_default,
    }))
}

impl RowCache {
    fn get(&self, key: &str) -> Option<Arc<Vec<Value>>> {
        let (rows, expires) = self.answers.lock().get(key)?;
        (Instant::now() < expires).then_some(rows)
    }

    fn insert(&self, key: String, rows: &Arc<Vec<Value>>) {
        let bytes = rows.iter().map(|row| row.to_string().len() * 2).sum::<usize>() + key.len();
        let expires = Instant::now() + self.lifetime;
        self.answers.lock().insert(key, (Arc::clone(rows), expires), bytes.max(self.least));
    }
}

impl JdbcStreaming {
    async fn rows(&self, event: &Event) -> Result<Arc<Vec<Value>>, String> {
        let named: Map<String, Value> =
            self.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value(event))).collect();
        let positions: Vec<Value> = self.positions.iter().map(|parameter| parameter.value(event)).collect();
        let key = self.cache.as_ref().map(|_| serde_json::json!([named, positions]).to_string());
        if let (Some(cache), Some(key)) = (&self.cache, &key)
            && let Some(rows) = cache.get(key)
        {
            return Ok(rows);
        }
        let named: HashMap<String, Value> = named.into_iter().collect();
        let rows = self.database.rows(&named, &positions).await?;
        let rows: Arc<Vec<Value>> = Arc::new(rows.into_iter().map(Value::Object).collect());
        if let (Some(cache), Some(key)) = (&self.cache, key) {
            cache.insert(key, &rows);
        }
        Ok(rows)
    }
}

#[async_trait]
impl RemoteFilter for JdbcStreaming {
    async fn apply(&self, event: &mut Event, _allowance: &AnswerAllowance) -> Outcome {
        let rows = match self.rows(event).await {
            Ok(rows) => rows,
            Err(reason) => {
                tracing::debug!(reason, "a statement of the filter jdbc_streaming failed");
                self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
                return Outcome::Unmatched;
            }
        };
        let uses_default = rows.is_empty() && !self.default.is_empty();
        let value = if uses_default {
            Value::Array(vec![Value::Object(self.default.clone())])
        } else {
            Value::Array(rows.to_vec())
        };
        if event.set(&self.target, value).is_err() {
            self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
            return Outcome::Unmatched;
        }
        if uses_default {
            self.tags_on_default.iter().for_each(|tag| event.tag(tag));
        }
        if rows.is_empty() && !uses_default { Outcome::Unmatched } else { Outcome::Matched }
    }

    fn concurrency(&self) -> usize {
        MAX_CONNECTIONS
    }

    fn has_large_answers(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::Location;
    use serde_json::json;

    use super::*;
    use crate::filter::testing::apply_remote;

    fn text(text: &str) -> Setting {
        Setting::Text(text.to_owned())
    }

    /// Makes a filter on an empty database of SQLite.
    fn filter(file: &tempfile::NamedTempFile, given: Vec<(&str, Setting)>) -> Arc<dyn RemoteFilter> {
        let address = text(&format!("jdbc:sqlite:{}", file.path().display()));
        let given = given.into_iter().chain([("jdbc_connection_string", address), ("target", text("rows"))]);
        let given = given.map(|(name, value)| (name.to_owned(), Location::default(), value));
        build(Options::new("jdbc_streaming", Location::default(), given)).unwrap()
    }

    #[tokio::test]
    async fn rows_of_an_event_are_looked_up() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let parameters =
            Setting::Hash(vec![("n".to_owned(), text("[a][n]")), ("t".to_owned(), text("%{t}!"))]);
        let named = filter(
            &file,
            vec![("statement", text("SELECT :n + 1 AS sum, :t AS text")), ("parameters", parameters)],
        );
        for t in ["it's", "x"] {
            let (outcome, fields) = apply_remote(&named, json!({"a": {"n": 4}, "t": t})).await;
            assert_eq!(
                (outcome, &fields["rows"]),
                (Outcome::Matched, &json!([{"sum": 5, "text": format!("{t}!")}]))
            );
        }
        let values = Setting::Array(vec![text("[a]"), Setting::Number(2.into())]);
        let positional = filter(
            &file,
            vec![
                ("statement", text("SELECT ? AS a, ? AS b")),
                ("use_prepared_statements", text("true")),
                ("prepared_statement_bind_values", values),
                ("use_cache", text("false")),
            ],
        );
        assert_eq!(
            apply_remote(&positional, json!({"a": null})).await.1["rows"],
            json!([{"a": null, "b": 2}])
        );
    }

    #[tokio::test]
    async fn an_event_without_rows_has_the_default() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let statement = ("statement", text("SELECT 1 AS a WHERE 1 = 0"));
        let empty = filter(&file, vec![statement.clone()]);
        assert_eq!(apply_remote(&empty, json!({})).await, (Outcome::Unmatched, json!({"rows": []})));
        let default = Setting::Hash(vec![("a".to_owned(), text("none"))]);
        let filled = filter(&file, vec![statement, ("default_hash", default)]);
        let expected = json!({"rows": [{"a": "none"}], "tags": ["_jdbcstreamingdefaultsused"]});
        assert_eq!(apply_remote(&filled, json!({})).await, (Outcome::Matched, expected));
        let failing = filter(&file, vec![("statement", text("SELECT missing FROM nowhere"))]);
        assert_eq!(apply_remote(&failing, json!({})).await.1, json!({"tags": ["_jdbcstreamingfailure"]}));
    }
}
