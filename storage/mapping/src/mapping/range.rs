//! Range types: ends of ranges, and the string that a column holds of a range.
//!
//! A [`RangeEnd`] is a value as a number that has its order. The string of a range is both ends, the least first, as
//! hexadecimal digits of a fixed number: both halves of such strings have the order of the ends. Ends are inclusive: an
//! exclusive one is moved to the next value inside, an open one to the least or greatest value of the type. So a row holds
//! each of its ranges as one value, and no end of one is taken for that of another.

use super::coerce::{self, Cause, Token};
use super::date::{DateFormat, Instant};
use super::{FieldType, Scalar};

/// Type of the values of a range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RangeType {
    Integer,
    Long,
    Float,
    Double,
    Date,
    Ip,
}

/// An inclusive end of a range, in the order of the values of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeEnd(u128);

/// A bound of a range as a document gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeBound {
    Gt,
    Gte,
    Lt,
    Lte,
}

impl RangeBound {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "gt" => Self::Gt,
            "gte" => Self::Gte,
            "lt" => Self::Lt,
            "lte" => Self::Lte,
            _ => return None,
        })
    }

    /// Returns whether the range begins at it.
    pub(crate) fn is_lower(self) -> bool {
        matches!(self, Self::Gt | Self::Gte)
    }
}

/// Makes the end at an integer: its 64 bits with the sign bit flipped, which ascend.
fn integer_end(value: i64) -> RangeEnd {
    RangeEnd(u128::from(value.cast_unsigned() ^ (1 << 63)))
}

/// Makes the end at a floating-point number. The bits of negative ones descend, so all of them are flipped. There is one zero.
fn float_end(value: f64) -> RangeEnd {
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    let sign = 1 << 63;
    RangeEnd(u128::from(if bits & sign == 0 { bits | sign } else { !bits }))
}

