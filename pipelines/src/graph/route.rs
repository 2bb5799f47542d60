//! Where an event goes that was refused before, and is sent again: only what refused it has not had it.

use std::sync::Arc;

use millrace_ingest::output;

use super::{Block, Graph, Node, OutputNode, each_plugin};

/// Bytes in hexadecimal that end the id of a plugin that was given none.
const DIGEST_DIGITS: usize = 12;

/// The part of a graph that an event goes through.
#[derive(Debug)]
pub(crate) enum Route<'g> {
    /// All of it: it did not come through the filters.
    Whole,
    /// An output, or a branch of outputs: all others had it.
    Outputs(&'g [Node<Arc<OutputNode>>]),
}

impl Graph {
    /// The way of an event that a plugin or a condition of this id refused. An output that was given no id has another one as
    /// soon as it is written otherwise: then the only one of its kind is meant.
    ///
    /// # Errors
    /// There is no such plugin any more, with what to do.
    pub(crate) fn route(&self, id: &str) -> Result<Route<'_>, String> {
        if let Some(node) = find(&self.outputs, id) {
            return Ok(Route::Outputs(std::slice::from_ref(node)));
        }
        if find_filter(&self.filters, id) {
            return Ok(Route::Whole);
        }
        let kind = kind(id).filter(|kind| output::NAMES.contains(kind));
        let mut alike = Vec::new();
        each_plugin(&self.outputs, &mut |node: &Arc<OutputNode>| {
            alike.extend(kind.filter(|kind| *node.label.name == **kind).map(|_| Arc::clone(&node.label.id)));
        });
        match (alike.as_slice(), kind) {
            ([only], _) => find(&self.outputs, only)
                .map(|node| Route::Outputs(std::slice::from_ref(node)))
                .ok_or_else(|| gone(id)),
            ([], _) | (_, None) => Err(gone(id)),
            (several, Some(kind)) => Err(format!(
                "[{id}] is not in the pipeline any more, which has {} outputs [{kind}]: name one of [{}] by [output]",
                several.len(),
                several.join(", ")
            )),
        }
    }
}

fn gone(id: &str) -> String {
    format!("[{id}] is not in the pipeline any more: name one of its outputs by [output]")
}

/// The kind of plugin in an id that was made for it.
fn kind(id: &str) -> Option<&str> {
    let (kind, digest) = id.rsplit_once('_')?;
    let made = digest.len() == DIGEST_DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    made.then_some(kind)
}

fn find<'g>(block: &'g [Node<Arc<OutputNode>>], id: &str) -> Option<&'g Node<Arc<OutputNode>>> {
    block.iter().find_map(|node| match node {
        Node::Plugin(plugin) => (&*plugin.label.id == id).then_some(node),
        Node::Branch(branch) if &*branch.id == id => Some(node),
        Node::Branch(branch) => {
            let blocks = branch.arms.iter().map(|(_, block)| block).chain([&branch.otherwise]);
            blocks.into_iter().find_map(|block| find(block, id))
        }
    })
}

fn find_filter(block: &Block<super::FilterNode>, id: &str) -> bool {
    block.iter().any(|node| match node {
        Node::Plugin(plugin) => &*plugin.label.id == id,
        Node::Branch(branch) => {
            let mut blocks = branch.arms.iter().map(|(_, block)| block).chain([&branch.otherwise]);
            &*branch.id == id || blocks.any(|block| find_filter(block, id))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refused_an_event_is_found_again() {
        let define = |text: &str| crate::check(text, &Default::default()).unwrap();
        let graph = define(
            "input { generator { } }
             filter { if [a] > 1 { drop { id => gone } } }
             output { if [b] > 1 { stdout { id => shown } } else { file { path => '/tmp/x' } } }",
        );
        let outputs = |id: &str| match graph.route(id) {
            Ok(Route::Outputs([Node::Plugin(node)])) => node.label.name.to_string(),
            Ok(Route::Outputs([Node::Branch(branch)])) => branch.id.to_string(),
            Ok(Route::Outputs(_)) => panic!("one node"),
            Ok(Route::Whole) => "all".to_owned(),
            Err(error) => error,
        };
        assert_eq!(outputs("shown"), "stdout");
        assert_eq!(outputs("if_line_3"), "if_line_3");
        for filter in ["gone", "if_line_2"] {
            assert_eq!(outputs(filter), "all");
        }
        assert_eq!(outputs("file_0123456789ab"), "file", "written otherwise since");
        for gone in ["other", "kafka_0123456789ab", "drop_0123456789ab", "if_line_9"] {
            assert!(outputs(gone).contains("is not in the pipeline any more"), "{}", outputs(gone));
        }
        let two = define("input { generator { } } output { stdout { } stdout { id => b } }");
        let error = two.route("stdout_0123456789ab").unwrap_err();
        assert!(error.contains("2 outputs [stdout]") && error.contains(", b]"), "{error}");
    }
}
