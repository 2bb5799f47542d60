//! Many objects in one request, and the answers for many.

use bytes::Bytes;
use millrace_storage::metadata::Uuid;
use serde_json::{Map, Value, json};

use super::object::{Draft, Key, Kind, Stored};
use super::{Change, Write};
use crate::Api;
use crate::console::error::{at, invalid, of_object};
use crate::error::Error;
use crate::http::json as text;
use crate::http::{Request, Response, Room};

/// Most objects of a request, a file or an answer.
pub(in crate::console) const MAX_OBJECTS: usize = 10_000;
/// Bytes that an object takes beside its text.
const OBJECT_BYTES: usize = 512;

/// An object that was checked, as it will be stored.
#[derive(Clone, Debug)]
pub(in crate::console) struct Prepared {
    pub(in crate::console) key: Key,
    source: Bytes,
}

impl Prepared {
    /// Renders a draft; its text, once stored and once answered, is charged to `room`.
    ///
    /// # Errors
    /// As [`Draft::source`]; 413 and 429 for want of room.
    pub(in crate::console) fn of(draft: &Draft, now_ms: i64, room: &Room) -> Result<Self, Error> {
        let source = draft.source(now_ms)?;
        room.take(source.len() * 2 + OBJECT_BYTES)?;
        Ok(Self { key: draft.key.clone(), source })
    }
}

/// Elements of an array in an answer.
#[derive(Debug, Default)]
pub(in crate::console) struct Elements(Vec<u8>);

impl Elements {
    fn begin(&mut self) -> &mut Vec<u8> {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        &mut self.0
    }

    /// Adds a stored object.
    pub(in crate::console) fn push(&mut self, stored: &Stored) {
        stored.write(self.begin());
    }

    /// Adds a value.
    pub(in crate::console) fn push_value(&mut self, value: &Value) {
        serde_json::to_writer(self.begin(), value).expect("writing to memory cannot fail");
    }

    /// Adds the failure of an object.
    pub(in crate::console) fn push_error(&mut self, kind: &str, id: &str, error: &Error) {
        self.push_value(&json!({ "id": id, "type": kind, "error": of_object(error) }));
    }

    /// Appends them as an array.
    pub(in crate::console) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        out.extend_from_slice(&self.0);
        out.push(b']');
    }
}

/// Stores objects in one request and answers what became of each.
pub(in crate::console) async fn store(
    api: &Api,
    objects: Vec<Prepared>,
    overwrite: bool,
) -> Result<Elements, Error> {
    let mut elements = Elements::default();
    if objects.is_empty() {
        return Ok(elements);
    }
    let change = |source| if overwrite { Change::Overwrite(source) } else { Change::Create(source) };
    let writes =
        objects.iter().map(|object| Write { key: object.key.clone(), change: change(object.source.clone()) });
    let results = api.objects.write(writes.collect()).await?;
    for (Prepared { key, source }, result) in objects.into_iter().zip(results) {
        match result {
            Ok(version) => elements.push(&Stored { source, version }),
            Err(error) => elements.push_error(key.kind.name(), &key.id, &error),
        }
    }
    Ok(elements)
}

/// Stores objects.
pub(in crate::console) async fn create(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let overwrite = request.params.take_bool("overwrite")?.unwrap_or(false);
    request.finish()?;
    let now_ms = api.objects.now_ms();
    let prepare = |mut members: Map<String, Value>| {
        if !members.contains_key("id") {
            members.insert("id".to_owned(), Uuid::new_v4().to_string().into());
        }
        let key = Key::take(&mut members)?;
        Prepared::of(&Draft::parse(key, members, &request.room)?, now_ms, &request.room)
    };
    let prepare = |(number, members)| prepare(members).map_err(|error| at(&format!("[{number}]"), error));
    let objects = elements(request)?.into_iter().enumerate().map(prepare).collect::<Result<Vec<_>, _>>()?;
    Ok(answer(&store(api, objects, overwrite).await?))
}

/// Answers objects by their keys.
pub(in crate::console) async fn get(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let mut answered = Elements::default();
    for (number, mut wanted) in elements(request)?.into_iter().enumerate() {
        let place = |error| at(&format!("[{number}]"), error);
        let fields = match wanted.shift_remove("fields") {
            None => None,
            Some(fields) => Some(names(fields).map_err(place)?),
        };
        let (kind, id) = address(&mut wanted).map_err(place)?;
        if let Some(name) = wanted.keys().next() {
            return Err(place(invalid(name, "is not known here")));
        }
        let key = match Kind::known(&kind) {
            Some(_) => Key::parse(&kind, &id).map_err(place)?,
            None => {
                let error = Error::illegal_argument(format!("Unsupported saved object type: '{kind}'"));
                answered.push_error(&kind, &id, &error);
                continue;
            }
        };
        match api.objects.get(&key).await? {
            None => answered.push_error(&kind, &id, &key.missing()),
            Some(stored) => {
                request.room.take(stored.source.len() * 2 + OBJECT_BYTES)?;
                match fields {
                    None => answered.push(&stored),
                    Some(fields) => answered.push(&only(stored, &fields, &request.room)?),
                }
            }
        }
    }
    Ok(answer(&answered))
}

/// Leaves the named attributes only.
fn only(stored: Stored, fields: &[String], room: &Room) -> Result<Stored, Error> {
    let mut object = text::parse(&stored.source, &room.beside())?;
    if let Some(attributes) = object.get_mut("attributes").and_then(Value::as_object_mut) {
        attributes.retain(|name, _| fields.contains(name));
    }
    Ok(Stored { source: Bytes::from(object.to_string()), version: stored.version })
}

fn names(value: Value) -> Result<Vec<String>, Error> {
    const MAX_FIELDS: usize = 100;
    let names: Option<Vec<String>> = serde_json::from_value(value).ok();
    names
        .filter(|names| names.len() <= MAX_FIELDS)
        .ok_or_else(|| invalid("fields", format_args!("must be an array of at most {MAX_FIELDS} strings")))
}

/// Takes type and id, whatever they are.
fn address(members: &mut Map<String, Value>) -> Result<(String, String), Error> {
    let mut take = |name: &str| match members.shift_remove(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(invalid(name, "must be a string")),
    };
    Ok((take("type")?, take("id")?))
}

/// Reads the body, an array of objects.
fn elements(request: &Request) -> Result<Vec<Map<String, Value>>, Error> {
    let Some(Value::Array(items)) = request.json()? else {
        return Err(Error::illegal_argument("request body must be an array of objects"));
    };
    if items.len() > MAX_OBJECTS {
        return Err(Error::illegal_argument(format!("request body has more than [{MAX_OBJECTS}] objects")));
    }
    let object = |(number, item)| match item {
        Value::Object(members) => Ok(members),
        _ => Err(Error::illegal_argument(format!("[{number}]: must be an object"))),
    };
    items.into_iter().enumerate().map(object).collect()
}

fn answer(elements: &Elements) -> Response {
    let mut out = Vec::with_capacity(elements.0.len() + 32);
    out.extend_from_slice(b"{\"saved_objects\":");
    elements.write(&mut out);
    out.push(b'}');
    Response::raw_json(200, out)
}
