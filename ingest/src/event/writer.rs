//! Fields that are written as text from the start.

use serde_json::Value;

use super::content::Content;
use super::members::{MemberSpan, Members, write_json_text};

/// Writes fields of an event, each of a name of its own.
#[derive(Debug)]
pub(crate) struct FieldWriter(Content);

impl FieldWriter {
    /// Makes room for so many bytes of fields and so many fields.
    pub(crate) fn with_capacity(bytes: usize, fields: usize) -> Self {
        Self(Content::from(Members::with_capacity(bytes, fields)))
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.0.append(name, || Value::from(text), |out| write_json_text(text, out));
    }

    /// Writes a whole number.
    pub(crate) fn number(&mut self, name: &str, number: u32) {
        self.0.append(name, || Value::from(number), |out| drop(serde_json::to_writer(out, &number)));
    }

    /// Text of the fields with their spans, unless there are too many.
    pub(super) fn members(&self) -> Option<(&[u8], &[MemberSpan])> {
        match &self.0 {
            Content::Text(members, _) => Some((members.text(), members.places())),
            Content::Map(_) => None,
        }
    }

    pub(super) fn into_content(self) -> Content {
        self.0
    }
}
