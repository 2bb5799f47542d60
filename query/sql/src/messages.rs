//! Batches as messages of Arrow IPC, cut where they are long.
//!
//! Statements encode on their own threads, where the rows were just made; listings of a server are encoded by whoever has them, a few
//! megabytes at a time. Dictionaries are written out, so that every message stands for itself.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
};

/// Bytes of values beyond which a batch is cut, and bytes of messages at which there are enough at once.
pub const MESSAGE_BYTES: usize = 2 << 20;

/// Makes messages of batches.
#[derive(Debug)]
pub struct Encoder {
    schema: SchemaRef,
    /// Batches that are not encoded yet: whole ones, or the rest of one. The next one is the last.
    left: Vec<RecordBatch>,
}

impl Encoder {
    /// Makes the encoder of batches of a schema, which may have dictionaries in the place of its values.
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema, left: Vec::new() }
    }

    /// Returns the schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Takes a batch, once all before are encoded.
    pub fn put(&mut self, batch: RecordBatch) {
        debug_assert!(self.is_done(), "batches would change places");
        self.left.push(batch);
    }

    /// Returns whether everything is encoded.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Makes messages until they are enough, or nothing is left.
    ///
    /// # Errors
    /// Those of Arrow for a batch that is not of the schema.
    pub fn encode(&mut self) -> Result<Vec<EncodedData>, ArrowError> {
        let (generator, options) = (IpcDataGenerator::default(), IpcWriteOptions::default());
        let (mut tracker, mut context) = (DictionaryTracker::new(true), IpcWriteContext::default());
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while bytes < MESSAGE_BYTES {
            let Some(part) = self.part() else { break };
            let part = written_out(part, &self.schema)?;
            let (dictionaries, message) = generator.encode(&part, &mut tracker, &options, &mut context)?;
            if !dictionaries.is_empty() {
                return Err(ArrowError::SchemaError("an answer has a dictionary".to_owned()));
            }
            bytes += message.arrow_data.len();
            messages.push(message);
        }
        Ok(messages)
    }

    /// Cuts off the next part that is short, or one row.
    fn part(&mut self) -> Option<RecordBatch> {
        while let Some(batch) = self.left.pop() {
            let rows = batch.num_rows();
            if rows == 0 {
                continue;
            }
            if rows == 1 || bytes_of(&batch, 0, rows) <= MESSAGE_BYTES {
                return Some(batch);
            }
            let half = rows / 2;
            self.left.push(batch.slice(half, rows - half));
            self.left.push(batch.slice(0, half));
        }
        None
    }
}

/// Makes the columns of a batch those of its schema, where they are dictionaries of their values.
fn written_out(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if *batch.schema_ref() == *schema {
        return Ok(batch);
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Bytes that some rows take as they leave, about: of lists and texts those that their offsets or views tell, and not what they are a
/// part of.
pub(crate) fn bytes_of(batch: &RecordBatch, from: usize, count: usize) -> usize {
    batch.columns().iter().map(|array| bytes_of_array(array, from, count)).sum()
}

fn bytes_of_array(array: &ArrayRef, from: usize, count: usize) -> usize {
    let within = |offsets: &[i32]| {
        let at = |place: usize| offsets.get(place).map_or(0, |offset| *offset as usize);
        (at(from), at(from + count).saturating_sub(at(from)))
    };
    let offsets = 4 * count;
    match array.data_type() {
        DataType::Utf8 => within(array.as_string::<i32>().value_offsets()).1 + offsets,
        DataType::Binary => within(array.as_binary::<i32>().value_offsets()).1 + offsets,
        DataType::Utf8View => {
            let views = array.as_string_view();
            let texts = views.views().get(from..from + count).unwrap_or_default();
            // The length is in the low half of a view's first word.
            texts.iter().map(|view| (*view as u32) as usize).sum::<usize>() + offsets
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, items) = within(list.value_offsets());
            bytes_of_array(list.values(), first, items) + offsets
        }
        DataType::Boolean | DataType::Null => count.div_ceil(8),
        other => match other.primitive_width() {
            Some(width) => width * count,
            None => array.slice(from, count).to_data().get_slice_memory_size().unwrap_or(MESSAGE_BYTES),
        },
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ListArray, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn parts(column: impl Array + 'static) -> Vec<RecordBatch> {
        let batch = RecordBatch::try_from_iter([("c", Arc::new(column) as ArrayRef)]).unwrap();
        let mut encoder = Encoder::new(batch.schema());
        encoder.put(batch);
        std::iter::from_fn(|| encoder.part()).collect()
    }

    #[test]
    fn long_batches_are_cut_by_what_their_rows_take() {
        let long = "x".repeat(MESSAGE_BYTES);
        let texts: Vec<&str> = (0..64).map(|row| if row == 40 { long.as_str() } else { "short" }).collect();
        let parts = parts(StringArray::from(texts));
        assert_eq!(parts.iter().map(RecordBatch::num_rows).sum::<usize>(), 64);
        assert!(parts.len() < 16, "{}", parts.len());
        for part in &parts {
            assert!(part.num_rows() == 1 || bytes_of(part, 0, part.num_rows()) <= MESSAGE_BYTES);
        }
    }

    #[test]
    fn lists_are_measured_by_what_their_rows_have() {
        let lists = (0..8_000).map(|row| Some((0..64).map(move |item| Some(row * item))));
        let parts = parts(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        assert_eq!(parts.iter().map(RecordBatch::num_rows).sum::<usize>(), 8_000);
        assert!(parts.len() <= 4, "{}", parts.len());
    }
}
