//! A run's findings as Markdown, both servers beside each other with ratios.

use std::fmt::Write;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::hardware::Hardware;
use crate::latency::Summary;
use crate::measure::{Ingest, Updates};
use crate::process::Memory;
use crate::query::{Mix, OperationTiming};
use crate::suite::{CROWD, Mappings, Outcome, Report, ShapeReport, ShapeRun, SqlStatement};
use crate::table;

/// Writes a report as `OUT.md` and `OUT.json`, and shows it.
pub(crate) fn write(out: &Path, markdown: &str, report: &impl Serialize) -> Result<()> {
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent)?;
    }
    for (extension, text) in [("md", markdown), ("json", &serde_json::to_string_pretty(report)?)] {
        let path = PathBuf::from(format!("{}.{extension}", out.display()));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{markdown}");
    Ok(())
}

/// Writes the report.
pub(crate) fn markdown(report: &Report) -> String {
    let mut out = String::from("# Benchmarks\n\n");
    let commands = [report.command.as_str(), &report.server_command];
    machine(&mut out, &report.hardware, &report.versions, &report.commit, &commands);
    cold_start(&mut out, report);
    for shape in &report.shapes {
        shape_section(&mut out, shape);
    }
    updates(&mut out, report);
    recovery(&mut out, report);
    mappings(&mut out, report);
    out
}

// Writing to a string cannot fail: results of `write!` are dropped throughout.

/// Writes the subject of the measurement, the machine and the commands.
pub(crate) fn machine(
    out: &mut String,
    hardware: &Hardware,
    versions: &[(String, String)],
    commit: &str,
    commands: &[&str],
) {
    let _ = writeln!(out, "## Machine, versions, commands\n");
    let _ = writeln!(out, "- {} cores of {}", hardware.cores, hardware.processor);
    let _ = writeln!(out, "- {:.1} GiB of memory", hardware.memory_bytes as f64 / (1_u64 << 30) as f64);
    let _ = writeln!(
        out,
        "- disk {}; 4 KiB append with fsync: {:.2} ms at p50, {:.2} ms at p99",
        hardware.disk, hardware.fsync_p50_ms, hardware.fsync_p99_ms
    );
    let _ = writeln!(out, "- Linux {}; load average at the start {}", hardware.kernel, hardware.load_average);
    for (name, version) in versions {
        let _ = writeln!(out, "- {name}: {version}");
    }
    let _ = writeln!(out, "- commit {commit}\n");
    for command in commands {
        let _ = writeln!(out, "    {command}");
    }
    out.push('\n');
}

fn cold_start(out: &mut String, report: &Report) {
    let _ = writeln!(out, "## Cold start\n");
    match &report.cold_start {
        Outcome::Measured(start) => {
            let _ = writeln!(
                out,
                "First answer {:.2} s after the start of the process on an empty directory; two seconds later {}.\n",
                start.first_answer_seconds,
                memory(start.memory)
            );
        }
        Outcome::Failed(why) => failed(out, why),
    }
}

/// Says that something could not be measured.
pub(crate) fn failed(out: &mut String, why: &str) {
    let _ = writeln!(out, "Not measured: {}\n", why.replace('\n', " "));
}

fn memory(memory: Option<Memory>) -> String {
    memory.map_or_else(
        || "-".to_owned(),
        |memory| {
            format!(
                "{} MB anonymous, {} MB resident",
                memory.anonymous_bytes >> 20,
                memory.resident_bytes >> 20
            )
        },
    )
}

fn measured(shape: &ShapeReport) -> Vec<&ShapeRun> {
    shape
        .runs
        .iter()
        .filter_map(|run| match run {
            Outcome::Measured(run) => Some(run),
            Outcome::Failed(_) => None,
        })
        .collect()
}

fn shape_section(out: &mut String, shape: &ShapeReport) {
    let megabytes = shape.source_bytes as f64 / 1e6;
    let _ =
        writeln!(out, "## {}: {} documents, {megabytes:.0} MB of JSON\n", shape.shape, grouped(shape.docs));
    for run in &shape.runs {
        if let Outcome::Failed(why) = run {
            failed(out, why);
        }
    }
    let runs = measured(shape);
    let Some(first) = runs.first() else { return };
    let _ =
        writeln!(out, "{} bulk clients, 5 MB bodies, acknowledged after fsync.\n", first.ingest.load.clients);
    table_head(out, "ingest", &runs);
    ingest_rows(out, &runs.iter().map(|run| &run.ingest).collect::<Vec<_>>());
    out.push('\n');
    query_table(out, &runs, "p50 in ms (p99)", |run| &run.queries);
    analysis_table(out, shape, &runs);
    statement_table(out, shape);
    query_table(out, &runs, &format!("{CROWD} clients, p50 in ms (p99)"), |run| &run.crowded);
    mix_table(out, &runs);
    runs.iter().for_each(|run| hour_table(out, run));
}

