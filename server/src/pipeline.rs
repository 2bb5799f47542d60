//! `millrace pipeline`: files checked, one run in the foreground, dead letters replayed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use millrace_api::{IngestService, output_pipelines};
use millrace_engine::Engine;
use millrace_ingest::budget::Budget;
use millrace_ingest::{EcsCompatibility, Fault, dead_letter};
use millrace_pipeline_store::{EngineStore, dead_letters};
use millrace_pipelines::language::{self, MAX_BYTES};
use millrace_pipelines::manager::check_directory;
use millrace_pipelines::runtime::{Pipeline, directory_name};
use millrace_pipelines::store::{Store, Volatile};
use millrace_pipelines::{Dialect, Graph, Settings, rights};
use millrace_query::SearchService;
use millrace_runtime::{Compute, SystemClock};
use serde_json::json;

use crate::cli::{PipelineCheckArgs, PipelineCommand, PipelineReplayArgs, PipelineRunArgs};
use crate::exit::Failure;
use crate::serve::{PIPELINE_OUTPUTS, on_signal, runtime};
use crate::{config, environment, logging};

/// Time that events have to come to an end after SIGINT. Once all inputs have ended by themselves, they have as long as they need.
const DRAIN: Duration = Duration::from_secs(10);
/// Shown where a pipeline has no output of its own.
const PRINT: &str = "input { generator { count => 0 } } output { stdout { codec => rubydebug } }";
/// Longest line shown with a fault, in characters.
const SHOWN: usize = 160;

/// Runs the command.
pub(crate) fn run(command: PipelineCommand) -> Result<(), Failure> {
    // Whoever runs the command may run programs anyway; a server asks its configuration.
    millrace_ingest::input::allow_programs();
    match command {
        PipelineCommand::Check(args) => check(&args),
        PipelineCommand::Run(args) => run_file(&args),
        PipelineCommand::Replay(args) => replay(&args),
    }
}

fn check(args: &PipelineCheckArgs) -> Result<(), Failure> {
    let dialect = dialect(args.support_escapes);
    let (mut wrong, mut all) = (0, 0);
    for path in &args.files {
        let checked = if path.is_dir() {
            check_pipelines(path, &dialect)
        } else {
            vec![check_file(path, &dialect, &args.ecs_compatibility).map(|()| path.display().to_string())]
        };
        all += checked.len();
        for checked in checked {
            match checked {
                Ok(shown) => say(&format!("{shown}: ok\n")),
                Err(error) => {
                    wrong += 1;
                    let _ = writeln!(std::io::stderr(), "{error:#}");
                }
            }
        }
    }
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::other(anyhow!("{wrong} of {all} pipelines cannot run"))),
    }
}

fn check_file(file: &Path, dialect: &Dialect, ecs_compatibility: &str) -> Result<()> {
    let (text, definition) = load(file, dialect)?;
    let built = definition.and_then(|definition| Graph::build(with_ecs(definition, ecs_compatibility)));
    built.map(drop).map_err(|faults| anyhow!(report(file, &text, &faults)))
}

/// Checks the pipelines that a server finds in a directory; each has its id.
fn check_pipelines(directory: &Path, dialect: &Dialect) -> Vec<Result<String>> {
    let shown = directory.display();
    match check_directory(directory, &dialect.environment) {
        Err(problem) => vec![Err(anyhow!("{shown}: {problem}"))],
        Ok(checked) if checked.is_empty() => vec![Err(anyhow!("{shown}: no pipelines there"))],
        Ok(checked) => checked
            .into_iter()
            .map(|pipeline| match pipeline.faults {
                None => Ok(format!("{shown}: pipeline {}", pipeline.id)),
                Some(faults) => Err(anyhow!("{shown}: pipeline {}:\n{faults}", pipeline.id)),
            })
            .collect(),
    }
}

fn with_ecs(mut definition: language::Definition, mode: &str) -> language::Definition {
    definition.set_default_ecs(EcsCompatibility::parse(mode).unwrap_or_default());
    definition
}

fn dialect(support_escapes: bool) -> Dialect {
    Dialect { environment: environment().into_iter().collect(), support_escapes }
}

type ParsedConfiguration = Result<language::Definition, Vec<Fault>>;

