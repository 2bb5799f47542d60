//! Groups and sums that need less work than they ask for.
//!
//! A key of a group that follows from the other keys, such as `a + 1` beside `a` or a constant, tells no groups apart: it is
//! computed of each group behind the aggregation. Sums of one value plus different constants, `sum(a + 1)` beside `sum(a + 2)`, are one
//! sum and one count.

use std::collections::{HashMap, HashSet};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, Result};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Alias, Cast, ScalarFunction};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Operator, Projection, cast, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;

use crate::functions::integer_operation;

/// Name of a sum of values before their constants are added.
const SUM: &str = "$sum";
/// Name of the number of these values.
const COUNT: &str = "$count";

/// Simplifies the keys of groups and the sums of aggregations.
#[derive(Debug)]
pub(crate) struct SimplifyAggregates;

impl OptimizerRule for SimplifyAggregates {
    fn name(&self) -> &str {
        "simplify_aggregates"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
        match simplified(&aggregate)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
        }
    }
}

fn simplified(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    // The keys of grouping sets are one expression, and have the number of their set beside them.
    if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
        return Ok(None);
    }
    let redundant = redundant_keys(&aggregate.group_expr);
    let sums = shared_sums(aggregate)?;
    if redundant.is_empty() && sums.is_empty() {
        return Ok(None);
    }
    let schema = &aggregate.schema;
    let output = |at: usize| Column::from(schema.qualified_field(at));
    let mut groups = Vec::new();
    let mut columns: Vec<Expr> = Vec::new();
    // Plain keys by what they are, for those that follow from them.
    let keys: HashMap<&Column, Column> = aggregate
        .group_expr
        .iter()
        .enumerate()
        .filter_map(|(at, key)| Some((plain(key)?, output(at))))
        .collect();
    for (at, key) in aggregate.group_expr.iter().enumerate() {
        if !redundant.contains(&at) {
            groups.push(key.clone());
            columns.push(Expr::Column(output(at)));
            continue;
        }
        let computed = key.clone().unalias().transform(|expr| {
            Ok(match &expr {
                Expr::Column(column) => match keys.get(column) {
                    Some(output) => Transformed::yes(Expr::Column(output.clone())),
                    None => Transformed::no(expr),
                },
                _ => Transformed::no(expr),
            })
        });
        columns.push(named(computed.data()?, &output(at)));
    }
    let mut aggregates: Vec<Expr> = Vec::new();
    let mut shared: Vec<&Expr> = Vec::new();
    for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
        let column = output(aggregate.group_expr.len() + at);
        let Some(sum) = sums.get(&at) else {
            aggregates.push(expr.clone());
            columns.push(Expr::Column(column));
            continue;
        };
        let number = shared.iter().position(|known| **known == sum.value).unwrap_or(shared.len());
        if number == shared.len() {
            shared.push(&sum.value);
            let value = cast(sum.value.clone(), DataType::Int64);
            aggregates.push(sum_udaf().call(vec![value]).alias(format!("{SUM}{number}")));
            aggregates.push(count_udaf().call(vec![sum.value.clone()]).alias(format!("{COUNT}{number}")));
        }
        let of = |name: &str| Expr::Column(Column::from_name(format!("{name}{number}")));
        columns.push(named(of(SUM) + of(COUNT) * lit(sum.constant), &column));
    }
    let input = Aggregate::try_new(aggregate.input.clone(), groups, aggregates)?;
    let projection = Projection::try_new(columns, LogicalPlan::Aggregate(input).into())?;
    Ok(has_same_fields(&projection.schema, schema).then_some(LogicalPlan::Projection(projection)))
}

/// Returns whether two schemas have the same fields.
fn has_same_fields(left: &DFSchema, right: &DFSchema) -> bool {
    left.fields().len() == right.fields().len()
        && left.iter().zip(right.iter()).all(|((a, left), (b, right))| {
            (a, left.name(), left.data_type()) == (b, right.name(), right.data_type())
        })
}

fn named(expr: Expr, column: &Column) -> Expr {
    Expr::Alias(Alias::new(expr, column.relation.clone(), column.name.clone()))
}

/// Returns the column that an expression is, whatever its name.
fn plain(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain(&alias.expr),
        _ => None,
    }
}

/// Finds the keys that follow from others. At least one key stays: without any there is a group of no rows.
fn redundant_keys(keys: &[Expr]) -> HashSet<usize> {
    let columns: HashSet<&Column> = keys.iter().filter_map(plain).collect();
    let follows = |key: &Expr| {
        plain(key).is_none()
            && !key.is_volatile()
            && key.column_refs().iter().all(|column| columns.contains(column))
    };
    let redundant: HashSet<usize> =
        keys.iter().enumerate().filter_map(|(at, key)| follows(key).then_some(at)).collect();
    if redundant.len() == keys.len() { HashSet::new() } else { redundant }
}

/// A sum of a value plus a constant.
struct ShiftedSum {
    /// The value, of at most 16 bits: the addition does not leave its 32 bits.
    value: Expr,
    constant: i64,
}

/// Finds the sums that share their value with another, by their places.
fn shared_sums(aggregate: &Aggregate) -> Result<HashMap<usize, ShiftedSum>> {
    let mut sums = HashMap::new();
    for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
        if let Some(sum) = shifted_sum(expr, aggregate.input.schema())? {
            sums.insert(at, sum);
        }
    }
    let mut uses: HashMap<Expr, usize> = HashMap::new();
    for sum in sums.values() {
        *uses.entry(sum.value.clone()).or_default() += 1;
    }
    sums.retain(|_, sum| uses.get(&sum.value).is_some_and(|uses| *uses > 1));
    Ok(sums)
}