/// Writes the cost of an hour's query among few and among many documents.
fn hour_table(out: &mut String, run: &ShapeRun) {
    let hour = match &run.hour {
        Outcome::Measured(hour) => hour,
        Outcome::Failed(why) => return failed(out, why),
    };
    if hour.whole.is_empty() {
        return;
    }
    let small = format!("of the first {}", grouped(hour.part_docs));
    head(out, &format!("one hour on {}, p50 in ms", run.server), &["of all", &small]);
    for (whole, part) in hour.whole.iter().zip(&hour.part) {
        let figure = |timed: &OperationTiming| timed.error.is_none().then_some(timed.latency.p50_ms);
        row(out, &whole.name, &[figure(whole), figure(part)], 2);
    }
    out.push('\n');
}

/// The aggregations, with DuckDB's times and the ratio to the better of the others.
fn analysis_table(out: &mut String, shape: &ShapeReport, runs: &[&ShapeRun]) {
    if let Some(Outcome::Failed(why)) = &shape.duckdb {
        failed(out, why);
    }
    let Some(Outcome::Measured((duckdb, _))) = &shape.duckdb else {
        return query_table(out, runs, "aggregation, p50 in ms (p99)", |run| &run.analyses);
    };
    let Some(first) = runs.first() else { return };
    let names: Vec<&str> = runs.iter().map(|run| run.server.as_str()).chain(["duckdb"]).collect();
    let columns = iter::once("aggregation, p50 in ms (p99)").chain(names).chain(["ratio to the better"]);
    table::header(out, &columns.collect::<Vec<_>>());
    for (position, operation) in first.analyses.iter().enumerate() {
        let mut times = Vec::new();
        let _ = write!(out, "| {} |", operation.name);
        for timed in runs.iter().filter_map(|run| run.analyses.get(position)) {
            match &timed.error {
                None => times.push(Some(&timed.latency)),
                Some(error) => {
                    eprintln!("{}: {error}", timed.name);
                    times.push(None);
                }
            }
        }
        times.push(duckdb.get(position).map(|asked| &asked.latency));
        for time in &times {
            let _ = match time {
                Some(time) => write!(out, " {:.2} ({:.2}) |", time.p50_ms, time.p99_ms),
                None => write!(out, " failed |"),
            };
        }
        let best = times.iter().skip(1).flatten().map(|time| time.p50_ms).fold(f64::INFINITY, f64::min);
        let _ = match times.first() {
            Some(Some(own)) => writeln!(out, " {:.2} |", own.p50_ms / best),
            _ => writeln!(out, " - |"),
        };
    }
    out.push('\n');
}

/// The statements in SQL, with DuckDB's times and the ratio of the totals.
fn statement_table(out: &mut String, shape: &ShapeReport) {
    if shape.statements.is_empty() {
        return;
    }
    let duckdb = match &shape.duckdb {
        Some(Outcome::Measured((_, statements))) => statements.as_slice(),
        _ => &[],
    };
    head(out, "statement in SQL, p50 in ms", &["millrace", "duckdb"]);
    let (mut own, mut other) = (Some(0.0), Some(0.0));
    for (position, SqlStatement { timed, digest }) in shape.statements.iter().enumerate() {
        let asked = duckdb.get(position);
        let agree = match (digest, asked) {
            (Some((rows, sum)), Some(asked)) => {
                *rows == asked.digest.0 && (sum - asked.digest.1).abs() <= 1e-9 * sum.abs().max(1.0)
            }
            _ => true,
        };
        let name = if agree { timed.name.clone() } else { format!("{} (answers differ)", timed.name) };
        let figures =
            [timed.error.is_none().then_some(timed.latency.p50_ms), asked.map(|asked| asked.latency.p50_ms)];
        if let Some(error) = &timed.error {
            eprintln!("{name}: {error}");
        }
        own = own.zip(figures[0]).map(|(sum, figure)| sum + figure);
        other = other.zip(figures[1]).map(|(sum, figure)| sum + figure);
        row(out, &name, &figures, 2);
    }
    row(out, "total", &[own, other], 2);
    out.push('\n');
}

