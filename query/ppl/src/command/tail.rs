//! `tail [n]`: the last rows.

/// `tail`: keeps the last rows, the last one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCommand {
    /// The number of rows that stay (default 10).
    pub count: u64,
}
