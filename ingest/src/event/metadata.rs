//! Metadata of an event, which events of one source share until one of them changes it.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// Metadata. Clones share the map; a change copies it first.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata(Option<Arc<Map<String, Value>>>);

impl From<Map<String, Value>> for Metadata {
    fn from(map: Map<String, Value>) -> Self {
        Self((!map.is_empty()).then(|| Arc::new(map)))
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || self.map() == other.map()
    }
}

impl Metadata {
    pub(super) fn map(&self) -> &Map<String, Value> {
        self.0.as_deref().unwrap_or(&EMPTY)
    }

    /// Returns the map to be changed.
    pub(super) fn map_mut(&mut self) -> &mut Map<String, Value> {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// Takes the map out.
    pub(super) fn take(&mut self) -> Map<String, Value> {
        self.0.take().map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    /// Returns whether both are the same memory.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}
