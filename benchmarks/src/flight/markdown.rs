//! The report of `flight` as Markdown: medians of all rounds, ratios, and whether the goals are met.

use std::fmt::Write as _;

use super::{BATCH_ROWS, ClientRead, Report, Write};
use crate::report::{grouped, machine};
use crate::table;

/// Megabytes (10^6) of Arrow a second to one client.
const RATE_GOAL: f64 = 500.0;
/// Megabytes that the server may grow by meanwhile.
const GROWTH_GOAL: f64 = 256.0;
/// Rate by that of DuckDB on the same files.
const DUCKDB_GOAL: f64 = 0.5;
/// Rate of writing by that of bulk requests.
const BULK_GOAL: f64 = 1.0;
/// Milliseconds of the smallest statement.
const SMALLEST_GOAL: f64 = 2.0;

// Writing to a string cannot fail: results of `write!` are dropped.

/// Writes the report.
pub(super) fn markdown(report: &Report) -> String {
    let mut out = String::from("# Arrow Flight SQL\n\n");
    machine(&mut out, &report.hardware, &report.versions, &report.commit, &[&report.command]);
    if !report.reads.is_empty() {
        reading(&mut out, report);
    }
    if !report.writes.is_empty() {
        writing(&mut out, report);
    }
    if let Some(found) = &report.smallest {
        let _ = writeln!(out, "## The smallest statement\n");
        let _ = writeln!(
            out,
            "`SELECT 1`, {} times one after the other, from the statement to the end of its answer: {:.2} ms at p50 ({}), \
             {:.2} at p99, {:.2} at most.",
            grouped(found.count),
            found.p50_ms,
            goal(found.p50_ms < SMALLEST_GOAL, &format!("below {SMALLEST_GOAL}")),
            found.p99_ms,
            found.max_ms
        );
    }
    out
}

fn reading(out: &mut String, report: &Report) {
    let _ = writeln!(out, "## Reading\n");
    let _ = writeln!(
        out,
        "{} rows of six numbers and two strings to one client that decodes and counts them; no TLS, client and server on the \
         same cores. Megabytes are those of the arrays. Medians of {} rounds in turns, after one that is not counted.\n",
        grouped(report.rows),
        report.rounds
    );
    table::header(
        out,
        &[
            "by",
            "seconds",
            "MB of Arrow",
            "MB/s",
            "million rows/s",
            "server's processor time, s",
            "server grew by, MB",
            "of that anonymous",
        ],
    );
    for by in names(report.reads.iter().map(|read| read.by)) {
        let figure = |figure: &dyn Fn(&ClientRead) -> Option<f64>| {
            median(report.reads.iter().filter(|read| read.by == by).map(figure))
        };
        let seconds = figure(&|read| Some(read.seconds));
        let megabytes = figure(&|read| Some(read.bytes as f64 / 1e6));
        let cells = [
            shown(seconds, 2),
            shown(megabytes, 0),
            shown(figure(&rate), 0),
            shown(seconds.map(|seconds| report.rows as f64 / 1e6 / seconds), 2),
            shown(figure(&|read| read.cpu_seconds), 1),
            shown(figure(&|read| Some(read.growth?.resident_bytes as f64 / 1e6)), 0),
            shown(figure(&|read| Some(read.growth?.anonymous_bytes as f64 / 1e6)), 0),
        ];
        let _ = writeln!(out, "| {by} | {} |", cells.join(" | "));
    }
    out.push('\n');
    let flight = || report.reads.iter().filter(|read| read.by == "Flight");
    if let Some(found) = median(flight().map(rate)) {
        let _ = writeln!(
            out,
            "- {found:.0} MB/s: {}.",
            goal(found >= RATE_GOAL, &format!("at least {RATE_GOAL}"))
        );
    }
    let most = flight().filter_map(|read| read.growth).map(|growth| growth.resident_bytes).max();
    if let Some(most) = most.map(|bytes| bytes as f64 / 1e6) {
        let kept = goal(most < GROWTH_GOAL, &format!("below {GROWTH_GOAL}"));
        let _ = writeln!(out, "- The server grew by {most:.0} MB at most: {kept}.");
    }
    let seconds = |by: &str| {
        median(report.reads.iter().filter(|read| read.by.starts_with(by)).map(|read| Some(read.seconds)))
    };
    let duckdb = [seconds("DuckDB, table"), seconds("DuckDB, stream")].into_iter().flatten();
    if let Some((flight, duckdb)) = seconds("Flight").zip(duckdb.min_by(f64::total_cmp)) {
        let ratio = duckdb / flight;
        let _ = writeln!(
            out,
            "- Rows a second by those of DuckDB, the faster of its two ways: {ratio:.2}; {}.",
            goal(ratio >= DUCKDB_GOAL, &format!("at least {DUCKDB_GOAL}"))
        );
    }
    out.push('\n');
}

