//! `millrace rules test`: rules against their cases, asked by the filters of the server over a store of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_query::QueryContext;
use millrace_query::filters::{ArrivedDocument, Batch, Filter, IndexView, Matcher as Filters};
use millrace_rules::Event;
use millrace_rules::cases::{RULE, Suite};
use millrace_rules::engine::{Frame, Matcher, RuleMatches};
use millrace_runtime::SystemClock;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{has_cases, read, say, tell};
use crate::cli::RulesTestArgs;
use crate::exit::Failure;
use crate::serve::runtime;

/// Time that a write may wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the command.
pub(super) fn run(args: &RulesTestArgs) -> Result<(), Failure> {
    let runtime = runtime(0)?;
    let (mut held, mut failed) = (0_usize, 0_usize);
    let mut seen: Vec<PathBuf> = Vec::new();
    for file in &args.files {
        let cases = cases_of(file);
        // A rule and its cases are mostly named both, by a pattern.
        if seen.contains(&cases) {
            continue;
        }
        match outcomes(&runtime, file, &cases) {
            Ok(outcomes) => {
                for (name, failures) in outcomes {
                    if failures.is_empty() {
                        held += 1;
                        say(format_args!("ok      {}: {name}", file.display()));
                    } else {
                        failed += 1;
                        say(format_args!("FAILED  {}: {name}", file.display()));
                        failures.iter().for_each(|failure| say(format_args!("        {failure}")));
                    }
                }
            }
            Err(error) => {
                failed += 1;
                tell(format_args!("{}: {error:#}", file.display()));
            }
        }
        seen.push(cases);
    }
    say(format_args!("{held} cases hold, {failed} do not"));
    if failed > 0 { Err(Failure::other(anyhow!("not all cases hold"))) } else { Ok(()) }
}

/// The file of a rule's cases.
fn cases_of(file: &Path) -> PathBuf {
    if has_cases(file) { file.to_owned() } else { file.with_extension("test.yaml") }
}

/// Runs a file; returns what became of each of its cases.
fn outcomes(runtime: &Runtime, file: &Path, cases: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let text = read(cases).context("a rule has its cases beside it")?;
    let own = match has_cases(file) {
        false => Some(file.to_owned()),
        true => {
            let name = cases.to_string_lossy();
            let beside = PathBuf::from(name.replacen(".test.", ".", 1));
            beside.exists().then_some(beside)
        }
    };
    let rule = own.as_deref().map(read).transpose()?;
    let suite = Suite::read(&text, rule.as_deref())?;
    let scratch = tempfile::tempdir()?;
    let config = Config { data_dir: scratch.path().to_owned(), ..Config::default() };
    let engine = runtime.block_on(Engine::open(config, Arc::new(SystemClock)))?;
    let mut asked =
        FilterCheck { runtime, engine, body: suite.rule.body.clone(), second: suite.rule.second() };
    let outcomes = suite.run(&mut asked);
    runtime.block_on(asked.engine.shutdown())?;
    let mut all: Vec<_> = outcomes.into_iter().map(|outcome| (outcome.name, outcome.failures)).collect();
    if all.is_empty() {
        all.push(("no case".to_owned(), vec!["[cases] has none".to_owned()]));
    }
    Ok(all)
}

/// A rule's filter, asked of events with the mapping that a new index gets for them.
struct FilterCheck<'a> {
    runtime: &'a Runtime,
    engine: Arc<Engine>,
    body: Value,
    /// That of the rule's second filter.
    second: Option<Value>,
}

impl Matcher for FilterCheck<'_> {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        let mut by_index: BTreeMap<&Arc<str>, Vec<usize>> = BTreeMap::new();
        for (place, event) in frame.events.iter().enumerate() {
            by_index.entry(&event.index).or_default().push(place);
        }
        let (mut all, mut second) = (Vec::new(), Vec::new());
        for (index, places) in by_index {
            let events: Vec<&Event> = places.iter().map(|place| &frame.events[*place]).collect();
            match self.of_index(index, &events, frame.time.ms()) {
                Ok((rows, also)) => {
                    all.extend(rows.into_iter().filter_map(|row| places.get(row as usize)));
                    second.extend(also.into_iter().filter_map(|row| places.get(row as usize)));
                }
                Err(error) => {
                    let outcome = Err(format!("index [{index}]: {error:#}"));
                    return vec![RuleMatches { rule: RULE.to_owned(), outcome, second }];
                }
            }
        }
        all.sort_unstable();
        vec![RuleMatches { rule: RULE.to_owned(), outcome: Ok(all), second }]
    }
}

impl FilterCheck<'_> {
    /// Indexes events, so that the index has their fields, and asks the filters of them: the rows of the first and of the second.
    fn of_index(&self, index: &Arc<str>, events: &[&Event], now_ms: i64) -> Result<(Vec<u32>, Vec<u32>)> {
        let sources: Vec<Bytes> = events.iter().map(|event| Bytes::from(event.source.to_string())).collect();
        let write = |source: &Bytes| WriteOp::new(Arc::clone(index), None, Action::Index(source.clone()));
        let writes = sources.iter().map(write).collect();
        let (principal, refresh) = (Principal::system(), RefreshPolicy::None);
        let written = self.engine.write(&principal, writes, refresh, TIMEOUT);
        for outcome in self.runtime.block_on(written)? {
            outcome?;
        }
        let running = self.engine.index(index)?;
        let view = Arc::new(IndexView::whole(running.meta(), running.mapping()));
        let mut compiled = vec![Arc::new(Filter::compile(&self.body, &view)?)];
        if let Some(second) = &self.second {
            compiled.push(Arc::new(Filter::compile(second, &view)?));
        }
        let filters = Filters::new(&compiled);
        let document = |(event, source): (&&Event, Bytes)| ArrivedDocument {
            id: Bytes::copy_from_slice(event.id.as_bytes()),
            source,
            seq_no: event.seq_no,
            routing: None,
            now_ms,
        };
        let arrivals: Vec<ArrivedDocument> = events.iter().zip(sources).map(document).collect();
        let compute = self.engine.compute().clone();
        let (mut rows, mut second, mut first) = (Vec::new(), Vec::new(), 0);
        while first < arrivals.len() {
            let some = &arrivals[first..];
            let some = &some[..Batch::fitting(some).max(1)];
            let batch = filters.batch(view.mapping(), some, &compute)?;
            for found in filters.run(&batch, &QueryContext::default())? {
                let of = if found.filter == 0 { &mut rows } else { &mut second };
                of.extend(found.rows?.iter().map(|row| first as u32 + row));
            }
            first += some.len();
        }
        Ok((rows, second))
    }
}
