//! `transpose [n] [column_name=text]`: rows as columns.

/// `transpose`: turns rows into columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransposeCommand {
    /// The number of rows that become columns (default 5).
    pub count: u64,
    /// `column_name`: the column with the old names (default `column`).
    pub column_name: String,
}
