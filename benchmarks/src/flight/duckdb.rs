//! DuckDB beside Flight: its Python client reads the Parquet files that the server wrote into Arrow.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rows::COLUMNS;
use crate::hardware;

const SCRIPT: &str = include_str!("duckdb.py");

/// One read of all rows.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DuckDbRead {
    /// Rows.
    pub(super) rows: u64,
    /// Bytes of the arrays.
    pub(super) bytes: u64,
    /// Seconds that it took.
    pub(super) seconds: f64,
}

/// Reads of DuckDB.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DuckDbReads {
    /// Its version.
    pub(super) version: String,
    /// All rows as one table, which its threads make together.
    pub(super) table: DuckDbRead,
    /// All rows as a stream of batches, which one thread makes.
    pub(super) stream: DuckDbRead,
}

/// Reads all segments of an index with as many threads as there are cores; `python` has `duckdb` and `pyarrow`.
pub(super) fn read(python: &PathBuf, segments: &Path, rows: u64) -> Result<DuckDbReads> {
    let task = json!({
        "directory": segments,
        "threads": hardware::cores(),
        "columns": COLUMNS,
        "rows": rows,
    });
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", python.display()))?;
    child.stdin.take().context("no stdin")?.write_all(task.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("DuckDB failed: are the packages `duckdb` and `pyarrow` installed for {}?", python.display());
    }
    let reads: DuckDbReads = serde_json::from_slice(&output.stdout).context("DuckDB's answer")?;
    ensure!(reads.table.rows == rows && reads.stream.rows == rows, "DuckDB read {reads:?}, not {rows} rows");
    Ok(reads)
}
