//! Descriptions of tasks, which are written when somebody reads them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Longest description in bytes; the rest of a longer one is left out, and `…` stands for it.
const MAX_BYTES: usize = 4 << 10;

/// The subject of a task's work. Making one copies no body of a request.
#[derive(Clone, Debug, Default)]
pub enum TaskDescription {
    /// Nothing to say beyond the action.
    #[default]
    Empty,
    /// A text.
    Text(Arc<str>),
    /// A request on indices with its body.
    Request {
        /// Index expression; empty where the request names none.
        indices: Arc<str>,
        /// Body, which shares the memory of the request's.
        source: Bytes,
    },
}

impl TaskDescription {
    /// Makes a description of a text, cut to its longest.
    pub fn text(text: &str) -> Self {
        Self::Text(Arc::from(cut(text)))
    }

    /// Returns whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

/// Cuts a text to the longest description.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_BYTES)]
}

impl fmt::Display for TaskDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Request { indices, source } => {
                write!(f, "indices[{}], source[", cut(indices))?;
                let shown = &source[..source.len().min(MAX_BYTES)];
                let text = String::from_utf8_lossy(shown);
                f.write_str(text.trim())?;
                f.write_str(if shown.len() < source.len() { "…]" } else { "]" })
            }
        }
    }
}
