//! The report as Markdown. Writing to a string cannot fail: results of `write!` are dropped.

use std::fmt::Write;

use super::full::{FullSpeedRun, median};
use super::{OptionalReport, Report};
use crate::report::{grouped, machine};
use crate::table;

/// Writes the report.
pub(super) fn markdown(report: &Report) -> String {
    let mut out = String::from("# Continuous rules\n\n");
    machine(&mut out, &report.hardware, &report.versions, &report.commit, &[&report.command]);
    let _ = writeln!(
        out,
        "Events: {}, one in 1,000 is one that a rule asks for; an index of four shards, bodies of 5 MB. Of the rules half ask for one term, \
         a fifth for terms and ranges, a fifth for words or a phrase, a tenth have a wildcard; three of ten count by a key. The programs that send and \
         look share the machine's cores.\n",
        report.events.name()
    );
    steady(&mut out, report);
    full(&mut out, report);
    cost(&mut out, report);
    others(&mut out, report);
    beside(&mut out, report);
    out
}

/// Marks a figure that is not below its goal.
fn below(value: f64, goal: f64, digits: usize) -> String {
    match value < goal {
        true => format!("{value:.digits$}"),
        false => format!("**{value:.digits$}** (goal: below {goal:.digits$})"),
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn steady(out: &mut String, report: &Report) {
    if report.steady.is_empty() {
        return;
    }
    let _ = writeln!(out, "## At a set rate\n");
    let _ = writeln!(
        out,
        "Lag: how long the oldest frame that is not evaluated has been waiting, looked at twenty times a second. Found: from the answer of the bulk to a \
         search that finds the alert, looked for each 25 ms. The first five seconds do not count.\n"
    );
    table::header(
        out,
        &[
            "rules",
            "events/s, set",
            "events/s",
            "s",
            "lag p50, ms",
            "p99, ms",
            "first quarter, ms",
            "last quarter, ms",
            "alerts",
            "found p50, ms",
            "p99, ms",
            "bulk p99, ms",
            "processor µs an event",
            "anonymous memory, most, MB",
        ],
    );
    for run in &report.steady {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.0} | {} | {:.0} | {} | {} | {:.0} | {} | {:.0} | {:.1} | {} |",
            grouped(run.rules),
            grouped(run.pace.rate),
            grouped(run.events_per_second as u64),
            run.pace.seconds,
            run.lag.p50_ms,
            below(run.lag.p99_ms, 500.0, 0),
            run.lag_first_ms,
            below(run.lag_last_ms, run.lag_first_ms * 1.5 + 50.0, 0),
            grouped(run.alerts),
            run.found.p50_ms,
            below(run.found.p99_ms, 1_000.0, 0),
            run.bulks.p99_ms,
            run.cpu_seconds * 1e6 / run.events.max(1) as f64,
            run.memory_max
                .map_or_else(|| "-".to_owned(), |memory| below(mb(memory.anonymous_bytes), 1_000.0, 0)),
        );
    }
    out.push('\n');
}

fn runs(out: &mut String, runs: &[FullSpeedRun]) {
    table::header(
        out,
        &[
            "rules",
            "events",
            "events/s",
            "all alerts found after the last answer, s",
            "processor µs an event",
            "anonymous memory, most, MB",
        ],
    );
    for run in runs {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.2} | {} |",
            grouped(run.rules),
            grouped(run.docs),
            grouped(run.docs_per_second as u64),
            below(run.alerts_after_seconds, 30.0, 1),
            run.cpu_us,
            run.memory_max
                .map_or_else(|| "-".to_owned(), |memory| format!("{:.0}", mb(memory.anonymous_bytes))),
        );
    }
    out.push('\n');
}

fn full(out: &mut String, report: &Report) {
    if report.full.is_empty() {
        return;
    }
    let _ = writeln!(out, "## At full speed, with and without rules by turns\n");
    runs(out, &report.full);
    let rate = |rules| median(&report.full, rules, |run| run.docs_per_second);
    let slower = 100.0 * (1.0 - rate(report.full_rules) / rate(0));
    let _ = writeln!(
        out,
        "Slower with {} rules, by the medians: {} %. Nothing stands in `alert_error`.\n",
        grouped(report.full_rules),
        below(slower, 25.0, 1)
    );
}

