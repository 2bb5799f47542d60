//! Report of a repair, for people.

use std::fmt;

use uuid::Uuid;

/// An index that was rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltIndex {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Shards.
    pub shards: u32,
    /// Segments taken.
    pub segments: u64,
    /// Documents in them that are not deleted.
    pub documents: u64,
    /// Deleted rows in them.
    pub deleted: u64,
    /// Operations in the log that the next start replays.
    pub replayed: u64,
}

/// Report of a repair: the rebuilt parts, and the others.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Id of the store, where it had one.
    pub store: Option<Uuid>,
    /// Indices rebuilt, by name.
    pub indices: Vec<RebuiltIndex>,
    /// `true` if there was a log.
    pub log: bool,
    /// Parts of sources whose positions the log has.
    pub positions: u64,
    /// Parts that could not be rebuilt, a sentence each.
    pub lost: Vec<String>,
    /// Indices that were rebuilt and that this version does not accept, a sentence each.
    pub unsupported: Vec<String>,
    /// Segments that newer ones stand for.
    pub replaced: u64,
    /// Path of the catalog from before.
    pub moved_to: Option<String>,
    /// `true` if nothing was written.
    pub dry_run: bool,
}

/// Data that no object and no log holds.
const NEVER: &str = "\
aliases, index templates and component templates
persistent cluster settings
accounts, passwords, roles and keys: the administrator's password is made anew at the next start
positions of sources that the log has not: their pipelines read again from where they are configured to begin
versions of deleted documents: an id that comes back begins with version 1";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (would, has) = if self.dry_run { ("would be ", "(dry run)") } else { ("", "") };
        if let Some(store) = self.store {
            writeln!(f, "store {store} {has}")?;
        }
        let total = |of: fn(&RebuiltIndex) -> u64| self.indices.iter().map(of).sum::<u64>();
        writeln!(
            f,
            "{would}rebuilt: {} indices, {} shards, {} segments, {} documents, {} deleted rows; {} operations are replayed from the log at the next start",
            self.indices.len(),
            total(|index| u64::from(index.shards)),
            total(|index| index.segments),
            total(|index| index.documents),
            total(|index| index.deleted),
            total(|index| index.replayed),
        )?;
        for index in &self.indices {
            writeln!(
                f,
                "  {} ({}): {} shards, {} segments, {} documents, {} deleted rows, {} operations in the log",
                index.name,
                index.uuid,
                index.shards,
                index.segments,
                index.documents,
                index.deleted,
                index.replayed
            )?;
        }
        if self.replaced > 0 {
            writeln!(f, "{} segments that newer ones stand for were left out", self.replaced)?;
        }
        if self.positions > 0 {
            writeln!(f, "positions of {} parts of sources are in the log", self.positions)?;
        }
        if !self.unsupported.is_empty() {
            writeln!(f, "out of use:")?;
        }
        for unsupported in &self.unsupported {
            writeln!(f, "  {unsupported}")?;
        }
        writeln!(f, "not rebuilt:")?;
        if !self.log {
            writeln!(f, "  there is no log: what was written since the last flush of each shard")?;
        }
        for lost in &self.lost {
            writeln!(f, "  {lost}")?;
        }
        for never in NEVER.lines() {
            writeln!(f, "  {never}")?;
        }
        if !self.dry_run && !self.lost.is_empty() {
            writeln!(f, "files that were left out are deleted a day after the repair, not before")?;
        }
        if let Some(moved) = &self.moved_to {
            writeln!(f, "the catalog from before is now [{moved}]")?;
        }
        Ok(())
    }
}
