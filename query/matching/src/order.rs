//! The order of hits: sort keys against mappings, sort values in and out.
//!
//! [`Order::new`] turns the `sort` of a request into the keys of a table and the sort of a plan;
//! indices that cannot be sorted so are reported as failed. Ties are broken by address, so every
//! order is total and any search can be continued exactly.

mod encoded;
mod key;
mod nested;
mod render;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, SortExpr, ident, lit};
use millrace_dsl::fields::check_format;
use millrace_dsl::json::integer;
use millrace_mapping::DateFormat;
use millrace_scoring::collect::{Address, Cursor};
use serde_json::{Value, json};

pub use self::encoded::{Encoder, SortColumn};
use self::key::{distance_key, field_key, key_value};
pub use self::render::number;
use crate::table::snapshot::TableSnapshot;
use crate::table::state::{ROW, SCORE, SEGMENT};
use millrace_dsl::sort::{SortBy, SortKey};
use millrace_work::error::{Error, Result};

use self::render::render_key;
use crate::table::keys::Key;
use crate::table::values::{REFORMATTED, reformatted};

/// Takes what was made for an index; the first failure of each index goes to `failed`.
fn taken<T>(made: Result<T>, at: usize, failed: &mut Vec<(usize, Error)>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) => {
            if !failed.iter().any(|(index, _)| *index == at) {
                failed.push((at, error));
            }
            None
        }
    }
}

/// Kind of one sort key.
#[derive(Clone, Debug)]
enum SortKeyKind {
    Score,
    Doc,
    /// Number of the key in the table, and how dates print.
    Key(usize, Option<DateFormat>),
}

/// The order of a search.
#[derive(Clone, Debug)]
pub struct Order {
    parts: Vec<(SortKeyKind, bool)>,
    /// Sort keys of the table.
    pub keys: Vec<Key>,
    /// `true` if the request asked for an order of its own.
    pub explicit: bool,
}

/// A point in an order: the sort values of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// A value for each sort key.
    pub values: Vec<PointValue>,
    /// The row, where known: ties behind it come next. Without it ties are behind.
    pub address: Option<Address>,
}

/// A sort value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum PointValue {
    Score(f32),
    Doc(Address),
    Key(ScalarValue),
}

impl Order {
    /// Makes the order of a request over the indices of a snapshot. Returns it with the indices
    /// that cannot be sorted so.
    pub fn new(
        sort: &[SortKey],
        snapshot: &TableSnapshot,
        now_ms: i64,
    ) -> Result<(Self, Vec<(usize, Error)>)> {
        let mut order = Self { parts: Vec::new(), keys: Vec::new(), explicit: !sort.is_empty() };
        let mut failed: Vec<(usize, Error)> = Vec::new();
        if sort.is_empty() {
            order.parts.push((SortKeyKind::Score, true));
        }
        for key in sort {
            let part = match &key.by {
                SortBy::Score => SortKeyKind::Score,
                SortBy::Doc => SortKeyKind::Doc,
                SortBy::Field(field) => {
                    let format = field.format.as_deref().map(check_format).transpose()?;
                    let format = format.map(DateFormat::parse).transpose();
                    let format = format.map_err(Error::IllegalArgument)?;
                    let number = order.keys.len();
                    let key = field_key(field, key.descending, number, snapshot, now_ms, &mut failed)?;
                    order.keys.push(key);
                    SortKeyKind::Key(number, format)
                }
                SortBy::Distance(sort) => {
                    let number = order.keys.len();
                    let key = distance_key(sort, key.descending, number, snapshot, now_ms, &mut failed)?;
                    order.keys.push(key);
                    SortKeyKind::Key(number, None)
                }
            };
            order.parts.push((part, key.descending));
        }
        Ok((order, failed))
    }

    /// Returns whether scores are compared.
    pub fn by_score(&self) -> bool {
        self.parts.iter().any(|(part, _)| matches!(part, SortKeyKind::Score))
    }

    /// Returns whether the scan itself can find the first rows: best scores first, or address.
    fn by_scan(&self) -> Option<bool> {
        match self.parts.as_slice() {
            [(SortKeyKind::Score, true)] => Some(true),
            [(SortKeyKind::Doc, false)] => Some(false),
            _ => None,
        }
    }

