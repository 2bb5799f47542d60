//! The subcommand `rules`: continuous rules in a server of their own — how far they are behind, when alerts are found, their cost
//! beside ingest, in memory, after a crash — and beside others.
//!
//! [`mix`] makes rules and the events that they ask for, [`feed`] bulk requests of them, [`site`] the server. [`steady`] sends at a set
//! rate, [`full`] as fast as the server takes it, [`others`] measures keys, crashes and tests; [`percolator`] and
//! [`elastalert`] give others the same to do. A figure that misses its goal is marked in the report, not an error;
//! a missing alert, or anything in `alert_error`, is one.

mod elastalert;
mod feed;
mod full;
mod markdown;
mod mix;
mod others;
mod percolator;
mod site;
mod steady;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::elastalert::ElastAlertComparison;
use self::feed::Feed;
use self::full::FullSpeedRun;
pub(crate) use self::mix::Events;
use self::mix::Mix;
use self::others::{Crash, Keys, StoredTestReport};
use self::percolator::PercolatorReport;
use self::site::Site;
use self::steady::{Steady, SteadyLoad};
use crate::arguments::ServerArgs;
use crate::corpus::Corpus;
use crate::hardware::Hardware;
use crate::report;
use crate::server::Launch;
use crate::suite::{commit, own_version, say};

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Lag and alerts at set rates
    Steady,
    /// Ingest at full speed with and without rules
    Full,
    /// Processor time an event by the number of rules
    Cost,
    /// Memory of many keys
    Keys,
    /// A start after a crash
    Crash,
    /// A test over what is stored
    Test,
    /// OpenSearch's percolator
    Percolator,
    /// ElastAlert's rule classes
    Elastalert,
}

/// Arguments of the rule benchmark.
#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Directory for corpora and data: on the disk to be measured
    #[arg(long, default_value = "target/benchmarks")]
    directory: PathBuf,
    /// File to write, without the extension
    #[arg(long, default_value = "target/benchmarks/rules")]
    out: PathBuf,
    /// Parts to measure; all when not given
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Experiment>,
    /// Kind of the events
    #[arg(long, value_enum, default_value_t = Events::Mixed)]
    events: Events,
    /// Seconds for which events are sent at a set rate
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..=86_400))]
    seconds: u64,
    /// Rules and events a second, as RULES:RATE
    #[arg(long, value_delimiter = ',', value_parser = parse_load, default_value = "1000:20000,10000:5000")]
    loads: Vec<(u64, u64)>,
    /// Events at full speed
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    full_docs: u64,
    /// Rules at full speed
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    full_rules: u64,
    /// Times that full speed is measured with and without rules, by turns; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Events by which processor time is compared
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    cost_docs: u64,
    /// Numbers of rules by which it is compared
    #[arg(long, value_delimiter = ',', default_value = "0,100,1000,10000")]
    cost_rules: Vec<u64>,
    /// Bulk clients at full speed
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Keys of one rule
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..=200_000))]
    keys: u64,
    /// Seconds of load before the server is killed
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3_600))]
    crash_seconds: u64,
    /// Documents of the test over what is stored
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    test_docs: u64,
    /// A running OpenSearch with the percolator; skipped without one
    #[arg(long, value_name = "URL")]
    opensearch: Option<String>,
    /// Events that are percolated
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    percolated_docs: u64,
    /// A Python interpreter with the package `elastalert2`; skipped without one
    #[arg(long, value_name = "PYTHON")]
    elastalert: Option<PathBuf>,
    /// Events that are counted by key
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    counted_events: u64,
}

fn parse_load(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("`{text}` is not RULES:RATE");
    let (rules, rate) = text.split_once(':').ok_or_else(wrong)?;
    let (rules, rate) = (rules.parse().map_err(|_| wrong())?, rate.parse().map_err(|_| wrong())?);
    if rules == 0 || rate == 0 || rules > 10_000 {
        return Err(format!("`{text}`: 1 to 10,000 rules, and a rate above 0"));
    }
    Ok((rules, rate))
}

/// Report of a part that needs something that may be missing.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum OptionalReport<T> {
    Found(T),
    Skipped(String),
}

/// Report of all parts.
#[derive(Debug, Serialize)]
struct Report {
    hardware: Hardware,
    versions: Vec<(String, String)>,
    commit: String,
    command: String,
    events: Events,
    steady: Vec<Steady>,
    full_rules: u64,
    full: Vec<FullSpeedRun>,
    cost: Vec<FullSpeedRun>,
    keys: Option<Keys>,
    crash: Option<Crash>,
    tested: Option<StoredTestReport>,
    percolated: Option<OptionalReport<PercolatorReport>>,
    counted: Option<OptionalReport<ElastAlertComparison>>,
}

