//! Trains and scores models, for comparing with other programs (`benchmarks/src/anomaly.py`).
//!
//! Each line of the input is a task; each line of the output is its answer, or `{"error": …}`. Missing numbers are `null`.
//!
//! - `{"task": "rows", "detector", "parameters": {…}, "scaling", "seed", "train": [[…], …], "score": [[…], …]}`
//! - `{"task": "series", "detector", "samples", "train": number, "seasonality", "seed"}`: trains on the first, observes the others
//! - `{"task": "text", "lines"}`: the template of each line
//! - `{"task": "speed", "detector", "rows", "features"}`, `{"task": "text_speed", "lines", "repeat"}`: seconds

use std::io::{self, BufRead, Write};

use millrace_anomaly::{
    FeatureTable, RowDetector, Scaling, ScoreCutoff, Series, SeriesDetector, TextDetector,
};
use millrace_forecast::Random;
use serde_json::{Value, json};

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().map(Vec::as_slice).unwrap_or_default();
    values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
}

fn row_detector(task: &Value) -> Result<RowDetector, String> {
    let name = task["detector"].as_str().unwrap_or_default();
    let given = |field: &str| task["parameters"][field].as_u64().map(|number| number as usize);
    Ok(match RowDetector::default_of(name).ok_or("no such detector")? {
        RowDetector::IsolationForest { trees, sample } => RowDetector::IsolationForest {
            trees: given("trees").unwrap_or(trees),
            sample: given("sample").unwrap_or(sample),
        },
        RowDetector::LocalOutlierFactor { neighbors } => {
            RowDetector::LocalOutlierFactor { neighbors: given("neighbors").unwrap_or(neighbors) }
        }
        RowDetector::KMeans { clusters } => {
            RowDetector::KMeans { clusters: given("clusters").unwrap_or(clusters) }
        }
        RowDetector::Dbscan { min_samples, .. } => RowDetector::Dbscan {
            eps: task["parameters"]["eps"].as_f64(),
            min_samples: given("min_samples").unwrap_or(min_samples),
        },
        RowDetector::Hdbscan { min_samples } => {
            RowDetector::Hdbscan { min_samples: given("min_samples").unwrap_or(min_samples) }
        }
    })
}

fn score_rows(task: &Value) -> Result<Value, String> {
    let rows: Vec<Vec<f64>> = task["train"].as_array().ok_or("no rows")?.iter().map(numbers).collect();
    let mut table = FeatureTable::new(rows.first().map_or(0, Vec::len)).map_err(|error| error.to_string())?;
    for row in &rows {
        table.push(row).map_err(|error| error.to_string())?;
    }
    let scaling = if task["scaling"] == "none" { Scaling::None } else { Scaling::Robust };
    let seed = task["seed"].as_u64().unwrap_or_default();
    let model = row_detector(task)?.train_scaled(&table, seed, scaling).map_err(|error| error.to_string())?;
    let (mut raw, mut ranks, mut clusters) = (Vec::new(), Vec::new(), Vec::new());
    for row in task["score"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let score = model.score(&numbers(row)).map_err(|error| error.to_string())?;
        raw.push(score.raw);
        ranks.push(score.rank);
        clusters.push(score.cluster);
    }
    let labels: Vec<Option<u32>> = model.projection().points.iter().map(|point| point.cluster).collect();
    Ok(
        json!({ "raw": raw, "rank": ranks, "cluster": clusters, "labels": labels, "bytes": model.encode().len() }),
    )
}

