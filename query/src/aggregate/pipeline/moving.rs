//! The functions of `moving_fn`.

/// A parsed script: one call of `MovingFunctions`.
#[derive(Clone, Debug)]
pub(crate) struct MovingScript {
    pub(super) function: Function,
}

/// The functions.
#[derive(Clone, Debug)]
pub(super) enum Function {
    /// The greatest value.
    Max,
}
