//! Saved objects of the console: dashboards and what they show, in the forms of Kibana 7.
//!
//! [`object`](mod@object) says what one is, [`store`] keeps them. The handlers here are those of one object, [`bulk`] has those of many,
//! [`find`](mod@find) the search. [`dashboards`] reads and writes files of them. The router is that of `millrace-console`.

mod bulk;
pub mod dashboards;
mod error;
mod find;
#[doc(hidden)]
pub mod fuzzing;
mod object;
mod store;

use millrace_catalog::metadata::Uuid;
use millrace_gateway::{API_VERSION, http};
use serde_json::{Map, Value};

pub use self::bulk::{create as bulk_create, get as bulk_get};
pub use self::error::invalid;
pub use self::find::run as find;
pub use self::object::object;
use self::object::{Draft, Key, Kind, StoredObject, Version, parse_references};
pub use self::store::SavedObjectStore;
use self::store::{Change, Write};
use crate::error::Error;
use crate::http::{Request, Response, offload};

/// Attempts of an update that names no version, against other writers.
const UPDATE_ATTEMPTS: usize = 4;

/// Answers an object.
pub async fn get(
    saved: &SavedObjectStore,
    request: &mut Request,
    kind: &str,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let key = Key::parse(kind, id)?;
    let stored = saved.get(&key).await?.ok_or_else(|| key.missing())?;
    Ok(answer(&stored))
}

/// Stores an object, with an id of its own where none is named.
pub async fn create(
    saved: &SavedObjectStore,
    request: &mut Request,
    kind: &str,
    id: Option<&str>,
) -> Result<Response, Error> {
    let overwrite = request.params.take_bool("overwrite")?.unwrap_or(false);
    request.finish()?;
    let key = match id {
        Some(id) => Key::parse(kind, id)?,
        None => Key { kind: Kind::parse(kind)?, id: Uuid::new_v4().to_string() },
    };
    let mut members = members(request)?;
    let version = take_version(&mut members)?;
    let now_ms = saved.now_ms();
    let document = offload(request.body.len(), || {
        let draft = Draft::parse(key.clone(), members, &request.allowance)?;
        draft.document(now_ms)
    })?;
    let object = document.object();
    let version = saved.write_one(key, Change::storing(document, overwrite, version)).await?;
    Ok(answer(&StoredObject { object, version }))
}

/// Changes some attributes of an object.
pub async fn update(
    saved: &SavedObjectStore,
    request: &mut Request,
    kind: &str,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let key = Key::parse(kind, id)?;
    let mut members = members(request)?;
    let version = take_version(&mut members)?;
    let partial = match members.shift_remove("attributes") {
        Some(attributes) => object::object("attributes", attributes)?,
        None => return Err(invalid("attributes", "is required")),
    };
    let references = members.shift_remove("references").map(parse_references).transpose()?;
    if let Some(name) = members.keys().next() {
        return Err(invalid(name, "is not a member of an update"));
    }
    for attempt in 1.. {
        let current = saved.get(&key).await?.ok_or_else(|| key.missing())?;
        // What an attempt takes goes with it.
        let (allowance, now_ms) = (request.allowance.sibling(), saved.now_ms());
        let document = offload(current.object.len() + request.body.len(), || {
            let mut draft = Draft::of_stored(&current, &allowance)?;
            merge(&mut draft.attributes, partial.clone());
            if let Some(references) = &references {
                draft.references.clone_from(references);
            }
            draft.check(&allowance)?;
            draft.document(now_ms)
        })?;
        let object = document.object();
        let change = Change::Replace(document, version.unwrap_or(current.version));
        match saved.write_one(key.clone(), change).await {
            Err(error) if error.status() == 409 && version.is_none() && attempt < UPDATE_ATTEMPTS => {}
            written => return Ok(answer(&StoredObject { object, version: written? })),
        }
    }
    Err(key.missing())
}

/// Removes an object.
pub async fn delete(
    saved: &SavedObjectStore,
    request: &mut Request,
    kind: &str,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let key = Key::parse(kind, id)?;
    saved.get(&key).await?.ok_or_else(|| key.missing())?;
    saved.write_one(key, Change::Delete).await?;
    Ok(Response::json(200, Value::Object(Map::new())))
}

fn answer(stored: &StoredObject) -> Response {
    let mut out = Vec::with_capacity(stored.object.len() + 64);
    stored.write(&mut out);
    Response::raw_json(200, out)
}

/// Reads the body, an object.
fn members(request: &Request) -> Result<Map<String, Value>, Error> {
    let body = request.json()?.ok_or_else(|| Error::illegal_argument("request body is required"))?;
    object::object("body", body)
}

fn take_version(members: &mut Map<String, Value>) -> Result<Option<Version>, Error> {
    match members.shift_remove("version") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Version::parse(&text).map(Some),
        Some(_) => Err(invalid("version", "must be a string")),
    }
}

/// Puts members in the place of those that there are; objects are merged.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}
