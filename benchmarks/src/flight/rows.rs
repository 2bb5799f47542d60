//! The rows that are written and read: six numbers and two strings, the same for each position in every run, as Arrow
//! batches and as bulk bodies.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{
    Float64Builder, Int32Builder, Int64Array, Int64Builder, RecordBatch, StringBuilder, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use serde_json::{Value, json};

use crate::random::Random;

/// The columns, in the order in which they are asked for.
pub(super) const COLUMNS: &str = "sequence, bytes, status, port, seconds, load, host, path";

/// Values of the shorter string.
const HOSTS: u64 = 1_000;
/// Values of the longer string.
const PATHS: u64 = 50_000;

/// One row.
#[derive(Clone, Copy, Debug)]
struct Row {
    sequence: i64,
    bytes: i64,
    status: i32,
    port: i32,
    /// Sixty-fourths, so that JSON says exactly what Arrow holds.
    seconds: f64,
    load: f64,
    host: u64,
    path: u64,
}

impl Row {
    fn at(position: u64) -> Self {
        let mut random = Random::new(position);
        Self {
            sequence: position as i64,
            bytes: random.below(1 << 40) as i64,
            status: *random.pick(&[200, 200, 200, 200, 204, 301, 304, 404, 500, 503]),
            port: 1_024 + random.below(64_000) as i32,
            seconds: random.below(1 << 16) as f64 / 64.0,
            load: random.below(1 << 20) as f64 / 64.0,
            host: random.below(HOSTS),
            path: random.below(PATHS),
        }
    }

    fn write_host(self, out: &mut String) {
        // Writing to a string cannot fail; so below.
        let _ = write!(out, "web-{:04}.example.com", self.host);
    }

    fn write_path(self, out: &mut String) {
        let _ = write!(out, "/images/{:03}/{:02}/picture.png", self.path / 100, self.path % 100);
    }
}

/// Returns the body that makes the index.
pub(super) fn index_body() -> Value {
    let properties: serde_json::Map<String, Value> = [
        ("sequence", "long"),
        ("bytes", "long"),
        ("status", "integer"),
        ("port", "integer"),
        ("seconds", "double"),
        ("load", "double"),
        ("host", "keyword"),
        ("path", "keyword"),
    ]
    .into_iter()
    .map(|(name, kind)| (name.to_owned(), json!({"type": kind})))
    .collect();
    json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": properties},
    })
}

/// Renders rows as a bulk body; the server makes the ids.
pub(super) fn bulk_body(positions: Range<u64>) -> String {
    let mut out = String::with_capacity((positions.end - positions.start) as usize * 190);
    for row in positions.map(Row::at) {
        let _ = write!(
            out,
            "{{\"index\":{{}}}}\n{{\"sequence\":{},\"bytes\":{},\"status\":{},\"port\":{},\"seconds\":{},\"load\":{},\"host\":\"",
            row.sequence, row.bytes, row.status, row.port, row.seconds, row.load
        );
        row.write_host(&mut out);
        out.push_str("\",\"path\":\"");
        row.write_path(&mut out);
        out.push_str("\"}\n");
    }
    out
}

/// Renders rows as a batch.
pub(super) fn batch(positions: Range<u64>) -> Result<RecordBatch> {
    let count = (positions.end - positions.start) as usize;
    let [mut sequence, mut bytes] = [0; 2].map(|_| Int64Builder::with_capacity(count));
    let [mut status, mut port] = [0; 2].map(|_| Int32Builder::with_capacity(count));
    let [mut seconds, mut load] = [0; 2].map(|_| Float64Builder::with_capacity(count));
    let mut host = StringBuilder::with_capacity(count, count * 20);
    let mut path = StringBuilder::with_capacity(count, count * 28);
    let mut text = String::new();
    for row in positions.map(Row::at) {
        sequence.append_value(row.sequence);
        bytes.append_value(row.bytes);
        status.append_value(row.status);
        port.append_value(row.port);
        seconds.append_value(row.seconds);
        load.append_value(row.load);
        text.clear();
        row.write_host(&mut text);
        host.append_value(&text);
        text.clear();
        row.write_path(&mut text);
        path.append_value(&text);
    }
    let kinds = [
        DataType::Int64,
        DataType::Int64,
        DataType::Int32,
        DataType::Int32,
        DataType::Float64,
        DataType::Float64,
        DataType::Utf8,
        DataType::Utf8,
    ];
    let fields: Vec<Field> =
        COLUMNS.split(", ").zip(kinds).map(|(name, kind)| Field::new(name, kind, false)).collect();
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        vec![
            Arc::new(sequence.finish()),
            Arc::new(bytes.finish()),
            Arc::new(status.finish()),
            Arc::new(port.finish()),
            Arc::new(seconds.finish()),
            Arc::new(load.finish()),
            Arc::new(host.finish()),
            Arc::new(path.finish()),
        ],
    )?)
}