impl RangeType {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "integer_range" => Self::Integer,
            "long_range" => Self::Long,
            "float_range" => Self::Float,
            "double_range" => Self::Double,
            "date_range" => Self::Date,
            "ip_range" => Self::Ip,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer_range",
            Self::Long => "long_range",
            Self::Float => "float_range",
            Self::Double => "double_range",
            Self::Date => "date_range",
            Self::Ip => "ip_range",
        }
    }

    /// Returns the type of the values between the ends.
    pub fn value_type(self) -> FieldType {
        match self {
            Self::Integer => FieldType::Integer,
            Self::Long => FieldType::Long,
            Self::Float => FieldType::Float,
            Self::Double => FieldType::Double,
            Self::Date => FieldType::Date,
            Self::Ip => FieldType::Ip,
        }
    }

    /// Returns the end of a range that is open downwards.
    pub fn least(self) -> RangeEnd {
        match self {
            Self::Integer => integer_end(i32::MIN.into()),
            Self::Long | Self::Date => integer_end(i64::MIN),
            Self::Float | Self::Double => float_end(f64::NEG_INFINITY),
            Self::Ip => RangeEnd(0),
        }
    }

    /// Returns the end of a range that is open upwards.
    pub fn greatest(self) -> RangeEnd {
        match self {
            Self::Integer => integer_end(i32::MAX.into()),
            Self::Long | Self::Date => integer_end(i64::MAX),
            Self::Float | Self::Double => float_end(f64::INFINITY),
            Self::Ip => RangeEnd(u128::MAX),
        }
    }

    /// Returns the end at a value; `None` where the value is of another type.
    pub fn end(self, value: &Scalar) -> Option<RangeEnd> {
        Some(match (self, value) {
            (Self::Integer | Self::Long | Self::Date, Scalar::I64(value)) => integer_end(*value),
            (Self::Float | Self::Double, Scalar::F64(value)) => float_end(*value),
            (Self::Ip, Scalar::Ip(address)) => RangeEnd(u128::from_be_bytes(*address)),
            _ => return None,
        })
    }

    /// Returns the end behind a value that the range excludes; `None` where no greater value exists.
    pub fn after(self, value: &Scalar) -> Option<RangeEnd> {
        let next = match (self, value) {
            (Self::Float, Scalar::F64(value)) => float_end(f64::from((*value as f32).next_up())),
            (Self::Double, Scalar::F64(value)) => float_end(value.next_up()),
            _ => RangeEnd(self.end(value)?.0.checked_add(1)?),
        };
        (next <= self.greatest()).then_some(next)
    }

    /// Returns the end before a value that the range excludes; `None` where no smaller value exists.
    pub fn before(self, value: &Scalar) -> Option<RangeEnd> {
        let next = match (self, value) {
            (Self::Float, Scalar::F64(value)) => float_end(f64::from((*value as f32).next_down())),
            (Self::Double, Scalar::F64(value)) => float_end(value.next_down()),
            _ => RangeEnd(self.end(value)?.0.checked_sub(1)?),
        };
        (next >= self.least()).then_some(next)
    }

    /// Makes the string of a range.
    pub fn encode(self, from: RangeEnd, to: RangeEnd) -> String {
        match self {
            Self::Ip => format!("{:032x}{:032x}", from.0, to.0),
            _ => format!("{:016x}{:016x}", from.0, to.0),
        }
    }

    /// Reads a bound of a document.
    pub(crate) fn read_bound(
        self,
        token: Token<'_>,
        bound: RangeBound,
        format: Option<&DateFormat>,
        coerce: bool,
    ) -> Result<RangeEnd, Cause> {
        let value = self.read(token, format, coerce)?;
        let end = match bound {
            RangeBound::Gte | RangeBound::Lte => self.end(&value),
            RangeBound::Gt => self.after(&value),
            RangeBound::Lt => self.before(&value),
        };
        end.ok_or_else(|| {
            let which = if bound.is_lower() { "greater" } else { "smaller" };
            let text = token.text();
            match self {
                Self::Ip => Cause::new(
                    "arithmetic_exception",
                    format!("Overflow: there is no {which} InetAddress than {text}"),
                ),
                _ => Cause::argument(format!(
                    "no value of a field of type [{}] is {which} than [{text}]",
                    self.name()
                )),
            }
        })
    }

    /// Reads a value of a document: dates with date math, but without `now`.
    fn read(self, token: Token<'_>, format: Option<&DateFormat>, coerce: bool) -> Result<Scalar, Cause> {
        let value_type = self.value_type();
        let present = |value: Option<Scalar>| {
            value.ok_or_else(|| Cause::new("number_format_exception", "empty String"))
        };
        match self {
            Self::Integer | Self::Long => {
                present(coerce::integer(&value_type, token, coerce)?.map(Scalar::I64))
            }
            Self::Float | Self::Double => {
                present(coerce::float(&value_type, token, coerce)?.map(Scalar::F64))
            }
            Self::Ip => coerce::ip(token.text()).map(Scalar::Ip),
            Self::Date => {
                let text = token.text();
                if text.starts_with("now") {
                    return Err(Cause::new("parse_exception", "now is not used at indexing time"));
                }
                let format = format.ok_or_else(|| Cause::argument("a range of dates has no format"))?;
                let instant = format
                    .parse_math(text, Instant::from_millis(0), false)
                    .map_err(|reason| Cause::new("parse_exception", reason))?;
                coerce::to_column(&value_type, instant, text).map(Scalar::I64)
            }
        }
    }

    /// Makes the string of the range of a document between two ends.
    pub(crate) fn between(self, from: RangeEnd, to: RangeEnd) -> Result<String, Cause> {
        if from <= to {
            return Ok(self.encode(from, to));
        }
        Err(Cause::argument(match self {
            Self::Ip => "min value cannot be greater than max value for InetAddressRange field".to_owned(),
            _ => format!(
                "min value ({}) is greater than max value ({})",
                self.display_end(from),
                self.display_end(to)
            ),
        }))
    }

    /// Shows an end of numbers as messages do.
    fn display_end(self, end: RangeEnd) -> String {
        let bits = end.0 as u64;
        let sign = 1 << 63;
        match self {
            Self::Float | Self::Double => {
                let value = f64::from_bits(if bits & sign == 0 { !bits } else { bits ^ sign });
                if self == Self::Float { format!("{:?}", value as f32) } else { format!("{value:?}") }
            }
            _ => (bits ^ sign).cast_signed().to_string(),
        }
    }

    /// Makes the string of a range of a document that is given as text: a block of addresses in CIDR notation.
    pub(crate) fn read_text(self, path: &str, token: Token<'_>) -> Result<String, Cause> {
        let (Self::Ip, Token::Str(text)) = (self, token) else {
            return Err(Cause::new(
                "mapper_parsing_exception",
                format!("error parsing field [{path}], expected an object but got {path}"),
            ));
        };
        let (from, to) = read_block(text)?;
        Ok(self.encode(RangeEnd(u128::from_be_bytes(from)), RangeEnd(u128::from_be_bytes(to))))
    }
}

