//! A part of what rules raise: it is handed over once it is full, before more is raised. A frame may raise far more than may be held.
//!
//! Where parts end changes nothing of what they have together.

use serde_json::Value;

use super::Operation;

/// Operations of a part, about: a step raises a few at once.
#[cfg(not(test))]
const fn at_once() -> usize {
    250
}

/// The same in tests.
#[cfg(test)]
fn at_once() -> usize {
    AT_ONCE.get()
}

#[cfg(test)]
thread_local! {
    pub(crate) static AT_ONCE: std::cell::Cell<usize> = const { std::cell::Cell::new(1_000) };
}

/// Bytes that its documents take in memory behind which a part gets no more, about. One has a few hundred kilobytes of JSON at most.
const MAX_BYTES: usize = 8 << 20;
/// Bytes of a member of an object beside its name and value: where the name is, its hash, its place.
const MEMBER_BYTES: usize = 48;

/// Operations in their order.
#[derive(Debug, Default)]
pub(super) struct OperationBatch {
    operations: Vec<Operation>,
    bytes: usize,
}

impl OperationBatch {
    pub(super) fn new(operations: Vec<Operation>) -> Self {
        let bytes = operations.iter().map(Operation::bytes).sum();
        Self { operations, bytes }
    }

    pub(super) fn push(&mut self, operation: Operation) {
        self.bytes += operation.bytes();
        self.operations.push(operation);
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Drops all behind the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes -= self.operations.drain(len..).map(|operation| operation.bytes()).sum::<usize>();
    }

    /// Returns whether there is enough to be written.
    pub(super) fn is_full(&self) -> bool {
        self.operations.len() >= at_once() || self.bytes >= MAX_BYTES
    }

    pub(super) fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

impl Operation {
    /// Estimates the bytes that its document takes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Alert { document, .. }
            | Self::Silence { document, .. }
            | Self::Revision { document, .. } => bytes_of(document),
            Self::Recovery { key, .. } => key.len(),
            Self::Problem { reason, .. } => reason.len(),
        }
    }
}

/// Estimates the bytes that a value takes, of as many levels as alerts have.
fn bytes_of(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| MEMBER_BYTES + name.len() + bytes_of(value)).sum()
        }
    };
    size_of::<Value>() + within
}
