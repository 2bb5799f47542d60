//! Disk watermarks: at the flood stage indices can only be read and deleted, until the disk is below the high watermark
//! again. The server's own indices are written until little is left ([`TIGHT`]), those that tell what happens until the disk is full
//! ([`FULL`]). Background work that frees space goes on.
//!
//! The block is the node's alone and not stored: no file is to be written for it, and none to be written to be rid of it.

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::metadata::{Metadata, parse_bytes};
use millrace_runtime::disk::Space;
use millrace_runtime::{Result, sync};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::{Engine, Inner};

/// Time between two looks at the disk: what is written in it is to be little beside what the watermarks leave free.
const LOOK: Duration = Duration::from_secs(1);
/// Prefix of the settings.
const SETTINGS: &str = "cluster.routing.allocation.disk";
/// Watermark of the server's own indices beyond the flood stage, whatever is set.
const TIGHT: Watermark = Watermark::Share { free: 0.02, most: 2 << 30 };
/// The same for those that are written to the last, so that nobody who may write another one uses up their room.
const FULL: Watermark = Watermark::Share { free: 0.01, most: 1 << 30 };

/// Space that has to be free.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Watermark {
    /// So many bytes.
    Bytes(u64),
    /// A share of the disk, but no more than so many bytes.
    Share { free: f64, most: u64 },
}

impl Watermark {
    /// Reads a setting: a percentage or ratio that may be used, or bytes that have to be free.
    fn new(metadata: &Metadata, name: &str) -> Option<Self> {
        let text = |name: &str| {
            let value = metadata.cluster_setting(&format!("{SETTINGS}.watermark.{name}"))?;
            value.as_str().map(str::to_owned)
        };
        let setting = text(name)?;
        let percent = setting.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
        let ratio = percent.map(|percent| percent / 100.0).or_else(|| setting.parse().ok());
        match ratio {
            Some(used) => {
                let most = text(&format!("{name}.max_headroom")).and_then(|most| parse_bytes(&most).ok());
                Some(Self::Share { free: 1.0 - used, most: most.flatten().unwrap_or(u64::MAX) })
            }
            None => parse_bytes(&setting).ok().flatten().map(Self::Bytes),
        }
    }

    fn needed(self, space: Space) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share { free, most } => ((space.total as f64 * free) as u64).min(most),
        }
    }

    fn is_exceeded(self, space: Space) -> bool {
        space.free < self.needed(space)
    }

    /// The same where it was or was not before: it is until half as much more is free.
    fn stays_exceeded(self, space: Space, before: bool) -> bool {
        let needed = self.needed(space);
        space.free < if before { needed + needed / 2 } else { needed }
    }
}

/// Returns whether a disk is at the flood stage, where it was or was not before. `enabled` counts where no setting says whether
/// watermarks do.
fn is_flooded(metadata: &Metadata, enabled: bool, space: Space) -> bool {
    let exceeded = |name| Watermark::new(metadata, name).is_some_and(|mark| mark.is_exceeded(space));
    is_enabled(metadata, enabled) && (exceeded("flood_stage") || metadata.flood_stage && exceeded("high"))
}

/// Returns whether watermarks count; `enabled` is what counts without a setting.
fn is_enabled(metadata: &Metadata, enabled: bool) -> bool {
    let setting = metadata.explicit_cluster_setting(&format!("{SETTINGS}.threshold_enabled"));
    setting.and_then(Value::as_str).map_or(enabled, |setting| setting != "false")
}

/// Looks at the disk until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = check_space(&inner).await {
            tracing::warn!(%error, "cannot look at the space of the disk");
        }
    }
}

impl Engine {
    /// Returns the bytes that are free where segments are.
    ///
    /// # Errors
    /// A file system that does not answer.
    pub async fn free_space(&self) -> Result<u64> {
        Ok(self.segment_space().await?.free)
    }

    /// Returns the bytes of deleted indices whose files are still there: searches, snapshots or the deletion use them.
    pub fn unfreed_bytes(&self) -> u64 {
        self.inner.env().unfreed_bytes()
    }

    /// Returns the bytes that segments may take before the flood stage; `None` where they are on no disk of this machine.
    ///
    /// # Errors
    /// A file system that does not answer.
    pub async fn space_before_flood_stage(&self) -> Result<Option<u64>> {
        if !self.inner.env().objects.is_local() {
            return Ok(None);
        }
        let (space, metadata) = (self.segment_space().await?, self.inner.metadata.load_full());
        let watermark = Watermark::new(&metadata, "flood_stage");
        let watermark = watermark.filter(|_| is_enabled(&metadata, self.inner.config.disk_threshold_enabled));
        Ok(Some(space.free.saturating_sub(watermark.map_or(0, |watermark| watermark.needed(space)))))
    }

    async fn segment_space(&self) -> Result<Space> {
        let (disk, dir) = (Arc::clone(&self.inner.disk), self.inner.config.data_dir.clone());
        let space = sync::blocking(move || {
            let segments = dir.join("segments");
            disk.space(if disk.metadata(&segments).is_ok() { &segments } else { &dir })
        });
        space.await
    }
}

