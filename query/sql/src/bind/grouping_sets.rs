//! ROLLUP, CUBE and GROUPING SETS: the sets of keys that a SELECT is grouped by, and GROUPING(), which tells them apart.

use datafusion::arrow::datatypes::DataType;
use datafusion::functions_aggregate::grouping::grouping_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{Expr, GroupingSet, Operator, cast, col, lit};
use sqlparser::ast;

use super::arithmetic::operation;
use super::call::arguments;
use super::output::Item;
use super::select::ordinal;
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::types::SqlType;

/// Most sets of keys of a GROUP BY.
const MAX_SETS: usize = 1_024;

/// Most keys in sets, and most arguments of GROUPING: each is a bit.
const MAX_KEYS: usize = 31;

/// The sets of keys of a GROUP BY, by the numbers of the keys.
#[derive(Debug)]
pub(super) struct GroupingSets(Vec<Vec<usize>>);

impl GroupingSets {
    /// Adds keys to every set.
    pub(super) fn extend(&mut self, keys: std::ops::Range<usize>) {
        self.0.iter_mut().for_each(|set| set.extend(keys.clone()));
    }

    /// Makes the expression that a plan is grouped by.
    pub(super) fn expr(&self, keys: &[Expr]) -> Expr {
        let of_set = |set: &Vec<usize>| set.iter().filter_map(|at| keys.get(*at).cloned()).collect();
        Expr::GroupingSet(GroupingSet::GroupingSets(self.0.iter().map(of_set).collect()))
    }

    /// Lists the keys in the order of their bits in the number of a set, the highest first.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        for at in self.0.iter().flatten() {
            if !order.contains(at) {
                order.push(*at);
            }
        }
        order
    }
}

impl Binder<'_> {
    /// Binds GROUP BY: its keys, and the sets of them where it has several.
    pub(super) fn groups(
        &mut self,
        select: &ast::Select,
        items: &[Item],
        scope: &mut Scope,
    ) -> Result<(Vec<Bound>, Option<GroupingSets>)> {
        let ast::GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
            return unsupported("GROUP BY ALL");
        };
        let mut keys = Vec::new();
        let mut numbers = |binder: &mut Self, list: &[ast::Expr]| {
            list.iter()
                .map(|expr| binder.group_key(expr, items, scope, &mut keys))
                .collect::<Result<Vec<usize>>>()
        };
        let mut sets = vec![Vec::new()];
        let mut several = !modifiers.is_empty();
        for expr in exprs {
            let own = match expr {
                ast::Expr::Rollup(lists) | ast::Expr::Cube(lists) | ast::Expr::GroupingSets(lists) => {
                    several = true;
                    let lists = lists.iter().map(|list| numbers(self, list));
                    let lists = lists.collect::<Result<Vec<_>>>()?;
                    match expr {
                        ast::Expr::Rollup(_) => prefixes(&lists),
                        ast::Expr::Cube(_) => subsets(&lists)?,
                        _ => lists,
                    }
                }
                ast::Expr::Tuple(list) => vec![numbers(self, list)?],
                other => vec![numbers(self, std::slice::from_ref(other))?],
            };
            if sets.len().saturating_mul(own.len()) > MAX_SETS {
                return Err(too_many());
            }
            let both = |set: &Vec<usize>| own.iter().map(|own| union(set, own)).collect::<Vec<_>>();
            sets = sets.iter().flat_map(both).collect();
        }
        match modifiers.as_slice() {
            [] => {}
            [modifier] if sets.len() == 1 => {
                let lists: Vec<Vec<usize>> = sets.concat().into_iter().map(|at| vec![at]).collect();
                sets = match modifier {
                    ast::GroupByWithModifier::Rollup => prefixes(&lists),
                    ast::GroupByWithModifier::Cube => subsets(&lists)?,
                    other => return unsupported(format!("GROUP BY … {other}")),
                };
            }
            _ => return unsupported("GROUP BY with several modifiers"),
        }
        if keys.is_empty() && !exprs.is_empty() {
            return unsupported("GROUP BY without a key");
        }
        if !several {
            return Ok((keys, None));
        }
        if keys.len() > MAX_KEYS || sets.len() > MAX_SETS {
            return Err(too_many());
        }
        if keys.iter().any(|key| key.list) {
            return unsupported("a field of several values in ROLLUP, CUBE or GROUPING SETS");
        }
        Ok((keys, Some(GroupingSets(sets))))
    }

    /// Binds a key of GROUP BY, once; returns its number.
    fn group_key(
        &mut self,
        expr: &ast::Expr,
        items: &[Item],
        scope: &mut Scope,
        keys: &mut Vec<Bound>,
    ) -> Result<usize> {
        let bound = match ordinal(expr, items.len())? {
            Some(at) => items
                .get(at)
                .map(|item| item.bound.clone())
                .ok_or_else(|| SqlError::Semantic(format!("Group by ordinal [{expr}] is out of bound")))?,
            None => self.expr(expr, scope, ExpressionContext::Aliased)?,
        };
        self.repeat(&bound.expr, 1)?;
        if let Some(at) = keys.iter().position(|key| key.expr == bound.expr) {
            return Ok(at);
        }
        keys.push(bound);
        Ok(keys.len() - 1)
    }

    /// Binds GROUPING(): a stand-in, which the aggregation replaces.
    pub(super) fn grouping_function(&mut self, call: &ast::Function, scope: &mut Scope) -> Result<Bound> {
        let mut args = Vec::new();
        for arg in arguments(call)? {
            let aliased = match arg {
                ast::Expr::Identifier(ident) => scope.aliases.remove_entry(&ident.value),
                _ => None,
            };
            let of = aliased.as_ref().map_or(arg, |(_, expr)| expr);
            let bound = self.expr(of, scope, ExpressionContext::Output);
            scope.aliases.extend(aliased);
            args.push(bound?.expr);
        }
        if !(1..=MAX_KEYS).contains(&args.len()) {
            return Err(SqlError::Semantic(format!("[grouping] takes 1 to {MAX_KEYS} keys of GROUP BY")));
        }
        let function = AggregateFunction::new_udf(grouping_udaf(), args, false, None, Vec::new(), None);
        Ok(Bound::new(Expr::AggregateFunction(function), SqlType::Integer))
    }
}

