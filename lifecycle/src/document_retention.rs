//! Retention of what the server itself writes without end: documents of its own indices are deleted once they are of an age.
//!
//! The indices, the fields with their times and the default ages are in one table of the catalog
//! ([`own_retention`](millrace_catalog::metadata::Metadata::own_retention)). The audit has indices of days, which it deletes itself.

use std::fmt;

use futures::future::BoxFuture;
use millrace_catalog::access::Action;
use millrace_runtime::Result as StoreResult;

use crate::LifecycleContext;
use crate::decide::is_interval_over;

/// Time between two deletions, in milliseconds: a search of each index is not worth more.
const INTERVAL_MS: i64 = 3_600_000;

/// Deletes documents by their times. The searches that find them are above this crate.
pub trait DocumentDeleter: fmt::Debug + Send + Sync {
    /// Deletes the documents of an index whose field is before a time, in milliseconds; returns how many there were.
    fn delete_before<'a>(
        &'a self,
        index: &'a str,
        field: &'a str,
        before_ms: i64,
    ) -> BoxFuture<'a, StoreResult<u64>>;
}

/// Returns whether it is time for the next deletion.
pub(crate) fn is_due(last_ms: Option<i64>, now_ms: i64) -> bool {
    is_interval_over(last_ms, INTERVAL_MS, now_ms)
}

/// Deletes what is of age. An index that fails is left for the next time.
pub(crate) async fn enforce(context: &LifecycleContext) {
    let Some(deleter) = &context.hooks.deleter else { return };
    let metadata = context.engine.metadata();
    let now_ms = context.engine.clock().now_ms();
    for own in metadata.own_retention() {
        let Some(max_age) = own.max_age.filter(|_| metadata.index(own.index).is_some()) else { continue };
        let before_ms = now_ms.saturating_sub(i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX));
        match deleter.delete_before(own.index, own.field, before_ms).await {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(index = own.index, deleted, "documents are deleted by their age");
                context.audit(Action::DeleteByQuery, "POST", &[own.index, "_delete_by_query"]);
            }
            Err(error) => {
                tracing::warn!(index = own.index, %error, "documents cannot be deleted by their age; it is tried again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_come_once_an_hour() {
        assert!(is_due(None, 5));
        assert!(!is_due(Some(5), 5 + INTERVAL_MS - 1));
        assert!(is_due(Some(5), 5 + INTERVAL_MS));
        assert!(is_due(Some(6), 5));
    }
}
