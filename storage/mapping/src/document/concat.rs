//! Concatenating chunks: the memtable's many small chunks become the one that a segment is made of.

use millrace_runtime::{Error, Result};

use super::chunk::{Chunk, Column, Elements, Strings, Values};
use super::columns::Interner;
use crate::mapping::{ColumnKind, PathId};

/// Marks a row that is left out, and a key that is not translated yet.
const NONE: u32 = u32::MAX;

/// Target of the rows of one input.
enum Rows {
    /// All of them, from here on.
    From(u32),
    Table(Vec<u32>),
}

impl Rows {
    fn of(&self, row: u32) -> u32 {
        match self {
            Self::From(base) => base + row,
            Self::Table(table) => table[row as usize],
        }
    }
}

impl Chunk {
    /// Concatenates chunks in order, leaving out the rows for which `keep(chunk, row)` is false.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where chunks disagree on the type of a path.
    ///
    /// # Panics
    /// Where the result has 2^32 rows or 2 GiB of distinct strings in a column: the callers' bounds on
    /// memory are far below.
    pub fn concat(chunks: &[&Chunk], keep: &dyn Fn(usize, u32) -> bool) -> Result<Chunk> {
        let mut rows = 0u32;
        let mut maps = Vec::with_capacity(chunks.len());
        for (at, chunk) in chunks.iter().enumerate() {
            let base = rows;
            let mut table = Vec::new();
            for row in 0..chunk.rows {
                if keep(at, row) {
                    if !table.is_empty() {
                        table.push(rows);
                    }
                    rows = rows.checked_add(1).expect("chunks hold fewer than 2^32 rows");
                } else {
                    if table.is_empty() {
                        table.reserve(chunk.rows as usize);
                        table.extend(base..base + row);
                    }
                    table.push(NONE);
                }
            }
            maps.push(if table.is_empty() { Rows::From(base) } else { Rows::Table(table) });
        }
        let mut ids: Vec<PathId> =
            chunks.iter().flat_map(|chunk| chunk.columns.iter().map(|column| column.id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let columns = ids
            .into_iter()
            .filter_map(|id| {
                let parts: Vec<(&Column, &Rows)> = chunks
                    .iter()
                    .zip(&maps)
                    .filter_map(|(chunk, rows)| chunk.column(id).map(|column| (column, rows)))
                    .collect();
                concat_column(id, &parts).transpose()
            })
            .collect::<Result<_>>()?;
        let ignored = chunks
            .iter()
            .zip(&maps)
            .flat_map(|(chunk, rows)| chunk.ignored.iter().map(|(row, path)| (rows.of(*row), path.clone())))
            .filter(|(row, _)| *row != NONE)
            .collect();
        let nested = concat_nested(chunks, &maps, keep)?;
        Ok(Chunk { rows, columns, nested, ignored })
    }
}

/// Concatenates the elements of the documents that are kept.
fn concat_nested(
    chunks: &[&Chunk],
    maps: &[Rows],
    keep: &dyn Fn(usize, u32) -> bool,
) -> Result<Vec<Elements>> {
    let mut paths: Vec<(PathId, Option<PathId>)> = chunks
        .iter()
        .flat_map(|chunk| chunk.nested.iter().map(|nested| (nested.path, nested.outer)))
        .collect();
    paths.sort_unstable_by_key(|(path, _)| *path);
    paths.dedup();
    let of =
        |chunk: &Chunk, path: PathId| chunk.nested.binary_search_by_key(&path, |nested| nested.path).ok();
    // Where the elements of a path in a chunk go.
    let places = |path: PathId| -> Vec<Rows> {
        let mut next = 0;
        let mut places = Vec::with_capacity(chunks.len());
        for (at, chunk) in chunks.iter().enumerate() {
            let parents = of(chunk, path).map_or(&[][..], |nested| &chunk.nested[nested].parents);
            places.push(Rows::Table(
                parents
                    .iter()
                    .map(|parent| {
                        if !keep(at, *parent) {
                            return NONE;
                        }
                        next += 1;
                        next - 1
                    })
                    .collect(),
            ));
        }
        places
    };
    let empty = Chunk::default();
    paths
        .into_iter()
        .filter_map(|(path, outer)| {
            let found: Vec<Option<&Elements>> =
                chunks.iter().map(|chunk| of(chunk, path).map(|at| &chunk.nested[at])).collect();
            let parts: Vec<&Chunk> =
                found.iter().map(|elements| elements.map_or(&empty, |elements| &elements.chunk)).collect();
            let kept = |at: usize, element: u32| {
                found[at].is_some_and(|elements| keep(at, elements.parents[element as usize]))
            };
            let chunk = match Chunk::concat(&parts, &kept) {
                Ok(chunk) => chunk,
                Err(error) => return Some(Err(error)),
            };
            let moved = |list: &dyn Fn(&Elements) -> Vec<u32>, places: &[Rows]| -> Vec<u32> {
                let all = found.iter().zip(places).filter_map(|(elements, rows)| Some(((*elements)?, rows)));
                all.flat_map(|(elements, rows)| {
                    list(elements).into_iter().map(|row| rows.of(row)).filter(|row| *row != NONE)
                })
                .collect()
            };
            let parents = moved(&|elements| elements.parents.clone(), maps);
            let within = match outer {
                Some(outer) => moved(&|elements| elements.within.clone(), &places(outer)),
                None => Vec::new(),
            };
            (chunk.rows > 0).then_some(Ok(Elements { path, outer, parents, within, chunk }))
        })
        .collect()
}

fn concat_column(id: PathId, parts: &[(&Column, &Rows)]) -> Result<Option<Column>> {
    let Some(kind) = parts.first().map(|(column, _)| column.kind) else { return Ok(None) };
    let total = parts.iter().map(|(column, _)| column.rows.len()).sum();
    let mut rows = Vec::with_capacity(total);
    let mut values = Values::empty(kind);
    let mut interner = Interner::default();
    for (column, map) in parts {
        if column.kind != kind {
            return Err(differ(id, kind, column.kind));
        }
        let kept = match map {
            Rows::From(base) => {
                rows.extend(column.rows.iter().map(|row| base + row));
                None
            }
            Rows::Table(table) => {
                let kept: Vec<bool> = column.rows.iter().map(|row| table[*row as usize] != NONE).collect();
                rows.extend(column.rows.iter().map(|row| table[*row as usize]).filter(|row| *row != NONE));
                Some(kept)
            }
        };
        let kept = kept.as_deref();
        match (&mut values, &column.values) {
            (Values::Str(to), Values::Str(from)) => append_strings(to, &mut interner, from, kept, total),
            (Values::I64(to), Values::I64(from)) => append(to, from, kept, total),
            (Values::U64(to), Values::U64(from)) => append(to, from, kept, total),
            (Values::F64(to), Values::F64(from)) => append(to, from, kept, total),
            (Values::Bool(to), Values::Bool(from)) => append(to, from, kept, total),
            (Values::Ip(to), Values::Ip(from)) => append(to, from, kept, total),
            (Values::GeoPoint(to), Values::GeoPoint(from)) => append(to, from, kept, total),
            _ => return Err(differ(id, kind, column.kind)),
        }
    }
    Ok((!rows.is_empty()).then_some(Column { id, kind, rows, values }))
}

/// The error of a path number that has not one type for ever.
fn differ(id: PathId, one: ColumnKind, other: ColumnKind) -> Error {
    Error::Corrupt {
        file: "memtable".to_owned(),
        offset: 0,
        reason: format!("path {} has values of type {one:?} and of type {other:?}", id.0),
    }
}

fn append<T: Copy>(to: &mut Vec<T>, from: &[T], kept: Option<&[bool]>, total: usize) {
    if to.capacity() == 0 {
        to.reserve_exact(total);
    }
    match kept {
        None => to.extend_from_slice(from),
        Some(kept) => to.extend(from.iter().zip(kept).filter(|(_, kept)| **kept).map(|(value, _)| *value)),
    }
}

fn append_strings(
    to: &mut Strings,
    interner: &mut Interner,
    from: &Strings,
    kept: Option<&[bool]>,
    total: usize,
) {
    if to.keys.capacity() == 0 {
        to.keys.reserve_exact(total);
    }
    // Only strings of rows that stay are carried over, each with one hash.
    let mut translated = vec![NONE; from.distinct()];
    for (at, key) in from.keys.iter().enumerate() {
        if kept.is_some_and(|kept| !kept[at]) {
            continue;
        }
        let slot = &mut translated[*key as usize];
        if *slot == NONE {
            *slot = interner
                .intern(to, from.get(*key))
                .expect("chunks hold less than 2 GiB of distinct strings a column");
        }
        to.keys.push(*slot);
    }
}