/// Returns the arguments of GROUPING().
pub(super) fn grouping_args(aggregate: &Expr) -> Option<&[Expr]> {
    match aggregate {
        Expr::AggregateFunction(function) if function.func.name() == "grouping" => {
            Some(&function.params.args)
        }
        _ => None,
    }
}

/// Makes the value of GROUPING() behind the aggregation: a bit for each argument, 1 where the set of the row is without it.
pub(super) fn grouping_value(args: &[Expr], groups: &[Bound], sets: Option<&GroupingSets>) -> Result<Expr> {
    let order = sets.map(GroupingSets::order).unwrap_or_default();
    let id = cast(col(Aggregate::INTERNAL_GROUPING_ID), DataType::UInt64);
    let mut value = lit(0u64);
    for arg in args {
        let at = groups.iter().position(|group| group.expr == *arg).ok_or_else(|| {
            SqlError::Semantic("the arguments of [grouping] have to be keys of GROUP BY".to_owned())
        })?;
        value = operation(value, Operator::BitwiseShiftLeft, lit(1u64));
        if let Some(place) = order.iter().rev().position(|own| *own == at) {
            let place = lit(u64::try_from(place).unwrap_or_default());
            let bit = operation(id.clone(), Operator::BitwiseShiftRight, place);
            let bit = operation(bit, Operator::BitwiseAnd, lit(1u64));
            value = operation(value, Operator::BitwiseOr, bit);
        }
    }
    Ok(cast(value, SqlType::Integer.arrow()))
}

/// Lists the keys of two sets, each once.
fn union(one: &[usize], other: &[usize]) -> Vec<usize> {
    let mut all = Vec::with_capacity(one.len() + other.len());
    for at in one.iter().chain(other) {
        if !all.contains(at) {
            all.push(*at);
        }
    }
    all
}

/// Makes the sets of a ROLLUP: the first lists of keys, the longest set first.
fn prefixes(lists: &[Vec<usize>]) -> Vec<Vec<usize>> {
    (0..=lists.len())
        .rev()
        .map(|length| union(&lists.get(..length).unwrap_or_default().concat(), &[]))
        .collect()
}

/// Makes the sets of a CUBE: all choices of the lists of keys.
fn subsets(lists: &[Vec<usize>]) -> Result<Vec<Vec<usize>>> {
    let mut sets = vec![Vec::new()];
    for list in lists {
        if sets.len() * 2 > MAX_SETS {
            return Err(too_many());
        }
        sets = sets.iter().flat_map(|set| [union(set, list), set.clone()]).collect();
    }
    Ok(sets)
}

fn too_many() -> SqlError {
    SqlError::TooLarge(format!("GROUP BY has more than {MAX_KEYS} keys in sets, or {MAX_SETS} sets of them"))
}
