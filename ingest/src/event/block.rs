//! Documents of many events in one buffer.
//!
//! The decoder of a stream writes the document of each event as it is stored, one behind the other. The events of a block share its
//! buffer, and outputs hand slices of it to the store: an event that nothing changes needs no memory of its own and is not copied.
//! A change of an event copies its members first. The buffer is freed with the last event of the block.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};

use super::additions::{AddedMember, FieldTag};
use super::content::text_bytes;
use super::members::{MAX_MEMBERS, MemberSpan, write_json_text};
use super::timestamp;
use super::writer::FieldWriter;

/// Longest members of a document. The event of a longer one has memory of its own, so that it alone keeps that.
const MAX_MEMBER_BYTES: usize = 64 << 10;
/// Bytes of a block from which on it takes no more documents: offsets have 32 bits.
const MAX_BLOCK_BYTES: usize = 16 << 20;
/// Beginning of a document, up to the time.
const BEGIN: &[u8] = b"{\"@timestamp\":\"";

/// Documents, and the spans of their members.
#[derive(Debug)]
pub(crate) struct DocumentBlock {
    text: Bytes,
    /// Of all documents, each counted from the first member of its own.
    spans: Vec<MemberSpan>,
}

/// Position of a document in its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentRange {
    begin: u32,
    /// Offset of the comma before the first member.
    members: u32,
    /// Offset of the closing brace.
    end: u32,
    first_span: u32,
    end_span: u32,
}

/// Document of one event in a block.
#[derive(Clone, Debug)]
pub(super) struct BlockDocument {
    block: Arc<DocumentBlock>,
    range: DocumentRange,
    /// `false` once the event has another time.
    has_time: bool,
}

impl BlockDocument {
    /// Makes the document at a range of a block.
    pub(super) fn new(block: &Arc<DocumentBlock>, range: DocumentRange) -> Self {
        Self { block: Arc::clone(block), range, has_time: true }
    }

    /// Members, each behind a comma.
    pub(super) fn text(&self) -> &[u8] {
        let DocumentRange { members, end, .. } = self.range;
        self.block.text.get(members as usize..end as usize).unwrap_or_default()
    }

    /// Spans of the members.
    pub(super) fn spans(&self) -> &[MemberSpan] {
        let DocumentRange { first_span, end_span, .. } = self.range;
        self.block.spans.get(first_span as usize..end_span as usize).unwrap_or_default()
    }

    /// Whole document, unless the event has another time by now.
    pub(super) fn document(&self) -> Option<Bytes> {
        let DocumentRange { begin, end, .. } = self.range;
        self.has_time.then(|| self.block.text.slice(begin as usize..end as usize + 1))
    }

    /// Returns whether the document has the time of its event.
    pub(super) fn has_time(&self) -> bool {
        self.has_time
    }

    /// Takes note that the event has another time.
    pub(super) fn set_outdated(&mut self) {
        self.has_time = false;
    }
}

/// Builder of blocks, one after the other.
#[derive(Debug, Default)]
pub(crate) struct DocumentBlockBuilder {
    text: Vec<u8>,
    spans: Vec<MemberSpan>,
    /// Bytes and spans of the last block.
    last: (usize, usize),
}

impl DocumentBlockBuilder {
    /// Begins the document of an event with a time, whose members have so many bytes at least. `None` where it is too long for a block.
    pub(crate) fn begin(&mut self, time: DateTime<Utc>, bytes: usize) -> Option<DocumentWriter<'_>> {
        self.begin_with(bytes, |text| {
            text.extend_from_slice(BEGIN);
            timestamp::write(time, text);
            text.push(b'"');
        })
    }

    /// Begins a document likewise, whose head with the time is written by the caller.
    fn begin_with(
        &mut self,
        bytes: usize,
        write_head: impl FnOnce(&mut Vec<u8>),
    ) -> Option<DocumentWriter<'_>> {
        if bytes > MAX_MEMBER_BYTES || self.text.len() > MAX_BLOCK_BYTES {
            return None;
        }
        if self.text.is_empty() {
            let (bytes, spans) = self.last;
            self.text.reserve(bytes + bytes / 8);
            self.spans.reserve(spans + spans / 8);
        }
        let (begin, first_span) = (self.text.len(), self.spans.len());
        write_head(&mut self.text);
        let members = self.text.len();
        Some(DocumentWriter { block: self, begin, members, first_span, is_ended: false })
    }

    /// Copies a document of another block, with members that it lacks. `None` where it has one of them, or there is no room.
    pub(super) fn copy_with(
        &mut self,
        document: &BlockDocument,
        added: &[AddedMember],
    ) -> Option<DocumentRange> {
        let DocumentRange { begin, members, .. } = document.range;
        let head = document.block.text.get(begin as usize..members as usize).filter(|_| document.has_time)?;
        let mut writer = self.begin_with(document.text().len(), |text| text.extend_from_slice(head))?;
        writer.append(document.text(), document.spans());
        if !writer.append_new(added) {
            return None;
        }
        writer.end()
    }

    /// Returns the bytes of the documents so far.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Forgets documents that are of no event.
    pub(crate) fn clear(&mut self) {
        if !self.text.is_empty() {
            (self.text, self.spans) = (Vec::new(), Vec::new());
        }
    }

    /// Ends the block, and begins the next.
    pub(crate) fn finish(&mut self) -> Arc<DocumentBlock> {
        self.last = (self.text.len().min(MAX_MEMBER_BYTES), self.spans.len().min(MAX_MEMBER_BYTES));
        let text = Bytes::from(std::mem::take(&mut self.text));
        Arc::new(DocumentBlock { text, spans: std::mem::take(&mut self.spans) })
    }
}

