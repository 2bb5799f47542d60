//! The text of an answer, accounted for while it is written.
//!
//! An [`AnswerBuffer`] reserves memory before it grows, so that names, keys and texts that an answer repeats count as
//! often as they are written. Writing never fails: a buffer that is refused memory drops its text and ignores the rest.
//! Writers of long answers ask [`AnswerBuffer::check`] between items, and [`AnswerBuffer::finish`] tells the refusal.

use std::fmt::Debug;
use std::io;

use bytes::Bytes;
use serde::Serialize;

use crate::QueryContext;
use crate::error::{Error, Result};

/// Least capacity of a buffer that grows, in bytes.
const LEAST_CAPACITY: usize = 1 << 10;

/// A part of an answer that is written only once all of the answer is known.
pub trait WriteAnswer: Debug + Send + Sync {
    /// Writes it as a JSON value.
    ///
    /// # Errors
    /// As [`AnswerBuffer::check`].
    fn write(&self, out: &mut AnswerBuffer) -> Result<()>;
}

/// Growing JSON text with the memory that it takes; see the module.
#[derive(Debug)]
pub struct AnswerBuffer {
    text: Vec<u8>,
    /// Holds the capacity of the text.
    account: QueryContext,
    held: usize,
    /// Why no more memory is granted.
    refused: Option<String>,
}

impl AnswerBuffer {
    /// Makes an empty buffer whose memory counts as that of some work, from now until its text is dropped.
    pub fn new(work: &QueryContext) -> Self {
        Self { text: Vec::new(), account: work.part(), held: 0, refused: None }
    }

    /// Makes a buffer with room for so many bytes.
    pub fn with_capacity(work: &QueryContext, bytes: usize) -> Self {
        let mut buffer = Self::new(work);
        buffer.reserve(bytes);
        buffer
    }

    /// Counts the bytes written.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns true if nothing is written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Makes room for further bytes, unless memory is refused.
    fn reserve(&mut self, bytes: usize) {
        let needed = self.text.len().saturating_add(bytes);
        if needed <= self.text.capacity() || self.refused.is_some() {
            return;
        }
        let grown = self.text.capacity().saturating_add(self.text.capacity() / 2);
        let wanted = needed.max(grown).max(LEAST_CAPACITY);
        match self.account.hold(wanted.saturating_sub(self.held)) {
            Ok(()) => {
                self.held = wanted;
                self.text.reserve_exact(wanted - self.text.len());
            }
            Err(error) => {
                let text = match error {
                    Error::CircuitBreaking(text) => text,
                    other => other.reason(),
                };
                self.refused =
                    Some(format!("the answer takes [{wanted}] bytes and more; ask for less of it. {text}"));
                self.text = Vec::new();
                self.account = self.account.part();
            }
        }
    }

    /// Writes a byte.
    pub fn push(&mut self, byte: u8) {
        self.extend(&[byte]);
    }

    /// Writes bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        if self.refused.is_none() {
            self.text.extend_from_slice(bytes);
        }
    }

    /// Writes a JSON value.
    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        // Values in memory can always be written.
        let _ = serde_json::to_writer(&mut *self, value);
    }

    /// Writes what stands before an item of an array: nothing before the first.
    pub fn item(&mut self) {
        if self.text.last().is_some_and(|last| *last != b'[') {
            self.push(b',');
        }
    }

    /// Writes the name of a member of an object, behind the other members.
    pub fn key(&mut self, name: &str) {
        if self.text.last().is_some_and(|last| *last != b'{') {
            self.push(b',');
        }
        self.value(name);
        self.push(b':');
    }

    /// Writes a member of an object.
    pub fn member(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.key(name);
        self.value(value);
    }

    /// Refuses to go on where memory was refused.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`].
    pub fn check(&self) -> Result<()> {
        match &self.refused {
            None => Ok(()),
            Some(text) => Err(Error::CircuitBreaking(text.clone())),
        }
    }

    /// Returns the text, which holds its memory until it and its slices are dropped.
    ///
    /// # Errors
    /// As [`AnswerBuffer::check`].
    pub fn finish(self) -> Result<Bytes> {
        self.check()?;
        Ok(self.account.held_by(self.text))
    }
}

impl io::Write for &mut AnswerBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_holds_its_memory_until_its_text_is_dropped() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let work = QueryContext::new(&pool);
        let mut out = AnswerBuffer::new(&work);
        out.push(b'{');
        out.member("a\"b", &json!([1, 2]));
        out.key("list");
        out.push(b'[');
        for number in 0..3 {
            out.item();
            out.value(&number);
        }
        out.extend(b"]}");
        let text = out.finish().unwrap();
        assert_eq!(text, r#"{"a\"b":[1,2],"list":[0,1,2]}"#);
        drop(work);
        assert!(pool.reserved() > 0, "the text is still there");
        drop(text);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_is_refused_is_dropped_at_once_and_told_at_the_end() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let mut out = AnswerBuffer::new(&QueryContext::new(&pool));
        let name = "x".repeat(100 << 10);
        for _ in 0..100 {
            out.value(&name);
        }
        assert_eq!((pool.reserved(), out.len()), (0, 0));
        let error = out.finish().unwrap_err();
        assert_eq!((error.status(), error.error_type().as_str()), (429, "circuit_breaking_exception"));
    }
}
