//! Rights of pipelines in this server: they write no more than the names that their definitions say.
//!
//! Events come from anywhere and often choose the index that they are stored in. The principal of a pipeline
//! ([`of_graph`]) is made of the [`index`](millrace_ingest::output::Local::names) options of its outputs, so that an event cannot
//! choose an index that the definition does not stand for, and none that is kept from all but the server. A name that
//! is an alias stands for the index that it writes to.

use std::sync::Arc;

use millrace_catalog::access::{Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_ingest::output::Output;

use crate::Graph;
use crate::graph::{OutputNode, each_plugin};

/// Actions on the indices of outputs.
const WRITES: ActionSet = ActionSet::WRITES.with(Action::AutoCreate).with(Action::AutoPutMapping);

/// Makes the principal of a pipeline with a definition.
pub(crate) fn of_graph(pipeline: &Arc<str>, graph: &Graph) -> Principal {
    let mut names = Vec::new();
    each_plugin(&graph.outputs, &mut |node: &Arc<OutputNode>| {
        if let Output::Local(local) = &node.output {
            names.push(local.names());
        }
    });
    writing(pipeline, &names)
}

/// Makes the principal of a pipeline of which no definition is known: it may write every index that is not forbidden to all
/// pipelines.
pub fn of_absent(pipeline: &str) -> Principal {
    writing(&Arc::from(pipeline), &["*".to_owned()])
}

fn writing(pipeline: &Arc<str>, names: &[String]) -> Principal {
    // What is no pattern of names is no name either: nothing could be written there.
    let names = names.iter().filter_map(|name| NamePattern::parse(name).ok()).collect();
    let grant = Grant { names, actions: WRITES, system: false, documents: None, fields: None };
    let privileges = Privileges::new(ActionSet::NONE, vec![grant]).through_aliases();
    Principal::new(Caller::Pipeline(Arc::clone(pipeline)), Vec::new(), Arc::new(privileges))
}