async fn check_space(inner: &Arc<Inner>) -> Result<()> {
    let (disk, dir) = (Arc::clone(&inner.disk), inner.config.data_dir.clone());
    let space = sync::blocking(move || {
        // The log or the segments may have a file system of their own.
        let parts = ["wal", "segments"].map(|part| dir.join(part));
        let spaces = parts.iter().filter(|part| disk.metadata(part).is_ok()).map(|part| disk.space(part));
        spaces.collect::<Result<Vec<Space>>>()
    });
    let spaces = space.await?;
    let metadata = inner.metadata.load_full();
    let flooded =
        spaces.iter().any(|space| is_flooded(&metadata, inner.config.disk_threshold_enabled, *space));
    let is_at = |mark: Watermark, before: bool| {
        flooded && spaces.iter().any(|space| mark.stays_exceeded(*space, before))
    };
    let (tight, full) = (is_at(TIGHT, metadata.disk_tight), is_at(FULL, metadata.disk_full));
    if (flooded, tight, full) == (metadata.flood_stage, metadata.disk_tight, metadata.disk_full) {
        return Ok(());
    }
    let free = spaces.iter().map(|space| space.free).min().unwrap_or(0);
    match (flooded, tight, full) {
        (true, _, true) => {
            tracing::error!(free, "the disk is full: the audit cannot be written, either");
        }
        (true, true, false) => tracing::error!(
            free,
            "the disk is nearly full: of the server's own indices only the audit and notifications under way are written"
        ),
        (true, false, false) => tracing::error!(
            free,
            "disk usage exceeded the flood-stage watermark: indices can be read and deleted only"
        ),
        (false, ..) => {
            tracing::info!(free, "disk usage is below the high watermark: indices can be written again")
        }
    }
    sync::scope(async {
        let _one = inner.metadata_change.lock_owned().await;
        let mut next = Metadata::clone(&inner.metadata.load());
        (next.flood_stage, next.disk_tight, next.disk_full) = (flooded, tight, full);
        next.version += 1;
        inner.metadata.store(Arc::new(next));
    })
    .await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use millrace_catalog::metadata::ClusterSettingsUpdate;
    use serde_json::json;

    use super::*;

    const GB: u64 = 1 << 30;

    fn metadata(settings: Value, flood_stage: bool) -> Metadata {
        let mut state = Metadata::default();
        state.flood_stage = flood_stage;
        if settings.as_object().unwrap().is_empty() {
            return state;
        }
        let update = ClusterSettingsUpdate::parse(&json!({ "persistent": settings })).unwrap();
        state.apply(&state.update_cluster_settings(&update).unwrap())
    }

    #[test]
    fn a_setting_wins_over_the_configuration() {
        let on = json!({ "cluster.routing.allocation.disk.threshold_enabled": true });
        assert!(is_flooded(&metadata(on, false), false, Space { total: 100 * GB, free: 0 }));
    }

    #[test]
    fn the_servers_own_indices_have_the_last_room() {
        const MB: u64 = 1 << 20;
        // Whether they end, and whether they stay so.
        for (mark, total, free, ends, stays) in [
            (FULL, 100 * GB, 2 * GB, false, false),
            (FULL, 100 * GB, GB / 2, true, true),
            (FULL, 20_000 * GB, 2 * GB, false, false),
            (FULL, 20_000 * GB, GB + 400 * MB, false, true),
            (FULL, GB, 20 * MB, false, false),
            (FULL, GB, 12 * MB, false, true),
            (FULL, GB, 5 * MB, true, true),
            (TIGHT, 100 * GB, 4 * GB, false, false),
            (TIGHT, 100 * GB, GB + 400 * MB, true, true),
            (TIGHT, GB, 25 * MB, false, true),
        ] {
            let decided = [false, true].map(|before| mark.stays_exceeded(Space { total, free }, before));
            assert_eq!(decided, [ends, stays], "{mark:?} {total} {free}");
        }
    }

    #[test]
    fn the_flood_begins_at_one_watermark_and_ends_at_the_other() {
        let none = json!({});
        let bytes = json!({
            "cluster.routing.allocation.disk.watermark.high": "3gb",
            "cluster.routing.allocation.disk.watermark.flood_stage": "2gb",
            "cluster.routing.allocation.disk.watermark.low": "4gb",
        });
        let ratio = json!({ "cluster.routing.allocation.disk.watermark.flood_stage": "0.99" });
        let off = json!({ "cluster.routing.allocation.disk.threshold_enabled": false });
        for (settings, total, free, begins, stays) in [
            (&none, 100, 6, false, true),
            (&none, 100, 4, true, true),
            (&none, 100, 11, false, false),
            // Of a large disk a share would be too much to ask.
            (&none, 20_000, 120, false, true),
            (&none, 20_000, 99, true, true),
            (&none, 20_000, 151, false, false),
            (&bytes, 20_000, 2, false, true),
            (&bytes, 100, 1, true, true),
            (&bytes, 100, 3, false, false),
            (&ratio, 100, 2, false, true),
            (&ratio, 100, 0, true, true),
            (&off, 100, 0, false, false),
        ] {
            let space = Space { total: total * GB, free: free * GB };
            let decided =
                [false, true].map(|before| is_flooded(&metadata(settings.clone(), before), true, space));
            assert_eq!(decided, [begins, stays], "{settings} {total} {free}");
            assert!(!is_flooded(&metadata(settings.clone(), true), false, space), "off by configuration");
        }
    }
}
