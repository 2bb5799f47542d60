//! Fields of several values: comparing any of them, the least and the greatest, and aggregating all.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Decimal128Array, UInt32Array,
};
use datafusion::arrow::compute::kernels::cmp;
use datafusion::arrow::compute::{SortOptions, cast, filter, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, TimeUnit};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, GroupsAccumulator, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::address;
use super::distinct::DistinctCounts;
use crate::bind::Bound;
use crate::error::{Result, SqlError};
use crate::types::SqlType;

/// Kind of the result that the values of a row make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Least,
    Greatest,
    /// True where any of them compares so with the second argument.
    Any(Operator),
    /// True where any of them is like the second argument.
    AnyLike,
}

#[derive(Debug)]
struct OfValues {
    kind: Kind,
    ty: SqlType,
    signature: Signature,
}

impl PartialEq for OfValues {
    fn eq(&self, other: &Self) -> bool {
        (&self.kind, self.ty) == (&other.kind, other.ty)
    }
}

impl Eq for OfValues {}

impl Hash for OfValues {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.kind, self.ty).hash(state);
    }
}

fn call(kind: Kind, ty: SqlType, args: Vec<Expr>) -> Expr {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::from(OfValues { kind, ty, signature }).call(args)
}

/// Takes the least value of each row.
pub(crate) fn least(list: Expr, ty: SqlType) -> Expr {
    call(Kind::Least, ty, vec![list])
}

/// Takes the greatest value of each row.
pub(crate) fn greatest(list: Expr, ty: SqlType) -> Expr {
    call(Kind::Greatest, ty, vec![list])
}

/// Tells whether any value of a row compares so with another, as values of type `ty`.
pub(crate) fn any(list: &Bound, operator: Operator, other: Expr, ty: SqlType) -> Result<Expr> {
    let list = list_of(list, ty)?;
    Ok(call(Kind::Any(operator), ty, vec![list, other]))
}

/// Returns a list with values of another type.
pub(crate) fn list_of(list: &Bound, ty: SqlType) -> Result<Expr> {
    if list.ty.arrow() == ty.arrow() {
        return Ok(list.expr.clone());
    }
    if list.ty.is_number() && ty.is_number()
        || matches!((list.ty, ty), (SqlType::Timestamp(_), SqlType::Timestamp(_)))
    {
        return Ok(datafusion::logical_expr::cast(list.expr.clone(), crate::column::arrow_type(ty, true)));
    }
    Err(SqlError::Semantic(format!(
        "a field of several values of type {} cannot be used as {}",
        list.ty.general_name(),
        ty.general_name()
    )))
}

/// Tells whether any value of a row is like a pattern.
pub(crate) fn any_like(list: &Bound, pattern: Expr) -> Result<Expr> {
    let list = list_of(list, SqlType::Keyword)?;
    Ok(call(Kind::AnyLike, SqlType::Keyword, vec![list, pattern]))
}