/// The searches in turn, alone and during an ingest.
fn mix_table(out: &mut String, runs: &[&ShapeRun]) {
    table_head(out, "all searches in turn, ms", runs);
    let mut line = |title: &str, figure: &dyn Fn(&Mix) -> f64| {
        let figures: Vec<Option<f64>> = runs
            .iter()
            .map(|run| match &run.mix {
                Outcome::Measured(mix) => Some(figure(mix)),
                Outcome::Failed(_) => None,
            })
            .collect();
        row(out, title, &figures, 2);
    };
    line("p50, alone", &|mix| mix.idle.p50_ms);
    line("p99, alone", &|mix| mix.idle.p99_ms);
    line("p50, during an ingest at full speed", &|mix| mix.under_ingest.p50_ms);
    line("p99, during an ingest at full speed", &|mix| mix.under_ingest.p99_ms);
    line("times the p99 alone", &|mix| mix.under_ingest.p99_ms / mix.idle.p99_ms);
    out.push('\n');
}

fn table_head(out: &mut String, title: &str, runs: &[&ShapeRun]) {
    let names: Vec<&str> = runs.iter().map(|run| run.server.as_str()).collect();
    head(out, title, &names);
}

fn head(out: &mut String, title: &str, names: &[&str]) {
    let ratio = (names.len() == 2).then_some("ratio");
    let columns = iter::once(title).chain(names.iter().copied()).chain(ratio);
    table::header(out, &columns.collect::<Vec<_>>());
}

/// A row of figures; with two servers, the first divided by the second.
fn row(out: &mut String, title: &str, figures: &[Option<f64>], digits: usize) {
    let _ = write!(out, "| {title} |");
    for figure in figures {
        match figure {
            Some(figure) => {
                let _ = write!(out, " {figure:.digits$} |");
            }
            None => out.push_str(" - |"),
        }
    }
    if let [first, second] = figures {
        match (first, second) {
            (Some(first), Some(second)) if *second > 0.0 => {
                let _ = write!(out, " {:.2} |", first / second);
            }
            _ => out.push_str(" - |"),
        }
    }
    out.push('\n');
}

fn ingest_rows(out: &mut String, runs: &[&Ingest]) {
    let mut line = |title: &str, digits: usize, figure: &dyn Fn(&Ingest) -> Option<f64>| {
        row(out, title, &runs.iter().map(|run| figure(run)).collect::<Vec<_>>(), digits);
    };
    let megabytes = |memory: Option<Memory>| memory.map(|memory| (memory.anonymous_bytes >> 20) as f64);
    line("MB/s of JSON", 1, &|run| Some(run.load.mb_per_second));
    line("documents/s", 0, &|run| Some(run.load.docs_per_second));
    line("bulk latency p50, ms", 0, &|run| Some(run.load.latency.p50_ms));
    line("bulk latency p99, ms", 0, &|run| Some(run.load.latency.p99_ms));
    line("refused documents", 0, &|run| Some(run.load.refused as f64));
    line("answers of 429", 0, &|run| Some(run.load.busy_answers as f64));
    line("all searchable after, s", 1, &|run| Some(run.searchable_after_seconds));
    line("merges at rest after, s", 1, &|run| Some(run.settled_after_seconds));
    line("stored / JSON, at rest", 3, &|run| Some(run.store_ratio));
    line("stored / JSON, one segment", 3, &|run| {
        run.merged_bytes.map(|bytes| bytes as f64 / run.load.source_bytes as f64)
    });
    line("merge to one segment, s", 1, &|run| run.merge_seconds);
    line("anonymous memory before, MB", 0, &|run| megabytes(run.memory_before));
    line("anonymous memory, most, MB", 0, &|run| megabytes(run.load.memory_max));
    line("anonymous memory at rest, MB", 0, &|run| megabytes(run.memory_after));
    let gets = |run: &Ingest, figure: fn(&Summary) -> f64| run.gets.as_ref().map(figure);
    line("GET by id during ingest p50, ms", 2, &|run| gets(run, |gets| gets.p50_ms));
    line("GET by id during ingest p99, ms", 2, &|run| gets(run, |gets| gets.p99_ms));
}

fn query_table(out: &mut String, runs: &[&ShapeRun], title: &str, of: fn(&ShapeRun) -> &[OperationTiming]) {
    let Some(first) = runs.first() else { return };
    table_head(out, title, runs);
    let mut ratios: Vec<f64> = Vec::new();
    for (position, operation) in of(first).iter().enumerate() {
        let timed: Vec<&OperationTiming> = runs.iter().filter_map(|run| of(run).get(position)).collect();
        let _ = write!(out, "| {} |", operation.name.replace('|', "\\|"));
        for timed in &timed {
            match &timed.error {
                None => {
                    let _ = write!(out, " {:.2} ({:.2}) |", timed.latency.p50_ms, timed.latency.p99_ms);
                }
                Some(error) => {
                    let _ = write!(out, " failed: {:.120} |", error.replace(['\n', '|'], " "));
                }
            }
        }
        if let [ours, peer] = timed.as_slice() {
            let ratio = ours.latency.p50_ms / peer.latency.p50_ms;
            let _ = match (&ours.error, &peer.error) {
                (None, None) if ours.hits != peer.hits => {
                    write!(out, " hits differ: {} and {} |", hits(ours), hits(peer))
                }
                (None, None) if ratio.is_finite() && ratio > 0.0 => {
                    ratios.push(ratio);
                    write!(out, " {ratio:.2} |")
                }
                _ => write!(out, " - |"),
            };
        }
        out.push('\n');
    }
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let _ = writeln!(out, "| geometric mean of {} | | | {mean:.2} |", ratios.len());
    }
    out.push('\n');
}

