//! The walk of `graphlookup`: documents that edges reach, breadth first.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewBuilder};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::ColumnarValue;
use millrace_work::QueryContext;
use serde_json::{Map, Value, json};

use super::json::{MAX_BYTES, too_long};
use super::row::{Context, Reader, Val, held};
use super::{Definition, shown};
use crate::error::evaluation;
use crate::types::SqlType::{self, Array, Keyword, Long};

type Answer<'a> = Result<Val<'a>, String>;

/// Most documents of a graph.
const MAX_DOCUMENTS: usize = 10_000;
/// Longest text of the documents of a graph, in bytes.
const MAX_GRAPH_BYTES: usize = 8 << 20;
/// Most steps of a walk behind the first.
const MAX_DEPTH: i64 = 100;
/// Bytes of memory of a graph for each byte of its text.
const GRAPH_FACTOR: usize = 8;

/// A graph: its documents, and these by the values of the fields that edges arrive at and leave by.
#[derive(Debug)]
struct Graph {
    documents: Vec<Map<String, Value>>,
    by_target: HashMap<String, Vec<usize>>,
    by_origin: HashMap<String, Vec<usize>>,
}

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    match name {
        "graph_walk" => Some(Definition::with_nulls(walk_types, walk).with_kernel(walk_rows)),
        _ => None,
    }
}

/// Takes starts, the documents, the fields of edges, the steps, whether these go both ways, whether fields hold arrays, and the member
/// with the number of steps.
fn walk_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [starts, documents, ..] = types else { return None };
    let wanted =
        vec![*starts, *documents, Keyword, Keyword, Long, SqlType::Boolean, SqlType::Boolean, Keyword];
    (types.len() == wanted.len()).then_some((wanted, Array))
}

fn walk<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [_, documents, origin, target, _, _, arrays, _] = args else { return Ok(Val::Null) };
    let is_list = *arrays == Val::Bool(true);
    let graph = Graph::new(documents.text(), (origin.text(), target.text()), is_list)?;
    walk_graph(args, &graph).map(Val::str)
}

