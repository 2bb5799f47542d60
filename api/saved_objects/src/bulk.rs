//! Many objects in one request, and the answers for many.

use bytes::Bytes;
use millrace_catalog::metadata::Uuid;
use serde_json::{Map, Value, json};

use super::object::{Document, Draft, Key, Kind, StoredObject, Version};
use super::{Change, SavedObjectStore, Write, take_version};
use crate::error::{Error, at, invalid, of_object};
use crate::http::json as text;
use crate::http::{MemoryAllowance, Request, Response, offload};

/// Most objects of a request, a file or an answer.
pub(crate) const MAX_OBJECTS: usize = 10_000;
/// Bytes that an object takes beside its text.
const OBJECT_BYTES: usize = 512;
/// Bytes that an object takes in an answer beside its text.
const VERSION_BYTES: usize = 64;
/// Text before the objects of an answer.
const HEAD: &str = "{\"saved_objects\":";

/// An object that was checked, as it will be stored.
#[derive(Clone, Debug)]
pub(crate) struct PreparedObject {
    pub(crate) key: Key,
    document: Document,
    /// The one that it may replace, where that is said.
    version: Option<Version>,
}

impl PreparedObject {
    /// Renders a draft, whose text is charged to `room`.
    ///
    /// # Errors
    /// As [`Draft::document`]; 413 and 429 for want of room.
    pub(crate) fn new(draft: &Draft, now_ms: i64, allowance: &MemoryAllowance) -> Result<Self, Error> {
        let document = draft.document(now_ms)?;
        allowance.take(document.text.len() + OBJECT_BYTES)?;
        Ok(Self { key: draft.key.clone(), document, version: None })
    }
}

/// An answer whose last member is an array, while its elements come.
#[derive(Debug)]
pub(crate) struct Elements {
    out: Vec<u8>,
    empty: bool,
}

impl Elements {
    /// Begins an answer by its text before the array, with space for so many bytes of elements.
    pub(crate) fn after(head: &str, bytes: usize) -> Self {
        let mut out = Vec::with_capacity(head.len() + bytes + 64);
        out.extend_from_slice(head.as_bytes());
        out.push(b'[');
        Self { out, empty: true }
    }

    fn begin(&mut self) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
        &mut self.out
    }

    /// Adds a stored object.
    pub(crate) fn push(&mut self, stored: &StoredObject) {
        stored.write(self.begin());
    }

    /// Adds the failure of an object.
    pub(crate) fn push_error(&mut self, kind: &str, id: &str, error: &Error) {
        let failure = json!({ "id": id, "type": kind, "error": of_object(error) });
        push(self.begin(), &failure);
    }

    /// Ends the answer, with a member behind the array where there is one.
    pub(crate) fn finish(mut self, behind: Option<(&str, Value)>) -> Response {
        self.out.push(b']');
        if let Some((name, value)) = behind {
            self.out.push(b',');
            text::push_str(&mut self.out, name);
            self.out.push(b':');
            push(&mut self.out, &value);
        }
        self.out.push(b'}');
        Response::raw_json(200, self.out)
    }
}

fn push(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("writing to memory cannot fail");
}

/// Stores objects in one request and answers what became of each, behind `head`.
pub(crate) async fn store(
    saved: &SavedObjectStore,
    objects: Vec<PreparedObject>,
    overwrite: bool,
    head: &str,
) -> Result<Elements, Error> {
    let bytes = objects.iter().map(|object| object.document.text.len() + VERSION_BYTES).sum();
    let mut answered = Elements::after(head, bytes);
    if objects.is_empty() {
        return Ok(answered);
    }
    let write = |PreparedObject { key, document, version }: &PreparedObject| Write {
        key: key.clone(),
        change: Change::storing(document.clone(), overwrite, *version),
    };
    let results = saved.write(objects.iter().map(write).collect()).await?;
    // Each text goes once it is in the answer, which takes its place in memory.
    for (PreparedObject { key, document, .. }, result) in objects.into_iter().zip(results) {
        match result {
            Ok(version) => answered.push(&StoredObject { object: document.object(), version }),
            Err(error) => answered.push_error(key.kind.name(), &key.id, &error),
        }
    }
    Ok(answered)
}

/// Stores objects.
pub async fn create(saved: &SavedObjectStore, request: &mut Request) -> Result<Response, Error> {
    let overwrite = request.params.take_bool("overwrite")?.unwrap_or(false);
    request.finish()?;
    let now_ms = saved.now_ms();
    let prepare = |mut members: Map<String, Value>| -> Result<PreparedObject, Error> {
        if !members.contains_key("id") {
            members.insert("id".to_owned(), Uuid::new_v4().to_string().into());
        }
        let (key, version) = (Key::take(&mut members)?, take_version(&mut members)?);
        let draft = Draft::parse(key, members, &request.allowance)?;
        Ok(PreparedObject { version, ..PreparedObject::new(&draft, now_ms, &request.allowance)? })
    };
    let prepare = |(number, members)| prepare(members).map_err(|error| at(&format!("[{number}]"), error));
    let elements = elements(request)?.into_iter().enumerate();
    let objects = offload(request.body.len(), || elements.map(prepare).collect::<Result<Vec<_>, _>>())?;
    Ok(store(saved, objects, overwrite, HEAD).await?.finish(None))
}

/// Answers objects by their keys.
pub async fn get(saved: &SavedObjectStore, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    let mut answered = Elements::after(HEAD, 0);
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
        match saved.get(&key).await? {
            None => answered.push_error(&kind, &id, &key.missing()),
            Some(stored) => {
                let bytes = stored.object.len();
                request.allowance.take(bytes * 2 + OBJECT_BYTES)?;
                match fields {
                    None => answered.push(&stored),
                    Some(fields) => {
                        let cut = || only(stored, &fields, &request.allowance);
                        answered.push(&offload(bytes, cut)?);
                    }
                }
            }
        }
    }
    Ok(answered.finish(None))
}

/// Leaves the named attributes only.
fn only(stored: StoredObject, fields: &[String], allowance: &MemoryAllowance) -> Result<StoredObject, Error> {
    let mut object = text::parse(&stored.object, &allowance.sibling())?;
    if let Some(attributes) = object.get_mut("attributes").and_then(Value::as_object_mut) {
        attributes.retain(|name, _| fields.contains(name));
    }
    Ok(StoredObject { object: Bytes::from(object.to_string()), version: stored.version })
}

fn names(value: Value) -> Result<Vec<String>, Error> {
    const MAX_FIELDS: usize = 100;
    let names: Option<Vec<String>> = serde_json::from_value(value).ok();
    names
        .filter(|names| names.len() <= MAX_FIELDS)
        .ok_or_else(|| invalid("fields", format_args!("must be an array of at most {MAX_FIELDS} strings")))
}

/// Takes type and id, of any kind.
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