fn writing(out: &mut String, report: &Report) {
    let _ = writeln!(out, "## Writing\n");
    let _ = writeln!(
        out,
        "The same {} documents as bulk bodies of about 5 MB and as Arrow batches of {} rows, both made before; acknowledged \
         after fsync, flushed at the end (which is timed, too), each time on an empty directory. Medians of {} rounds in \
         turns.\n",
        grouped(report.docs),
        grouped(BATCH_ROWS),
        report.rounds
    );
    table::header(
        out,
        &[
            "by",
            "clients",
            "documents/s",
            "processor time of the server, µs a document",
            "anonymous memory, most, MB",
        ],
    );
    let docs = report.docs as f64;
    let mut rates = Vec::new();
    for (by, clients) in names(report.writes.iter().map(|write| (write.by, write.clients))) {
        let figure = |figure: &dyn Fn(&Write) -> Option<f64>| {
            let runs = report.writes.iter().filter(|write| (write.by, write.clients) == (by, clients));
            median(runs.map(figure))
        };
        let rate = figure(&|write| Some(docs / write.seconds));
        let _ = writeln!(
            out,
            "| {by} | {clients} | {} | {} | {} |",
            rate.map_or_else(|| "-".to_owned(), |rate| grouped(rate as u64)),
            shown(figure(&|write| Some(write.cpu_seconds? * 1e6 / docs)), 2),
            shown(figure(&|write| Some(write.memory.anonymous_bytes as f64 / 1e6)), 0),
        );
        rates.push((by, clients, rate.unwrap_or(f64::NAN)));
    }
    out.push('\n');
    let bulk = rates.iter().find(|(by, ..)| *by == "_bulk").map_or(f64::NAN, |(.., rate)| *rate);
    for (by, clients, rate) in rates.iter().filter(|(by, ..)| *by != "_bulk") {
        let ratio = rate / bulk;
        let met = goal(ratio >= BULK_GOAL, &format!("at least {BULK_GOAL}"));
        let plural = if *clients == 1 { "" } else { "s" };
        let _ = writeln!(out, "- {by} with {clients} client{plural} by `_bulk`: {ratio:.2}; {met}.");
    }
    out.push('\n');
}

fn rate(read: &ClientRead) -> Option<f64> {
    Some(read.bytes as f64 / 1e6 / read.seconds)
}

/// Returns each name once, in the order in which they come.
fn names<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for name in all {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Returns the middle of what all runs have; `None` without any, or where one of them has nothing.
fn median(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut found = figures.collect::<Option<Vec<f64>>>()?;
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn goal(met: bool, what: &str) -> String {
    if met { format!("goal {what}") } else { format!("**misses** the goal {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_all_rounds_counts() {
        assert_eq!(median([3.0, 1.0, 2.0].map(Some).into_iter()), Some(2.0));
        assert_eq!(median([Some(3.0), None].into_iter()), None);
        assert_eq!(median(std::iter::empty()), None);
        assert_eq!(names(["a", "b", "a"].into_iter()), ["a", "b"]);
    }

    #[test]
    fn a_goal_that_is_missed_stands_out() {
        assert_eq!(goal(true, "below 2"), "goal below 2");
        assert_eq!(goal(false, "below 2"), "**misses** the goal below 2");
    }
}
