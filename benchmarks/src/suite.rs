//! The whole suite: both shapes on Millrace and on a peer, the same documents, in one run.
//!
//! The servers take turns, for they would share the processors. What was found goes into a [`Report`],
//! which `report` writes as Markdown and JSON; a measurement that fails is reported as failed and does
//! not end the run.

mod cli;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::cli::ReportArgs;
use crate::corpus::Ids;
use crate::duckdb::{DuckDb, DuckDbQuestion};
use crate::hardware::Hardware;
use crate::measure::{self, Ingest, LoadOptions, Recovery, Updates};
use crate::process::Memory;
use crate::query::{self, Mix, OperationTiming, RunPlan};
use crate::server::{Launch, Server};
use crate::shape::{Analysis, DocumentKind, Statement, digest};
use crate::target::Target;

/// Clients that search at once.
pub(crate) const CROWD: usize = 8;
/// Rounds of the mix of searches without an ingest.
const MIX_ROUNDS: u32 = 20;

/// Plan of a run.
#[derive(Clone, Debug)]
struct Plan {
    /// The server's binary.
    server: PathBuf,
    /// The peer, if any.
    peer: Option<Target>,
    /// DuckDB, if it is to be asked.
    duckdb: Option<DuckDb>,
    /// Directory for corpora and data.
    directory: PathBuf,
    /// Documents of the http_logs shape; 0 leaves it out.
    http_logs_docs: u64,
    /// Documents of the big5 shape; 0 leaves it out.
    big5_docs: u64,
    /// Documents of the shape of ClickBench; 0 leaves it out.
    clickbench_docs: u64,
    /// Ids of the update workload, and as many overwrites; 0 leaves it out.
    update_docs: u64,
    /// Documents in the log of the recovery; 0 leaves it out.
    recovery_docs: u64,
    /// Documents of the mapping comparison; 0 leaves it out.
    mapping_docs: u64,
    /// Bulk clients.
    clients: usize,
    /// Gets by id a second during ingest.
    get_rate: u32,
    /// Searches.
    effort: RunPlan,
}

/// A measurement that may have failed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome<T> {
    /// Measured value.
    Measured(T),
    /// Why it was not.
    Failed(String),
}

impl<T> Outcome<T> {
    /// Takes a result; an error is told and kept.
    pub(crate) fn from(result: Result<T>) -> Self {
        match result {
            Ok(value) => Self::Measured(value),
            Err(error) => {
                eprintln!("failed: {error:#}");
                Self::Failed(format!("{error:#}"))
            }
        }
    }
}

/// The same questions over the same rows, in an index with few others and in one with many.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hour {
    /// Documents of the smaller index.
    pub(crate) part_docs: u64,
    /// Times in it.
    pub(crate) part: Vec<OperationTiming>,
    /// Times in the index with all documents.
    pub(crate) whole: Vec<OperationTiming>,
}

/// One shape on one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShapeRun {
    /// Name of the server.
    pub(crate) server: String,
    /// The ingest.
    pub(crate) ingest: Ingest,
    /// The searches.
    pub(crate) queries: Vec<OperationTiming>,
    /// The aggregations.
    pub(crate) analyses: Vec<OperationTiming>,
    /// Searches that touch one hour, in all documents and in the first tenth of them.
    pub(crate) hour: Outcome<Hour>,
    /// The searches with several clients at once.
    pub(crate) crowded: Vec<OperationTiming>,
    /// All searches in turn, alone and during an ingest.
    pub(crate) mix: Outcome<Mix>,
}

/// One shape on all servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShapeReport {
    /// Name of the shape.
    pub(crate) shape: String,
    /// Documents.
    pub(crate) docs: u64,
    /// Bytes of their JSON.
    pub(crate) source_bytes: u64,
    /// Millrace first.
    pub(crate) runs: Vec<Outcome<ShapeRun>>,
    /// The statements in SQL on Millrace.
    pub(crate) statements: Vec<SqlStatement>,
    /// The aggregations as SQL in DuckDB, on the files that Millrace wrote, and then the statements, where that was
    /// asked for.
    pub(crate) duckdb: Option<Outcome<(Vec<DuckDbQuestion>, Vec<DuckDbQuestion>)>>,
}

/// A statement in SQL on Millrace.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SqlStatement {
    /// Cost of the operation.
    pub(crate) timed: OperationTiming,
    /// Rows, and the sum of all numbers in them; `None` where it failed.
    pub(crate) digest: Option<(u64, f64)>,
}

