//! Objects that another store holds until their copies are here: files of segments that are being restored from a repository.
//!
//! Reads of such an object go to its origin. The copy is placed first, then the origin is removed, so that a reader always finds one of
//! both. The bound on their number is that of the segments of the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_runtime::{Error, Result};
use object_store::path::Path;
use parking_lot::RwLock;

use super::Objects;

/// Store that holds an object until its copy is here.
#[derive(Clone, Debug)]
pub enum ObjectOrigin {
    /// Another store, and the object's path there.
    Store(Objects, Path),
    /// A store that is not open; the text names it.
    Closed(String),
}

/// Origins of objects, by their paths here.
#[derive(Debug, Default)]
pub(super) struct Origins {
    objects: RwLock<BTreeMap<Path, ObjectOrigin>>,
    /// Number of objects: most stores have none, and their readers take no lock.
    count: AtomicUsize,
}

impl Origins {
    pub(super) fn contains(&self, path: &Path) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.objects.read().contains_key(path)
    }

    /// Returns the store and the path that an object is read from; `None` where it is here.
    ///
    /// # Errors
    /// [`Error::ObjectStore`] for a store that is not open.
    pub(super) fn find(&self, path: &Path) -> Result<Option<(Objects, Path)>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        match self.objects.read().get(path) {
            None => Ok(None),
            Some(ObjectOrigin::Store(objects, there)) => Ok(Some((objects.clone(), there.clone()))),
            Some(ObjectOrigin::Closed(name)) => Err(Error::ObjectStore(object_store::Error::Generic {
                store: "restore",
                source: format!("[{path}] is in {name}, which is not open").into(),
            })),
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Path, ObjectOrigin>)) {
        let mut objects = self.objects.write();
        change(&mut objects);
        self.count.store(objects.len(), Ordering::Release);
    }
}

impl Objects {
    /// Has reads of an object go to another store until its copy is here.
    pub fn set_origin(&self, path: Path, origin: ObjectOrigin) {
        self.origins.change(|objects| _ = objects.insert(path, origin));
    }

    /// Returns whether reads of an object go to another store.
    pub fn has_origin(&self, path: &Path) -> bool {
        self.origins.contains(path)
    }

    /// Has reads of objects find the copies that are here.
    pub fn remove_origins<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) {
        self.origins.change(|objects| {
            for path in paths {
                objects.remove(path);
            }
        });
    }

    /// Forgets the origins of all objects below a prefix.
    pub(super) fn forget_origins(&self, prefix: &Path) {
        if self.origins.count.load(Ordering::Acquire) > 0 {
            self.origins.change(|objects| {
                let below = objects.range(prefix.clone()..).map(|(path, _)| path);
                let below = below.take_while(|path| path.as_ref().starts_with(prefix.as_ref()));
                let below: Vec<Path> = below.filter(|path| path.prefix_matches(prefix)).cloned().collect();
                for path in below {
                    objects.remove(&path);
                }
            });
        }
    }
}
