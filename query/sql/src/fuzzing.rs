//! Entry points of fuzzers: statements are parsed, bound over an index with a field of each kind, optimized and rendered as searches.
//! A refusal is an answer. No row is read.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::thread;

use datafusion::execution::runtime_env::RuntimeEnv;
use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_matching::pinned::PinnedMemory;
use millrace_matching::table::{TableIndex, TableSnapshot};
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use serde_json::{Map, json};

use super::bind::{Binder, PlannedQuery, tables};
use super::error::Result;
use super::optimization::optimized;
use super::parameters::Parameters;
use super::relational::{PlannedRelation, RelationPlanner, RelationalStatement};
use super::request::{SqlDialect, SqlRequest};
use super::run::Runner;
use super::statement::{Names, Statement, parse_request};
use super::threads::STACK_BYTES;

/// Rows that statements answer where they do not say.
const ROWS: usize = 200;
/// Time of the requests.
const NOW_MS: i64 = 1_700_000_000_000;

/// The runner and the index of all statements.
struct Fixture {
    runner: Runner,
    snapshot: Arc<TableSnapshot>,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let keyword = json!({"type": "keyword"});
        let body = json!({"properties": {
            "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 10}}},
            "note": {"type": "text"}, "city": keyword, "tags": keyword, "k": keyword, "t": keyword,
            "age": {"type": "integer"}, "n": {"type": "long"}, "m": {"type": "long"}, "a": {"type": "long"},
            "b": {"type": "long"}, "balance": {"type": "unsigned_long"}, "score": {"type": "double"}, "x": {"type": "float"},
            "born": {"type": "date"}, "day": {"type": "date", "format": "yyyy-MM-dd"}, "at": {"type": "date_nanos"},
            "@timestamp": {"type": "date"}, "active": {"type": "boolean"}, "ip": {"type": "ip"}, "blob": {"type": "binary"},
            "home": {"properties": {"ip": {"type": "ip"}, "at": {"type": "geo_point"}}},
            "pets": {"type": "nested", "properties": {"kind": keyword, "age": {"type": "integer"}}},
            "flat": {"type": "flat_object"}, "other": {"type": "alias", "path": "city"}
        }});
        let mapping = Mapping::parse(&body, &Map::new()).expect("the mapping is valid");
        let meta = IndexMeta {
            name: "people".into(),
            uuid: Default::default(),
            settings: Map::new(),
            aliases: Default::default(),
            open: true,
            created_ms: 0,
            shards: 1,
            replicas: 0,
            doc_type: None,
        };
        let index = TableIndex {
            meta: Arc::new(meta),
            mapping: Arc::new(mapping),
            filter: None,
            seen: Default::default(),
            shards: vec![0],
            boost: 1.0,
        };
        let snapshot = TableSnapshot { indices: vec![index], shards: 1, ..TableSnapshot::default() };
        let env = Arc::new(RuntimeEnv::default());
        let pins = PinnedMemory::new(&env.memory_pool, 1 << 20);
        let pool = millrace_runtime::Compute::start(1).expect("a thread can be started");
        let runner =
            Runner::new(2, env, Compute::new(pool), pins, 1 << 20).expect("threads can be started");
        Fixture { runner, snapshot: Arc::new(snapshot) }
    })
}

/// The text of a statement of SQL, in each dialect.
pub fn statement(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    on_deep_stack(|| {
        for dialect in [SqlDialect::OpenSearch, SqlDialect::Elasticsearch] {
            let parameters = Parameters::Unbound;
            let request = SqlRequest { query: text.to_owned(), dialect, parameters, ..SqlRequest::default() };
            match parse_request(&request) {
                Ok(Statement::Query(query, names) | Statement::Explain { query, names, .. }) => {
                    bind(&request, tables(&query), &names, |binder| binder.query(&query, Some(ROWS), 0));
                }
                Ok(Statement::Delete(query)) => {
                    let names = Names::default();
                    bind(&request, tables(&query), &names, |binder| binder.query(&query, None, 0));
                }
                _ => {}
            }
        }
    });
}

/// A statement of another language.
pub fn relational(statement: &dyn RelationalStatement) {
    on_deep_stack(|| {
        bind(&SqlRequest::default(), statement.index_expressions(), &Names::default(), |binder| {
            binder.scores = statement.names_score();
            let PlannedRelation(planned) = statement.plan(&mut RelationPlanner::new(binder), Some(ROWS))?;
            Ok(planned)
        });
    });
}

/// Binds a statement over the index, under each of its names.
fn bind(
    request: &SqlRequest,
    expressions: Vec<String>,
    names: &Names,
    plan: impl FnOnce(&mut Binder<'_>) -> Result<PlannedQuery>,
) {
    let Fixture { runner, snapshot } = fixture();
    let snapshots: HashMap<String, Arc<TableSnapshot>> =
        expressions.into_iter().map(|name| (name, Arc::clone(snapshot))).collect();
    let (compute, work) = (runner.compute.clone(), QueryContext::default());
    let mut binder = Binder::new(&snapshots, names, request, &request.parameters, NOW_MS, compute, &work);
    let Ok(planned) = plan(&mut binder) else { return };
    // A plan that no search answers is refused, and so may the optimizer.
    let _ = planned.rendered();
    let _ = optimized(&planned.plan, &runner.state);
}

/// Runs on a thread with the stack of those that run statements.
fn on_deep_stack(work: impl FnOnce() + Send) {
    let ended = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        thread.map(thread::ScopedJoinHandle::join)
    });
    if let Ok(Err(panic)) = ended {
        resume_unwind(panic);
    }
}
