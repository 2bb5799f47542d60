//! DuckDB beside Millrace: the same questions in SQL, on the very Parquet files that the server wrote.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::hardware;
use crate::latency::{Histogram, Summary};

const SCRIPT: &str = include_str!("duckdb.py");

/// A Python interpreter with the package `duckdb`.
#[derive(Clone, Debug)]
pub(crate) struct DuckDb {
    /// The interpreter.
    pub(crate) python: PathBuf,
}

#[derive(Deserialize)]
struct Answer {
    version: String,
    answers: Vec<DuckDbAnswer>,
}

#[derive(Deserialize)]
struct DuckDbAnswer {
    latencies: Vec<f64>,
    rows: u64,
    sum: f64,
}

/// DuckDB's answer to a question.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DuckDbQuestion {
    /// Latencies.
    pub(crate) latency: Summary,
    /// Rows, and the sum of all numbers in them.
    pub(crate) digest: (u64, f64),
}

impl DuckDb {
    /// Times questions on all Parquet files below a directory, with as many threads as there are
    /// cores; returns the version and what came of each.
    pub(crate) fn time(
        &self,
        directory: &Path,
        questions: &[String],
        iterations: u32,
    ) -> Result<(String, Vec<DuckDbQuestion>)> {
        let task = json!({
            "directory": directory,
            "threads": hardware::cores(),
            "iterations": iterations,
            "questions": questions,
        });
        let mut child = Command::new(&self.python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.python.display()))?;
        child.stdin.take().context("no stdin")?.write_all(task.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("DuckDB failed: is the package `duckdb` installed for {}?", self.python.display());
        }
        let answer: Answer = serde_json::from_slice(&output.stdout).context("DuckDB's answer")?;
        ensure!(answer.answers.len() == questions.len(), "DuckDB answered {}", answer.answers.len());
        let asked = |answered: DuckDbAnswer| {
            let mut histogram = Histogram::default();
            answered.latencies.iter().for_each(|ms| histogram.record(Duration::from_secs_f64(ms / 1_000.0)));
            DuckDbQuestion { latency: histogram.summary(), digest: (answered.rows, answered.sum) }
        };
        Ok((answer.version, answer.answers.into_iter().map(asked).collect()))
    }
}