/// Cost of a process before it does anything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ColdStart {
    /// Seconds from the start of the process to its first answer, on an empty directory.
    pub(crate) first_answer_seconds: f64,
    /// Memory two seconds later.
    pub(crate) memory: Option<Memory>,
}

/// Ingest of as many values out of many mapped fields and out of few.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mappings {
    /// 20 of 1,000 fields.
    pub(crate) sparse: Ingest,
    /// 20 of 20 fields.
    pub(crate) dense: Ingest,
}

/// Everything that a run found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The machine.
    pub(crate) hardware: Hardware,
    /// Server names with their versions.
    pub(crate) versions: Vec<(String, String)>,
    /// Commit of this checkout.
    pub(crate) commit: String,
    /// The command that made the report.
    pub(crate) command: String,
    /// The command that started the server.
    pub(crate) server_command: String,
    /// Start on an empty directory.
    pub(crate) cold_start: Outcome<ColdStart>,
    /// The shapes.
    pub(crate) shapes: Vec<ShapeReport>,
    /// Overwrites by id: server and outcome.
    pub(crate) updates: Vec<(String, Outcome<Updates>)>,
    /// Ids in the update workload.
    pub(crate) update_docs: u64,
    /// Restart after `kill -9`.
    pub(crate) recovery: Option<Outcome<Recovery>>,
    /// Wide mappings: server and outcome.
    pub(crate) mappings: Vec<(String, Outcome<Mappings>)>,
}

