//! Routes of events that were refused before, and are sent again: only the output that refused an event gets it.

use std::sync::Arc;

use millrace_ingest::output;

use super::naming::{BranchId, Section};
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
    /// soon as it is written otherwise: then the only one of its kind is meant. A branch of the outputs whose condition was corrected is
    /// known by what stands in it; what a condition among the filters refused goes through all of them.
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
        match BranchId::parse(id) {
            Some(BranchId { section: Section::Filter, .. }) => return Ok(Route::Whole),
            Some(wanted) => {
                let mut alike = Vec::new();
                find_alike(&self.outputs, wanted, &mut alike);
                return match alike.as_slice() {
                    [only] => Ok(Route::Outputs(std::slice::from_ref(*only))),
                    _ => Err(gone(id)),
                };
            }
            None => {}
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

/// Branches with the same in them. The same condition is no sign: another branch that has it refused the event, too, and has a
/// letter of its own.
fn find_alike<'g>(
    block: &'g [Node<Arc<OutputNode>>],
    wanted: BranchId<'_>,
    found: &mut Vec<&'g Node<Arc<OutputNode>>>,
) {
    for node in block {
        let Node::Branch(branch) = node else { continue };
        let is = BranchId::parse(&branch.id);
        if is.is_some_and(|is| is.bodies == wanted.bodies) {
            found.push(node);
        }
        for block in branch.arms.iter().map(|(_, block)| block).chain([&branch.otherwise]) {
            find_alike(block, wanted, found);
        }
    }
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
        assert_eq!(outputs("gone"), "all");
        for gone_since in ["if_filter_0123456789_0123456789", "if_filter_0123456789_0123456789_2"] {
            assert_eq!(outputs(gone_since), "all");
        }
        assert_eq!(outputs("file_0123456789ab"), "file", "written otherwise since");
        for gone in [
            "other",
            "kafka_0123456789ab",
            "drop_0123456789ab",
            "if_line_3",
            "if_output_0123456789_0123456789",
        ] {
            assert!(outputs(gone).contains("is not in the pipeline any more"), "{}", outputs(gone));
        }
        let two = define("input { generator { } } output { stdout { } stdout { id => b } }");
        let error = two.route("stdout_0123456789ab").unwrap_err();
        assert!(error.contains("2 outputs [stdout]") && error.contains(", b]"), "{error}");
    }

    #[test]
    fn branches_are_told_apart_and_found_again() {
        let define = |text: &str| crate::check(text, &Default::default()).unwrap();
        let ids = |graph: &Graph| {
            fn walk<N>(block: &[Node<N>], ids: &mut Vec<String>) {
                for node in block {
                    let Node::Branch(branch) = node else { continue };
                    ids.push(branch.id.to_string());
                    branch.arms.iter().for_each(|(_, block)| walk(block, ids));
                    walk(&branch.otherwise, ids);
                }
            }
            let (mut filters, mut outputs) = (Vec::new(), Vec::new());
            walk(&graph.filters, &mut filters);
            walk(&graph.outputs, &mut outputs);
            (filters, outputs)
        };
        // All on one line, and in two sections.
        let text = "input { generator { } } filter { if [a] > 1 { drop { } } } output { if [a] > 1 { stdout { id => a } } if [a] > 1 { stdout { id => b } } if [b] > 1 { if [a] > 1 { } } if [b] > 1 { if [a] > 1 { } } }";
        let graph = define(text);
        let (filters, outputs) = ids(&graph);
        let all: std::collections::HashSet<&String> = filters.iter().chain(&outputs).collect();
        assert_eq!((filters.len(), outputs.len(), all.len()), (1, 6, 7), "{all:?}");
        let route = |graph: &Graph, id: &str| match graph.route(id) {
            Ok(Route::Outputs([Node::Branch(branch)])) => Some(branch.id.to_string()),
            Ok(Route::Whole) => Some("all".to_owned()),
            _ => None,
        };
        assert_eq!(route(&graph, &filters[0]).as_deref(), Some("all"));
        for id in &outputs {
            assert_eq!(route(&graph, id).as_ref(), Some(id));
        }
        // Laid out otherwise, with others before it.
        let moved = define(
            &text
                .replace("output {", "output {\n if [c] { stdout { } }\n # more\n ")
                .replace("[a] > 1", "[a]>1"),
        );
        assert_eq!(ids(&moved).1[1..], outputs);
        // The condition was corrected.
        let corrected = define(&text.replacen("output { if [a] > 1", "output { if [a] and [a] > 1", 1));
        assert_eq!(route(&corrected, &outputs[0]).as_ref(), Some(&ids(&corrected).1[0]));
        // What was in it goes nowhere else.
        let taken_out = define(&text.replacen("if [a] > 1 { stdout { id => a } }", "", 1));
        assert_eq!(route(&taken_out, &outputs[0]), None);
    }
}
