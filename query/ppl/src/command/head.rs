//! `head [n] [from m]`: the first rows.

/// `head`: keeps the first rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadCommand {
    /// The number of rows that stay (default 10).
    pub count: u64,
    /// `from`: how many rows are skipped (default 0).
    pub from: u64,
}
