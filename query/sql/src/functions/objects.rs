//! Objects of several values: the results of aggregates that a statement asks for in one call, as JSON text.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde_json::{Map, Value, json};

/// Makes an object of numbers under names.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ObjectOfNumbers {
    names: Vec<String>,
    signature: Signature,
}

/// Makes the object that has numbers under names.
pub(crate) fn object(members: Vec<(String, Expr)>) -> Expr {
    let (names, values): (Vec<String>, Vec<Expr>) = members.into_iter().unzip();
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::from(ObjectOfNumbers { names, signature }).call(values)
}

impl ScalarUDFImpl for ObjectOfNumbers {
    fn name(&self) -> &str {
        "object_of_numbers"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows;
        let mut columns = Vec::with_capacity(args.args.len());
        for value in &args.args {
            let array = value.to_array(rows)?;
            columns.push(match array.data_type() {
                DataType::Int64 => array,
                _ => cast(&array, &DataType::Float64)?,
            });
        }
        let mut texts = StringViewBuilder::with_capacity(rows);
        for row in 0..rows {
            let mut members = Map::new();
            for (name, column) in self.names.iter().zip(&columns) {
                let value = match column.as_primitive_opt::<Int64Type>() {
                    _ if column.is_null(row) => Value::Null,
                    Some(numbers) => json!(numbers.value(row)),
                    None => json!(column.as_primitive::<Float64Type>().value(row)),
                };
                members.insert(name.clone(), value);
            }
            texts.append_value(Value::Object(members).to_string());
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}