    /// Returns the sort of the plan.
    pub fn sort_expressions(&self) -> Vec<SortExpr> {
        let columns = self.columns().into_iter();
        let sorts = columns.map(|(column, options)| {
            let name = match column {
                SortColumn::Key(number) => &self.keys[number].name,
                SortColumn::Score => SCORE,
                SortColumn::Segment => SEGMENT,
                SortColumn::Row => ROW,
            };
            ident(name).sort(!options.descending, options.nulls_first)
        });
        sorts.collect()
    }

    /// Returns where the scan itself goes on, if this order is its own.
    pub fn cursor(&self, after: &Point) -> Option<Cursor> {
        let by_score = self.by_scan()?;
        match (by_score, after.values.first()?) {
            (true, PointValue::Score(score)) => Some(Cursor { score: Some(*score), address: after.address }),
            (false, PointValue::Doc(address)) => Some(Cursor { score: None, address: Some(*address) }),
            _ => None,
        }
    }

    /// Returns the sort value of a point by which rows are ordered first, if it is a key's.
    pub fn first_key(&self, after: &Point) -> Option<ScalarValue> {
        match after.values.first() {
            Some(PointValue::Key(value)) => Some(value.clone()),
            _ => None,
        }
    }

    /// Returns the condition that a row comes behind a point.
    pub fn behind(&self, after: &Point) -> Expr {
        let mut alternatives: Option<Expr> = None;
        let mut equal: Option<Expr> = None;
        let and = |left: Option<Expr>, right: Expr| match left {
            Some(left) => left.and(right),
            None => right,
        };
        let doc = |address: Address, descending: bool| {
            let (segment, row) = (lit(address.segment), lit(address.row));
            match descending {
                false => {
                    ident(SEGMENT).gt(segment.clone()).or(ident(SEGMENT).eq(segment).and(ident(ROW).gt(row)))
                }
                true => {
                    ident(SEGMENT).lt(segment.clone()).or(ident(SEGMENT).eq(segment).and(ident(ROW).lt(row)))
                }
            }
        };
        let mut add = |condition: Expr, equal: &Option<Expr>| {
            let condition = and(equal.clone(), condition);
            alternatives = Some(match alternatives.take() {
                Some(others) => others.or(condition),
                None => condition,
            });
        };
        for ((part, descending), value) in self.parts.iter().zip(&after.values) {
            let (behind, same) = match (part, value) {
                (SortKeyKind::Doc, PointValue::Doc(address)) => {
                    add(doc(*address, *descending), &equal);
                    return alternatives.unwrap_or_else(|| lit(false));
                }
                (SortKeyKind::Key(number, _), PointValue::Key(value)) => {
                    let key = &self.keys[*number];
                    let column = ident(&key.name);
                    if value.is_null() {
                        let behind = if key.nulls_first { column.clone().is_not_null() } else { lit(false) };
                        (behind, column.is_null())
                    } else {
                        let literal = Expr::Literal(value.clone(), None);
                        let mut behind = match descending {
                            false => column.clone().gt(literal.clone()),
                            true => column.clone().lt(literal.clone()),
                        };
                        if !key.nulls_first {
                            behind = behind.or(column.clone().is_null());
                        }
                        (behind, column.eq(literal))
                    }
                }
                (_, PointValue::Score(score)) => {
                    let behind = match descending {
                        true => ident(SCORE).lt(lit(*score)),
                        false => ident(SCORE).gt(lit(*score)),
                    };
                    (behind, ident(SCORE).eq(lit(*score)))
                }
                _ => continue,
            };
            add(behind, &equal);
            equal = Some(and(equal.take(), same));
        }
        if let Some(address) = after.address {
            add(doc(address, false), &equal);
        }
        alternatives.unwrap_or_else(|| lit(false))
    }

