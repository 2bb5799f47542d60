//! Lists of values as the text of a JSON array, and the elements of such a text.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StringViewBuilder};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{sort_to_indices, take};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde_json::Value;

use super::json;
use super::row::Writer;
use crate::error::evaluation;
use crate::format::value;
use crate::types::SqlType;

/// Longest text of a list, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Longest texts of the lists of a batch together, in bytes.
const MAX_BATCH_BYTES: usize = 256 << 20;
/// Most elements that the arrays of a batch have together.
const MAX_ELEMENTS: usize = 4_000_000;

/// Writes lists as JSON.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ListAsJson {
    ty: SqlType,
    /// Most values of a list that are written.
    most: usize,
    signature: Signature,
}

/// Writes the first values of a list of a type as JSON; an absent list is an empty one.
pub(crate) fn as_json(list: Expr, ty: SqlType, most: usize) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::from(ListAsJson { ty, most, signature }).call(vec![list])
}

impl ScalarUDFImpl for ListAsJson {
    fn name(&self) -> &str {
        "list_as_json"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [array] = arrays.as_slice() else { return exec_err!("a list is one argument") };
        let Some(lists) = array.as_list_opt::<i32>() else { return exec_err!("the argument is no list") };
        let mut out = StringViewBuilder::with_capacity(lists.len());
        let (mut text, mut written) = (String::new(), 0_usize);
        for row in 0..lists.len() {
            text.clear();
            text.push('[');
            if !lists.is_null(row) {
                let values: ArrayRef = lists.value(row);
                for at in 0..values.len().min(self.most) {
                    if at > 0 {
                        text.push(',');
                    }
                    value::json(&values, at, self.ty, &mut text);
                    if text.len() > MAX_BYTES {
                        return Err(evaluation(format!("a list of values is longer than {MAX_BYTES} bytes")));
                    }
                }
            }
            text.push(']');
            written += text.len();
            if written > MAX_BATCH_BYTES {
                return Err(evaluation(format!(
                    "the lists of values of {} groups are longer than {MAX_BATCH_BYTES} bytes; ask for fewer values",
                    lists.len()
                )));
            }
            out.append_value(&text);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// Cuts lists.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ListHead {
    /// Most elements of a list that are left.
    most: usize,
    signature: Signature,
}

/// Leaves the first elements of a list.
pub(crate) fn head(list: Expr, most: usize) -> Expr {
    ScalarUDF::from(ListHead { most, signature: Signature::any(1, Volatility::Immutable) }).call(vec![list])
}

impl ScalarUDFImpl for ListHead {
    fn name(&self) -> &str {
        "list_head"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        match types {
            [ty] => Ok(ty.clone()),
            _ => exec_err!("a list is one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [array] = arrays.as_slice() else { return exec_err!("a list is one argument") };
        let Some(lists) = array.as_list_opt::<i32>() else { return exec_err!("the argument is no list") };
        let DataType::List(field) = lists.data_type() else { return exec_err!("the argument is no list") };
        let offsets = lists.value_offsets();
        let (mut places, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
        for (row, range) in offsets.windows(2).enumerate() {
            let [start, end] = range else { continue };
            let most = i32::try_from(self.most).unwrap_or(i32::MAX);
            let length = if lists.is_null(row) { 0 } else { (end - start).min(most) };
            places.extend((*start..start + length).map(i64::from));
            lengths.push(usize::try_from(length).unwrap_or(0));
        }
        let values = take(lists.values(), &Int64Array::from(places), None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let cut = ListArray::try_new(Arc::clone(field), offsets, values, lists.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(cut)))
    }
}

/// Picks an element of lists in the order of their values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ListAtFraction {
    ty: SqlType,
    /// Share of the elements that are before it, in millionths.
    millionths: u64,
    signature: Signature,
}

/// Returns the element of a list that a share of the elements is before, in ascending order; null of an empty list.
pub(crate) fn at_fraction(list: Expr, ty: SqlType, fraction: f64) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let millionths = (fraction * 1e6).round() as u64;
    ScalarUDF::from(ListAtFraction { ty, millionths, signature }).call(vec![list])
}

impl ScalarUDFImpl for ListAtFraction {
    fn name(&self) -> &str {
        "list_at_fraction"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.ty.arrow())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [array] = arrays.as_slice() else { return exec_err!("a list is one argument") };
        let Some(lists) = array.as_list_opt::<i32>() else { return exec_err!("the argument is no list") };
        let share = usize::try_from(self.millionths).unwrap_or(usize::MAX);
        let mut places = Vec::with_capacity(lists.len());
        for (row, start) in lists.value_offsets().iter().take(lists.len()).enumerate() {
            let own: ArrayRef = lists.value(row);
            if own.is_empty() || lists.is_null(row) {
                places.push(None);
                continue;
            }
            let at = (own.len().saturating_mul(share) / 1_000_000).min(own.len() - 1);
            let sorted = sort_to_indices(&own, None, Some(at + 1))?;
            places.push(Some(i64::from(*start) + i64::from(sorted.value(at))));
        }
        let places = Int64Array::from(places);
        Ok(ColumnarValue::Array(take(lists.values(), &places, None)?))
    }
}

/// Reads the elements of arrays.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonElements {
    /// Most elements of an array that are read.
    most: usize,
    /// Type of the elements.
    ty: SqlType,
    signature: Signature,
}

/// Lists the first elements of a text that is a JSON array, as values of a type; another value is one element.
pub(crate) fn elements(array: Expr, most: usize, ty: SqlType) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::from(JsonElements { most, ty, signature }).call(vec![array])
}