fn load(file: &Path, dialect: &Dialect) -> Result<(String, ParsedConfiguration)> {
    let shown = file.display();
    let unreadable = |error: std::io::Error| anyhow!("{shown}: cannot be read: {error}");
    if std::fs::metadata(file).map_err(unreadable)?.len() > MAX_BYTES as u64 {
        return Err(anyhow!("{shown}: longer than {MAX_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let definition = language::parse(&text, dialect);
    Ok((text, definition))
}

/// Faults with the lines that they are in.
fn report(file: &Path, text: &str, faults: &[Fault]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    for fault in faults {
        let (line, column) = (fault.at.line, fault.at.column);
        out.push_str(&format!("{}:{line}:{column}: {}\n", file.display(), fault.message));
        let shown = (line as usize).checked_sub(1).and_then(|line| lines.get(line));
        if let Some(shown) = shown.filter(|shown| shown.chars().count() <= SHOWN) {
            // Tabs stay, so that the mark is below the place whatever their width.
            let before = shown.chars().take((column as usize).saturating_sub(1));
            let blank: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            out.push_str(&format!("{line:>6} | {shown}\n       | {blank}^\n"));
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn run_file(args: &PipelineRunArgs) -> Result<(), Failure> {
    logging::install("warn", false);
    let dialect = dialect(args.support_escapes);
    let (text, definition) = load(&args.file, &dialect).map_err(Failure::other)?;
    let graph = definition.and_then(|mut definition| {
        if args.print || definition.outputs.is_empty() {
            definition.outputs = language::parse(PRINT, &dialect)?.outputs;
        }
        Graph::build(with_ecs(definition, &args.ecs_compatibility))
    });
    let graph = graph.map_err(|faults| {
        let _ = writeln!(std::io::stderr(), "{}", report(&args.file, &text, &faults));
        Failure::other(anyhow!("{} cannot run", args.file.display()))
    })?;
    if graph.writes_here() && args.data.is_none() {
        return Err(Failure::other(anyhow!(
            "the pipeline writes into indices of this server: name a data directory with --data, show its events with --print, or give its output [hosts]"
        )));
    }
    let name = args.file.file_stem().map_or_else(|| "main".into(), |name| name.to_string_lossy());
    let settings = Settings {
        workers: usize::from(args.workers),
        batch_size: args.batch_size as usize,
        ..Settings::default()
    };
    runtime(0)?.block_on(async {
        let stop = on_signal()?;
        let engine = match &args.data {
            Some(data) => Some(open(data).await?),
            None => None,
        };
        let (store, compute): (Arc<dyn Store>, Compute) = match &engine {
            Some(engine) => {
                let search = SearchService::new(Arc::clone(engine), millrace_query::Config::default());
                let ingest = IngestService::open(engine, &Arc::new(search)).await;
                let store = EngineStore::new(Arc::clone(engine)).with_output_pipelines(output_pipelines(ingest));
                (Arc::new(store), engine.compute().clone())
            }
            None => (Arc::new(Volatile::default()), Compute::start(0).map_err(Failure::other)?),
        };
        store.open().await.map_err(Failure::other)?;
        // Without a data directory, nothing of the pipeline is kept.
        let temporary = tempfile::tempdir().map_err(Failure::other)?;
        let outputs = match &engine {
            Some(engine) => engine.data_dir().join(PIPELINE_OUTPUTS).join(directory_name(&name)),
            None => temporary.path().to_owned(),
        };
        let budget = Budget::default().share();
        let pipeline = Pipeline::start_with_outputs(
            name.as_ref(),
            graph,
            settings,
            store,
            compute,
            budget,
            outputs,
        );
        tokio::pin!(stop);
        let has_ended = tokio::select! {
            () = pipeline.ended() => true,
            () = &mut stop => false,
        };
        let give_up = async {
            if has_ended {
                stop.await;
            }
            tokio::time::sleep(DRAIN).await;
        };
        let all = pipeline.stop_unless(give_up).await;
        if let Some(engine) = engine {
            engine.shutdown().await.map_err(Failure::other)?;
        }
        if all {
            return Ok(());
        }
        Err(Failure::other(anyhow!(
            "not all events came to an end within {} s of the signal: what files, tables and topics have of them is read again, the rest is lost",
            DRAIN.as_secs()
        )))
    })
}

fn replay(args: &PipelineReplayArgs) -> Result<(), Failure> {
    logging::install("warn", false);
    runtime(0)?.block_on(async {
        let engine = open(&args.data).await?;
        let done = replay_in(&engine, args).await;
        engine.shutdown().await.map_err(Failure::other)?;
        done.map_err(Failure::other)
    })
}

async fn replay_in(engine: &Engine, args: &PipelineReplayArgs) -> Result<()> {
    let mut after = None;
    let mut most = args.most as usize;
    let mut replayed = dead_letter::ReplayReport::default();
    while most > 0 {
        let wanted =
            dead_letter::DeadLetterFilter { pipeline: args.pipeline.as_deref(), after: after.as_ref(), most };
        let page = dead_letters::list(engine, wanted).await?;
        most = most.saturating_sub(page.letters.len());
        if args.list {
            page.letters.iter().for_each(show);
        } else {
            for letter in &page.letters {
                let writer = rights::of_absent(&letter.pipeline);
                let one = dead_letters::replay(engine, &writer, std::slice::from_ref(letter)).await?;
                replayed.stored += one.stored;
                replayed.left.extend(one.left);
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if args.list {
        return Ok(());
    }
    say(&format!("{} stored, {} left\n", replayed.stored, replayed.left.len()));
    for (id, reason) in &replayed.left {
        let _ = writeln!(std::io::stderr(), "{id}: {reason}");
    }
    match replayed.left.len() {
        0 => Ok(()),
        left => Err(anyhow!("{left} dead letters stay")),
    }
}

fn show(letter: &dead_letter::StoredDeadLetter) {
    let payload = letter.payload().unwrap_or_default();
    let line = json!({
        "@timestamp": letter.time,
        "pipeline": letter.pipeline,
        "plugin": letter.plugin,
        "reason": letter.reason,
        "action": letter.action,
        "index": letter.index,
        "event": String::from_utf8_lossy(&payload),
    });
    say(&format!("{line}\n"));
}

async fn open(data: &str) -> Result<Arc<Engine>, Failure> {
    let flags = config::Flags { config: None, keys: vec![("--data", "data", data.to_owned())] };
    let settings = config::Settings::load(&flags, environment()).map_err(Failure::config)?;
    let config = settings.config().map_err(Failure::config)?;
    Engine::open(config.storage, Arc::new(SystemClock)).await.map_err(Failure::open)
}

fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
