//! Export: dashboards and all that they refer to, and so on, each object once.

use std::collections::{HashSet, VecDeque};

use super::references::{self, Target};
use crate::API_VERSION;
use crate::SavedObjectStore;
use crate::bulk::{Elements, MAX_OBJECTS};
use crate::error::{Error, invalid};
use crate::http::{MemoryAllowance, Request, Response, offload};
use crate::object::{Draft, Key, Kind};

/// Bytes that an object takes beside its text, and one that is still to come.
const OBJECT_BYTES: usize = 512;

/// Selection of an export, each object once.
#[derive(Debug, Default)]
struct ExportSelection {
    seen: HashSet<Target>,
    /// Those that are still to come.
    left: VecDeque<Target>,
}

impl ExportSelection {
    /// Adds an object where it is not there yet.
    ///
    /// # Errors
    /// 400 beyond [`MAX_OBJECTS`]; 413 and 429 for want of room.
    fn add(&mut self, target: Target, allowance: &MemoryAllowance) -> Result<(), Error> {
        if self.seen.contains(&target) {
            return Ok(());
        }
        if self.seen.len() >= MAX_OBJECTS {
            let reason =
                format!("[dashboard] more than [{MAX_OBJECTS}] objects would be exported; export fewer");
            return Err(Error::illegal_argument(reason));
        }
        allowance.take(OBJECT_BYTES + 2 * (target.id.len() + target.kind.len()))?;
        self.seen.insert(target.clone());
        self.left.push_back(target);
        Ok(())
    }
}

/// Exports dashboards: those that are asked for in their order, then what they refer to, the nearest first.
pub async fn run(saved: &SavedObjectStore, request: &mut Request) -> Result<Response, Error> {
    let lists = request.params.take_each("dashboard");
    request.finish()?;
    let mut wanted = ExportSelection::default();
    for list in &lists {
        for id in ids(saved, list).await? {
            let Key { kind, id } =
                key(id).map_err(|_| invalid("dashboard", format_args!("[{id}] is not an id")))?;
            wanted.add(Target { kind: kind.name().to_owned(), id }, &request.allowance)?;
        }
    }
    if wanted.left.is_empty() {
        return Err(invalid("dashboard", "is required: the ids of the dashboards to export"));
    }
    let mut elements = Elements::after(&format!("{{\"version\":\"{API_VERSION}\",\"objects\":"), 0);
    while let Some(target) = wanted.left.pop_front() {
        request.allowance.take(OBJECT_BYTES)?;
        let key = match Key::parse(&target.kind, &target.id) {
            Ok(key) => key,
            Err(error) => {
                elements.push_error(&target.kind, &target.id, &error);
                continue;
            }
        };
        let Some(stored) = saved.get(&key).await? else {
            elements.push_error(&target.kind, &target.id, &key.missing());
            continue;
        };
        // The answer grows by doubling.
        request.allowance.take(stored.object.len().saturating_mul(3))?;
        elements.push(&stored);
        let refers = offload(stored.object.len(), || {
            let allowance = request.allowance.sibling();
            references::targets(&Draft::of_stored(&stored, &allowance)?, &allowance)
        })?;
        for target in refers {
            wanted.add(target, &request.allowance)?;
        }
    }
    let mut response = elements.finish(None);
    response.headers.push(("content-disposition", "attachment; filename=\"dashboards.json\"".to_owned()));
    Ok(response)
}

/// Splits a list of ids, which is one id where there is such a dashboard.
async fn ids<'l>(saved: &SavedObjectStore, list: &'l str) -> Result<Vec<&'l str>, Error> {
    if list.contains(',')
        && let Ok(key) = key(list)
        && saved.get(&key).await?.is_some()
    {
        return Ok(vec![list]);
    }
    Ok(list.split(',').filter(|id| !id.is_empty()).collect())
}

/// Reads the id of a dashboard, which its type may be before.
fn key(id: &str) -> Result<Key, Error> {
    Key::parse(Kind::Dashboard.name(), id.strip_prefix("dashboard:").unwrap_or(id))
}
