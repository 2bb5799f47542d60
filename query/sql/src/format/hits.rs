//! The format `json` of statements that no single search answers: their rows as hits of a search.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use millrace_runtime::Instant;
use serde_json::json;

use super::value;
use crate::bind::OutColumn;
use crate::error::Result;
use crate::hit_layout::HitLayout;
use crate::types::SqlType;

/// Writes the format.
#[derive(Debug)]
pub(crate) struct Hits {
    columns: Arc<[OutColumn]>,
    layout: HitLayout,
    /// The members of `_source`, with their colons.
    names: Vec<String>,
    started: Instant,
    hits: String,
    rows: u64,
}

impl Hits {
    pub(super) fn new(columns: Arc<[OutColumn]>, layout: HitLayout) -> Self {
        let qualifier = layout.qualifier.as_ref().map(|name| format!("{name}."));
        let name = |column: &OutColumn| {
            let (qualifier, name) = (qualifier.as_deref(), column.alias.as_ref().unwrap_or(&column.name));
            format!("{}:", json!(format!("{}{name}", qualifier.unwrap_or_default())))
        };
        let names = columns.iter().map(name).collect();
        Self { columns, layout, names, started: Instant::now(), hits: String::new(), rows: 0 }
    }

    /// Writes rows; returns how many bytes they take by now.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<usize> {
        let own = batch.num_columns().saturating_sub(self.layout.members);
        let is_source = |at: usize| self.layout.of_fields.get(at).copied().unwrap_or(true);
        let (source, computed): (Vec<usize>, Vec<usize>) = (0..own).partition(|at| is_source(*at));
        for row in 0..batch.num_rows() {
            if self.rows > 0 {
                self.hits.push(',');
            }
            match (batch.columns().get(own), batch.columns().get(own + 1)) {
                (Some(index), Some(id)) => {
                    self.hits.push_str("{\"_index\":");
                    value::json(index, row, SqlType::Keyword, &mut self.hits);
                    self.hits.push_str(",\"_type\":\"_doc\",\"_id\":");
                    value::json(id, row, SqlType::Keyword, &mut self.hits);
                }
                // A row of several documents has the id of none.
                _ => self.hits.push_str(&format!("{{\"_id\":\"{}\"", self.rows)),
            }
            self.hits.push_str(",\"_score\":null,\"_source\":");
            self.rows += 1;
            match batch.columns().get(own + 2) {
                Some(whole) => value::json(whole, row, SqlType::Object, &mut self.hits),
                None => self.object(batch.columns(), &source, row, false),
            }
            if !computed.is_empty() {
                self.hits.push_str(",\"fields\":");
                self.object(batch.columns(), &computed, row, true);
            }
            self.hits.push('}');
        }
        Ok(self.bytes())
    }

    /// Writes columns of a row as the members of an object, as lists where `listed`.
    fn object(&mut self, arrays: &[ArrayRef], columns: &[usize], row: usize, listed: bool) {
        self.hits.push('{');
        let mut is_first = true;
        for at in columns {
            let (Some(array), Some(column)) = (arrays.get(*at), self.columns.get(*at)) else { continue };
            if array.is_null(row) && self.layout.is_optional(*at, columns.len()) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.hits.push(',');
            }
            self.hits.push_str(self.names.get(*at).map_or("", String::as_str));
            // Fragments are a list already.
            let listed = listed && (column.ty != SqlType::Nested || array.is_null(row));
            if listed {
                self.hits.push('[');
            }
            match array.as_boolean_opt().filter(|_| listed && array.is_valid(row)) {
                // Computed truth values are numbers, as OpenSearch's first engine has them.
                Some(flags) => self.hits.push(if flags.value(row) { '1' } else { '0' }),
                None => value::json(array, row, column.ty, &mut self.hits),
            }
            if listed {
                self.hits.push(']');
            }
        }
        self.hits.push('}');
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
