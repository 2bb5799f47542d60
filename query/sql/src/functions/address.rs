//! Internet addresses as numbers: rows are told apart by the 128 bits of an address, which takes a fraction of what their text
//! does, and the text is written for the groups that come of it.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_matching::address::AddressText;

/// The Arrow type of the bits: the one with 128 of them that plans group by. They mean no decimal.
pub(crate) const BITS: DataType = DataType::Decimal128(38, 0);

/// Takes the bits of addresses in network order; `None` of other arrays.
pub(crate) fn bits_of(addresses: &ArrayRef) -> Option<ArrayRef> {
    let addresses = addresses.as_fixed_size_binary_opt().filter(|array| array.value_size() == 16)?;
    let bits = addresses.value_data().as_chunks::<16>().0.iter().map(|bytes| i128::from_be_bytes(*bytes));
    let bits = PrimitiveArray::<Decimal128Type>::new(bits.collect(), addresses.nulls().cloned());
    Some(Arc::new(bits.with_data_type(BITS)))
}

/// Writes the text of bits.
pub(crate) fn text(bits: Expr) -> Expr {
    ScalarUDF::from(Text { signature: Signature::exact(vec![BITS], Volatility::Immutable) }).call(vec![bits])
}

#[derive(Debug)]
struct Text {
    signature: Signature,
}

impl PartialEq for Text {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for Text {
    fn name(&self) -> &str {
        "address"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(bits) = arrays.first().and_then(|bits| bits.as_primitive_opt::<Decimal128Type>()) else {
            return exec_err!("{} got no bits", self.name());
        };
        let mut texts = StringViewBuilder::with_capacity(bits.len());
        for bits in bits {
            match bits {
                Some(bits) => texts.append_value(&*AddressText::new(bits.to_be_bytes())),
                None => texts.append_null(),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}

/// Makes numbers of the text of addresses that are in the order of these.
pub(crate) fn order(text: Expr) -> Expr {
    ScalarUDF::from(Order { signature: Signature::any(1, Volatility::Immutable) }).call(vec![text])
}

/// Makes the number of an address.
pub(crate) fn order_of(bits: u128) -> Expr {
    Expr::Literal(ScalarValue::Decimal128(Some(signed(bits)), 38, 0), None)
}

fn signed(bits: u128) -> i128 {
    (bits ^ (1 << 127)).cast_signed()
}

/// Makes numbers of the text of addresses, as [`order`] does; other texts give null.
pub(crate) fn ordered(texts: &ArrayRef) -> Option<ArrayRef> {
    let numbers = texts.as_string_view_opt()?.iter().map(|text| {
        Some(signed(match text?.parse().ok()? {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        }))
    });
    let numbers: PrimitiveArray<Decimal128Type> = numbers.collect();
    Some(Arc::new(numbers.with_data_type(BITS)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Order {
    signature: Signature,
}

impl ScalarUDFImpl for Order {
    fn name(&self) -> &str {
        "address_order"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(BITS)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        match arrays.first().and_then(ordered) {
            Some(numbers) => Ok(ColumnarValue::Array(numbers)),
            None => exec_err!("{} got no text", self.name()),
        }
    }
}
