//! Pipeline aggregations: what is computed of the reduced tree.

mod expression;
mod moving;

pub(crate) use expression::Expression;
pub(crate) use moving::MovingScript;
