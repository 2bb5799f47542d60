//! The graphs of a pipeline that follow each other at reloads.
//!
//! A batch is queued for the graph that runs then. Another graph that takes its place leaves it time to come to its
//! end; then the generation ends: its sinks give up, and what they had, as well as what still waits in the queue, goes
//! through the graph that runs by then.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use futures::future::join_all;
use millrace_catalog::access::Principal;
use millrace_ingest::output::Output;
use millrace_runtime::Error;
use parking_lot::RwLock;
use tokio::sync::{OnceCell, watch};

use crate::graph::{OutputNode, each_plugin};
use crate::store::Store;
use crate::{Graph, rights};

/// A graph for as long as something is on its way through it.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) graph: Arc<Graph>,
    /// Principal of its outputs.
    pub(super) writer: Principal,
    /// Set once the store has the templates of the outputs.
    has_templates: OnceCell<()>,
    /// Becomes `true` when nothing is waited for any more that goes through this graph.
    ended: watch::Sender<bool>,
}

impl Generation {
    fn new(pipeline: &Arc<str>, graph: Arc<Graph>, files: Option<&Path>) -> Arc<Self> {
        if let Some(files) = files {
            each_plugin(&graph.outputs, &mut |node: &Arc<OutputNode>| {
                if let Output::Sink(sink) = &node.output {
                    sink.start(files);
                }
            });
        }
        let writer = rights::of_graph(pipeline, &graph);
        Arc::new(Self { graph, writer, has_templates: OnceCell::new(), ended: watch::Sender::new(false) })
    }

    /// Puts the templates of the outputs into the store, once. Operations wait for that: they would make indices without them.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn put_templates(&self, store: &dyn Store) -> Result<(), Error> {
        let put = || async {
            let mut templates = Vec::new();
            each_plugin(&self.graph.outputs, &mut |node: &Arc<OutputNode>| {
                if let Output::Local(local) = &node.output {
                    templates.extend(local.template().cloned());
                }
            });
            for template in &templates {
                store.put_template(template).await?;
            }
            Ok(())
        };
        self.has_templates.get_or_try_init(put).await.copied()
    }

    /// Tells sinks and retries to give up.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Returns whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Becomes `true` when it ends.
    pub(super) fn ending(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
}

/// The generation that runs and those before it that are not through.
#[derive(Debug)]
pub(super) struct Generations {
    pipeline: Arc<str>,
    /// Directory for files of outputs.
    files: Option<PathBuf>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    current: Arc<Generation>,
    before: Vec<Weak<Generation>>,
}

impl Generations {
    /// Begins with a graph, and starts its outputs.
    pub(super) fn new(pipeline: Arc<str>, graph: Arc<Graph>, files: Option<PathBuf>) -> Self {
        let current = Generation::new(&pipeline, graph, files.as_deref());
        Self { pipeline, files, state: RwLock::new(State { current, before: Vec::new() }) }
    }

    /// The one that runs.
    pub(super) fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.state.read().current)
    }

    /// The one to go through for what was queued for another one: that, unless it has ended.
    pub(super) fn instead_of(&self, queued_for: &Arc<Generation>) -> Arc<Generation> {
        if queued_for.has_ended() { self.current() } else { Arc::clone(queued_for) }
    }

    /// Puts another graph in the place of the running one; answers the generation that is to end.
    pub(super) fn replace(&self, graph: Arc<Graph>) -> Weak<Generation> {
        let next = Generation::new(&self.pipeline, graph, self.files.as_deref());
        let mut state = self.state.write();
        let before = std::mem::replace(&mut state.current, next);
        let before = Arc::downgrade(&before);
        state.before.retain(|generation| generation.strong_count() > 0);
        state.before.push(Weak::clone(&before));
        before
    }

    /// Ends what outputs do beside deliveries. Returns whether all of it is done.
    pub(super) async fn finish_outputs(&self) -> bool {
        let mut outputs = Vec::new();
        let generations = {
            let state = self.state.read();
            let before = state.before.iter().filter_map(Weak::upgrade);
            before.chain([Arc::clone(&state.current)]).collect::<Vec<_>>()
        };
        for generation in &generations {
            each_plugin(&generation.graph.outputs, &mut |node: &Arc<OutputNode>| {
                outputs.push(Arc::clone(node))
            });
        }
        let finished = outputs.iter().map(|node| async {
            match &node.output {
                Output::Sink(sink) => sink.finish().await,
                Output::Local(_) => true,
            }
        });
        join_all(finished).await.into_iter().all(|finished| finished)
    }

    /// Ends all of them: the pipeline waits for nothing any more.
    pub(super) fn end_all(&self) {
        let state = self.state.read();
        state.current.end();
        state.before.iter().filter_map(Weak::upgrade).for_each(|generation| generation.end());
    }
}