/// Walks from the starts of some rows, most of which have one graph, which is read once.
fn walk_rows(args: &[ColumnarValue], rows: usize, work: &QueryContext) -> PlanResult<Option<ArrayRef>> {
    let arrays = args.iter().map(|argument| match argument {
        ColumnarValue::Array(array) => Ok(Arc::clone(array)),
        ColumnarValue::Scalar(scalar) => scalar.to_array_of_size(1),
    });
    let arrays = arrays.collect::<PlanResult<Vec<ArrayRef>>>()?;
    let readers = arrays.iter().map(Reader::new).collect::<PlanResult<Vec<_>>>()?;
    let is_single: Vec<bool> = args.iter().map(|own| matches!(own, ColumnarValue::Scalar(_))).collect();
    let mut out = StringViewBuilder::with_capacity(rows);
    let made = work.part();
    let mut last: Option<(&str, [Val<'_>; 3], Graph, QueryContext)> = None;
    for row in 0..rows {
        work.check()?;
        let values = readers.iter().zip(&is_single);
        let values: Vec<Val<'_>> =
            values.map(|(own, single)| own.value(if *single { 0 } else { row })).collect();
        let [_, documents, origin, target, _, _, is_list, _] = values.as_slice() else {
            return exec_err!("a walk takes eight values");
        };
        let text = match documents {
            Val::Str(Cow::Borrowed(text)) => *text,
            _ => "",
        };
        let fields = [origin.clone(), target.clone(), is_list.clone()];
        let is_known = last
            .as_ref()
            .is_some_and(|(known, own, ..)| (std::ptr::eq(*known, text) || *known == text) && *own == fields);
        if !is_known {
            // The memory of the graph before is free again.
            drop(last.take());
            let memory = work.part_of(text.len().min(MAX_GRAPH_BYTES) * GRAPH_FACTOR)?;
            let graph = Graph::new(text, (origin.text(), target.text()), *is_list == Val::Bool(true));
            last = Some((text, fields, graph.map_err(evaluation)?, memory));
        }
        let Some((_, _, graph, _)) = &last else { return exec_err!("a walk has no graph") };
        let answer = walk_graph(&values, graph).map_err(evaluation)?;
        made.hold(answer.len())?;
        out.append_value(answer);
    }
    held(&(Arc::new(out.finish()) as ArrayRef), &made).map(Some)
}

/// Walks along the edges of a graph, and returns the documents as an array.
fn walk_graph(args: &[Val<'_>], graph: &Graph) -> Result<String, String> {
    let [starts, _, origin, target, depth, both, arrays, depth_field] = args else {
        return Ok("[]".to_owned());
    };
    let is_list = *arrays == Val::Bool(true);
    if !(0..=MAX_DEPTH).contains(&depth.int()) {
        return Err(format!("maxDepth of graphlookup is a number from 0 to {MAX_DEPTH}"));
    }
    let mut frontier: Vec<String> = match starts {
        Val::Null => Vec::new(),
        Val::Str(text) if text.starts_with('[') => match serde_json::from_str(text) {
            Ok(values) => values_of(&values, true),
            Err(_) => vec![text.to_string()],
        },
        other => vec![shown(other)],
    };
    if frontier.len() > MAX_DOCUMENTS {
        return Err(format!("a walk of graphlookup has more than {MAX_DOCUMENTS} starts"));
    }
    let (mut found, mut known, mut left) = (Vec::new(), HashSet::new(), MAX_BYTES);
    // A document hands on the same values again, so each direction leaves it once.
    let mut walked: HashSet<(usize, bool)> = HashSet::new();
    for step in 0..=depth.int() {
        let mut reached: Vec<usize> = Vec::new();
        let mut next: Vec<String> = Vec::new();
        for value in &frontier {
            for (edges, field, is_reverse, is_used) in [
                (&graph.by_target, origin.text(), false, true),
                (&graph.by_origin, target.text(), true, *both == Val::Bool(true)),
            ] {
                for at in edges.get(value).into_iter().flatten().filter(|_| is_used) {
                    if known.insert(*at) {
                        reached.push(*at);
                    }
                    if !walked.insert((*at, is_reverse)) {
                        continue;
                    }
                    let Some(document) = graph.documents.get(*at) else { continue };
                    next.extend(document.get(field).map(|own| values_of(own, is_list)).unwrap_or_default());
                }
            }
        }
        reached.sort_unstable();
        for at in reached {
            let Some(document) = graph.documents.get(at) else { continue };
            let mut document = document.clone();
            if !depth_field.text().is_empty() {
                document.insert(depth_field.text().to_owned(), json!(step));
            }
            let document = Value::Object(document);
            left = left.checked_sub(document.to_string().len()).ok_or_else(too_long)?;
            found.push(document);
        }
        next.sort_unstable();
        next.dedup();
        if next.is_empty() || next == frontier {
            break;
        }
        frontier = next;
    }
    Ok(Value::Array(found).to_string())
}

/// Lists the values of a member as texts: that of an array is its first one, where members hold no arrays.
fn values_of(value: &Value, is_list: bool) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => {
            let most = if is_list { values.len() } else { 1 };
            values.iter().take(most).flat_map(|value| values_of(value, is_list)).collect()
        }
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

impl Graph {
    /// Reads the documents of a graph.
    fn new(text: &str, (origin, target): (&str, &str), is_list: bool) -> Result<Self, String> {
        if text.len() > MAX_GRAPH_BYTES {
            return Err(format!(
                "the documents of graphlookup have more than {MAX_GRAPH_BYTES} bytes; leave some out by filter"
            ));
        }
        let documents: Vec<Map<String, Value>> = match text {
            "" => Vec::new(),
            text => serde_json::from_str(text)
                .map_err(|error| format!("the documents of a graph are no objects: {error}"))?,
        };
        if documents.len() > MAX_DOCUMENTS {
            return Err(format!(
                "graphlookup reads more than {MAX_DOCUMENTS} documents; leave some out by filter"
            ));
        }
        let by = |field: &str| {
            let mut by: HashMap<String, Vec<usize>> = HashMap::new();
            for (at, document) in documents.iter().enumerate() {
                for value in document.get(field).map(|own| values_of(own, is_list)).unwrap_or_default() {
                    by.entry(value).or_default().push(at);
                }
            }
            by
        };
        let (by_target, by_origin) = (by(target), by(origin));
        Ok(Self { documents, by_target, by_origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_reach_documents_breadth_first() {
        let documents =
            r#"[{"n":"a","to":["b","c"]},{"n":"b","to":["a"]},{"n":"c","to":["d"]},{"n":"d","to":[]}]"#;
        let run = |depth: i64, both: bool, depth_field: &'static str| {
            let args = [
                Val::str("a"),
                Val::str(documents),
                Val::str("to"),
                Val::str("n"),
                Val::Int(depth),
                Val::Bool(both),
                Val::Bool(true),
                Val::str(depth_field),
            ];
            let found = walk(&args, Context { now: 0, ty: Array }).unwrap();
            let found: Vec<Value> = serde_json::from_str(found.text()).unwrap();
            found
                .iter()
                .map(|own| (own["n"].as_str().unwrap().to_owned(), own["x"].clone()))
                .collect::<Vec<_>>()
        };
        let names = |depth| run(depth, false, "").into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(0), ["a"]);
        assert_eq!(names(1), ["a", "b", "c"]);
        assert_eq!(names(9), ["a", "b", "c", "d"]);
        assert_eq!(run(1, false, "x").last(), Some(&("c".to_owned(), json!(1))));
        assert_eq!(run(0, true, "").len(), 2);
    }

    #[test]
    fn walks_leave_a_document_once() {
        // Each document has an edge to each: a walk that leaves them again has as many values as there are pairs.
        let names: Vec<String> = (0..300).map(|at| at.to_string()).collect();
        let documents: Vec<Value> = names.iter().map(|name| json!({"n": name, "to": names})).collect();
        let documents = Value::Array(documents).to_string();
        let graph = Graph::new(&documents, ("to", "n"), true).unwrap();
        let args = [
            Val::str("0"),
            Val::str(documents.as_str()),
            Val::str("to"),
            Val::str("n"),
            Val::Int(MAX_DEPTH),
            Val::Bool(true),
            Val::Bool(true),
            Val::str(""),
        ];
        let found: Vec<Value> = serde_json::from_str(&walk_graph(&args, &graph).unwrap()).unwrap();
        assert_eq!(found.len(), 300);
    }
}
