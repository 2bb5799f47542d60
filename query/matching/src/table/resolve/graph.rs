//! Token graphs: texts in which several words stand beside one, as synonyms do.
//!
//! Tokens are edges between states; where all ways through the graph meet, it is cut into stretches
//! that are queried one by one, as Lucene's `GraphTokenStreamFiniteStrings` does.

use std::collections::HashSet;

use millrace_dsl::query::MAX_CLAUSES;
use millrace_work::error::{Error, Result};

use super::tokens::{Token, Tokens};

/// A token from one state to another.
#[derive(Clone, Debug)]
struct Edge {
    from: u32,
    to: u32,
    token: Token,
}

/// A stretch between two states through which every way goes.
#[derive(Clone, Debug)]
pub(super) enum GraphSection {
    /// Tokens that span all of it.
    Terms(Vec<Token>),
    /// The ways through it.
    Ways(Vec<Tokens>),
}

/// Cuts tokens into stretches.
pub(super) fn stretches(tokens: &Tokens) -> Result<Vec<GraphSection>> {
    let edges = leading_on(edges(&tokens.list));
    let mut states: Vec<u32> = edges.iter().flat_map(|edge| [edge.from, edge.to]).collect();
    states.sort_unstable();
    states.dedup();
    // Every way goes through a state that no edge passes over.
    let meets = |state: &u32| !edges.iter().any(|edge| edge.from < *state && *state < edge.to);
    let points: Vec<u32> = states.iter().copied().filter(meets).collect();
    let mut stretches = Vec::with_capacity(points.len());
    for ends in points.windows(2) {
        let (start, end) = (ends[0], ends[1]);
        let own: Vec<&Edge> = edges.iter().filter(|edge| edge.from >= start && edge.to <= end).collect();
        if own.iter().all(|edge| edge.from == start && edge.to == end) {
            stretches.push(GraphSection::Terms(own.iter().map(|edge| edge.token.clone()).collect()));
            continue;
        }
        let mut ways = Vec::new();
        walk(&own, start, end, &mut Vec::new(), &mut ways)?;
        let to_the_end = tokens.to_the_end && points.last() == Some(&end);
        stretches.push(GraphSection::Ways(
            ways.into_iter().map(|list| Tokens { list, to_the_end, by_position_only: false }).collect(),
        ));
    }
    Ok(stretches)
}

/// Makes edges of tokens, numbering states as Lucene does: a gap belongs to the token behind it.
fn edges(tokens: &[Token]) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::with_capacity(tokens.len());
    let (mut position, mut gap, mut before) = (-1i64, 0i64, 1);
    for token in tokens {
        // A first token always begins a position.
        let increment = if position < 0 { token.increment.max(1) } else { token.increment };
        if increment == 0 {
            position -= gap;
        } else {
            position += 1;
            gap = i64::from(increment) - 1;
            before = increment;
        }
        let to = position + i64::from(token.length) + gap;
        // Ways are plain texts: tokens beside each other go on from the same token before.
        let token = Token { term: token.term.clone(), increment: before, length: 1 };
        edges.push(Edge { from: state(position), to: state(to), token });
        position += gap;
    }
    edges
}

/// Leaves out the edges from which no way leads to the last state.
fn leading_on(edges: Vec<Edge>) -> Vec<Edge> {
    let Some(last) = edges.iter().map(|edge| edge.to).max() else { return edges };
    let mut by_end: Vec<&Edge> = edges.iter().collect();
    // Edges go forward: once all that lead to a state are seen, it is known where it leads.
    by_end.sort_by_key(|edge| std::cmp::Reverse(edge.to));
    let mut alive = HashSet::from([last]);
    for edge in by_end {
        if alive.contains(&edge.to) {
            alive.insert(edge.from);
        }
    }
    edges.into_iter().filter(|edge| alive.contains(&edge.to)).collect()
}

fn state(position: i64) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// Lists the ways from a state to the end.
fn walk(
    edges: &[&Edge],
    from: u32,
    end: u32,
    way: &mut Vec<Token>,
    ways: &mut Vec<Vec<Token>>,
) -> Result<()> {
    if from == end {
        if ways.len() >= MAX_CLAUSES {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        ways.push(way.clone());
        return Ok(());
    }
    if way.len() >= MAX_CLAUSES {
        return Err(Error::TooManyClauses(MAX_CLAUSES));
    }
    for edge in edges.iter().filter(|edge| edge.from == from) {
        way.push(edge.token.clone());
        walk(edges, edge.to, end, way, ways)?;
        way.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(list: &[(&str, u32, u32)]) -> Tokens {
        let list = list.iter().map(|(term, increment, length)| Token {
            term: (*term).to_owned(),
            increment: *increment,
            length: *length,
        });
        Tokens { list: list.collect(), to_the_end: true, by_position_only: false }
    }

    fn show(stretches: &[GraphSection]) -> String {
        let way = |tokens: &Tokens| {
            tokens.list.iter().map(|t| format!("{}+{}", t.term, t.increment)).collect::<Vec<_>>().join(" ")
        };
        let one = |stretch: &GraphSection| match stretch {
            GraphSection::Terms(terms) => terms.iter().map(|t| t.term.as_str()).collect::<Vec<_>>().join("|"),
            GraphSection::Ways(ways) => format!("({})", ways.iter().map(way).collect::<Vec<_>>().join(" | ")),
        };
        stretches.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ways_part_and_meet() {
        // fast ny pizza, with "new york" beside "ny" and "quick" beside "fast"
        let graph = tokens(&[
            ("fast", 1, 1),
            ("quick", 0, 1),
            ("new", 1, 1),
            ("ny", 0, 2),
            ("york", 1, 1),
            ("pizza", 1, 1),
        ]);
        assert_eq!(show(&stretches(&graph).unwrap()), "fast|quick (new+1 york+1 | ny+1) pizza");
    }

    #[test]
    fn gaps_belong_to_the_token_behind() {
        let graph = tokens(&[("a", 1, 1), ("big", 2, 1), ("apple", 1, 1), ("ny", 0, 1)]);
        assert_eq!(show(&stretches(&graph).unwrap()), "a big apple|ny");
        let graph = tokens(&[("a", 1, 1), ("big", 2, 1), ("ny", 0, 2), ("apple", 1, 1)]);
        assert_eq!(show(&stretches(&graph).unwrap()), "a (big+2 apple+1 | ny+2)");
    }

    #[test]
    fn the_number_of_ways_is_bounded() {
        let mut list = vec![("x", 1, 40), ("a", 0, 1), ("b", 0, 1)];
        for _ in 1..40 {
            list.extend([("a", 1, 1), ("b", 0, 1)]);
        }
        assert!(stretches(&tokens(&list)).is_err());
        // Ways that lead nowhere are not walked.
        list[0] = ("x", 1, 100);
        assert_eq!(show(&stretches(&tokens(&list)).unwrap()), "x");
    }
}
