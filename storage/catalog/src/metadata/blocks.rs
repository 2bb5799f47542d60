//! Effects of `index.blocks.*`.

use millrace_runtime::{Error, Result};
use serde_json::Value;

use super::{IndexMeta, Metadata, RESTORE_PENDING};
use crate::access::{NameClass, is_written_last};

/// Level of an operation on an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockLevel {
    /// Reads documents.
    Read,
    /// Writes documents.
    Write,
    /// Reads settings, mapping or aliases.
    MetadataRead,
    /// Changes settings, mapping or aliases, refreshes, flushes or merges.
    MetadataWrite,
    /// Deletes the index.
    Delete,
}

/// A block that an index carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    setting: &'static str,
    /// OpenSearch's number of it.
    pub id: u32,
    /// Description in OpenSearch's words.
    pub description: &'static str,
    /// `true` if clients should try again later.
    pub retryable: bool,
    /// Levels in OpenSearch's words.
    pub levels: &'static [&'static str],
    forbids: &'static [BlockLevel],
}

use BlockLevel::{Delete, MetadataRead, MetadataWrite, Read, Write};

const BLOCKS: [Block; 6] = [
    Block {
        setting: "index.blocks.read_only",
        id: 5,
        description: "index read-only (api)",
        retryable: false,
        levels: &["write", "metadata_write"],
        forbids: &[Write, MetadataWrite, Delete],
    },
    Block {
        setting: "index.blocks.read",
        id: 7,
        description: "index read (api)",
        retryable: false,
        levels: &["read"],
        forbids: &[Read],
    },
    Block {
        setting: "index.blocks.write",
        id: 8,
        description: "index write (api)",
        retryable: false,
        levels: &["write"],
        forbids: &[Write],
    },
    Block {
        setting: "index.blocks.metadata",
        id: 9,
        description: "index metadata (api)",
        retryable: false,
        levels: &["metadata_read", "metadata_write"],
        forbids: &[MetadataRead, MetadataWrite, Delete],
    },
    Block {
        setting: RESTORE_PENDING,
        id: 20,
        description: "index is being restored, it takes writes once all its files are here",
        retryable: true,
        levels: &["write"],
        forbids: &[Write],
    },
    Block {
        setting: FLOOD,
        id: 12,
        description: "disk usage exceeded flood-stage watermark, index has read-only-allow-delete block",
        retryable: true,
        levels: &["write", "metadata_write"],
        forbids: &[Write, MetadataWrite],
    },
];

/// Name of the setting whose block indices carry at the flood stage.
const FLOOD: &str = "index.blocks.read_only_allow_delete";

/// Returns whether the settings of an index have a block.
fn is_set(index: &IndexMeta, block: &Block) -> bool {
    index.settings.get(block.setting).and_then(Value::as_str) == Some("true")
}

/// Checks that no block that an index carries by its settings forbids an operation.
///
/// # Errors
/// [`Error::Blocked`] with every block that does.
pub fn check_block(index: &IndexMeta, level: BlockLevel) -> Result<()> {
    check(&index.name, BLOCKS.iter().filter(|block| is_set(index, block)), level)
}

impl IndexMeta {
    /// Returns whether `index.blocks.write` or `index.blocks.read_only` forbids writes. The blocks of the flood
    /// stage and of a restore do not count.
    pub fn is_write_blocked(&self) -> bool {
        self.flag("index.blocks.write") || self.flag("index.blocks.read_only")
    }
}

impl Metadata {
    /// Lists the blocks that an index carries: by its settings, and for want of room on the disk.
    pub fn blocks_of(&self, index: &IndexMeta) -> impl Iterator<Item = &'static Block> {
        let flooded = self.is_flooded(&index.name);
        BLOCKS.iter().filter(move |block| is_set(index, block) || flooded && block.setting == FLOOD)
    }

    /// Returns whether the disk is too full for what is written to an index. What the server writes itself has room beyond the
    /// flood stage, or whoever sets that could keep the audit from being written.
    pub fn is_flooded(&self, index: &str) -> bool {
        let is_out = match NameClass::new(index) {
            NameClass::Ordinary => true,
            _ if is_written_last(index) => self.disk_full,
            _ => self.disk_tight,
        };
        self.flood_stage && is_out
    }

    /// Checks that no block of an index forbids an operation, [`Metadata::flood_stage`] included.
    ///
    /// # Errors
    /// [`Error::Blocked`] with every block that does.
    pub fn check_block(&self, index: &IndexMeta, level: BlockLevel) -> Result<()> {
        check(&index.name, self.blocks_of(index), level)
    }

    /// Checks that writes to a name need not be refused at once.
    ///
    /// # Errors
    /// [`Error::Blocked`] at the flood stage, for the index that the name means, if there is one.
    pub fn check_flood(&self, name: &str, now_ms: i64) -> Result<()> {
        let meant = self.write_index(name, now_ms).ok().flatten();
        let index = meant.as_ref().map_or(name, |index| &*index.name);
        let flooded = self.is_flooded(index);
        check(index, BLOCKS.iter().filter(|block| flooded && block.setting == FLOOD), Write)
    }
}

fn check(index: &str, blocks: impl Iterator<Item = &'static Block>, level: BlockLevel) -> Result<()> {
    let mut reason = String::new();
    for block in blocks.filter(|block| block.forbids.contains(&level)) {
        if !reason.is_empty() {
            reason.push_str(", ");
        }
        let status = if block.retryable { "TOO_MANY_REQUESTS" } else { "FORBIDDEN" };
        reason.push_str(&format!("{status}/{}/{}", block.id, block.description));
    }
    if reason.is_empty() { Ok(()) } else { Err(Error::Blocked { index: index.to_owned(), reason }) }
}
