//! Literals as what they are compared with has them.
//!
//! `f = 0.1` means the rows whose value was written as 0.1, although a float holds another number: a literal is rounded to the type
//! of the other side, as a value of that type is when it is stored. A literal that no integer equals becomes a bound of integers:
//! `i < 2.5` is `i <= 2`. What is made here goes to the index and into the plan, so that these answer alike.

use std::net::IpAddr;

use datafusion::arrow::datatypes::{ArrowPrimitiveType, Float16Type};
use datafusion::logical_expr::{Expr, Operator};
use datafusion::scalar::ScalarValue;
use millrace_mapping::FieldType;

use super::{Bound, Literal, Scope, literal};
use crate::types::{Resolution, SqlType};

/// A comparison with a literal, in the type of the other side.
#[derive(Clone, Debug)]
pub(super) struct LiteralComparison {
    /// Operator of the comparison: never `<>`.
    pub operator: Operator,
    /// The literal.
    pub literal: Literal,
    /// The same as a value of the other side's type.
    pub value: ScalarValue,
}

impl LiteralComparison {
    /// Returns the literal as an expression.
    pub(super) fn expr(&self) -> Expr {
        Expr::Literal(self.value.clone(), None)
    }

    /// Returns whether it is a zero that has a sign.
    pub(super) fn is_signed_zero(&self) -> bool {
        matches!(self.value, ScalarValue::Float32(Some(0.0)) | ScalarValue::Float64(Some(0.0)))
    }
}

/// A number as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NumberLiteral {
    Whole(i128),
    Fraction(f64),
}

impl NumberLiteral {
    fn new(literal: &Literal) -> Option<Self> {
        Some(match literal {
            Literal::Int(number) => Self::Whole((*number).into()),
            Literal::UInt(number) => Self::Whole((*number).into()),
            Literal::Float(number) => Self::of_float(*number)?,
            Literal::Str(text) => match text.trim().parse::<i64>() {
                Ok(number) => Self::Whole(number.into()),
                Err(_) => match text.trim().parse::<u64>() {
                    Ok(number) => Self::Whole(number.into()),
                    Err(_) => Self::of_float(text.trim().parse().ok()?)?,
                },
            },
            _ => return None,
        })
    }

    fn of_float(number: f64) -> Option<Self> {
        let whole = number.fract() == 0.0 && number.abs() < 1e30;
        number.is_finite().then_some(if whole { Self::Whole(number as i128) } else { Self::Fraction(number) })
    }

    fn float(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Fraction(number) => number,
        }
    }
}

/// Meets a number that is no literal with one; `None` where one of them is no such.
pub(super) fn compared(
    own: &Bound,
    operator: Operator,
    literal: &Bound,
    scope: &Scope,
) -> Option<LiteralComparison> {
    if own.literal.is_some() || operator == Operator::NotEq {
        return None;
    }
    if let SqlType::Timestamp(resolution) = own.ty {
        return at_instant(operator, literal::instant(literal.literal.as_ref()?)?, resolution);
    }
    if !own.ty.is_number() {
        return None;
    }
    let written = NumberLiteral::new(literal.literal.as_ref()?)?;
    if let Some(limits) = limits(own.ty) {
        let (operator, number) = bounded(operator, written, limits)?;
        let literal = i64::try_from(number).map(Literal::Int);
        let literal = literal.or_else(|_| u64::try_from(number).map(Literal::UInt)).ok()?;
        let value = match own.ty {
            SqlType::Byte => ScalarValue::Int8(i8::try_from(number).ok()),
            SqlType::Short => ScalarValue::Int16(i16::try_from(number).ok()),
            SqlType::Integer => ScalarValue::Int32(i32::try_from(number).ok()),
            SqlType::UnsignedLong => ScalarValue::UInt64(u64::try_from(number).ok()),
            _ => ScalarValue::Int64(i64::try_from(number).ok()),
        };
        return Some(LiteralComparison { operator, literal, value });
    }
    let number = rounded(own, written.float(), scope);
    let value = match own.ty {
        SqlType::Float => ScalarValue::Float32(Some(number as f32)),
        _ => ScalarValue::Float64(Some(number)),
    };
    Some(LiteralComparison { operator, literal: Literal::Float(number), value })
}

/// Meets a timestamp with an instant in nanoseconds. One between two values of the type becomes a bound of values.
fn at_instant(operator: Operator, nanos: i128, resolution: Resolution) -> Option<LiteralComparison> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    let (unit, limits) = (resolution.nanos(), (i64::MIN.into(), i64::MAX.into()));
    let below = nanos.div_euclid(unit);
    let (operator, number) = match (nanos.rem_euclid(unit), operator) {
        (0, operator) => (operator, below),
        (_, Eq) => (Gt, limits.1),
        (_, Lt | LtEq) => (LtEq, below),
        (_, Gt | GtEq) => (Gt, below),
        _ => return None,
    };
    let (operator, number) = within(operator, number, limits)?;
    let value = literal::timestamp(number * unit, resolution)?;
    Some(LiteralComparison { operator, literal: Literal::Timestamp(number * unit), value })
}