/// Reads a block of addresses: the least and the greatest of them.
fn read_block(text: &str) -> Result<([u8; 16], [u8; 16]), Cause> {
    let expected = || Cause::argument(format!("Expected [ip/prefix] but was [{text}]"));
    let (address, prefix) = text.split_once('/').ok_or_else(expected)?;
    if prefix.contains('/') || prefix.is_empty() {
        return Err(expected());
    }
    coerce::ip(address)?;
    let prefix: i32 = prefix
        .parse()
        .map_err(|_| Cause::new("number_format_exception", format!("For input string: \"{prefix}\"")))?;
    coerce::parse_ip_range(text).ok_or_else(|| {
        Cause::argument(format!(
            "Illegal prefix length [{prefix}] in [{text}]. Must be 0-32 for IPv4 ranges, 0-128 for IPv6 ranges"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_order_of_the_ends() {
        let ordered = |range_type: RangeType, values: &[Scalar]| {
            let ends: Vec<String> = values
                .iter()
                .map(|value| {
                    let end = range_type.end(value).unwrap();
                    range_type.encode(end, range_type.greatest())
                })
                .collect();
            assert!(ends.is_sorted(), "{range_type:?} {ends:?}");
            assert!(ends.iter().all(|end| end.len() == ends[0].len()));
        };
        let numbers = [i64::MIN, -5_000_000_000, -1, 0, 1, 5_000_000_000, i64::MAX].map(Scalar::I64);
        ordered(RangeType::Long, &numbers);
        let numbers =
            [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.5, f64::INFINITY].map(Scalar::F64);
        ordered(RangeType::Double, &numbers);
        let addresses = ["::", "1.2.3.4", "10.0.0.1", "2001:db8::1", "ffff::"];
        ordered(RangeType::Ip, &addresses.map(|text| Scalar::Ip(coerce::ip(text).unwrap())));
    }

    #[test]
    fn excluded_ends_move_inside() {
        let five = Scalar::I64(5);
        assert_eq!(RangeType::Integer.after(&five), RangeType::Integer.end(&Scalar::I64(6)));
        assert_eq!(RangeType::Date.before(&five), RangeType::Date.end(&Scalar::I64(4)));
        assert_eq!(RangeType::Integer.after(&Scalar::I64(i32::MAX.into())), None);
        assert_eq!(RangeType::Long.before(&Scalar::I64(i64::MIN)), None);
        assert_eq!(RangeType::Ip.after(&Scalar::Ip([0xff; 16])), None);
        let up = f64::from(1.5_f32.next_up());
        assert_eq!(RangeType::Float.after(&Scalar::F64(1.5)), RangeType::Float.end(&Scalar::F64(up)));
        assert_eq!(RangeType::Double.after(&Scalar::F64(f64::INFINITY)), Some(RangeType::Double.greatest()));
        assert_eq!(RangeType::Double.end(&Scalar::F64(-0.0)), RangeType::Double.end(&Scalar::F64(0.0)));
        assert_eq!(
            RangeType::Double.before(&Scalar::F64(f64::from_bits(1))),
            RangeType::Double.end(&Scalar::F64(0.0))
        );
        let below = Scalar::F64(-f64::from_bits(1));
        assert_eq!(RangeType::Double.after(&below), RangeType::Double.end(&Scalar::F64(0.0)));
        for value in [-2.5, 0.0, 7.25] {
            let end = RangeType::Double.end(&Scalar::F64(value)).unwrap();
            assert_eq!(RangeType::Double.display_end(end), format!("{value:?}"));
        }
    }
}