impl RulesArgs {
    /// Measures and writes the report.
    pub(crate) async fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let binary = self.server.binary();
        let data = self.directory.join("rules-data");
        let mut report = Report {
            hardware: Hardware::new(&self.directory)?,
            versions: vec![("millrace".to_owned(), own_version(&Launch::new(&binary, &self.directory)?))],
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            events: self.events,
            steady: Vec::new(),
            full_rules: self.full_rules,
            full: Vec::new(),
            cost: Vec::new(),
            keys: None,
            crash: None,
            tested: None,
            percolated: None,
            counted: None,
        };
        let parts = match self.parts.is_empty() {
            true => Experiment::value_variants().to_vec(),
            false => self.parts.clone(),
        };
        for part in parts {
            self.part(part, &binary, &data, &mut report).await?;
            // What was found so far is there, whatever becomes of the rest.
            report::write(&self.out, &markdown::markdown(&report), &report)?;
        }
        Ok(())
    }

    async fn part(&self, part: Experiment, binary: &Path, data: &Path, report: &mut Report) -> Result<()> {
        let mix = |rules| Mix { events: self.events, rules };
        match part {
            Experiment::Steady => {
                for (rules, rate) in &self.loads {
                    say(&format!("{rules} rules, {rate} events a second for {} s", self.seconds));
                    let site = Site::with_rules(binary, data, mix(*rules)).await?;
                    let pace = SteadyLoad { rate: *rate, seconds: self.seconds };
                    report.steady.push(steady::run(&site, mix(*rules), pace).await?);
                    site.no_errors().await?;
                    site.stop()?;
                }
            }
            Experiment::Full => {
                let (corpus, alerts) = self.corpus(self.full_docs, self.full_rules)?;
                for round in 0..self.rounds {
                    for rules in [0, self.full_rules] {
                        say(&format!("round {} of {}, {rules} rules", round + 1, self.rounds));
                        let run = full::run(binary, data, mix(rules), (&corpus, alerts), self.clients);
                        report.full.push(run.await?);
                    }
                }
            }
            Experiment::Cost => {
                for rules in &self.cost_rules {
                    say(&format!("processor time with {rules} rules"));
                    let (corpus, alerts) = self.corpus(self.cost_docs, (*rules).max(1))?;
                    let run = full::run(binary, data, mix(*rules), (&corpus, alerts), self.clients);
                    report.cost.push(run.await?);
                }
            }
            Experiment::Keys => {
                say(&format!("{} keys", self.keys));
                report.keys = Some(others::keys(binary, data, self.keys).await?);
            }
            Experiment::Crash => {
                let (rules, rate) = self.loads.first().copied().unwrap_or((1_000, 20_000));
                say(&format!("{rules} rules, {rate} events a second, killed after {} s", self.crash_seconds));
                let pace = SteadyLoad { rate, seconds: self.crash_seconds };
                report.crash = Some(others::crash(binary, data, mix(rules), pace).await?);
            }
            Experiment::Test => {
                say(&format!("a test over {} documents", self.test_docs));
                let corpora = self.directory.join("corpora");
                let tested = others::tested(binary, data, &corpora, self.test_docs, self.clients);
                report.tested = Some(tested.await?);
            }
            Experiment::Percolator => {
                report.percolated = Some(match &self.opensearch {
                    None => OptionalReport::Skipped("no --opensearch".to_owned()),
                    Some(url) => {
                        say("OpenSearch's percolator");
                        OptionalReport::Found(percolator::run(url, mix(1_000), self.percolated_docs).await?)
                    }
                });
            }
            Experiment::Elastalert => {
                report.counted = Some(match &self.elastalert {
                    None => OptionalReport::Skipped("no --elastalert".to_owned()),
                    Some(python) => {
                        say("ElastAlert's rule classes");
                        OptionalReport::Found(elastalert::run(python, self.counted_events)?)
                    }
                });
            }
        }
        Ok(())
    }

    /// Makes events on disk, some of which so many rules ask for; returns them with how many alerts they make.
    fn corpus(&self, docs: u64, rules: u64) -> Result<(Arc<Corpus>, u64)> {
        /// As fast as a server takes them, about.
        const RATE: u64 = 100_000;
        say(&format!("corpus of {docs} events for {rules} rules"));
        let directory = self.directory.join("corpora");
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("rules-{}.bulk", self.events.name()));
        let feed = Feed::new(Mix { events: self.events, rules }, RATE);
        let (corpus, alerts) = feed.corpus(&path, docs)?;
        Ok((Arc::new(corpus), alerts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read() {
        assert_eq!(parse_load("1000:20000"), Ok((1_000, 20_000)));
        for wrong in ["", "1", "0:5", "a:b", "20000:1"] {
            assert!(parse_load(wrong).is_err(), "{wrong}");
        }
    }
}
