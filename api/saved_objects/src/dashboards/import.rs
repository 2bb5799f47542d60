//! Import: a file is checked as a whole, then its objects are stored in one request.
//!
//! An object of a type that is not known here is answered with an error of its own, and keeps no other object out.
//! An object whose id is there already is answered with a conflict and left as it is, unless `force` is said. What objects
//! refer to and is neither in the file nor stored is answered, and no reason to refuse them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::file::{self, FileObject};
use super::legacy;
use super::references::{self, Target};
use crate::SavedObjectStore;
use crate::bulk::{self, MAX_OBJECTS, PreparedObject};
use crate::error::{Error, at};
use crate::http::{MemoryAllowance, Request, Response, json as text, offload};
use crate::object::{Draft, Key, Kind, object};

/// Most references of the objects of a file together.
const MAX_REFERENCES: usize = 100_000;
/// Bytes that a reference takes beside its text, which is there once more where it is looked up and where it is answered.
const REFERENCE_BYTES: usize = 512;

/// A file that was checked.
#[derive(Debug, Default)]
struct CheckedFile {
    objects: Vec<PreparedObject>,
    /// References of each object.
    targets: Vec<Vec<Target>>,
    /// Objects of types that are not known.
    unknown: Vec<Target>,
}

/// Kind of a value of a file.
#[derive(Debug)]
enum Entry {
    /// An object to be imported.
    Object(Key),
    /// An object of a type that is not known.
    Unknown(Target),
    /// Nothing to be imported: details of the export, objects that could not be exported, and types that are excluded.
    Ignored,
}

/// Imports a file.
pub async fn run(saved: &SavedObjectStore, request: &mut Request) -> Result<Response, Error> {
    let force = request.params.take_bool("force")?.unwrap_or(false);
    let exclude: HashSet<String> = request.params.take_lists("exclude").into_iter().collect();
    request.finish()?;
    let now_ms = saved.now_ms();
    let CheckedFile { objects, targets, unknown } =
        offload(request.body.len(), || check(request, &exclude, now_ms))?;
    let missing = missing(saved, &objects, &targets).await?;
    let mut answered = bulk::store(saved, objects, force, "{\"objects\":").await?;
    for Target { kind, id } in &unknown {
        let reason = format!("Unsupported saved object type: '{kind}'");
        answered.push_error(kind, id, &Error::illegal_argument(reason));
    }
    let behind = (!missing.is_empty()).then(|| ("missing_references", Value::Array(missing)));
    Ok(answered.finish(behind))
}

/// Reads a file and does nothing with it.
pub(crate) fn read_only(file: &[u8]) {
    let exclude = HashSet::new();
    for FileObject { text, .. } in file::parts(file).into_iter().flatten() {
        let allowance = MemoryAllowance::unbounded();
        let read = || -> Result<(), Error> {
            let mut members = object("object", text::parse(text, &allowance)?)?;
            legacy::convert(&mut members)?;
            let Entry::Object(key) = take_key(&mut members, &exclude)? else { return Ok(()) };
            let draft = Draft::parse(key, members, &allowance)?;
            references::targets(&draft, &allowance)?;
            PreparedObject::new(&draft, 0, &allowance).map(drop)
        };
        let _ = read();
    }
}

/// Checks all objects of the body.
fn check(request: &Request, exclude: &HashSet<String>, now_ms: i64) -> Result<CheckedFile, Error> {
    let mut checked = CheckedFile::default();
    let mut places: HashMap<Key, String> = HashMap::new();
    let mut references = 0;
    for FileObject { place, text } in file::parts(&request.body)? {
        // The values of one object at a time.
        let allowance = request.allowance.sibling();
        let read = || -> Result<_, Error> {
            let mut members = object("object", text::parse(text, &allowance)?)?;
            legacy::convert(&mut members)?;
            let key = match take_key(&mut members, exclude)? {
                Entry::Object(key) => key,
                Entry::Unknown(target) => return Ok(Err(Some(target))),
                Entry::Ignored => return Ok(Err(None)),
            };
            let draft = Draft::parse(key, members, &allowance)?;
            let targets = references::targets(&draft, &allowance)?;
            Ok(Ok((PreparedObject::new(&draft, now_ms, &request.allowance)?, targets)))
        };
        let (object, targets) = match read().map_err(|error| at(&place, error))? {
            Ok(read) => read,
            Err(unknown) => {
                if let Some(target) = unknown {
                    request.allowance.take(3 * (target.kind.len() + target.id.len()) + REFERENCE_BYTES)?;
                    checked.unknown.push(target);
                }
                continue;
            }
        };
        let count: usize = targets.iter().map(|target| target.kind.len() + target.id.len()).sum();
        request.allowance.take(count * 3 + targets.len() * REFERENCE_BYTES)?;
        references += targets.len();
        if references > MAX_REFERENCES {
            let reason = format!("[file] has more than [{MAX_REFERENCES}] references");
            return Err(Error::illegal_argument(reason));
        }
        if let Some(first) = places.insert(object.key.clone(), place.clone()) {
            let reason = format!("{place}: [{}] is in the file twice, first as {first}", object.key);
            return Err(Error::illegal_argument(reason));
        }
        checked.objects.push(object);
        checked.targets.push(targets);
        if checked.objects.len() > MAX_OBJECTS {
            return Err(Error::illegal_argument(format!("[file] has more than [{MAX_OBJECTS}] objects")));
        }
    }
    Ok(checked)
}

/// Takes type and id of a value, and tells what it is.
fn take_key(members: &mut Map<String, Value>, exclude: &HashSet<String>) -> Result<Entry, Error> {
    let details = members.contains_key("exportedCount") && !members.contains_key("type");
    let failed = members.contains_key("error") && !members.contains_key("attributes");
    let kind = members.get("type").and_then(Value::as_str);
    if details || failed || kind.is_some_and(|kind| exclude.contains(kind)) {
        return Ok(Entry::Ignored);
    }
    if let (Some(kind), Some(id)) = (kind, members.get("id").and_then(Value::as_str))
        && Kind::known(kind).is_none()
    {
        return Ok(Entry::Unknown(Target { kind: kind.to_owned(), id: id.to_owned() }));
    }
    Key::take(members).map(Entry::Object)
}

/// Lists objects that refer to what is nowhere, with that.
async fn missing(
    saved: &SavedObjectStore,
    objects: &[PreparedObject],
    targets: &[Vec<Target>],
) -> Result<Vec<Value>, Error> {
    let mut known: HashMap<Target, bool> = HashMap::new();
    for object in objects {
        let Key { kind, id } = &object.key;
        known.insert(Target { kind: kind.name().to_owned(), id: id.clone() }, true);
    }
    let mut lost = Vec::new();
    for (object, targets) in objects.iter().zip(targets) {
        let mut missing = Vec::new();
        for target in targets {
            let there = match known.get(target) {
                Some(there) => *there,
                None => {
                    let there = exists(saved, target).await?;
                    known.insert(target.clone(), there);
                    there
                }
            };
            if !there {
                missing.push(json!({ "type": target.kind, "id": target.id }));
            }
        }
        if !missing.is_empty() {
            let Key { kind, id } = &object.key;
            lost.push(json!({ "type": kind.name(), "id": id, "references": missing }));
        }
    }
    Ok(lost)
}

async fn exists(saved: &SavedObjectStore, target: &Target) -> Result<bool, Error> {
    if Kind::known(&target.kind).is_none() {
        return Ok(false);
    }
    match Key::parse(&target.kind, &target.id) {
        Ok(key) => Ok(saved.get(&key).await?.is_some()),
        Err(_) => Ok(false),
    }
}
