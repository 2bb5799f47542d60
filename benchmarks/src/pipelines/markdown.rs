//! Renders results of pipelines as Markdown.

use std::fmt::Write;

use super::{BulkComparison, Report, ThroughputReport};
use crate::load::LoadReport;
use crate::process::Memory;
use crate::report::{failed, grouped, machine};
use crate::suite::Outcome;
use crate::table;

/// Published rate of Logstash, in MiB/s for each core: the figures that the goals name.
const LOGSTASH: &str = "2.7 to 4.6";

/// Writes the report.
pub(super) fn markdown(report: &Report) -> String {
    let mut out = String::from("# Pipelines\n\n");
    let versions = [("millrace".to_owned(), report.version.clone())];
    machine(&mut out, &report.hardware, &versions, &report.commit, &[&report.command]);
    into_an_index(&mut out, report);
    kafka_to_kafka(&mut out, report);
    webhook(&mut out, report);
    out
}

// Writing to a string cannot fail: results of `write!` are dropped throughout.

fn into_an_index(out: &mut String, report: &Report) {
    let _ = writeln!(out, "## Into an index, beside `_bulk` with the same documents\n");
    let _ = writeln!(
        out,
        "{} events each; {} clients; bodies of {} bytes over `http`, of 5 MB over `_bulk`, all answered after fsync. \
         Clients{} run on the same cores. Medians of all rounds.\n",
        grouped(report.events),
        report.clients,
        grouped(report.body_bytes as u64),
        if report.partitions.is_some() { " and Kafka" } else { "" }
    );
    if report.partitions.is_none() {
        let _ = writeln!(out, "Skipped without a Kafka: what comes from there.\n");
    }
    for (name, outcome) in &report.compared {
        if let Outcome::Failed(why) = outcome {
            failed(out, &format!("{name}: {why}"));
        }
    }
    let found: Vec<&BulkComparison> = report
        .compared
        .iter()
        .filter_map(|(_, outcome)| match outcome {
            Outcome::Measured(found) => Some(found),
            Outcome::Failed(_) => None,
        })
        .collect();
    if found.is_empty() {
        return;
    }
    table::header(
        out,
        &[
            "pipeline",
            "events/s",
            "`_bulk`, documents/s",
            "ratio",
            "goal",
            "MiB/s of input a core",
            "anonymous memory, most, MB",
            "refused with 429",
        ],
    );
    for compared in found {
        let ratio = compared.rate() / compared.bulk_rate();
        let _ = writeln!(
            out,
            "| {} | {:.0} | {:.0} | {ratio:.2} | {:.1} | {:.1} | {} | {} |",
            compared.name,
            compared.rate(),
            compared.bulk_rate(),
            compared.goal,
            mib_a_core(&compared.through, report.hardware.cores),
            megabytes(&compared.through),
            compared
                .through
                .iter()
                .flat_map(|run| &run.posted)
                .map(|posted| posted.busy_answers)
                .sum::<u64>(),
        );
    }
    let _ = writeln!(
        out,
        "\nPublished of Logstash, on other machines: {LOGSTASH} MiB/s a core. A figure to compare with, no measurement of ours.\n"
    );
}

fn kafka_to_kafka(out: &mut String, report: &Report) {
    let _ = writeln!(out, "## Kafka to Kafka\n");
    let runs = match &report.kafka_to_kafka {
        None => {
            let _ = writeln!(out, "Skipped: no Kafka was named.\n");
            return;
        }
        Some(Outcome::Failed(why)) => return failed(out, why),
        Some(Outcome::Measured(runs)) => runs,
    };
    let _ = writeln!(
        out,
        "{} records, {} partitions, codec `plain`, `acks => 1`: {:.0} events/s (goal 100,000), {:.1} MiB/s a core, \
         at most {} MB of anonymous memory. The broker runs on the same cores.\n",
        grouped(report.events),
        report.partitions.unwrap_or_default(),
        median(runs.iter().map(|run| run.events_per_second)),
        mib_a_core(runs, report.hardware.cores),
        megabytes(runs),
    );
}

fn webhook(out: &mut String, report: &Report) {
    let found = match &report.webhook {
        None => return,
        Some(outcome) => outcome,
    };
    let _ = writeln!(out, "## Webhook\n");
    let found = match found {
        Outcome::Measured(found) => found,
        Outcome::Failed(why) => return failed(out, why),
    };
    let _ = writeln!(
        out,
        "`deploy/pipelines/webhook.conf` for {} s at {} events/s, {} to a post, {} clients: {:.0} events/s were taken, {} posts were \
         refused at first (429). Times count from when a post was due. {}.\n",
        found.pace.seconds,
        grouped(found.pace.rate),
        found.pace.batch,
        found.pace.clients,
        found.events_per_second,
        found.busy_answers,
        memory(found.memory_max),
    );
    table::header(out, &["ms", "p50", "p99", "most"]);
    for (name, times) in
        [("answered", &found.answered), ("searchable (goal: p99 below 1,500)", &found.searchable)]
    {
        let _ = writeln!(out, "| {name} | {:.1} | {:.1} | {:.1} |", times.p50_ms, times.p99_ms, times.max_ms);
    }
    out.push('\n');
}

impl BulkComparison {
    fn rate(&self) -> f64 {
        median(self.through.iter().map(|run| run.events_per_second))
    }

    fn bulk_rate(&self) -> f64 {
        median(self.bulk.iter().map(|loaded: &LoadReport| loaded.docs_per_second))
    }
}

fn mib_a_core(runs: &[ThroughputReport], cores: usize) -> f64 {
    median(runs.iter().map(|run| run.bytes as f64 / f64::from(1 << 20) / run.seconds)) / cores.max(1) as f64
}

fn megabytes(runs: &[ThroughputReport]) -> String {
    let most = runs.iter().filter_map(|run| run.memory_max).map(|memory| memory.anonymous_bytes).max();
    most.map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string())
}

fn memory(memory: Option<Memory>) -> String {
    memory.map_or_else(
        || "The process's memory could not be read".to_owned(),
        |memory| {
            format!(
                "The whole process took at most {} MB anonymous, {} MB resident (goal: below 500)",
                memory.anonymous_bytes >> 20,
                memory.resident_bytes >> 20
            )
        },
    )
}

/// The one in the middle, of an even number the lower one; 0 of none.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = figures.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0].into_iter()), 1.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
