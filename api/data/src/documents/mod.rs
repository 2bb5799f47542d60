//! Documents one at a time: index, create, get, exists, source, delete, update, and many gets.
//!
//! [`write`] and [`update`] hand one [`WriteOp`](millrace_engine::WriteOp) to the engine; [`get`] and
//! [`multi_get`] read through [`target`], which finds the one index (and routing) that a name stands
//! for. [`source`] filters sources, [`stored`] answers `stored_fields`, [`answer`] writes what all
//! acknowledgements share; `_bulk` uses the same pieces.

pub(crate) mod answer;
mod get;
mod multi_get;
pub(crate) mod options;
pub(crate) mod source;
mod stored;
pub(crate) mod target;
pub(crate) mod update;
mod write;

pub(crate) use get::{get, source};
pub(crate) use multi_get::multi_get;
pub(crate) use update::update;
pub(crate) use write::{delete, delete_all, index};

/// The type of documents whose request names none.
pub(crate) const DEFAULT_TYPE: &str = "_doc";

/// Longest document id in bytes.
pub(crate) const MAX_ID_BYTES: usize = 512;

/// Says why an id is too long, or `None`.
pub(crate) fn id_problem(id: &str) -> Option<String> {
    (id.len() > MAX_ID_BYTES).then(|| {
        format!("id [{id}] is too long, must be no longer than {MAX_ID_BYTES} bytes but was: {}", id.len())
    })
}