impl ScalarUDFImpl for OfValues {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Least => "least_value",
            Kind::Greatest => "greatest_value",
            Kind::Any(_) => "any_value_compares",
            Kind::AnyLike => "any_value_like",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(match self.kind {
            Kind::Any(_) | Kind::AnyLike => DataType::Boolean,
            _ => self.ty.arrow(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(list) = arrays.first().and_then(|list| list.as_list_opt::<i32>()) else {
            return exec_err!("{} got no list", self.name());
        };
        let row_of = || -> UInt32Array {
            let mut numbers = Vec::with_capacity(list.values().len());
            let offsets = list.offsets();
            let mut filled = 0;
            for row in 0..list.len() {
                let end = offsets[row + 1] as usize;
                while filled < end {
                    numbers.push(row as u32);
                    filled += 1;
                }
            }
            while filled < list.values().len() {
                numbers.push(0);
                filled += 1;
            }
            UInt32Array::from(numbers)
        };
        match (&self.kind, arrays.get(1)) {
            (kind @ (Kind::Any(_) | Kind::AnyLike), Some(other)) => {
                let other: ArrayRef = match other.len() {
                    1 if rows != 1 => take(other, &UInt32Array::from(vec![0; list.values().len()]), None)?,
                    _ => take(other, &row_of(), None)?,
                };
                let values = list.values();
                let hits: BooleanArray = match (kind, address::ordered(values), address::ordered(&other)) {
                    (Kind::Any(operator), Some(values), Some(other)) if self.ty == SqlType::Ip => {
                        compared(*operator, &values, &other)?
                    }
                    (Kind::Any(operator), ..) => compared(*operator, values, &other)?,
                    _ => super::text::alike(values, &other)?,
                };
                let mut out = BooleanBuilder::with_capacity(list.len());
                for row in 0..list.len() {
                    let range = list.offsets()[row] as usize..list.offsets()[row + 1] as usize;
                    if list.is_null(row) || range.is_empty() {
                        out.append_null();
                    } else {
                        out.append_value(range.into_iter().any(|at| hits.is_valid(at) && hits.value(at)));
                    }
                }
                Ok(ColumnarValue::Array(Arc::new(out.finish())))
            }
            (kind, _) => {
                let options = SortOptions { descending: false, nulls_first: true };
                let field = SortField::new_with_options(self.ty.arrow(), options);
                let converter = RowConverter::new(vec![field])?;
                let keys = converter.convert_columns(std::slice::from_ref(list.values()))?;
                let mut places: Vec<Option<u32>> = Vec::with_capacity(list.len());
                for row in 0..list.len() {
                    let range = list.offsets()[row] as usize..list.offsets()[row + 1] as usize;
                    let valid = range.filter(|at| !list.is_null(row) && list.values().is_valid(*at));
                    let best = match kind {
                        Kind::Greatest => valid.max_by_key(|at| keys.row(*at)),
                        _ => valid.min_by_key(|at| keys.row(*at)),
                    };
                    places.push(best.map(|at| at as u32));
                }
                Ok(ColumnarValue::Array(take(list.values(), &UInt32Array::from(places), None)?))
            }
        }
    }
}

/// Makes timestamps of any unit comparable with those of another: whole numbers of nanoseconds.
fn instants(values: &ArrayRef) -> Option<ArrayRef> {
    let DataType::Timestamp(unit, _) = values.data_type() else { return None };
    let unit: i128 = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let numbers = cast(values, &DataType::Int64).ok()?;
    let numbers: Decimal128Array =
        numbers.as_primitive::<Int64Type>().unary(|number| i128::from(number) * unit);
    Some(Arc::new(numbers.with_precision_and_scale(38, 0).ok()?))
}

fn compared(operator: Operator, values: &ArrayRef, other: &ArrayRef) -> PlanResult<BooleanArray> {
    if values.data_type() != other.data_type()
        && let (Some(values), Some(other)) = (instants(values), instants(other))
    {
        return compared(operator, &values, &other);
    }
    Ok(match operator {
        Operator::Eq => cmp::eq(values, other)?,
        Operator::Lt => cmp::lt(values, other)?,
        Operator::LtEq => cmp::lt_eq(values, other)?,
        Operator::Gt => cmp::gt(values, other)?,
        Operator::GtEq => cmp::gt_eq(values, other)?,
        other => return exec_err!("lists are not compared by {other}"),
    })
}

/// An aggregate of the values of lists.
#[derive(Debug)]
struct OverValues {
    inner: Arc<AggregateUDF>,
    ty: DataType,
    /// `true` if each value counts once; told here, because a planner would take lists for the values.
    distinct: bool,
    signature: Signature,
}

impl PartialEq for OverValues {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner && (&self.ty, self.distinct) == (&other.ty, other.distinct)
    }
}

impl Eq for OverValues {}

impl Hash for OverValues {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.inner.name(), &self.ty, self.distinct).hash(state);
    }
}

/// Makes an aggregate one of all values of lists of a type.
pub(crate) fn over(inner: Arc<AggregateUDF>, ty: DataType, distinct: bool) -> Arc<AggregateUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(AggregateUDF::from(OverValues { inner, ty, distinct, signature }))
}

impl OverValues {
    fn field(&self) -> FieldRef {
        Arc::new(Field::new("value", self.ty.clone(), true))
    }
}

impl AggregateUDFImpl for OverValues {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(std::slice::from_ref(&self.ty))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let column: Arc<dyn datafusion::physical_plan::PhysicalExpr> =
            Arc::new(datafusion::physical_expr::expressions::Column::new("value", 0));
        let fields = [self.field()];
        let schema =
            datafusion::arrow::datatypes::Schema::new(vec![Field::new("value", self.ty.clone(), true)]);
        let inner = self.inner.accumulator(AccumulatorArgs {
            schema: &schema,
            expr_fields: &fields,
            exprs: std::slice::from_ref(&column),
            is_distinct: self.distinct,
            ..args
        })?;
        Ok(Box::new(Flattened(inner)))
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs<'_>) -> bool {
        self.distinct && self.name() == "count"
    }

    fn create_groups_accumulator(
        &self,
        _args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(DistinctCounts::new(&self.ty, true)?))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let fields = [self.field()];
        self.inner.state_fields(StateFieldsArgs { input_fields: &fields, is_distinct: self.distinct, ..args })
    }
}

/// Hands the values of lists to an accumulator.
#[derive(Debug)]
struct Flattened(Box<dyn Accumulator>);

impl Accumulator for Flattened {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let Some(list) = values.first().and_then(|list| list.as_list_opt::<i32>()) else {
            return exec_err!("an aggregate of lists got none");
        };
        let offsets = list.offsets();
        let (from, to) = (offsets[0] as usize, offsets[list.len()] as usize);
        let flat = list.values().slice(from, to - from);
        let flat = match list.null_count() {
            0 => flat,
            _ => {
                // Null lists may still span values.
                let mut kept = BooleanBuilder::with_capacity(flat.len());
                for row in 0..list.len() {
                    let length = (offsets[row + 1] - offsets[row]) as usize;
                    kept.append_n(length, list.is_valid(row));
                }
                filter(&flat, &kept.finish())?
            }
        };
        self.0.update_batch(&[flat])
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.0.merge_batch(states)
    }
}