/// Writer of one document. It takes the document back where it is dropped before its end.
#[derive(Debug)]
pub(crate) struct DocumentWriter<'b> {
    block: &'b mut DocumentBlockBuilder,
    begin: usize,
    members: usize,
    first_span: usize,
    is_ended: bool,
}

impl DocumentWriter<'_> {
    /// Appends members with their spans, which are counted from the first of them.
    pub(super) fn append(&mut self, text: &[u8], spans: &[MemberSpan]) {
        let by = self.offset();
        self.block.text.extend_from_slice(text);
        self.block
            .spans
            .extend(spans.iter().map(|span| MemberSpan { at: span.at + by, value: span.value + by }));
    }

    /// Appends the members of an input that are not among those before. Returns whether it did: objects are joined elsewhere, and members
    /// replaced.
    #[must_use]
    pub(super) fn append_missing(&mut self, added: &[AddedMember]) -> bool {
        let end = self.block.spans.len();
        for member in added {
            if !self.contains(member.name_text(), end) {
                let by = self.offset();
                self.block.text.extend_from_slice(&member.text);
                self.block.spans.push(MemberSpan { at: by, value: by + member.value_at });
            } else if member.replaces || member.value.is_object() {
                return false;
            }
        }
        true
    }

    /// Appends a tag. Returns whether it did: a document that has tags is changed elsewhere.
    #[must_use]
    pub(super) fn append_tag(&mut self, tag: &FieldTag) -> bool {
        let has_field = self.contains(tag.field.as_bytes(), self.block.spans.len());
        self.append_new(std::slice::from_ref(tag.member(has_field)))
    }

    /// Appends members that many documents share, none of which is among those before. Returns whether it did.
    #[must_use]
    pub(super) fn append_new(&mut self, added: &[AddedMember]) -> bool {
        let end = self.block.spans.len();
        let is_new = !added.iter().any(|member| self.contains(member.name_text(), end));
        is_new && self.append_missing(added)
    }

    /// Appends fields that many documents share; returns whether it did.
    pub(crate) fn append_fields(&mut self, fields: &FieldWriter) -> bool {
        fields.members().map(|(text, spans)| self.append(text, spans)).is_some()
    }

    /// Appends a text under a name that needs no escapes.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        let at = self.offset();
        self.block.text.extend_from_slice(b",\"");
        self.block.text.extend_from_slice(name.as_bytes());
        self.block.text.extend_from_slice(b"\":");
        let value = self.offset();
        write_json_text(text, &mut self.block.text);
        self.block.spans.push(MemberSpan { at, value });
    }

    /// Ends the document; `None` where it is too long, or has too many members.
    pub(crate) fn end(mut self) -> Option<DocumentRange> {
        let (end, end_span) = (self.block.text.len(), self.block.spans.len());
        if end - self.members > MAX_MEMBER_BYTES || end_span - self.first_span > MAX_MEMBERS {
            return None;
        }
        self.block.text.push(b'}');
        let offset = |at: usize| u32::try_from(at).ok();
        let range = DocumentRange {
            begin: offset(self.begin)?,
            members: offset(self.members)?,
            end: offset(end)?,
            first_span: offset(self.first_span)?,
            end_span: offset(end_span)?,
        };
        self.is_ended = true;
        Some(range)
    }

    /// Bytes that the members take on their way, about.
    pub(crate) fn bytes(&self) -> u64 {
        text_bytes(self.members())
    }

    /// Members that are written, each behind a comma.
    fn members(&self) -> &[u8] {
        self.block.text.get(self.members..).unwrap_or_default()
    }

    /// Offset of the next byte among the members.
    fn offset(&self) -> u32 {
        // A block is far shorter.
        (self.block.text.len() - self.members) as u32
    }

    /// Returns whether a member before a span has a name, as it is written.
    fn contains(&self, name: &[u8], end: usize) -> bool {
        let (members, spans) = (self.members(), self.block.spans.get(self.first_span..end));
        spans.unwrap_or_default().iter().any(|span| span.name(members) == Some(name))
    }
}

impl Drop for DocumentWriter<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.block.text.truncate(self.begin);
            self.block.spans.truncate(self.first_span);
        }
    }
}