impl ScalarUDFImpl for JsonElements {
    fn name(&self) -> &str {
        "json_elements"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(self.ty.arrow(), true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [array] = arrays.as_slice() else { return exec_err!("an array is one argument") };
        let Some(texts) = array.as_string_view_opt() else { return exec_err!("the argument is no text") };
        let (mut values, mut lengths) = (Writer::new(self.ty, texts.len())?, Vec::with_capacity(texts.len()));
        let (mut nulls, mut elements) = (Vec::with_capacity(texts.len()), 0_usize);
        for text in texts {
            let found = match text.map(serde_json::from_str::<Value>) {
                None | Some(Err(_)) => None,
                Some(Ok(Value::Array(found))) => Some(found),
                Some(Ok(value)) => Some(vec![value]),
            };
            let taken = found.iter().flatten().take(self.most);
            let length = taken.clone().count();
            elements = elements.saturating_add(length);
            if elements > MAX_ELEMENTS {
                return Err(evaluation(format!(
                    "the arrays of {} rows have more than {MAX_ELEMENTS} elements; leave some out by limit",
                    texts.len()
                )));
            }
            lengths.push(length);
            nulls.push(found.is_some());
            for value in taken {
                values.push(json::element(value, self.ty)).map_err(evaluation)?;
            }
        }
        let field = Arc::new(Field::new_list_field(self.ty.arrow(), true));
        let (offsets, nulls) = (OffsetBuffer::from_lengths(lengths), NullBuffer::from(nulls));
        let out = ListArray::try_new(field, offsets, values.finish(), Some(nulls))?;
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringViewArray;
    use datafusion::config::ConfigOptions;

    use super::*;

    /// Lists, each of one value of so many letters, as JSON.
    fn written(rows: usize, letters: usize) -> PlanResult<ColumnarValue> {
        let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let value = "x".repeat(letters);
        let values = Arc::new(StringViewArray::from_iter_values([value.as_str()])) as ArrayRef;
        // All rows have the same value.
        let values = take(&values, &Int64Array::from(vec![0; rows]), None)?;
        let offsets = OffsetBuffer::from_lengths(vec![1; rows]);
        let lists: ArrayRef = Arc::new(ListArray::try_new(Arc::clone(&field), offsets, values, None)?);
        let signature = Signature::any(1, Volatility::Immutable);
        let function = ListAsJson { ty: SqlType::Keyword, most: usize::MAX, signature };
        function.invoke_with_args(ScalarFunctionArgs {
            args: vec![ColumnarValue::Array(lists)],
            arg_fields: vec![Arc::new(Field::new("list", DataType::List(field), true))],
            number_rows: rows,
            return_field: Arc::new(Field::new("text", DataType::Utf8View, true)),
            config_options: Arc::new(ConfigOptions::default()),
        })
    }

    #[test]
    fn texts_of_lists_have_a_bound_for_each_batch() {
        assert!(written(3, 1 << 20).is_ok());
        let refused = written(300, 1 << 20).unwrap_err().to_string();
        assert!(refused.contains("300 groups"), "{refused}");
    }
}
