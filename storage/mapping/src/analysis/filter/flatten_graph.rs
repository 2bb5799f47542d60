//! The `flatten_graph` filter: a token graph as an index can hold it.
//!
//! Each node of the graph gets the length of the longest way to it as its position, so that side paths
//! lie over each other.

use std::collections::BTreeMap;

use super::{Filter, Stage, TextEnd, whole};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FlattenGraph;

impl Filter for FlattenGraph {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(flatten, next)
    }
}

fn flatten(tokens: Vec<Token>, end: TextEnd) -> (Vec<Token>, TextEnd) {
    // Node of the graph to node of the output.
    let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
    for token in &tokens {
        let from = match nodes.get(&token.position) {
            Some(&node) => node,
            // No token ends here: there is a hole behind the node before.
            None => {
                let node = nodes
                    .range(..token.position)
                    .next_back()
                    .map_or(token.position, |(before, node)| node + (token.position - before));
                nodes.insert(token.position, node);
                node
            }
        };
        let to = nodes.entry(token.position + token.position_length).or_insert(from + 1);
        *to = (*to).max(from + 1);
    }
    // Tokens that leave a node start where the last of them starts; those that end in one end where the
    // first of them ends.
    let mut starts: BTreeMap<u32, u32> = BTreeMap::new();
    let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
    for token in &tokens {
        let (from, to) = (nodes[&token.position], nodes[&(token.position + token.position_length)]);
        let start = starts.entry(from).or_insert(token.start);
        *start = (*start).max(token.start);
        let end = ends.entry(to).or_insert(token.end);
        *end = (*end).min(token.end);
    }
    let after = tokens.iter().map(|token| token.position + token.position_length).max().unwrap_or(0);
    let trailing = end.positions.saturating_sub(after);
    let mut out: Vec<(u32, u32, Token)> = tokens
        .into_iter()
        .map(|token| {
            let (node, to) = (token.position, token.position + token.position_length);
            let (from, to) = (nodes[&node], nodes[&to]);
            let start = starts[&from];
            let token = Token {
                position: from,
                position_length: to - from,
                start,
                end: ends[&to].max(start),
                ..token
            };
            (from, node, token)
        })
        .collect();
    out.sort_by_key(|(from, node, _)| (*from, *node));
    let last = out.iter().map(|(_, _, token)| token.position + token.position_length).max().unwrap_or(0);
    (out.into_iter().map(|(_, _, token)| token).collect(), TextEnd { positions: last + trailing, ..end })
}