    /// Reads the values of `search_after`.
    pub fn parse_after(
        &self,
        values: &[Value],
        snapshot: &TableSnapshot,
        sort: &[SortKey],
        now_ms: i64,
    ) -> Result<Point> {
        if !self.explicit {
            return Err(Error::IllegalArgument("Sort must contain at least one field.".to_owned()));
        }
        if values.len() != self.parts.len() {
            return Err(Error::IllegalArgument(format!(
                "search_after has {} value(s) but sort has {}.",
                values.len(),
                self.parts.len()
            )));
        }
        let mut point = Point { values: Vec::with_capacity(values.len()), address: None };
        for ((at, (part, _)), value) in self.parts.iter().enumerate().zip(values) {
            let name = match sort.get(at).map(|key| &key.by) {
                Some(SortBy::Field(field)) => field.field.as_str(),
                Some(SortBy::Distance(_)) => "_geo_distance",
                Some(SortBy::Doc) => "_doc",
                _ => SCORE,
            };
            let bad =
                || Error::IllegalArgument(format!("Failed to parse search_after value for field [{name}]."));
            point.values.push(match part {
                SortKeyKind::Score => PointValue::Score(millrace_dsl::json::float(value).map_err(|_| bad())?),
                SortKeyKind::Doc => {
                    let number = integer(value).ok().and_then(|n| u64::try_from(n).ok());
                    let number = number.ok_or_else(bad)?;
                    PointValue::Doc(Address { segment: (number >> 32) as u32, row: number as u32 })
                }
                SortKeyKind::Key(number, format) => {
                    let key = &self.keys[*number];
                    let mut fields =
                        snapshot.indices.iter().filter_map(|i| Some((&i.mapping, i.mapping.field(name)?)));
                    let field = fields.next();
                    let value = match (field, format) {
                        (Some((_, field)), Some(format)) if value.is_string() => {
                            let mapping = reformatted(field, format.as_str()).map_err(|_| bad())?;
                            let mapping = std::sync::Arc::new(mapping);
                            let field = mapping.field(REFORMATTED).ok_or_else(bad)?;
                            key_value(key, Some((&mapping, field)), value, now_ms)
                        }
                        _ => key_value(key, field, value, now_ms),
                    };
                    PointValue::Key(value.ok_or_else(bad)?)
                }
            });
        }
        Ok(point)
    }

    /// Reads the point of a row from its place in a result: `keys` are the key arrays.
    pub fn point(&self, keys: &[ArrayRef], at: usize, score: f32, address: Address) -> Result<Point> {
        let mut values = Vec::with_capacity(self.parts.len());
        for (part, _) in &self.parts {
            values.push(match part {
                SortKeyKind::Score => PointValue::Score(score),
                SortKeyKind::Doc => PointValue::Doc(address),
                SortKeyKind::Key(number, _) => {
                    PointValue::Key(ScalarValue::try_from_array(&keys[*number], at)?)
                }
            });
        }
        Ok(Point { values, address: Some(address) })
    }

    /// Renders the sort values of a hit.
    pub fn render(&self, keys: &[ArrayRef], at: usize, index: usize, score: f32, address: Address) -> Value {
        Value::Array(
            self.parts
                .iter()
                .map(|(part, _)| match part {
                    SortKeyKind::Score => number(f64::from(score), true),
                    SortKeyKind::Doc => json!((u64::from(address.segment) << 32) | u64::from(address.row)),
                    SortKeyKind::Key(number, format) => {
                        let key = &self.keys[*number];
                        let source = key.sources.get(index).and_then(Option::as_ref);
                        render_key(key, source, format.as_ref(), &keys[*number], at)
                    }
                })
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_continue_in_the_scan_and_keys_above_it() {
        let snapshot = TableSnapshot::default();
        let (order, _) = Order::new(&[], &snapshot, 0).unwrap();
        let after = Point { values: vec![PointValue::Score(2.0)], address: None };
        assert_eq!(order.cursor(&after), Some(Cursor { score: Some(2.0), address: None }));

        let sort = millrace_dsl::sort::parse_param("size:desc,_doc").unwrap();
        let (order, _) = Order::new(&sort, &snapshot, 0).unwrap();
        let after = Point {
            values: vec![
                PointValue::Key(ScalarValue::Int64(Some(7))),
                PointValue::Doc(Address { segment: 1, row: 2 }),
            ],
            address: None,
        };
        insta::assert_snapshot!(
            order.behind(&after),
            @"sort_0(size) < Int64(7) OR sort_0(size) IS NULL OR sort_0(size) = Int64(7) AND (_segment > UInt32(1) OR _segment = UInt32(1) AND _row > UInt32(2))"
        );
    }
}
