//! [`MappedPages`]: the pages of a mapped file that are in memory, to be given back while the map stays.
//!
//! Pages of a map count as memory of the process. Work that reads a file once gives them back behind itself; who reads them again finds
//! them in the operating system's cache.

use std::sync::{Arc, Weak};

use memmap2::Mmap;

/// Pages of a mapped file. It keeps no map alive; the default is of no map.
#[derive(Clone, Debug, Default)]
pub struct MappedPages(Weak<Mmap>);

/// Owner of the bytes of a map.
pub(super) struct SharedMap(pub(super) Arc<Mmap>);

impl AsRef<[u8]> for SharedMap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedPages {
    pub(super) fn new(map: &Arc<Mmap>) -> Self {
        Self(Arc::downgrade(map))
    }

    /// Gives the pages back to the operating system; nothing changes for readers.
    pub fn release(&self) {
        #[cfg(target_os = "linux")]
        if let Some(map) = self.0.upgrade() {
            // SAFETY: the map is shared and read-only, and of a file that nobody writes to or cuts. A page that is gone is read from
            // the file again, with the same contents.
            if let Err(error) = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) } {
                tracing::debug!(%error, "pages of a mapped file stay in memory");
            }
        }
    }
}
