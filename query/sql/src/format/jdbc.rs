//! The format `jdbc`: a schema, rows, and how many there are.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use serde_json::{Map, Value, json};

use super::value;
use crate::bind::OutColumn;
use crate::error::Result;

/// Writes the format.
#[derive(Debug)]
pub(crate) struct Jdbc {
    columns: Arc<[OutColumn]>,
    out: String,
    rows: u64,
    /// `true` if an earlier page had the schema and the totals.
    later: bool,
}

impl Jdbc {
    pub(super) fn new(columns: Arc<[OutColumn]>) -> Self {
        let schema: Vec<Value> = columns
            .iter()
            .map(|column| {
                let mut shown = Map::new();
                shown.insert("name".into(), json!(column.name));
                if let Some(alias) = &column.alias {
                    shown.insert("alias".into(), json!(alias));
                }
                shown.insert("type".into(), json!(column.shown));
                Value::Object(shown)
            })
            .collect();
        let out = format!("{{\"schema\":{},\"datarows\":[", Value::Array(schema));
        Self { columns, out, rows: 0, later: false }
    }

    /// Starts a page behind the first: it has rows only.
    pub(super) fn later(columns: Arc<[OutColumn]>) -> Self {
        Self { columns, out: "{\"datarows\":[".to_owned(), rows: 0, later: true }
    }

    /// Writes rows; returns how many bytes they take by now.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<usize> {
        for row in 0..batch.num_rows() {
            if self.rows > 0 {
                self.out.push(',');
            }
            self.rows += 1;
            self.out.push('[');
            for (at, (array, column)) in batch.columns().iter().zip(self.columns.iter()).enumerate() {
                if at > 0 {
                    self.out.push(',');
                }
                value::json(array, row, column.ty, &mut self.out);
            }
            self.out.push(']');
        }
        Ok(self.out.capacity())
    }

    pub(super) fn finish(mut self, total: u64, cursor: Option<&str>) -> String {
        self.out.push(']');
        if let Some(cursor) = cursor {
            self.out.push_str(&format!(",\"cursor\":{}", json!(cursor)));
        }
        if !self.later {
            self.out.push_str(&format!(",\"total\":{total},\"size\":{},\"status\":200", self.rows));
        }
        self.out.push('}');
        self.out
    }
}
