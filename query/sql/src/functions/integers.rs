//! Integers that do not wrap: a result that does not fit its type is an error, with a remedy.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Datum, Scalar};
use datafusion::arrow::array::{Int64Array, UInt64Array};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::scalar::ScalarValue;

use crate::error::evaluation;
use crate::types::SqlType;

/// Kind of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// An operation of two integers.
    Operation(Operator),
    /// The integer that a sum is.
    Sum,
}

#[derive(Debug)]
struct CheckedOperation {
    kind: Kind,
    ty: SqlType,
    signature: Signature,
}

impl PartialEq for CheckedOperation {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.ty) == (other.kind, other.ty)
    }
}

impl Eq for CheckedOperation {}

impl Hash for CheckedOperation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.ty).hash(state);
    }
}

fn call(kind: Kind, ty: SqlType, args: Vec<Expr>) -> Expr {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::from(CheckedOperation { kind, ty, signature }).call(args)
}

/// Makes an operation of two integers of a type.
pub(crate) fn checked(operator: Operator, ty: SqlType, left: Expr, right: Expr) -> Expr {
    call(Kind::Operation(operator), ty, vec![left, right])
}

/// Returns the operation of two integers that a function of a plan is.
pub(crate) fn integer_operation(function: &ScalarUDF) -> Option<Operator> {
    match function.inner().downcast_ref::<CheckedOperation>()?.kind {
        Kind::Operation(operator) => Some(operator),
        Kind::Sum => None,
    }
}

/// The type in which integers of 64 bits are summed: as many of them as there may be fit.
const SUMMED: DataType = DataType::Decimal128(20, 0);

/// Makes integers what is summed, or lists of them, and tells its type.
pub(crate) fn summed(values: Expr, list: bool) -> (Expr, DataType) {
    let list_of = |ty| DataType::List(Arc::new(Field::new_list_field(ty, true)));
    (cast(values, if list { list_of(SUMMED) } else { SUMMED }), SUMMED)
}

/// Makes the integer of a sum of [`summed`].
pub(crate) fn sum_as_integer(sum: Expr, ty: SqlType) -> Expr {
    call(Kind::Sum, ty, vec![sum])
}

fn out_of_range(what: impl std::fmt::Display, ty: SqlType) -> datafusion::error::DataFusionError {
    evaluation(format!("{what} is out of range of {}: an overflow, cast to DOUBLE before", ty.general_name()))
}

impl CheckedOperation {
    fn operation(&self, operator: Operator, args: &ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return exec_err!("{} takes two values", self.name());
        };
        let done = match (left, right) {
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let (left, right) = (left.to_array()?, right.to_array()?);
                let done = self.computed(operator, &left, &right)?;
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&done, 0)?));
            }
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => {
                self.computed(operator, left, right)?
            }
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => {
                self.computed(operator, left, &Scalar::new(right.to_array()?))?
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => {
                self.computed(operator, &Scalar::new(left.to_array()?), right)?
            }
        };
        Ok(ColumnarValue::Array(done))
    }

    fn computed(&self, operator: Operator, left: &dyn Datum, right: &dyn Datum) -> PlanResult<ArrayRef> {
        let done = match operator {
            Operator::Plus => numeric::add(left, right),
            Operator::Minus => numeric::sub(left, right),
            Operator::Multiply => numeric::mul(left, right),
            Operator::Divide => numeric::div(left, right),
            Operator::Modulo => numeric::rem(left, right),
            other => return exec_err!("integers are not computed by {other}"),
        };
        // Division by zero became null before.
        done.map_err(|error| match error.to_string().rsplit_once(": ") {
            Some((_, what)) => out_of_range(what, self.ty),
            None => out_of_range(error, self.ty),
        })
    }
}

impl ScalarUDFImpl for CheckedOperation {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Operation(Operator::Plus) => "add",
            Kind::Operation(Operator::Minus) => "subtract",
            Kind::Operation(Operator::Multiply) => "multiply",
            Kind::Operation(Operator::Divide) => "divide",
            Kind::Operation(_) => "modulus",
            Kind::Sum => "sum_as_integer",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(self.ty.arrow())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        if let Kind::Operation(operator) = self.kind {
            return self.operation(operator, &args);
        }
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(sums) = arrays.first().and_then(|sums| sums.as_primitive_opt::<Decimal128Type>()) else {
            return exec_err!("{} got no sums", self.name());
        };
        let wrong = |sum: i128| out_of_range(format!("the sum {sum}"), self.ty);
        Ok(ColumnarValue::Array(match self.ty {
            SqlType::UnsignedLong => {
                let sums = sums
                    .iter()
                    .map(|sum| sum.map(|sum| u64::try_from(sum).map_err(|_| wrong(sum))).transpose());
                Arc::new(sums.collect::<PlanResult<UInt64Array>>()?)
            }
            _ => {
                let sums = sums
                    .iter()
                    .map(|sum| sum.map(|sum| i64::try_from(sum).map_err(|_| wrong(sum))).transpose());
                Arc::new(sums.collect::<PlanResult<Int64Array>>()?)
            }
        }))
    }
}