/// The least and the greatest of a type of integers.
fn limits(ty: SqlType) -> Option<(i128, i128)> {
    Some(match ty {
        SqlType::Byte => (i8::MIN.into(), i8::MAX.into()),
        SqlType::Short => (i16::MIN.into(), i16::MAX.into()),
        SqlType::Integer => (i32::MIN.into(), i32::MAX.into()),
        SqlType::Long => (i64::MIN.into(), i64::MAX.into()),
        SqlType::UnsignedLong => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// Makes the comparison of an integer within limits with any number one with an integer within them.
fn bounded(
    operator: Operator,
    written: NumberLiteral,
    (least, greatest): (i128, i128),
) -> Option<(Operator, i128)> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    let (operator, number) = match (written, operator) {
        (NumberLiteral::Whole(number), operator) => (operator, number),
        (NumberLiteral::Fraction(_), Eq) => return Some((Gt, greatest)),
        (NumberLiteral::Fraction(number), Lt | LtEq) => (LtEq, number.floor() as i128),
        (NumberLiteral::Fraction(number), Gt | GtEq) => (GtEq, number.ceil() as i128),
        _ => return None,
    };
    within(operator, number, (least, greatest))
}

/// Makes the comparison of an integer within limits with any integer one with an integer within them.
fn within(operator: Operator, number: i128, (least, greatest): (i128, i128)) -> Option<(Operator, i128)> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    Some(match operator {
        Eq if !(least..=greatest).contains(&number) => (Gt, greatest),
        Lt | LtEq if number > greatest => (LtEq, greatest),
        Gt | GtEq if number > greatest => (Gt, greatest),
        Lt | LtEq if number < least => (Lt, least),
        Gt | GtEq if number < least => (GtEq, least),
        Eq | Lt | LtEq | Gt | GtEq => (operator, number),
        _ => return None,
    })
}

/// Rounds a number to what the other side can hold.
fn rounded(own: &Bound, number: f64, scope: &Scope) -> f64 {
    let mut types = field_types(own, scope);
    let first = types.next();
    let same = types.all(|other| Some(other) == first);
    drop(types);
    match (first, own.ty) {
        (Some(FieldType::HalfFloat), _) if same => {
            <Float16Type as ArrowPrimitiveType>::Native::from_f64(number).to_f64()
        }
        (Some(FieldType::ScaledFloat { scaling_factor }), _) if same => {
            let whole = (number * scaling_factor + 0.5).floor();
            if whole.is_finite() { whole / scaling_factor } else { number }
        }
        (_, SqlType::Float) => f64::from(number as f32),
        _ => number,
    }
}

/// Lists the types that a field has in the indices of its source.
fn field_types<'s>(own: &'s Bound, scope: &'s Scope) -> impl Iterator<Item = &'s FieldType> {
    let found = own
        .field
        .as_ref()
        .and_then(|(source, path)| Some((path, &scope.sources.get(*source)?.kind.snapshot()?.indices)));
    let of = |(path, indices): (&'s String, &'s Vec<millrace_matching::table::TableIndex>)| {
        indices.iter().filter_map(|index| index.mapping.field(path)).map(|field| &field.field_type)
    };
    found.into_iter().flat_map(of)
}

/// Makes a string that a keyword is compared with what the keyword's normalizer makes of it.
pub(super) fn normalized(own: &Bound, given: &Bound, scope: &Scope) -> Option<Bound> {
    let (source, path) = own.field.as_ref()?;
    let (Some(Literal::Str(text)), SqlType::Keyword) = (&given.literal, own.ty) else { return None };
    let snapshot = scope.sources.get(*source)?.kind.snapshot()?;
    let mut made: Option<String> = None;
    for index in &snapshot.indices {
        let Some(field) = index.mapping.field(path) else { continue };
        let own = match &field.normalizer {
            Some(name) => index.mapping.analyzers().normalize(name, text)?,
            None => text.clone(),
        };
        match &made {
            Some(other) if *other != own => return None,
            _ => made = Some(own),
        }
    }
    made.filter(|made| made != text).map(|made| literal::bound(Literal::Str(made)))
}

/// Reads a literal as an address: its bits.
pub(super) fn address(literal: &Bound) -> Option<u128> {
    let Some(Literal::Str(text)) = &literal.literal else { return None };
    Some(match text.parse().ok()? {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    })
}

#[cfg(test)]
mod tests {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};

    use super::*;

    #[test]
    fn integers_meet_any_number() {
        let byte = (-128, 127);
        for (operator, written, expected) in [
            (Lt, NumberLiteral::Whole(5), (Lt, 5)),
            (Lt, NumberLiteral::Fraction(2.5), (LtEq, 2)),
            (LtEq, NumberLiteral::Fraction(-2.5), (LtEq, -3)),
            (Gt, NumberLiteral::Fraction(2.5), (GtEq, 3)),
            (Eq, NumberLiteral::Fraction(2.5), (Gt, 127)),
            (Eq, NumberLiteral::Whole(200), (Gt, 127)),
            (Lt, NumberLiteral::Whole(200), (LtEq, 127)),
            (GtEq, NumberLiteral::Whole(200), (Gt, 127)),
            (GtEq, NumberLiteral::Whole(-200), (GtEq, -128)),
            (LtEq, NumberLiteral::Fraction(-1e300), (Lt, -128)),
        ] {
            assert_eq!(bounded(operator, written, byte), Some(expected), "{operator} {written:?}");
        }
    }
}