/// Reads `sum(value)` and `sum(value + constant)` of small integers.
fn shifted_sum(expr: &Expr, schema: &DFSchema) -> Result<Option<ShiftedSum>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else {
        return Ok(None);
    };
    let bare = !params.distinct && params.filter.is_none() && params.order_by.is_empty();
    let [argument] = params.args.as_slice() else { return Ok(None) };
    if !bare || *func != *sum_udaf() {
        return Ok(None);
    }
    let Expr::Cast(Cast { expr: argument, field }) = argument else { return Ok(None) };
    if field.data_type() != &DataType::Int64 {
        return Ok(None);
    }
    let (value, constant) = match argument.as_ref() {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            match (integer_operation(func), args.as_slice()) {
                (
                    Some(Operator::Plus),
                    [value, Expr::Literal(constant, _)] | [Expr::Literal(constant, _), value],
                ) => (value, Some(constant)),
                _ => return Ok(None),
            }
        }
        value => (value, None),
    };
    let constant = match constant {
        None => 0,
        Some(ScalarValue::Int32(Some(constant))) => i64::from(*constant),
        Some(_) => return Ok(None),
    };
    let small = i64::from(i32::MIN) - i64::from(i16::MIN)..=i64::from(i32::MAX) - i64::from(i16::MAX);
    let value = match value {
        Expr::Cast(inner) => inner.expr.as_ref(),
        value => value,
    };
    let Expr::Column(column) = value else { return Ok(None) };
    let fits = matches!(schema.data_type(column)?, DataType::Int8 | DataType::Int16);
    Ok((fits && small.contains(&constant)).then(|| ShiftedSum { value: value.clone(), constant }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::functions_aggregate::sum::sum;
    use datafusion::logical_expr::{GroupingSet, LogicalPlanBuilder, col, table_scan};
    use datafusion::optimizer::OptimizerContext;

    use super::*;
    use crate::functions::checked;
    use crate::types::SqlType;

    fn optimized(keys: Vec<Expr>, aggregates: Vec<Expr>) -> String {
        let schema =
            Schema::new(vec![Field::new("a", DataType::Int16, true), Field::new("b", DataType::Int64, true)]);
        let scan = table_scan(Some("t"), &schema, None).unwrap().build().unwrap();
        let plan = LogicalPlanBuilder::from(scan).aggregate(keys, aggregates).unwrap().build().unwrap();
        let before = Arc::clone(plan.schema());
        let plan = SimplifyAggregates.rewrite(plan, &OptimizerContext::new()).unwrap().data;
        assert!(has_same_fields(plan.schema(), &before), "{plan}");
        plan.to_string()
    }

    fn plus(value: &str, constant: i32) -> Expr {
        let value = cast(col(value), DataType::Int32);
        cast(checked(Operator::Plus, SqlType::Integer, value, lit(constant)), DataType::Int64)
    }

    #[test]
    fn keys_that_follow_from_others_are_computed_of_groups() {
        let keys = vec![lit(1).alias("g0"), col("b").alias("g1"), (col("b") - lit(1_i64)).alias("g2")];
        assert_eq!(
            optimized(keys, vec![sum(col("b")).alias("s")]),
            "Projection: Int32(1) AS g0, g1, g1 - Int64(1) AS g2, s\n  Aggregate: groupBy=[[t.b AS g1]], aggr=[[sum(t.b) AS s]]\n    TableScan: t"
        );
        let alone = optimized(vec![lit(1).alias("g0")], vec![sum(col("b")).alias("s")]);
        assert!(alone.starts_with("Aggregate"), "{alone}");
        let sets = Expr::GroupingSet(GroupingSet::Rollup(vec![col("a"), col("b")]));
        let sums = vec![sum(plus("a", 1)).alias("s1"), sum(plus("a", 2)).alias("s2")];
        assert!(optimized(vec![sets], sums).starts_with("Aggregate"));
        let apart = optimized(vec![(col("a") + col("b")).alias("g0"), col("b").alias("g1")], vec![]);
        assert!(apart.starts_with("Aggregate"), "{apart}");
    }

    #[test]
    fn sums_of_a_value_and_constants_are_one() {
        let sums = vec![
            sum(cast(col("a"), DataType::Int64)).alias("s0"),
            sum(plus("a", 7)).alias("s1"),
            sum(plus("b", 7)).alias("s2"),
        ];
        assert_eq!(
            optimized(vec![], sums),
            "Projection: $sum0 + $count0 * Int64(0) AS s0, $sum0 + $count0 * Int64(7) AS s1, s2\n  \
             Aggregate: groupBy=[[]], aggr=[[sum(CAST(t.a AS Int64)) AS $sum0, count(t.a) AS $count0, \
             sum(CAST(add(CAST(t.b AS Int32), Int32(7)) AS Int64)) AS s2]]\n    TableScan: t"
        );
        let alone = optimized(vec![], vec![sum(plus("a", 7)).alias("s1")]);
        assert!(alone.starts_with("Aggregate"), "{alone}");
        let wide =
            optimized(vec![], vec![sum(plus("a", i32::MAX)).alias("s1"), sum(plus("a", 1)).alias("s2")]);
        assert!(wide.starts_with("Aggregate"), "{wide}");
    }
}