fn cost(out: &mut String, report: &Report) {
    if report.cost.is_empty() {
        return;
    }
    let _ = writeln!(out, "## Processor time by the number of rules\n");
    runs(out, &report.cost);
    let of = |rules| median(&report.cost, rules, |run| run.cpu_us);
    let (none, few, many) = (of(0), of(100), of(10_000));
    let _ = writeln!(out, "At 10,000 rules by that at 100: {} times.", below(many / few, 3.0, 2));
    let _ = writeln!(
        out,
        "Rules alone, beyond no rules: {:.2} µs at 100, {:.2} at 10,000: {:.2} times.\n",
        few - none,
        many - none,
        (many - none) / (few - none)
    );
}

fn others(out: &mut String, report: &Report) {
    if let Some(keys) = &report.keys {
        let _ = writeln!(out, "## {} keys in one rule\n", grouped(keys.keys));
        let _ = writeln!(
            out,
            "Two events of each, three are needed. Anonymous memory of the server: {:.0} MB before, {:.0} after, most {}. {} events a second; a third event of \
             {} keys raised as many alerts.\n",
            mb(keys.before_bytes),
            mb(keys.after_bytes),
            below(mb(keys.most_bytes), 500.0, 0),
            grouped(keys.events_per_second as u64),
            grouped(keys.alerts),
        );
    }
    if let Some(crash) = &report.crash {
        let _ = writeln!(out, "## A start after a crash\n");
        let _ = writeln!(
            out,
            "`kill -9` after {} s at {} events a second with {} rules: first answer after {:.2} s, all evaluated after {} s.\n",
            crash.pace.seconds,
            grouped(crash.pace.rate),
            grouped(crash.rules),
            crash.first_answer_seconds,
            below(crash.evaluated_seconds, 10.0, 2),
        );
    }
    if let Some(tested) = &report.tested {
        let _ = writeln!(out, "## A test over what is stored\n");
        let times: Vec<String> =
            tested.seconds.iter().map(|seconds| format!("{} s", below(*seconds, 2.0, 2))).collect();
        let _ = writeln!(
            out,
            "A rule that matches {} of {} documents: {}.\n",
            grouped(tested.alerts),
            grouped(tested.docs),
            times.join(", ")
        );
    }
}

fn beside(out: &mut String, report: &Report) {
    match &report.percolated {
        None => {}
        Some(OptionalReport::Skipped(why)) => {
            let _ = writeln!(out, "## OpenSearch's percolator\n\nSkipped: {why}.\n");
        }
        Some(OptionalReport::Found(found)) => {
            let _ = writeln!(out, "## OpenSearch's percolator\n");
            let cpu =
                found.cpu_us.map_or_else(String::new, |cpu| format!(", {cpu:.1} µs of processor time each"));
            let _ = writeln!(
                out,
                "{}, {} of the same queries, {} events, 500 a request, four clients: {} events a second{cpu}; {} matched. Nothing is stored.\n",
                found.version,
                grouped(found.queries),
                grouped(found.events),
                grouped(found.events_per_second as u64),
                grouped(found.matched),
            );
        }
    }
    match &report.counted {
        None => {}
        Some(OptionalReport::Skipped(why)) => {
            let _ = writeln!(out, "## ElastAlert's rule classes\n\nSkipped: {why}.\n");
        }
        Some(OptionalReport::Found(found)) => {
            let rate = |seconds: f64| grouped((found.events as f64 / seconds) as u64);
            let _ = writeln!(
                out,
                "## ElastAlert's rule classes\n\n`frequency` by key, {} events in memory, {} alerts by both: {} events a second here, {} there.\n",
                grouped(found.events),
                grouped(found.alerts),
                rate(found.own_seconds),
                rate(found.elastalert_seconds),
            );
        }
    }
}
