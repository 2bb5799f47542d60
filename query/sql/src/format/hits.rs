//! The format `json` of statements that no single search answers: their rows as hits of a search.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use millrace_runtime::Instant;
use serde_json::json;

use super::value;
use crate::bind::OutColumn;
use crate::error::Result;

/// Writes the format.
#[derive(Debug)]
pub(crate) struct Hits {
    columns: Arc<[OutColumn]>,
    /// The members of `_source`, with their colons.
    names: Vec<String>,
    started: Instant,
    hits: String,
    rows: u64,
}

impl Hits {
    pub(super) fn new(columns: Arc<[OutColumn]>) -> Self {
        let name = |column: &OutColumn| format!("{}:", json!(column.alias.as_ref().unwrap_or(&column.name)));
        let names = columns.iter().map(name).collect();
        Self { columns, names, started: Instant::now(), hits: String::new(), rows: 0 }
    }

    /// Writes rows; returns how many bytes they take by now.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<usize> {
        for row in 0..batch.num_rows() {
            if self.rows > 0 {
                self.hits.push(',');
            }
            // A row of several documents has the id of none.
            self.hits.push_str(&format!("{{\"_id\":\"{}\",\"_score\":null,\"_source\":{{", self.rows));
            self.rows += 1;
            for (at, (array, column)) in batch.columns().iter().zip(self.columns.iter()).enumerate() {
                if at > 0 {
                    self.hits.push(',');
                }
                self.hits.push_str(self.names.get(at).map_or("", String::as_str));
                value::json(array, row, column.ty, &mut self.hits);
            }
            self.hits.push_str("}}");
        }
        Ok(self.bytes())
    }

    /// Counts the bytes that hits take.
    pub(super) fn bytes(&self) -> usize {
        self.hits.capacity()
    }

    pub(super) fn finish(self, total: u64) -> String {
        format!(
            "{{\"took\":{},\"timed_out\":false,\"hits\":{{\"total\":{{\"value\":{total},\"relation\":\"eq\"}},\"max_score\":null,\"hits\":[{}]}}}}",
            self.started.elapsed().as_millis(),
            self.hits
        )
    }
}
