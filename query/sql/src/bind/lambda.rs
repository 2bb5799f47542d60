//! Functions with lambdas: `transform`, `filter`, `forall`, `exists`, `reduce`, and the fold of `foreach`. Calls that make arrays, too.
//!
//! A lambda is bound as any expression, with columns for its parameters. The columns around that it names become arguments of the call
//! ([`lambdas`]).

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, plan_err};
use datafusion::logical_expr::Expr;
use sqlparser::ast;

use super::call::arguments;
use super::subquery::is_of_subquery;
use super::{Binder, Bound, ExpressionContext, Literal, Scope, literal, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::lambdas::{self, LambdaCall, LambdaKind};
use crate::functions::{self, lists};
use crate::types::SqlType;

/// Deepest lambdas within lambdas.
const MAX_DEPTH: usize = 8;
/// Most accumulators of a fold.
const MAX_ACCUMULATORS: usize = 32;
/// Most rounds until the types of accumulators are those of the values that they are set to.
const MAX_ROUNDS: usize = 4;

/// Name of the fold of `foreach`: a collection, its mode, the number of the answered accumulator, the first values in a tuple, and a
/// lambda. Its body is a tuple of numbers of accumulators and their values, in turn.
const FOREACH: &str = "foreach_fold";

/// The parts of a lambda call that its body decides.
struct LambdaBody {
    bodies: Vec<(usize, Expr)>,
    accumulators: Vec<SqlType>,
    finish: Option<Bound>,
    /// Type of the body.
    ty: SqlType,
}

impl Binder<'_> {
    /// Binds a call with a lambda; `None` where it has none.
    pub(super) fn lambda_call(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Option<Bound>> {
        use ast::Expr as E;
        let ast::FunctionArguments::List(_) = &call.args else { return Ok(None) };
        let exprs = arguments(call)?;
        if !exprs.iter().any(|expr| matches!(expr, E::Lambda(_))) {
            return Ok(None);
        }
        if self.lambdas.len() >= MAX_DEPTH {
            return Err(SqlError::TooLarge(format!("lambdas are nested deeper than {MAX_DEPTH} levels")));
        }
        let kind = match name {
            "transform" => LambdaKind::Transform,
            "filter" => LambdaKind::Filter,
            "forall" => LambdaKind::All,
            "exists" => LambdaKind::Any,
            _ => LambdaKind::Fold(0),
        };
        match (name, exprs.as_slice()) {
            ("transform" | "filter" | "forall" | "exists", [array, E::Lambda(lambda)]) => {
                let array = self.expr(array, scope, place)?;
                self.mapped(kind, &array, lambda, scope).map(Some)
            }
            ("reduce", [array, start, E::Lambda(step)]) => {
                let (array, start) = (self.expr(array, scope, place)?, self.expr(start, scope, place)?);
                self.reduced(&array, start, step, None, scope).map(Some)
            }
            ("reduce", [array, start, E::Lambda(step), E::Lambda(finish)]) => {
                let (array, start) = (self.expr(array, scope, place)?, self.expr(start, scope, place)?);
                self.reduced(&array, start, step, Some(finish), scope).map(Some)
            }
            (FOREACH, [collection, mode, answered, E::Tuple(starts), E::Lambda(step)]) => {
                let collection = self.expr(collection, scope, place)?;
                let mut values = Vec::with_capacity(starts.len());
                for start in starts {
                    values.push(self.expr(start, scope, place)?.single());
                }
                let (mode, answered) = (self.spelt_number(mode)?, self.spelt_number(answered)?);
                self.folded(&collection, mode, answered, values, step, scope).map(Some)
            }
            _ => Err(SqlError::Semantic(format!(
                "[{call}] takes an array and then lambdas such as x -> x + 1"
            ))),
        }
    }

    fn spelt_number(&mut self, expr: &ast::Expr) -> Result<usize> {
        let bound = self.expr(expr, &mut Scope::default(), ExpressionContext::Row)?;
        match bound.literal {
            Some(Literal::Int(number)) => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
            _ => Err(SqlError::Semantic(format!("[{expr}] is no number"))),
        }
    }

    /// Binds a lambda of each element.
    fn mapped(
        &mut self,
        kind: LambdaKind,
        array: &Bound,
        lambda: &ast::LambdaFunction,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let (array, of_array) = array_of(array)?;
        let depth = self.lambdas.len();
        let names = parameters(lambda);
        let values =
            [Bound::new(lambdas::item(depth), of_array), Bound::new(lambdas::index(depth), SqlType::Integer)];
        if names.is_empty() || names.len() > values.len() {
            return Err(SqlError::Semantic(format!("[{lambda}] takes an element, and at most its number")));
        }
        let body = self.body(&lambda.body, names.into_iter().zip(values).collect(), scope)?;
        let body = match kind {
            LambdaKind::Transform => body,
            _ => self.truth(body)?,
        };
        let result = match kind {
            LambdaKind::Transform | LambdaKind::Filter => SqlType::Array,
            _ => SqlType::Boolean,
        };
        let element = if kind == LambdaKind::Transform { body.ty } else { of_array };
        let own =
            LambdaBody { ty: body.ty, bodies: vec![(0, body.expr)], accumulators: Vec::new(), finish: None };
        let bound = call_of(kind, depth, of_array, own, result, true, vec![array.expr])?;
        let element = (result == SqlType::Array).then_some(element);
        Ok(Bound { element, ..bound })
    }

    /// Binds `reduce`.
    fn reduced(
        &mut self,
        array: &Bound,
        start: Bound,
        step: &ast::LambdaFunction,
        finish: Option<&ast::LambdaFunction>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let (array, element) = array_of(array)?;
        let depth = self.lambdas.len();
        let names = parameters(step);
        let [accumulator, item] = names.as_slice() else {
            return Err(SqlError::Semantic(format!("[{step}] takes an accumulator and an element")));
        };
        let mut ty = start.ty;
        let mut body = None;
        for _ in 0..MAX_ROUNDS {
            let own = vec![
                (accumulator.clone(), Bound::new(lambdas::accumulator(depth, 0), ty)),
                (item.clone(), Bound::new(lambdas::item(depth), element)),
            ];
            let bound = self.body(&step.body, own, scope)?;
            let next = common(ty, bound.ty)?;
            body = Some(bound);
            if next == ty {
                break;
            }
            ty = next;
        }
        let Some(body) = body else { return unsupported(format!("[{step}]")) };
        let finish = match finish {
            None => None,
            Some(finish) => {
                let names = parameters(finish);
                let [name] = names.as_slice() else {
                    return Err(SqlError::Semantic(format!("[{finish}] takes the accumulator")));
                };
                let own = vec![(name.clone(), Bound::new(lambdas::accumulator(depth, 0), ty))];
                Some(self.body(&finish.body, own, scope)?)
            }
        };
        let result = finish.as_ref().map_or(ty, |finish| finish.ty);
        let own = LambdaBody { ty, bodies: vec![(0, body.to(ty)?)], accumulators: vec![ty], finish };
        call_of(LambdaKind::Fold(0), depth, element, own, result, true, vec![array.expr, start.to(ty)?])
    }

    /// Binds the fold of `foreach`: a value that is no collection of its mode has no elements. The mode is 0 for arrays, 1 for texts
    /// that are arrays in JSON, and 2 for both.
    fn folded(
        &mut self,
        collection: &Bound,
        mode: usize,
        answered: usize,
        starts: Vec<Bound>,
        step: &ast::LambdaFunction,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let depth = self.lambdas.len();
        let names = parameters(step);
        let count = starts.len();
        if count == 0 || count > MAX_ACCUMULATORS || names.len() != count + 2 {
            return Err(SqlError::TooLarge(format!("foreach sets from one to {MAX_ACCUMULATORS} columns")));
        }
        let Some(first) = starts.get(answered) else { return unsupported("a fold without an answer") };
        let is_array = collection.list || collection.ty.is_json();
        let (array, element) = match (mode, is_array) {
            (1 | 2, false) if collection.ty.is_string() => (collection.clone(), SqlType::Double),
            (0 | 2, true) => array_of(collection)?,
            _ => return Ok(Bound::new(first.expr.clone(), first.ty)),
        };
        let mut types: Vec<SqlType> = starts.iter().map(|start| start.ty).collect();
        let mut bodies = Vec::new();
        for _ in 0..MAX_ROUNDS {
            bodies = self.fold_bodies(step, &names, &types, element, scope)?;
            let mut next = types.clone();
            for (number, body) in &bodies {
                let Some(ty) = next.get_mut(*number) else { return unsupported("an accumulator") };
                *ty = common(*ty, body.ty)?;
            }
            if next == types {
                break;
            }
            types = next;
        }
        let mut exprs = Vec::with_capacity(bodies.len());
        for (number, body) in &bodies {
            exprs.push((*number, body.to(types.get(*number).copied().unwrap_or(SqlType::Undefined))?));
        }
        let mut values = vec![array.expr];
        for (start, ty) in starts.iter().zip(&types) {
            values.push(start.to(*ty)?);
        }
        let result = types.get(answered).copied().unwrap_or(SqlType::Undefined);
        let own = LambdaBody { ty: result, bodies: exprs, accumulators: types, finish: None };
        call_of(LambdaKind::Fold(answered), depth, element, own, result, false, values)
    }

    fn fold_bodies(
        &mut self,
        step: &ast::LambdaFunction,
        names: &[String],
        types: &[SqlType],
        element: SqlType,
        scope: &mut Scope,
    ) -> Result<Vec<(usize, Bound)>> {
        let ast::Expr::Tuple(parts) = step.body.as_ref() else { return unsupported(format!("[{step}]")) };
        let depth = self.lambdas.len();
        let accumulators = types.iter().enumerate();
        let values = accumulators.map(|(at, ty)| Bound::new(lambdas::accumulator(depth, at), *ty)).chain([
            Bound::new(lambdas::item(depth), element),
            Bound::new(lambdas::index(depth), SqlType::Integer),
        ]);
        let own: Vec<(String, Bound)> = names.iter().cloned().zip(values).collect();
        let mut bodies = Vec::with_capacity(parts.len() / 2);
        for pair in parts.chunks(2) {
            let [number, body] = pair else { return unsupported(format!("[{step}]")) };
            let number = self.spelt_number(number)?;
            bodies.push((number, self.body(body, own.clone(), scope)?));
        }
        Ok(bodies)
    }

    /// Binds the body of a lambda.
    fn body(
        &mut self,
        body: &ast::Expr,
        parameters: Vec<(String, Bound)>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        self.lambdas.push(parameters);
        let bound = self.expr(body, scope, ExpressionContext::Row);
        self.lambdas.pop();
        Ok(bound?.single())
    }

    /// Finds a parameter of the lambdas around.
    pub(super) fn lambda_parameter(&self, path: &str) -> Option<Bound> {
        let all = self.lambdas.iter().rev().flatten();
        all.filter(|(name, _)| name == path).map(|(_, bound)| bound.clone()).next()
    }

    /// Binds `json_list` and `row_object`, whose arguments may have several values; `None` for another call.
    pub(super) fn json_call(&mut self, name: &str, args: &[Bound]) -> Result<Option<Bound>> {
        let as_json = |arg: &Bound| match arg.list {
            true => Bound::new(lists::as_json(arg.expr.clone(), arg.ty, usize::MAX), SqlType::Array),
            false => arg.clone(),
        };
        match (name, args) {
            ("json_list", [value]) if value.list || value.ty.is_json() => Ok(Some(as_json(value))),
            ("json_list", [_]) => self.call("array", args).map(Some),
            ("row_object", _) => {
                let args: Vec<Bound> = args.iter().map(as_json).collect();
                self.call("row_object", &args).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Binds a call that makes or changes an array, whose elements have a type; `None` where it is another.
    pub(super) fn array_call(&mut self, name: &str, args: &[Bound]) -> Result<Option<Bound>> {
        let own = |arg: &Bound| arg.element.filter(|_| arg.ty == SqlType::Array).unwrap_or(arg.ty);
        let common = || {
            args.iter().map(own).try_fold(SqlType::Undefined, |ty, other| {
                match ty.is_string() == other.is_string() {
                    true => ty.common(other),
                    false if ty == SqlType::Undefined => Some(other),
                    false if other == SqlType::Undefined => Some(ty),
                    false => None,
                }
            })
        };
        let (element, args) = match name {
            // Values of several types are texts.
            "array" => match common() {
                Some(ty) => (ty, args.to_vec()),
                None => {
                    let texts = args
                        .iter()
                        .map(|arg| Ok(Bound::new(functions::cast(arg, SqlType::Keyword)?, SqlType::Keyword)));
                    (SqlType::Keyword, texts.collect::<Result<_>>()?)
                }
            },
            "mvappend" => (common().unwrap_or(SqlType::Keyword), args.to_vec()),
            "split" | "mvzip" => (SqlType::Keyword, args.to_vec()),
            "mvdedup" => {
                (args.first().and_then(|arg| arg.element).unwrap_or(SqlType::Keyword), args.to_vec())
            }
            "mvindex" if args.len() == 3 => {
                (args.first().and_then(|arg| arg.element).unwrap_or(SqlType::Keyword), args.to_vec())
            }
            _ => return Ok(None),
        };
        let bound = self.call(name, &args)?;
        Ok(Some(Bound { element: Some(element), ..bound }))
    }
}

impl Bound {
    /// Returns the type of the elements of an array; texts where it is not known.
    fn element_type(&self) -> SqlType {
        match self.ty {
            SqlType::Nested => SqlType::Object,
            _ => self.element.unwrap_or(SqlType::Keyword),
        }
    }
}

/// Makes JSON of an array, with the type of its elements.
fn array_of(array: &Bound) -> Result<(Bound, SqlType)> {
    if array.list {
        let expr = lists::as_json(array.expr.clone(), array.ty, usize::MAX);
        return Ok((Bound { element: Some(array.ty), ..Bound::new(expr, SqlType::Array) }, array.ty));
    }
    match array.ty {
        SqlType::Array | SqlType::Nested | SqlType::Object => Ok((array.clone(), array.element_type())),
        SqlType::Undefined => Ok((literal::bound(Literal::Null), SqlType::Undefined)),
        other => Err(SqlError::Semantic(format!("an array is expected, but got {}", other.general_name()))),
    }
}

/// Returns the type of an accumulator that is set to values of another.
fn common(ty: SqlType, other: SqlType) -> Result<SqlType> {
    ty.common(other).ok_or_else(|| {
        SqlError::Semantic(format!(
            "an accumulator of {} cannot be set to {}",
            ty.general_name(),
            other.general_name()
        ))
    })
}

fn parameters(lambda: &ast::LambdaFunction) -> Vec<String> {
    match &lambda.params {
        ast::OneOrManyWithParens::One(one) => vec![one.name.value.clone()],
        ast::OneOrManyWithParens::Many(many) => {
            many.iter().map(|parameter| parameter.name.value.clone()).collect()
        }
    }
}

/// Makes the call: the columns around that its bodies name become arguments.
fn call_of(
    kind: LambdaKind,
    depth: usize,
    element: SqlType,
    body: LambdaBody,
    result: SqlType,
    is_strict: bool,
    mut values: Vec<Expr>,
) -> Result<Bound> {
    let mut columns: Vec<Expr> = Vec::new();
    let mut bodies = Vec::with_capacity(body.bodies.len());
    for (number, expr) in body.bodies {
        bodies.push((number, captured(expr, depth, &mut columns)?));
    }
    let finish = body.finish.map(|finish| captured(finish.expr, depth, &mut columns)).transpose()?;
    values.extend(columns);
    let (body, accumulators) = (body.ty, body.accumulators);
    let call = LambdaCall { kind, depth, element, bodies, body, accumulators, finish, result, is_strict };
    Ok(Bound::new(lambdas::call(call, values), result))
}

/// Makes columns around a lambda ones of its batch.
fn captured(expr: Expr, depth: usize, columns: &mut Vec<Expr>) -> Result<Expr> {
    let is_own = |column: &Column| column.relation.is_none() && lambdas::is_own(&column.name, depth);
    let changed = expr.transform_up(|expr| match &expr {
        Expr::Column(column) if is_of_subquery(column) => {
            plan_err!("a subquery in a lambda is not supported")
        }
        Expr::Column(column) if !is_own(column) => {
            let at = columns.iter().position(|known| *known == expr).unwrap_or_else(|| {
                columns.push(expr.clone());
                columns.len() - 1
            });
            Ok(Transformed::yes(lambdas::captured(depth, at)))
        }
        Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::ScalarSubquery(_)
        | Expr::InSubquery(_)
        | Expr::Exists(_)
        | Expr::OuterReferenceColumn(..) => plan_err!("a lambda is an expression of single rows"),
        _ => Ok(Transformed::no(expr)),
    });
    changed.data().map_err(|error| SqlError::Unsupported(error.strip_backtrace()))
}

/// Makes the condition that a body holds for an element of an array held as JSON.
pub(super) fn any_element(array: &Bound, element: SqlType, depth: usize, body: Bound) -> Result<Bound> {
    let own = LambdaBody {
        ty: SqlType::Boolean,
        bodies: vec![(0, body.expr)],
        accumulators: Vec::new(),
        finish: None,
    };
    call_of(LambdaKind::Any, depth, element, own, SqlType::Boolean, true, vec![array.expr.clone()])
}
