//! Finds the first rows of an order where the index keeps them.
//!
//! `ORDER BY` a column with a limit over all rows that a scan finds is what a search sorted by a field asks, and `ORDER BY
//! _score DESC` what one without a sort does: pages, terms and bounds of scores tell which rows can be among the first, and
//! the others are not read.

use datafusion::common::stats::Precision;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::sorts::sort::SortExec;
use millrace_dsl::sort::{FieldSort, Missing, SortBy, SortKey};
use millrace_matching::order::Order;
use millrace_matching::table::keys::{Key, KeyKind};
use millrace_matching::table::scan::IndexScanExec;
use millrace_matching::table::{TableSnapshot, TableState};

use super::column::{ColumnSource, SqlColumn};
use super::table::SqlScanExec;
use super::types::SqlType;

/// Makes what finds the rows of a scan that can be among the first of a sort directly above it; `None` where the index
/// cannot tell which these are.
pub(super) fn first_rows(scan: &SqlScanExec, sort: &SortExec) -> Option<IndexScanExec> {
    let (leading, finder) = (sort.expr().first(), scan.finder());
    let place = leading.expr.downcast_ref::<Column>()?.index();
    // Who finds the first by a column does not score them.
    if scan.scores() {
        let by_score = scan.is_score(place) && leading.options.descending && sort.expr().len() == 1;
        return sort.fetch().filter(|_| by_score).and_then(|limit| finder.first_by_score(limit));
    }
    let column = scan.column(place)?;
    let TableState { snapshot, options, .. } = finder.table();
    let by = SortBy::Field(FieldSort {
        field: column.name.clone(),
        missing: if leading.options.nulls_first { Missing::First } else { Missing::Last },
        unmapped_type: Some(mapped_type(column)?.to_owned()),
        ..FieldSort::default()
    });
    let key = SortKey { by, descending: leading.options.descending };
    let (order, failed) = Order::new(std::slice::from_ref(&key), snapshot, options.now_ms).ok()?;
    let of = order.keys.into_iter().next().filter(|of| failed.is_empty() && is_of(of, column))?;
    // What is missing counts as the greatest number or the least, which a row may have; as a string it counts as none.
    let decided = sort.expr().len() == 1 && (of.kind == KeyKind::Str || is_full(column, snapshot));
    finder.first_by(of, key.descending, sort.fetch()?, decided)
}

/// Names a type whose sort values have the order that the column has; `None` where there is none.
fn mapped_type(column: &SqlColumn) -> Option<&'static str> {
    let plain = !column.list && !column.bits && column.elements.is_none();
    plain.then_some(match column.ty {
        SqlType::UnsignedLong => "unsigned_long",
        ty if ty.is_integer() => "long",
        SqlType::Timestamp(_) => "date",
        SqlType::Float | SqlType::Double => "double",
        SqlType::Keyword => "keyword",
        _ => return None,
    })
}

/// Returns whether a key has the values of a column in every index, of the column's own type.
fn is_of(key: &Key, column: &SqlColumn) -> bool {
    key.sources.len() == column.sources.len()
        && key.sources.iter().zip(&column.sources).all(|sources| match sources {
            (None, ColumnSource::Missing) => true,
            (Some(key), ColumnSource::Column { id, ty, .. }) => {
                key.column == *id && key.derived.is_none() && *ty == column.ty
            }
            _ => false,
        })
}

/// Returns whether every row is known to have a value.
fn is_full(column: &SqlColumn, snapshot: &TableSnapshot) -> bool {
    column.known(snapshot).is_some_and(|known| known.null_count == Precision::Exact(0))
}
