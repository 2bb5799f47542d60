//! Ids of plugins: the user's, or ones that stay the same for as long as the plugin is written the same.

use std::collections::HashSet;
use std::sync::Arc;

use ring::digest::{Context, SHA256};

/// Bytes of the digest in an id.
const DIGEST_BYTES: usize = 6;

/// The ids given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    given: HashSet<Arc<str>>,
}

impl Names {
    /// Gives an id; whether it is new.
    pub(super) fn give(&mut self, id: &str) -> bool {
        self.given.insert(id.into())
    }

    /// Makes an id of how a plugin is written; of several that are written the same, by their order.
    pub(super) fn make(&mut self, section: &str, plugin: &str, canonical: &str) -> Arc<str> {
        for number in 0_u64.. {
            let mut context = Context::new(&SHA256);
            for part in [section.as_bytes(), canonical.as_bytes(), &number.to_be_bytes()] {
                context.update(part);
                context.update(&[0]);
            }
            let digest = context.finish();
            let digest = digest.as_ref().iter().take(DIGEST_BYTES);
            let id = digest.fold(format!("{plugin}_"), |id, byte| format!("{id}{byte:02x}"));
            if self.give(&id) {
                return id.into();
            }
        }
        plugin.into()
    }
}
