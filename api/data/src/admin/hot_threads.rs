//! `_nodes/hot_threads`: the jobs that the compute threads run now, with their tasks, as text.
//!
//! Jobs are known at any time, so the answer is no sample of stacks: `interval`, `snapshots` and `type` are taken and change nothing.

use std::fmt::Write as _;

use millrace_runtime::{BusyThread, PoolActivity};

use super::{cat, node, options};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Threads that an answer lists where a request does not say.
const THREADS: i64 = 3;
/// Most threads that an answer lists.
const MAX_THREADS: i64 = 1_000;
/// Stacks that an answer tells apart where a request does not say; they are not sampled.
const TYPES: [&str; 3] = ["block", "cpu", "wait"];

/// `GET /_nodes/hot_threads`
pub(crate) fn get(api: &Api, request: &mut Request, nodes: &str) -> Result<Response, Error> {
    let params = &mut request.params;
    let threads = params.take_int("threads")?.unwrap_or(THREADS);
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(Error::illegal_argument(format!(
            "[threads] must be between 1 and {MAX_THREADS} but was [{threads}]"
        )));
    }
    params.take_int("snapshots")?;
    params.take_time("interval")?;
    params.take_time("timeout")?;
    if let Some(kind) = params.take("type").filter(|kind| !TYPES.contains(&kind.as_str())) {
        return Err(Error::illegal_argument(format!("type not supported [{kind}], use one of {TYPES:?}")));
    }
    let hides_idle = options::flag_or(params, "ignore_idle_threads", true)?;
    request.finish()?;
    let mut text = String::new();
    if node::selected(api, nodes) {
        let pools = api.session.compute().pools();
        write_node(api, &pools, threads as usize, hides_idle, &mut text);
    }
    Ok(Response::text(200, text))
}

fn write_node(api: &Api, pools: &[PoolActivity], most: usize, hides_idle: bool, text: &mut String) {
    let (name, id) = (&api.identity.node, node::id(api));
    let _ = writeln!(text, "::: {{{name}}}{{{id}}}{{{}}}{{{}}}", node::address(api), node::ROLE_LETTERS);
    let now = cat::moment(api.session.clock().now_ms());
    let _ =
        writeln!(text, "   Hot threads at {now}, busiestThreads={most}, ignoreIdleThreads={hides_idle}:\n");
    for pool in pools.iter().filter(|pool| !hides_idle || !pool.busy.is_empty() || pool.queued > 0) {
        let PoolActivity { name, threads, queued, completed, busy } = pool;
        let busy = busy.len();
        let _ = writeln!(
            text,
            "   pool [{name}]: {threads} threads, {busy} busy, {queued} queued, {completed} completed"
        );
    }
    let mut busy: Vec<(&str, BusyThread)> =
        pools.iter().flat_map(|pool| pool.busy.iter().map(|thread| (pool.name, *thread))).collect();
    busy.sort_by_key(|(_, thread)| std::cmp::Reverse(thread.running));
    for (pool, thread) in busy.into_iter().take(most) {
        let millis = thread.running.as_secs_f64() * 1_000.0;
        let _ = write!(text, "\n   thread [{pool}-{}] has run its job for {millis:.1}ms", thread.thread);
        match thread.task {
            None => text.push_str(", which belongs to no task\n"),
            Some(number) => {
                let _ = writeln!(text, " for task [{id}:{number}]");
                if let Some(task) = api.session.tasks().get(number) {
                    let task = task.snapshot();
                    let _ = writeln!(text, "     {} {}", task.action, task.description);
                }
            }
        }
    }
}