fn score_series(task: &Value) -> Result<Value, String> {
    let samples: Vec<Option<f64>> =
        numbers(&task["samples"]).into_iter().map(|value| (!value.is_nan()).then_some(value)).collect();
    let train = (task["train"].as_u64().unwrap_or_default() as usize).min(samples.len());
    let detector = SeriesDetector::default_of(task["detector"].as_str().unwrap_or_default());
    let detector = detector.ok_or("no such detector")?;
    let series = Series::new(samples[..train].to_vec()).map_err(|error| error.to_string())?;
    let seasonality = task["seasonality"].as_u64().map(|season| season as usize);
    let seed = task["seed"].as_u64().unwrap_or_default();
    let first = series.skipped() as i64;
    let mut model = detector.train(&series, first, seasonality, seed).map_err(|error| error.to_string())?;
    let (mut raw, mut ranks, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for (bucket, sample) in samples.iter().enumerate().skip(train) {
        let score = model.observe(bucket as i64, *sample).map_err(|error| error.to_string())?;
        raw.push(score.raw);
        ranks.push(score.rank);
        expected.push(score.expected);
    }
    Ok(json!({ "raw": raw, "rank": ranks, "expected": expected, "seasons": model.seasons() }))
}

fn match_lines(task: &Value) -> Result<Value, String> {
    let lines: Vec<&str> =
        task["lines"].as_array().ok_or("no lines")?.iter().filter_map(Value::as_str).collect();
    let trainer = TextDetector::Drain.trainer(1, 1).map_err(|error| error.to_string())?;
    let mut trainer = trainer;
    trainer.push(0, lines.first().copied().unwrap_or_default());
    let mut model = trainer.finish().map_err(|error| error.to_string())?;
    let templates: Vec<Option<u32>> = lines.iter().map(|line| model.observe(0, line).template).collect();
    let texts: Vec<String> = model.templates().into_iter().map(|template| template.text).collect();
    Ok(json!({ "templates": templates, "texts": texts }))
}

#[expect(clippy::disallowed_methods, reason = "an example measures time without a server")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

fn time_rows(task: &Value) -> Result<Value, String> {
    let (rows, features) =
        (task["rows"].as_u64().unwrap_or(1_000_000), task["features"].as_u64().unwrap_or(8));
    let mut random = Random::new(1);
    let mut table = FeatureTable::new(features as usize).map_err(|error| error.to_string())?;
    for _ in 0..rows {
        let row: Vec<f64> = (0..features).map(|_| (0..4).map(|_| random.uniform()).sum()).collect();
        table.push(&row).map_err(|error| error.to_string())?;
    }
    let start = now();
    let model = row_detector(task)?.train(&table, 1).map_err(|error| error.to_string())?;
    let trained = start.elapsed().as_secs_f64();
    let scored = rows.min(20_000) as usize;
    let cutoff = ScoreCutoff::new(None, Some(0.01)).map_err(|error| error.to_string())?;
    let numbers: Vec<f64> = (0..scored).flat_map(|row| table.row(row)).collect();
    let mut total = 0.0;
    let start = now();
    for rows in numbers.chunks(512 * features as usize) {
        let scores = model.score_all(rows, cutoff).map_err(|error| error.to_string())?;
        total += scores.iter().map(|score| score.rank).sum::<f64>();
    }
    let per_second = scored as f64 / start.elapsed().as_secs_f64();
    let bytes = model.encode().len();
    Ok(
        json!({ "seconds": trained, "scored_per_second": per_second, "mean_rank": total / scored as f64, "bytes": bytes }),
    )
}

fn time_text(task: &Value) -> Result<Value, String> {
    let lines: Vec<&str> =
        task["lines"].as_array().ok_or("no lines")?.iter().filter_map(Value::as_str).collect();
    let mut trainer = TextDetector::Drain.trainer(1, 1).map_err(|error| error.to_string())?;
    lines.iter().for_each(|line| trainer.push(0, line));
    let mut model = trainer.finish().map_err(|error| error.to_string())?;
    let repeat = task["repeat"].as_u64().unwrap_or(1);
    let start = now();
    for bucket in 1..=repeat {
        lines.iter().for_each(|line| {
            model.observe(bucket as i64, line);
        });
    }
    let count = lines.len() as f64 * repeat as f64;
    Ok(json!({ "lines_per_second": count / start.elapsed().as_secs_f64() }))
}

fn answer(line: &str) -> Result<Value, String> {
    let task: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    match task["task"].as_str().unwrap_or_default() {
        "rows" => score_rows(&task),
        "series" => score_series(&task),
        "text" => match_lines(&task),
        "speed" => time_rows(&task),
        "text_speed" => time_text(&task),
        other => Err(format!("no such task: {other}")),
    }
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = answer(&line?).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