/// Splits so many rows into consecutive ranges.
pub(super) fn ranges(count: u64, length: u64) -> impl Iterator<Item = Range<u64>> {
    (0..count).step_by(length as usize).map(move |first| first..(first + length).min(count))
}

/// Tally of the rows that were read: enough to know that each came once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Rows.
    pub(super) rows: u64,
    /// Sum of their positions.
    sequences: i128,
    /// Bytes of the arrays: values, offsets and validity.
    pub(super) bytes: u64,
}

impl Tally {
    /// Counts a batch.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let sequence = batch.column(0).as_any().downcast_ref::<Int64Array>();
        let sequence =
            sequence.ok_or_else(|| anyhow::anyhow!("the first column is not of 64-bit integers"))?;
        anyhow::ensure!(
            batch.columns().iter().all(|column| !column.as_any().is::<StringViewArray>()),
            "a column is of string views, which JDBC cannot read"
        );
        self.rows += batch.num_rows() as u64;
        self.sequences += sequence.values().iter().map(|value| i128::from(*value)).sum::<i128>();
        for column in batch.columns() {
            self.bytes += column.to_data().get_slice_memory_size()? as u64;
        }
        Ok(())
    }

    /// Checks that the first `rows` rows were read, each once.
    pub(super) fn check(&self, rows: u64) -> Result<()> {
        let sequences = i128::from(rows) * (i128::from(rows) - 1) / 2;
        anyhow::ensure!(
            self.rows == rows && self.sequences == sequences,
            "read {} rows whose positions add up to {}, not {rows} and {sequences}",
            self.rows,
            self.sequences
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Float64Type, Int32Type, Int64Type};

    use super::*;

    #[test]
    fn both_forms_hold_the_same_rows() {
        let batch = batch(10..60).unwrap();
        let body = bulk_body(10..60);
        let documents: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(documents.len(), 100);
        for row in 0..50 {
            let expected = json!({
                "sequence": batch.column(0).as_primitive::<Int64Type>().value(row),
                "bytes": batch.column(1).as_primitive::<Int64Type>().value(row),
                "status": batch.column(2).as_primitive::<Int32Type>().value(row),
                "port": batch.column(3).as_primitive::<Int32Type>().value(row),
                "seconds": batch.column(4).as_primitive::<Float64Type>().value(row),
                "load": batch.column(5).as_primitive::<Float64Type>().value(row),
                "host": batch.column(6).as_string::<i32>().value(row),
                "path": batch.column(7).as_string::<i32>().value(row),
            });
            let found = &documents[row * 2 + 1];
            for (name, value) in expected.as_object().unwrap() {
                let same = match value.as_f64() {
                    Some(number) => found[name].as_f64() == Some(number),
                    None => &found[name] == value,
                };
                assert!(same, "{name}: {} and {value}", found[name]);
            }
        }
    }

    #[test]
    fn a_row_that_comes_twice_is_noticed() {
        let mut tally = Tally::default();
        for range in ranges(100, 30) {
            tally.add(&batch(range).unwrap()).unwrap();
        }
        tally.check(100).unwrap();
        assert!(tally.bytes > 100 * (4 * 8 + 2 * 4));
        let mut tally = Tally::default();
        tally.add(&batch(0..50).unwrap()).unwrap();
        tally.add(&batch(0..50).unwrap()).unwrap();
        assert!(tally.check(100).is_err());
    }
}
