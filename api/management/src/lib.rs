//! Management of pipelines, on a listener of its own, in the form of Logstash's node API.
//!
//! `GET /_node/pipelines[/<id>]` tells how pipelines run, `GET /_node/stats/pipelines[/<id>]` what went through them, `PUT
//! /_node/pipelines/<id>` changes workers, batch size and batch delay of a running one. `GET /_node/dead_letters` lists dead
//! letters, `POST /_node/dead_letters/_replay` stores what they hold. Everything else is not found here. [`management_routes`] lists the routes;
//! [`Management`] is the router.

mod route;

use std::sync::Arc;
use std::time::Duration;

use millrace_gateway::http::{Request, Response};
use millrace_gateway::{Api, Error};
use millrace_pipelines::Manager;
use millrace_pipelines::manager::{
    Change, ChangeError, Cursor, DeadLetterFilter, PluginFigures, Status, StoredDeadLetter,
};
use serde_json::{Map, Value, json};

pub use self::route::management_routes;

/// Version of Logstash whose forms are answered.
const VERSION: &str = "7.10.2";

/// Most dead letters of one answer or replay.
const MAX_LETTERS: usize = 10_000;

/// Renders one side of a pipeline.
pub(crate) type SideRenderer = fn(&Status) -> Map<String, Value>;

/// State that the management listener serves.
#[derive(Debug)]
pub struct Management {
    pipelines: Arc<Manager>,
    /// `host:port` of the listener.
    address: String,
}

impl Management {
    /// Makes the router of the management of these pipelines; `address` is `host:port` of its listener.
    pub fn new(pipelines: Arc<Manager>, address: String) -> Self {
        Self { pipelines, address }
    }

    /// Describes the listener.
    pub(crate) fn info(&self, api: &Api, request: &Request) -> Result<Response, Error> {
        request.finish()?;
        Ok(Response::json(200, Value::Object(self.header(api))))
    }

    /// Lists all pipelines in a form.
    pub(crate) fn list(&self, api: &Api, request: &Request, form: SideRenderer) -> Result<Response, Error> {
        request.finish()?;
        Ok(self.answer(api, &self.pipelines.list(), form))
    }

    /// Shows a pipeline in a form.
    pub(crate) fn get(
        &self,
        api: &Api,
        request: &Request,
        id: &str,
        form: SideRenderer,
    ) -> Result<Response, Error> {
        request.finish()?;
        Ok(match self.pipelines.get(id) {
            Some(status) => self.answer(api, &[status], form),
            None => unknown(&request.uri(), id),
        })
    }

    /// Changes a running pipeline.
    pub(crate) async fn change(&self, api: &Api, request: &mut Request, id: &str) -> Result<Response, Error> {
        request.finish()?;
        let change = parse(request.json()?)?;
        match self.pipelines.change(id, change).await {
            Ok(status) => {
                let mut body = self.header(api);
                body.insert("acknowledged".to_owned(), json!(true));
                body.insert("pipelines".to_owned(), json!({ id: self.entry(&status, how) }));
                Ok(Response::json(200, Value::Object(body)))
            }
            Err(ChangeError::Unknown(id)) => Ok(unknown(&request.uri(), &id)),
            Err(ChangeError::Invalid(reason)) => Err(Error::illegal_argument(reason)),
            Err(error @ ChangeError::NotKept(_)) => {
                Err(Error::concealed(503, "unavailable_exception", &error))
            }
        }
    }

    /// Lists dead letters.
    pub(crate) async fn dead_letters(&self, request: &mut Request) -> Result<Response, Error> {
        let (pipeline, after, size) = filter_params(request, 100)?;
        request.finish()?;
        let filter = DeadLetterFilter { pipeline: pipeline.as_deref(), after: after.as_ref(), most: size };
        let page = self.pipelines.dead_letters(filter).await?;
        let letters: Vec<Value> = page.letters.iter().map(letter).collect();
        let mut body = json!({ "dead_letters": letters });
        add_next(&mut body, page.next.as_ref());
        Ok(Response::json(200, body))
    }

    /// Replays dead letters.
    pub(crate) async fn replay(&self, request: &mut Request) -> Result<Response, Error> {
        let (pipeline, after, size) = filter_params(request, 1_000)?;
        let output = request.params.take("output");
        request.finish()?;
        let filter = DeadLetterFilter { pipeline: pipeline.as_deref(), after: after.as_ref(), most: size };
        let replayed = self.pipelines.replay(filter, output.as_deref()).await?;
        let left = replayed.left.iter().map(|(id, reason)| json!({ "id": id, "reason": reason }));
        let left: Vec<Value> = left.collect();
        let mut body = json!({ "stored": replayed.stored, "left": left });
        add_next(&mut body, replayed.next.as_ref());
        Ok(Response::json(200, body))
    }

