//! The expressions of `bucket_script` and `bucket_selector`.

/// A parsed expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(super) root: Node,
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A number.
    Number(f64),
}
