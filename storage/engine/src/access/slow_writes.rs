//! The slow log of writes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::Result;

use super::Session;
use crate::slow_log::SlowWork;
use crate::{WriteOutcome, slow_event};

impl Session {
    /// Logs a request whose writes took long, once for each index that wants that.
    pub(super) fn log_slow_write(&self, outcomes: &[Result<WriteOutcome>], took: Duration) {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut last: Option<&Arc<str>> = None;
        for done in outcomes.iter().flatten() {
            // Operations on one index mostly stand together.
            if last.is_some_and(|last| Arc::ptr_eq(last, &done.index)) {
                continue;
            }
            last = Some(&done.index);
            if !seen.insert(&done.index) {
                continue;
            }
            let Ok(index) = self.engine.index(&done.index) else { continue };
            let Some(level) = SlowWork::Indexing.level(&index.meta(), took) else { continue };
            let opaque_id = self.task().and_then(|task| task.spec().opaque_id.clone());
            slow_event!(
                level,
                "index.indexing.slowlog.index",
                index = %done.index,
                took_ms = took.as_millis() as u64,
                id = done.id,
                operations = outcomes.len(),
                opaque_id = opaque_id.as_deref(),
                user = %self.principal().caller(),
                "slow write"
            );
        }
    }
}
