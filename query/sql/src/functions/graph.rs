//! The walk of `graphlookup`: documents that edges reach, breadth first.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::json::{MAX_BYTES, too_long};
use super::row::{Context, Val};
use super::{Definition, shown};
use crate::types::SqlType::{self, Array, Keyword, Long};

type Answer<'a> = Result<Val<'a>, String>;

/// Most documents of a graph.
const MAX_DOCUMENTS: usize = 10_000;
/// Longest text of the documents of a graph, in bytes.
const MAX_GRAPH_BYTES: usize = 8 << 20;
/// Most steps of a walk behind the first.
const MAX_DEPTH: i64 = 100;

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
        "graph_walk" => Some(Definition::with_nulls(walk_types, walk)),
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
    let [starts, documents, origin, target, depth, both, arrays, depth_field] = args else {
        return Ok(Val::Null);
    };
    let is_list = *arrays == Val::Bool(true);
    if !(0..=MAX_DEPTH).contains(&depth.int()) {
        return Err(format!("maxDepth of graphlookup is a number from 0 to {MAX_DEPTH}"));
    }
    let graph = graph(documents.text(), (origin.text(), target.text()), is_list)?;
    let mut frontier: Vec<String> = match starts {
        Val::Null => Vec::new(),
        Val::Str(text) if text.starts_with('[') => match serde_json::from_str(text) {
            Ok(values) => values_of(&values, true),
            Err(_) => vec![text.to_string()],
        },
        other => vec![shown(other)],
    };
    let (mut found, mut known, mut left) = (Vec::new(), HashSet::new(), MAX_BYTES);
    for step in 0..=depth.int() {
        let mut reached: Vec<usize> = Vec::new();
        let mut next: Vec<String> = Vec::new();
        for value in &frontier {
            for (edges, field, is_used) in [
                (&graph.by_target, origin.text(), true),
                (&graph.by_origin, target.text(), *both == Val::Bool(true)),
            ] {
                for at in edges.get(value).into_iter().flatten().filter(|_| is_used) {
                    if known.insert(*at) {
                        reached.push(*at);
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
    Ok(Val::str(Value::Array(found).to_string()))
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

/// Reads the documents of a graph; the last one stays read, since it is that of all rows.
fn graph(text: &str, (origin, target): (&str, &str), is_list: bool) -> Result<Arc<Graph>, String> {
    /// The text, the fields and whether they hold arrays.
    type Key = (String, String, String, bool);
    thread_local! {
        static LAST: RefCell<Option<(Key, Arc<Graph>)>> = const { RefCell::new(None) };
    }
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if let Some(((own, from, to, list), graph)) = last.as_ref()
            && (own.as_str(), from.as_str(), to.as_str(), *list) == (text, origin, target, is_list)
        {
            return Ok(Arc::clone(graph));
        }
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
        let graph = Arc::new(Graph { documents, by_target, by_origin });
        let key = (text.to_owned(), origin.to_owned(), target.to_owned(), is_list);
        *last = Some((key, Arc::clone(&graph)));
        Ok(graph)
    })
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
}
