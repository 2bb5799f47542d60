//! Rules of a restore, taken up while the server runs.
//!
//! A restore of the global state replaces the index of rules. The rules in memory are then replaced between two frames, as by a change:
//! a rule of before sees the frames up to that moment, a restored one those behind it, and none is seen by both. Into a store that has had no
//! rules a restore brings their position, too; they then see the documents of the snapshot behind it first ([`crate::backfill`]).

use crate::error::Result;
use crate::recovery::last_frame;
use crate::runner::RunnerState;
use crate::store::Store;

impl RunnerState {
    /// Replaces the rules in memory by those that are stored.
    ///
    /// # Errors
    /// The store's, and rules that cannot be changed now. Those of before then go on, and the next start loads the stored ones.
    pub(crate) async fn reload(&self) -> Result<()> {
        let mut held = self.held().await?;
        let newer = Store::load(&self.engine).await?;
        let last_frame = last_frame(&self.engine)?;
        let since = match held.as_ref() {
            // Frames that are not evaluated are none of the rules of before. Of those that are read back there are only the indices that these
            // watched.
            Some(core) if !core.reading_gap => core.next.saturating_sub(1),
            Some(core) => last_frame.max(core.next.saturating_sub(1)),
            None => last_frame,
        };
        // Stored state is of rules of before, which may have the ids and revisions of restored ones. A start clears it for rules that are not
        // rebased yet.
        self.snapshots.clear().await?;
        newer.rebase_restored(&self.engine, last_frame, since).await?;
        let before = self.store.all();
        self.store.replace(newer);
        let after = self.store.all();
        if let Some(core) = held.as_mut() {
            for kept in before {
                core.rules.remove(&kept.rule.id);
                core.matching.remove(&kept.rule.id);
                core.touched.insert(kept.rule.id.clone());
            }
            for kept in &after {
                core.put(kept);
                // One that catches up is not in the core, and gets them later.
                for quiet in &kept.quiet {
                    core.rules.quiet(&kept.rule.id, quiet.clone());
                }
            }
            self.status_reporter.update(core, None);
        }
        after.iter().for_each(|kept| self.status_reporter.restart(&kept.rule.id));
        self.backfill_requested.notify_one();
        let stored = self.with_state_stored(held).await;
        // Also where there were no rules: nobody follows the feed then.
        self.changed.notify_one();
        stored.map(drop)
    }
}