fn hits(timed: &OperationTiming) -> String {
    timed.hits.map_or_else(|| "none".to_owned(), |hits| hits.to_string())
}

/// Splits named outcomes into those that were measured, after reporting those that were not.
fn split<'a, T>(out: &mut String, outcomes: &'a [(String, Outcome<T>)]) -> (Vec<&'a str>, Vec<&'a T>) {
    let mut found = (Vec::new(), Vec::new());
    for (name, outcome) in outcomes {
        match outcome {
            Outcome::Measured(value) => {
                found.0.push(name.as_str());
                found.1.push(value);
            }
            Outcome::Failed(why) => failed(out, &format!("{name}: {why}")),
        }
    }
    found
}

fn updates(out: &mut String, report: &Report) {
    if report.updates.is_empty() {
        return;
    }
    let docs = grouped(report.update_docs);
    let _ = writeln!(out, "## Updates by client id: {docs} ids, then as many random overwrites\n");
    let (names, found) = split(out, &report.updates);
    if found.is_empty() {
        return;
    }
    head(out, "updates", &names);
    let mut line = |title: &str, figure: fn(&Updates) -> f64| {
        row(out, title, &found.iter().map(|run| Some(figure(run))).collect::<Vec<_>>(), 0);
    };
    line("first writes/s", |run| run.first.docs_per_second);
    line("overwrites/s", |run| run.overwrites.docs_per_second);
    line("bulk latency p99 of overwrites, ms", |run| run.overwrites.latency.p99_ms);
    line("all searchable after, s", |run| run.searchable_after_seconds);
    line("stored, MB", |run| run.store_bytes as f64 / 1e6);
    out.push('\n');
}

fn recovery(out: &mut String, report: &Report) {
    let Some(outcome) = &report.recovery else { return };
    let _ = writeln!(out, "## Recovery after `kill -9`\n");
    match outcome {
        Outcome::Measured(found) => {
            let _ = writeln!(
                out,
                "A log with {} documents, {:.0} MB of JSON: first answer after {:.2} s, all counted after {:.2} s.\n",
                grouped(found.docs),
                found.log_source_bytes as f64 / 1e6,
                found.first_answer_seconds,
                found.all_counted_seconds
            );
        }
        Outcome::Failed(why) => failed(out, why),
    }
}

fn mappings(out: &mut String, report: &Report) {
    if report.mappings.is_empty() {
        return;
    }
    let _ = writeln!(out, "## 1,000 mapped fields with sparse documents against 20 with dense ones\n");
    let (names, found) = split(out, &report.mappings);
    if found.is_empty() {
        return;
    }
    head(out, "20 values a document", &names);
    let mut line = |title: &str, digits: usize, figure: fn(&Mappings) -> f64| {
        row(out, title, &found.iter().map(|run| Some(figure(run))).collect::<Vec<_>>(), digits);
    };
    line("sparse, MB/s", 1, |run| run.sparse.load.mb_per_second);
    line("dense, MB/s", 1, |run| run.dense.load.mb_per_second);
    line("cost of a sparse byte / dense byte", 2, |run| {
        run.dense.load.mb_per_second / run.sparse.load.mb_per_second
    });
    line("sparse, stored / JSON", 3, |run| run.sparse.store_ratio);
    line("dense, stored / JSON", 3, |run| run.dense.store_ratio);
    out.push('\n');
}

/// Renders `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_ratios_for_two_servers() {
        let mut out = String::new();
        head(&mut out, "x", &["a", "b"]);
        row(&mut out, "speed", &[Some(30.0), Some(10.0)], 1);
        row(&mut out, "missing", &[None, Some(10.0)], 0);
        assert_eq!(
            out,
            "| x | a | b | ratio |\n|---|---|---|---|\n| speed | 30.0 | 10.0 | 3.00 |\n| missing | - | 10 | - |\n"
        );
        let mut out = String::new();
        head(&mut out, "x", &["a"]);
        row(&mut out, "speed", &[Some(30.0)], 1);
        assert_eq!(out, "| x | a |\n|---|---|\n| speed | 30.0 |\n");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
    }
}