    fn answer(&self, api: &Api, all: &[Status], form: SideRenderer) -> Response {
        let mut body = self.header(api);
        let pipelines: Map<String, Value> =
            all.iter().map(|status| (status.id.clone(), self.entry(status, form))).collect();
        body.insert("pipelines".to_owned(), Value::Object(pipelines));
        Response::json(200, Value::Object(body))
    }

    fn entry(&self, status: &Status, form: SideRenderer) -> Value {
        let interval = self.pipelines.reload_interval();
        let mut entry = form(status);
        entry.insert("config_reload_automatic".to_owned(), json!(!interval.is_zero()));
        entry.insert("config_reload_interval".to_owned(), json!(nanos(interval)));
        Value::Object(entry)
    }

    fn header(&self, api: &Api) -> Map<String, Value> {
        let header = json!({
            "host": api.identity.node,
            "version": VERSION,
            "http_address": self.address,
            "id": api.identity.cluster_uuid,
            "name": api.identity.node,
            "status": "green",
            "snapshot": false,
        });
        match header {
            Value::Object(header) => header,
            _ => Map::new(),
        }
    }
}

/// Reads the selection of dead letters: of one pipeline or all, and how many of the oldest.
fn filter_params(
    request: &mut Request,
    size: usize,
) -> Result<(Option<String>, Option<Cursor>, usize), Error> {
    let pipeline = request.params.take("pipeline");
    let after = request.params.take("after").map(|after| Cursor::parse(&after));
    let after = after.transpose().map_err(|why| Error::illegal_argument(format!("[after]: {why}")))?;
    let size = match request.params.take_int("size")? {
        None => size,
        Some(given) => {
            usize::try_from(given).ok().filter(|size| (1..=MAX_LETTERS).contains(size)).ok_or_else(|| {
                Error::illegal_argument(format!("[size] must be from 1 to {MAX_LETTERS}, not [{given}]"))
            })?
        }
    };
    Ok((pipeline, after, size))
}

/// Says where to go on, where there is more.
fn add_next(body: &mut Value, next: Option<&Cursor>) {
    if let (Some(body), Some(next)) = (body.as_object_mut(), next) {
        body.insert("next".to_owned(), Value::from(next.to_string()));
    }
}

fn letter(letter: &StoredDeadLetter) -> Value {
    let payload = letter.payload().unwrap_or_default();
    json!({
        "id": letter.id,
        "@timestamp": letter.time,
        "pipeline": letter.pipeline,
        "plugin": letter.plugin,
        "reason": letter.reason,
        "action": letter.action,
        "index": letter.index,
        "event": String::from_utf8_lossy(&payload),
    })
}

/// Renders the condition of a pipeline.
pub(crate) fn how(status: &Status) -> Map<String, Value> {
    let entry = json!({
        "ephemeral_id": status.ephemeral_id.to_string(),
        "hash": status.hash,
        "status": status.state.name(),
        "warning": status.warning,
        "workers": status.settings.workers,
        "batch_size": status.settings.batch_size,
        "batch_delay": millis(status.settings.batch_delay),
        "dead_letter_queue_enabled": true,
    });
    into_map(entry)
}

/// Renders the event counts of a pipeline.
pub(crate) fn stats(status: &Status) -> Map<String, Value> {
    let figures = &status.figures;
    let reloads = &status.reloads;
    let [inputs, filters, outputs] = &status.plugins;
    let time = |time: Option<String>| time.map_or(Value::Null, Value::String);
    let rfc = |when: &Option<chrono::DateTime<chrono::Utc>>| {
        time(when.map(|when| when.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)))
    };
    let last_error =
        reloads.last_error.as_ref().map(|message| json!({ "message": message, "backtrace": [] }));
    let entry = json!({
        "status": status.state.name(),
        "events": {
            "in": figures.events_in,
            "filtered": figures.filtered,
            "out": figures.events_out,
            "duration_in_millis": millis(figures.duration),
            "queue_push_duration_in_millis": millis(figures.waited),
            "dead_letters": figures.failures,
        },
        "plugins": {
            "inputs": inputs.iter().map(input).collect::<Vec<_>>(),
            "codecs": [],
            "filters": filters.iter().map(plugin).collect::<Vec<_>>(),
            "outputs": outputs.iter().map(plugin).collect::<Vec<_>>(),
        },
        "reloads": {
            "last_error": last_error,
            "successes": reloads.successes,
            "last_success_timestamp": rfc(&reloads.last_success),
            "last_failure_timestamp": rfc(&reloads.last_failure),
            "failures": reloads.failures,
        },
        "queue": {
            "type": if status.on_disk.is_some() { "persisted" } else { "memory" },
            "events_count": status.queued,
            "queue_size_in_bytes": status.on_disk.map_or(0, |(bytes, _)| bytes),
            "max_queue_size_in_bytes": status.on_disk.map_or(0, |(_, most)| most),
        },
        "pipeline": {
            "workers": status.settings.workers,
            "batch_size": status.settings.batch_size,
            "batch_delay": millis(status.settings.batch_delay),
        },
        "hash": status.hash,
        "ephemeral_id": status.ephemeral_id.to_string(),
    });
    into_map(entry)
}

