//! Indices of the server's own, which are made when they are first needed.

use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_runtime::error::{Error, Result};
use serde_json::Value;
use uuid::Uuid;

use super::Engine;

impl Engine {
    /// Makes an index of the server's own with the mapping and settings of a body, where it is missing. Returns whether it was.
    ///
    /// # Errors
    /// As [`Engine::change`].
    pub fn make_own_index<'a>(&'a self, name: &'a str, body: &'a Value) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            // Mostly it is there, and nobody is to wait for its turn to hear that.
            if self.metadata().index(name).is_some() {
                return Ok(false);
            }
            let (principal, now_ms) = (Principal::system(), self.clock().now_ms());
            let mut made = false;
            let decided = self.change(&principal, |metadata| {
                if metadata.index(name).is_some() {
                    return Ok(Vec::new());
                }
                made = true;
                metadata.create_index(name, body, now_ms, Uuid::new_v4())
            });
            match decided.await {
                // Another caller was first.
                Err(Error::IndexAlreadyExists { .. }) => return Ok(false),
                decided => decided?,
            }
            Ok(made)
        })
    }
}
