//! Many filters on one small segment, such as a batch of documents in memory.
//!
//! [`Filters`] are made for a mapping and asked of one segment after the other. A clause that several of them have is resolved
//! once, and its rows are found once a segment, when the first of them comes to it.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_work::Work;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::score::all::All;
use crate::score::any::AtLeast;
use crate::score::collect::row_set;
use crate::score::condition::Prepared;
use crate::score::everything::{Everything, Nothing};
use crate::score::not::Not;
use crate::score::prepare::{Source, prepare};
use crate::score::reader::SegmentReader;
use crate::score::row_set::RowSet;
use crate::table::TableSegment;
use crate::table::node::Resolved;
use crate::table::predicate::Predicate;
use crate::table::resolve::{IndexContext, resolve};
use crate::table::statistics::expanded;

/// Filters of one mapping.
#[derive(Debug, Default)]
pub struct Filters {
    filters: Vec<Filter>,
    /// The clauses that filters are made of, each once.
    clauses: Vec<Resolved>,
    /// Their numbers by how they are written.
    known: HashMap<String, usize>,
}

/// A filter over clauses, which it has by their numbers.
#[derive(Debug)]
enum Filter {
    Everything,
    Clause(usize),
    /// Those that need no columns come first.
    All(Vec<Filter>),
    AtLeast(usize, Vec<Filter>),
    Not(Box<Filter>),
}

impl Filters {
    /// Adds a filter, whose scores count for nothing.
    ///
    /// # Errors
    /// Clauses that the mapping refuses, and those in which a score decides what matches: it would be another in each segment.
    pub fn add(&mut self, predicate: &Predicate, index: IndexContext<'_>) -> Result<()> {
        let filter = self.filter(predicate, index)?;
        self.filters.push(filter);
        Ok(())
    }

    fn filter(&mut self, predicate: &Predicate, index: IndexContext<'_>) -> Result<Filter> {
        Ok(match predicate {
            Predicate::All => Filter::Everything,
            Predicate::And(parts) => {
                let mut parts = self.parts(parts, index)?;
                parts.sort_by_key(|part| self.reads_columns(part));
                Filter::All(parts)
            }
            Predicate::AtLeast(required, parts) => Filter::AtLeast(*required, self.parts(parts, index)?),
            Predicate::DisMax(_, parts) => Filter::AtLeast(1, self.parts(parts, index)?),
            Predicate::Not(part) => Filter::Not(Box::new(self.filter(part, index)?)),
            Predicate::Constant(_, part) | Predicate::Boosting { positive: part, .. } => {
                self.filter(part, index)?
            }
            Predicate::Leaf(_) | Predicate::FunctionScore(..) | Predicate::Nested(..) => {
                Filter::Clause(self.clause(predicate, index)?)
            }
        })
    }

    fn parts(&mut self, parts: &[Predicate], index: IndexContext<'_>) -> Result<Vec<Filter>> {
        parts.iter().map(|part| self.filter(part, index)).collect()
    }

    fn clause(&mut self, predicate: &Predicate, index: IndexContext<'_>) -> Result<usize> {
        let written = format!("{predicate:?}");
        if let Some(number) = self.known.get(&written) {
            return Ok(*number);
        }
        let resolved = resolve(predicate, index)?;
        if resolved.node.scores_decide() {
            return Err(Error::IllegalArgument(format!(
                "[{predicate}] is no filter: its scores decide what matches"
            )));
        }
        let number = self.clauses.len();
        self.clauses.push(resolved);
        self.known.insert(written, number);
        Ok(number)
    }

    fn reads_columns(&self, filter: &Filter) -> bool {
        match filter {
            Filter::Everything => false,
            Filter::Clause(number) => self.clauses.get(*number).is_some_and(|own| own.node.reads_columns()),
            Filter::All(parts) | Filter::AtLeast(_, parts) => {
                parts.iter().any(|part| self.reads_columns(part))
            }
            Filter::Not(part) => self.reads_columns(part),
        }
    }

    /// Finds the rows of each filter, in the order in which they were added; deleted ones are included. What is held
    /// meanwhile is given back. Blocks.
    ///
    /// # Errors
    /// Files that cannot be read, more rows than queries may hold, [`Error::TimedOut`] once the work should end.
    pub fn rows(&self, segment: &Arc<dyn SegmentReader>, work: &Work) -> Result<Vec<RoaringBitmap>> {
        let source = Source {
            number: 0,
            shard: 0,
            reader: Arc::clone(segment),
            inverted: segment.inverted()?,
            functions: Arc::default(),
            work: work.part(),
        };
        let mut asked = Asked { clauses: &self.clauses, found: vec![None; self.clauses.len()], source };
        self.filters.iter().map(|filter| asked.rows(filter)).collect()
    }
}

/// A segment that filters are asked of.
struct Asked<'a> {
    clauses: &'a [Resolved],
    /// The rows of clauses, by number, as far as they were asked for.
    found: Vec<Option<Prepared>>,
    source: Source,
}

impl Asked<'_> {
    fn rows(&mut self, filter: &Filter) -> Result<RoaringBitmap> {
        self.source.work.check()?;
        let prepared = self.prepared(filter)?;
        match prepared.row_set() {
            Some(rows) => Ok(rows.clone()),
            None => found(&prepared, &self.source),
        }
    }

    fn prepared(&mut self, filter: &Filter) -> Result<Prepared> {
        Ok(match filter {
            Filter::Everything => Arc::new(Everything(0.0)),
            Filter::Clause(number) => self.clause(*number)?,
            Filter::All(parts) => {
                let mut all = Vec::with_capacity(parts.len());
                for part in parts {
                    let part = self.prepared(part)?;
                    // Where nothing is left, the other clauses need not be looked for.
                    if part.row_set().is_some_and(RoaringBitmap::is_empty) {
                        return Ok(Arc::new(Nothing));
                    }
                    all.push(part);
                }
                All::of(all)
            }
            Filter::AtLeast(required, parts) => {
                let parts = parts.iter().map(|part| self.prepared(part)).collect::<Result<_>>()?;
                AtLeast::of(*required, parts)
            }
            Filter::Not(part) => Arc::new(Not(self.prepared(part)?)),
        })
    }

    /// Finds the rows of a clause, once.
    fn clause(&mut self, number: usize) -> Result<Prepared> {
        if let Some(Some(found)) = self.found.get(number) {
            return Ok(Arc::clone(found));
        }
        let Some(clause) = self.clauses.get(number) else { return Ok(Arc::new(Nothing)) };
        let mut source = self.source.clone();
        if !clause.expansions.is_empty() {
            let (reader, deleted) = (Arc::clone(&source.reader), Arc::default());
            let segment = TableSegment { index: 0, shard: 0, reader, deleted };
            source.functions = expanded(&clause.expansions, &[segment], &source.work)?;
        }
        let prepared = prepare(&clause.node, &source, None)?;
        let rows = match prepared.row_set() {
            Some(_) => prepared,
            None => {
                let rows = found(&prepared, &source)?;
                match prepared.failure() {
                    Some(error) => return Err(error),
                    None => RowSet::found(&source, rows, 0.0)?,
                }
            }
        };
        if let Some(found) = self.found.get_mut(number) {
            *found = Some(Arc::clone(&rows));
        }
        Ok(rows)
    }
}

/// Finds all rows of a condition in a segment.
fn found(prepared: &Prepared, source: &Source) -> Result<RoaringBitmap> {
    row_set(prepared.as_ref(), source.inverted.as_ref(), source.reader.rows(), &source.work)
}

#[cfg(test)]
mod tests;