fn input(plugin: &PluginFigures) -> Value {
    let figures = &plugin.figures;
    json!({
        "id": plugin.id,
        "name": plugin.name,
        "events": { "out": figures.events_out, "queue_push_duration_in_millis": millis(figures.waited) },
        "failures": figures.failures,
    })
}

fn plugin(plugin: &PluginFigures) -> Value {
    let figures = &plugin.figures;
    json!({
        "id": plugin.id,
        "name": plugin.name,
        "events": {
            "in": figures.events_in,
            "out": figures.events_out,
            "duration_in_millis": millis(figures.duration),
        },
        "failures": figures.failures,
    })
}

fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn unknown(uri: &str, id: &str) -> Response {
    not_found(uri, &format!("there is no pipeline [{id}]"))
}

/// The answer to what is not there, in Logstash's form.
pub(crate) fn not_found(uri: &str, message: &str) -> Response {
    Response::json(404, json!({ "path": uri, "status": 404, "error": { "message": message } }))
}

/// Reads what is to be changed: `pipeline.batch_size`, or `pipeline.batch.size`, flat or nested.
fn parse(body: Option<Value>) -> Result<Change, Error> {
    const EXPECTED: &str = "expected an object such as {\"pipeline.batch_size\": 500}";
    let Some(Value::Object(body)) = body else { return Err(Error::illegal_argument(EXPECTED)) };
    let mut change = Change::default();
    let mut members = Vec::new();
    flatten("", body, &mut members);
    if members.is_empty() {
        return Err(Error::illegal_argument(EXPECTED));
    }
    for (name, value) in members {
        let number = || {
            let number = match &value {
                Value::Number(number) => number.as_u64(),
                Value::String(text) => text.parse().ok(),
                _ => None,
            };
            number.ok_or_else(|| {
                Error::illegal_argument(format!(
                    "[{name}] must be a whole number that is not negative, not [{value}]"
                ))
            })
        };
        let count = || number().map(|number| Some(usize::try_from(number).unwrap_or(usize::MAX)));
        match name.as_str() {
            "pipeline.batch_size" | "pipeline.batch.size" => change.batch_size = count()?,
            "pipeline.workers" => change.workers = count()?,
            "pipeline.batch_delay" | "pipeline.batch.delay" => change.batch_delay_ms = Some(number()?),
            _ => {
                return Err(Error::illegal_argument(format!(
                    "unknown setting [{name}]; known are [pipeline.batch_size], [pipeline.workers] and [pipeline.batch_delay]"
                )));
            }
        }
    }
    Ok(change)
}

fn flatten(prefix: &str, object: Map<String, Value>, members: &mut Vec<(String, Value)>) {
    for (name, value) in object {
        let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(inner) => flatten(&name, inner, members),
            value => members.push((name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_in_all_spellings() {
        let of = |body: Value| parse(Some(body)).map_err(|error| (error.status(), error.reason().to_owned()));
        let size = Change { batch_size: Some(500), ..Change::default() };
        assert_eq!(of(json!({"pipeline.batch_size": 500})), Ok(size.clone()));
        assert_eq!(of(json!({"pipeline.batch.size": "500"})), Ok(size.clone()));
        assert_eq!(of(json!({"pipeline": {"batch": {"size": 500}}})), Ok(size));
        let all = json!({"pipeline.workers": 2, "pipeline.batch_delay": 5, "pipeline.batch_size": 1});
        let change = Change { workers: Some(2), batch_size: Some(1), batch_delay_ms: Some(5) };
        assert_eq!(of(all), Ok(change));
        for (body, expected) in [
            (json!([]), "expected an object"),
            (json!({}), "expected an object"),
            (json!({"pipeline.batch_size": -1}), "not [-1]"),
            (json!({"pipeline.batch_size": 1.5}), "not [1.5]"),
            (json!({"pipeline.batch_size": "many"}), "not [\"many\"]"),
            (json!({"pipeline.batchsize": 5}), "unknown setting [pipeline.batchsize]"),
        ] {
            let (status, reason) = of(body).unwrap_err();
            assert!(status == 400 && reason.contains(expected), "{reason}");
        }
        assert!(parse(None).is_err());
    }
}
