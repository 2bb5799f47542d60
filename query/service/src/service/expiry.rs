//! Ends contexts whose time is over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_matching::pinned::PinnedSnapshot;
use millrace_sql::cursor::Cursor;
use tokio::time::MissedTickBehavior;

use super::scroll::Scroll;
use crate::contexts::{Contexts, free};

/// Interval between two sweeps: resources of an expired context stay about this long.
const TICK: Duration = Duration::from_secs(1);

/// The contexts of a service, which a task of its own does not keep.
struct WeakContexts {
    scrolls: Weak<Contexts<Scroll>>,
    points_in_time: Weak<Contexts<PinnedSnapshot>>,
    cursors: Weak<Contexts<Cursor>>,
}

/// Starts a task that lets go of what has expired, until the registries are gone.
pub(super) fn start(
    scrolls: &Arc<Contexts<Scroll>>,
    points_in_time: &Arc<Contexts<PinnedSnapshot>>,
    cursors: &Arc<Contexts<Cursor>>,
) {
    let watched = WeakContexts {
        scrolls: Arc::downgrade(scrolls),
        points_in_time: Arc::downgrade(points_in_time),
        cursors: Arc::downgrade(cursors),
    };
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if watched.end_expired().is_none() {
                break;
            }
        }
    });
}

impl WeakContexts {
    /// Lets go of what has expired; `None` once the service is gone.
    fn end_expired(&self) -> Option<()> {
        let scrolls = self.scrolls.upgrade()?.expired();
        let points_in_time = self.points_in_time.upgrade()?.expired();
        let cursors = self.cursors.upgrade()?.expired();
        if scrolls.is_empty() && points_in_time.is_empty() && cursors.is_empty() {
            return Some(());
        }
        free((scrolls, points_in_time, cursors));
        Some(())
    }
}