impl Plan {
    /// Runs everything.
    async fn run(&self) -> Result<Report> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let hardware = Hardware::new(&self.directory)?;
        let launch = self.launch("cold")?;
        let mut versions = Vec::new();
        let cold_start = Outcome::from(self.cold_start(&launch, &mut versions).await);
        if let Some(peer) = &self.peer {
            versions.push((peer.name.clone(), peer.version().await?));
        }
        let mut shapes = Vec::new();
        for (shape, docs) in [
            (DocumentKind::HttpLogs, self.http_logs_docs),
            (DocumentKind::Big5, self.big5_docs),
            (DocumentKind::ClickBench, self.clickbench_docs),
        ] {
            if docs > 0 {
                shapes.push(self.shape(shape, docs, &mut versions).await?);
            }
        }
        let mut updates = Vec::new();
        if self.update_docs > 0 {
            say("updates by client id");
            updates.push(("millrace".to_owned(), Outcome::from(self.own_updates().await)));
            if let Some(peer) = &self.peer {
                updates.push((peer.name.clone(), Outcome::from(self.updates_of(peer).await)));
            }
        }
        let recovery = if self.recovery_docs > 0 {
            say("recovery of a log");
            let launch = self.launch("recovery")?;
            let directory = self.corpora();
            let found = measure::recovery(&launch, &directory, self.recovery_docs, self.clients).await;
            self.discard("recovery");
            Some(Outcome::from(found))
        } else {
            None
        };
        let mut mappings = Vec::new();
        if self.mapping_docs > 0 {
            say("1,000 mapped fields");
            mappings.push(("millrace".to_owned(), Outcome::from(self.own_mappings().await)));
            if let Some(peer) = &self.peer {
                mappings.push((peer.name.clone(), Outcome::from(self.mappings_of(peer).await)));
            }
        }
        Ok(Report {
            hardware,
            versions,
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            server_command: launch.command_line(),
            cold_start,
            shapes,
            updates,
            update_docs: self.update_docs,
            recovery,
            mappings,
        })
    }

    fn corpora(&self) -> PathBuf {
        self.directory.join("corpora")
    }

    /// Describes a server on a new directory of its own.
    fn launch(&self, name: &str) -> Result<Launch> {
        let directory = self.directory.join(name);
        self.discard(name);
        std::fs::create_dir_all(&directory)?;
        Launch::new(&self.server, &directory)
    }

    /// Frees the disk that a measurement took. Corpora stay: they are made once.
    fn discard(&self, name: &str) {
        let _ = std::fs::remove_dir_all(self.directory.join(name));
    }

    async fn cold_start(&self, launch: &Launch, versions: &mut Vec<(String, String)>) -> Result<ColdStart> {
        let server = launch.start().await?;
        versions.push(("millrace".to_owned(), own_version(launch)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let memory = server.target.pid.and_then(Memory::new);
        let first_answer_seconds = server.started_in.as_secs_f64();
        server.stop()?;
        self.discard("cold");
        Ok(ColdStart { first_answer_seconds, memory })
    }

    async fn shape(
        &self,
        shape: DocumentKind,
        docs: u64,
        versions: &mut Vec<(String, String)>,
    ) -> Result<ShapeReport> {
        say(&format!("corpus of {docs} {} documents", shape.name()));
        let corpus = measure::corpus(&self.corpora(), shape, docs, 1, Ids::Generated)?;
        let mut report = ShapeReport {
            shape: shape.name().to_owned(),
            docs,
            source_bytes: corpus.source_bytes(),
            runs: Vec::new(),
            statements: Vec::new(),
            duckdb: None,
        };
        say(&format!("{} on millrace", shape.name()));
        let launch = self.launch(shape.name())?;
        let own = async {
            let server = launch.start().await?;
            let run = self.shape_on(&server.target, shape, &corpus).await;
            let told = self.statements_on(&server.target, shape).await;
            let files = segments_of(&launch, &server.target, &format!("bench-{}", shape.name())).await;
            stop(server, run.and_then(|run| Ok((run, told, files?))))
        };
        let mut files = None;
        let own = own.await.map(|(run, told, found)| {
            report.statements = told;
            files = Some(found);
            run
        });
        report.runs.push(Outcome::from(own));
        if let (Some(duckdb), Some(files)) = (&self.duckdb, files) {
            say(&format!("{} on DuckDB", shape.name()));
            let mut questions: Vec<String> = shape.analyses("").into_iter().map(|one| one.sql).collect();
            let aggregations = questions.len();
            questions.extend(shape.statements().iter().map(Statement::duckdb));
            let found = duckdb.time(&files, &questions, self.effort.iterations);
            report.duckdb = Some(Outcome::from(found.map(|(version, mut found)| {
                versions.retain(|(name, _)| name != "duckdb");
                versions.push(("duckdb".to_owned(), version));
                let statements = found.split_off(aggregations);
                (found, statements)
            })));
        }
        self.discard(shape.name());
        if let Some(peer) = &self.peer {
            say(&format!("{} on {}", shape.name(), peer.name));
            report.runs.push(Outcome::from(self.shape_on(peer, shape, &corpus).await));
        }
        Ok(report)
    }

    async fn shape_on(
        &self,
        target: &Target,
        shape: DocumentKind,
        corpus: &std::sync::Arc<crate::corpus::Corpus>,
    ) -> Result<ShapeRun> {
        let index = format!("bench-{}", shape.name());
        let drive = LoadOptions { clients: self.clients, get_rate: self.get_rate, force_merge: true };
        let ingest = measure::ingest(target, &index, shape, corpus, drive).await?;
        say("searches");
        let operations = shape.operations(&index, corpus.spec.docs);
        let queries = query::run(target, &operations, self.effort).await;
        say("aggregations");
        let asked: Vec<_> =
            shape.analyses(&index).into_iter().map(|Analysis { operation, .. }| operation).collect();
        let analyses = query::run(target, &asked, self.effort).await;
        let hour = Outcome::from(self.hour_on(target, shape, corpus, &index).await);
        say(&format!("searches of {CROWD} clients"));
        let crowd =
            RunPlan { clients: CROWD, warmup: 1, iterations: self.effort.iterations.max(CROWD as u32) };
        let crowded = query::run(target, &operations, crowd).await;
        say("searches during an ingest");
        let mix = Outcome::from(self.mix_on(target, shape, corpus, &operations).await);
        Ok(ShapeRun { server: target.name.clone(), ingest, queries, analyses, hour, crowded, mix })
    }

    /// Times the statements, each as often as a search.
    async fn statements_on(&self, target: &Target, shape: DocumentKind) -> Vec<SqlStatement> {
        say("statements");
        let index = format!("bench-{}", shape.name());
        let statements = shape.statements();
        let asked: Vec<_> = statements.iter().map(|one| one.operation(&index)).collect();
        let mut told = Vec::with_capacity(asked.len());
        for (timed, operation) in query::run(target, &asked, self.effort).await.into_iter().zip(&asked) {
            let answer = operation.run(target).await;
            told.push(SqlStatement { timed, digest: answer.ok().map(|answer| digest(&answer)) });
        }
        told
    }

    /// Times questions about the beginning of a corpus in an index of all and in one of its first tenth.
    async fn hour_on(
        &self,
        target: &Target,
        shape: DocumentKind,
        corpus: &std::sync::Arc<crate::corpus::Corpus>,
        whole: &str,
    ) -> Result<Hour> {
        let part = format!("{whole}-part");
        if shape.operations_of_the_beginning(whole).is_empty() {
            return Ok(Hour { part_docs: 0, part: Vec::new(), whole: Vec::new() });
        }
        say("one hour of few and of many documents");
        let beginning = std::sync::Arc::new(corpus.beginning(corpus.spec.docs / 10)?);
        let drive = LoadOptions { clients: self.clients, get_rate: 0, force_merge: true };
        measure::ingest(target, &part, shape, &beginning, drive).await?;
        let found = Hour {
            part_docs: beginning.spec.docs,
            part: query::run(target, &shape.operations_of_the_beginning(&part), self.effort).await,
            whole: query::run(target, &shape.operations_of_the_beginning(whole), self.effort).await,
        };
        target.delete(&part).await?;
        Ok(found)
    }

    /// Times the searches in turn, alone and while the corpus is taken in a second time.
    async fn mix_on(
        &self,
        target: &Target,
        shape: DocumentKind,
        corpus: &std::sync::Arc<crate::corpus::Corpus>,
        operations: &[query::Operation],
    ) -> Result<Mix> {
        let rounds = self.effort.iterations.min(MIX_ROUNDS);
        let idle = query::mix(target, operations, |round| round >= rounds).await?;
        let index = format!("bench-{}-meanwhile", shape.name());
        target.recreate(&index, &shape.index_body()).await?;
        let (sender, corpus, clients) = (target.clone(), std::sync::Arc::clone(corpus), self.clients);
        let ingest = tokio::spawn({
            let index = index.clone();
            async move { crate::load::run(&sender, &index, &corpus, clients, None).await }
        });
        let under_ingest = query::mix(target, operations, |_| ingest.is_finished()).await;
        ingest.await??;
        target.delete(&index).await?;
        Ok(Mix { idle, under_ingest: under_ingest? })
    }

    async fn own_updates(&self) -> Result<Updates> {
        let server = self.launch("updates")?.start().await?;
        let found = self.updates_of(&server.target).await;
        let found = stop(server, found);
        self.discard("updates");
        found
    }

    async fn updates_of(&self, target: &Target) -> Result<Updates> {
        let docs = self.update_docs;
        measure::updates(target, "bench-updates", &self.corpora(), docs, docs, self.clients).await
    }

    async fn own_mappings(&self) -> Result<Mappings> {
        let server = self.launch("mappings")?.start().await?;
        let found = self.mappings_of(&server.target).await;
        let found = stop(server, found);
        self.discard("mappings");
        found
    }

    async fn mappings_of(&self, target: &Target) -> Result<Mappings> {
        let drive = LoadOptions { clients: self.clients, get_rate: 0, force_merge: false };
        let mut found = Vec::new();
        for shape in [DocumentKind::Sparse, DocumentKind::Dense] {
            let corpus = measure::corpus(&self.corpora(), shape, self.mapping_docs, 1, Ids::Generated)?;
            let index = format!("bench-{}", shape.name());
            found.push(measure::ingest(target, &index, shape, &corpus, drive).await?);
        }
        let dense = found.pop().context("no dense run")?;
        let sparse = found.pop().context("no sparse run")?;
        Ok(Mappings { sparse, dense })
    }
}

/// Stops a server whatever was found; an unclean stop spoils what was found.
pub(crate) fn stop<T>(server: Server, found: Result<T>) -> Result<T> {
    let stopped = server.stop();
    let found = found?;
    stopped?;
    Ok(found)
}

/// Asks the server's binary for its version.
pub(crate) fn own_version(launch: &Launch) -> String {
    let output = Command::new(&launch.binary).arg("--version").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Names the commit of this checkout.
pub(crate) fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Reports the next step.
pub(crate) fn say(what: &str) {
    eprintln!("== {what}");
}

/// Finds the directory with the segments of an index: beside it lie those of deleted indices until they are swept up.
pub(crate) async fn segments_of(launch: &Launch, target: &Target, index: &str) -> Result<PathBuf> {
    let settings = target.ask(Method::GET, &format!("/{index}/_settings"), &Value::Null).await?;
    let uuid = settings[index]["settings"]["index"]["uuid"].as_str().context("the index has no uuid")?;
    let bytes = URL_SAFE_NO_PAD.decode(uuid).context("the uuid of the index")?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = launch.data.join("segments").join(name);
    ensure!(directory.is_dir(), "there is no directory {}", directory.display());
    Ok(directory)
}
