//! Operators, casts, comparisons and texts of operands.

use std::sync::Arc;

use serde_json::Value;

use super::evaluate::Machine;
use super::memory::{Operand, PathStep, ViewKind};
use super::object::Object;
use super::tree::{Binary, Link, Node, ValueType};
use crate::document::measure;
use crate::error::Result;
use crate::java;

/// Returns a value as a variable of a type holds it.
pub(super) fn widen(of: ValueType, value: Operand) -> Operand {
    match (of, value) {
        (ValueType::Double, value @ (Operand::Int(_) | Operand::Char(_))) => {
            value.as_double().map_or(value, Operand::Double)
        }
        (ValueType::Integer | ValueType::Long, value @ Operand::Char(_)) => {
            value.as_int().map_or(value, Operand::Int)
        }
        (ValueType::Character, Operand::Int(code)) => {
            let letter = u32::try_from(code).ok().and_then(char::from_u32);
            letter.map_or(Operand::Int(code), Operand::Char)
        }
        (ValueType::Character, Operand::Text(text)) => {
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) => Operand::Char(letter),
                _ => Operand::Text(text),
            }
        }
        (_, value) => value,
    }
}

impl Machine<'_> {
    /// Applies operators from left to right.
    pub(super) fn chain(&mut self, first: &Node, links: &[Link]) -> Result<Operand> {
        let mut left = self.evaluate(first)?;
        let mut left_node = first;
        for link in links {
            let operator = link.operator;
            if matches!(operator, Binary::Or | Binary::And) {
                // The right operand is evaluated only where the left one does not decide.
                let flag = self.flag(left_node, left)?;
                if flag == (operator == Binary::Or) {
                    return Ok(Operand::Bool(flag));
                }
                left = Operand::Bool(self.condition(&link.operand)?);
            } else {
                let right = self.evaluate(&link.operand)?;
                left = self.compute(link.offset, operator, &left, &right)?;
            }
            left_node = &link.operand;
        }
        Ok(left)
    }

    /// Returns whether two operands are equal; numbers by value.
    pub(super) fn equal(&mut self, left: &Operand, right: &Operand) -> Result<bool> {
        Ok(match (left, right) {
            (Operand::Reference(left), Operand::Reference(right)) => {
                let bytes = self.view(left).map_or(Ok(0), |value| measure(value, 0))?;
                self.budget().charge(bytes)?;
                self.view(left) == self.view(right)
            }
            (Operand::Int(left), Operand::Int(right)) => left == right,
            // A text of one character is the character, as Painless casts it.
            (Operand::Char(letter), Operand::Text(text)) | (Operand::Text(text), Operand::Char(letter)) => {
                text.strip_prefix(*letter).is_some_and(str::is_empty)
            }
            (left, right) => match (left.as_double(), right.as_double()) {
                (Some(left), Some(right)) => left == right,
                _ => left == right,
            },
        })
    }

    /// Applies an operator to two operands.
    pub(super) fn compute(
        &mut self,
        offset: usize,
        operator: Binary,
        left: &Operand,
        right: &Operand,
    ) -> Result<Operand> {
        match operator {
            Binary::Equal => return Ok(Operand::Bool(self.equal(left, right)?)),
            Binary::NotEqual => return Ok(Operand::Bool(!self.equal(left, right)?)),
            Binary::Add if matches!(left, Operand::Text(_)) || matches!(right, Operand::Text(_)) => {
                let text = format!("{}{}", self.text_of(left)?, self.text_of(right)?);
                self.budget().charge(text.len())?;
                return Ok(Operand::Text(text.into()));
            }
            Binary::Find | Binary::Match => return self.match_text(offset, operator, left, right),
            Binary::BitAnd | Binary::BitOr | Binary::BitXor => {
                if let (Operand::Bool(left), Operand::Bool(right)) = (left, right) {
                    return Ok(Operand::Bool(match operator {
                        Binary::BitAnd => left & right,
                        Binary::BitOr => left | right,
                        _ => left ^ right,
                    }));
                }
            }
            _ => {}
        }
        let whole = |operand: &Operand| operand.as_int().map(Operand::Int);
        let (left, right) =
            (&whole(left).unwrap_or_else(|| left.clone()), &whole(right).unwrap_or_else(|| right.clone()));
        if let (Operand::Int(left), Operand::Int(right)) = (left, right) {
            return self.compute_ints(offset, operator, *left, *right);
        }
        let is_bitwise = matches!(
            operator,
            Binary::BitAnd
                | Binary::BitOr
                | Binary::BitXor
                | Binary::ShiftLeft
                | Binary::ShiftRight
                | Binary::ShiftRightUnsigned
        );
        let (Some(x), Some(y), false) = (left.as_double(), right.as_double(), is_bitwise) else {
            let reason = format!(
                "Cannot apply [{}] operation to types [{}] and [{}].",
                operator.symbol(),
                left.type_name(),
                right.type_name()
            );
            return Err(self.fail_at(offset, "class_cast_exception", &reason));
        };
        Ok(match operator {
            Binary::Less => Operand::Bool(x < y),
            Binary::LessOrEqual => Operand::Bool(x <= y),
            Binary::Greater => Operand::Bool(x > y),
            Binary::GreaterOrEqual => Operand::Bool(x >= y),
            Binary::Subtract => Operand::Double(x - y),
            Binary::Multiply => Operand::Double(x * y),
            Binary::Divide => Operand::Double(x / y),
            Binary::Remainder => Operand::Double(x % y),
            _ => Operand::Double(x + y),
        })
    }

    fn compute_ints(&self, offset: usize, operator: Binary, x: i64, y: i64) -> Result<Operand> {
        let by_zero = || self.fail_at(offset, "arithmetic_exception", "/ by zero");
        Ok(match operator {
            Binary::Less => Operand::Bool(x < y),
            Binary::LessOrEqual => Operand::Bool(x <= y),
            Binary::Greater => Operand::Bool(x > y),
            Binary::GreaterOrEqual => Operand::Bool(x >= y),
            Binary::Subtract => Operand::Int(x.wrapping_sub(y)),
            Binary::Multiply => Operand::Int(x.wrapping_mul(y)),
            Binary::Divide if y == 0 => return Err(by_zero()),
            Binary::Divide => Operand::Int(x.wrapping_div(y)),
            Binary::Remainder if y == 0 => return Err(by_zero()),
            Binary::Remainder => Operand::Int(x.wrapping_rem(y)),
            Binary::BitAnd => Operand::Int(x & y),
            Binary::BitOr => Operand::Int(x | y),
            Binary::BitXor => Operand::Int(x ^ y),
            Binary::ShiftLeft => Operand::Int(x.wrapping_shl(y as u32)),
            Binary::ShiftRight => Operand::Int(x.wrapping_shr(y as u32)),
            Binary::ShiftRightUnsigned => Operand::Int((x as u64).wrapping_shr(y as u32) as i64),
            _ => Operand::Int(x.wrapping_add(y)),
        })
    }

    /// Writes an operand as a text.
    pub(super) fn text_of(&mut self, operand: &Operand) -> Result<Arc<str>> {
        Ok(match operand {
            Operand::Text(text) => Arc::clone(text),
            Operand::Null => "null".into(),
            Operand::Bool(flag) => flag.to_string().into(),
            Operand::Int(number) => number.to_string().into(),
            Operand::Double(number) => java::float_text(*number).into(),
            Operand::Reference(reference) => {
                let bytes = self.view(reference).map_or(Ok(0), |value| measure(value, 0))?;
                self.budget().charge(bytes)?;
                self.view(reference).map_or_else(|| "null".to_owned(), java::text_of).into()
            }
            Operand::Char(letter) => letter.to_string().into(),
            Operand::View(ViewKind::Entries, map) => {
                let bytes = self.view(map).map_or(Ok(0), |value| measure(value, 0))?;
                self.budget().charge(bytes)?;
                let text = self.view(map).map_or_else(|| "null".to_owned(), java::text_of);
                let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(&text);
                format!("[{inner}]").into()
            }
            view @ Operand::View(..) => {
                let copy = self.copy_value(view)?;
                java::text_of(&copy).into()
            }
            Operand::Entry(map, key) => {
                let value = self.load(map, PathStep::Key(Arc::clone(key)));
                let value = self.text_of(&value.unwrap_or(Operand::Null))?;
                self.budget().charge(key.len() + value.len())?;
                format!("{key}={value}").into()
            }
            Operand::Time(time) => time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true).into(),
            Operand::Duration(nanos) => format!("PT{}S", java::float_text(*nanos as f64 / 1e9)).into(),
            Operand::Object(number) => match self.object(*number) {
                Some(Object::Builder(text)) => {
                    let text: Arc<str> = text.as_str().into();
                    self.budget().charge(text.len())?;
                    text
                }
                _ => self.type_name(operand).into(),
            },
        })
    }

    /// Negates a number.
    pub(super) fn negate(&self, node: &Node, value: &Operand) -> Result<Operand> {
        match (value.as_int(), value) {
            (Some(number), _) => Ok(Operand::Int(number.wrapping_neg())),
            (None, Operand::Double(number)) => Ok(Operand::Double(-number)),
            (None, other) => {
                let reason = format!("Cannot apply [-] operation to type [{}].", self.type_name(other));
                Err(self.fail(node, "class_cast_exception", &reason))
            }
        }
    }

    fn match_text(
        &mut self,
        offset: usize,
        operator: Binary,
        text: &Operand,
        pattern: &Operand,
    ) -> Result<Operand> {
        let found = match pattern {
            Operand::Object(number) => match self.object(*number) {
                Some(Object::Pattern(pattern)) => Some(Arc::clone(pattern)),
                _ => None,
            },
            _ => None,
        };
        let (Some(pattern), Operand::Text(_) | Operand::Char(_)) = (found, text) else {
            let reason = format!("[{}] takes a text and a regular expression", operator.symbol());
            return Err(self.fail_at(offset, "class_cast_exception", &reason));
        };
        let text = self.text_of(text)?;
        Ok(Operand::Bool(self.is_match(&pattern, &text, operator == Binary::Match)?))
    }

    /// Returns the time of now, in milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        let timestamp = self.ingest().get("timestamp").and_then(Value::as_str);
        let time = timestamp.and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
        time.map_or(0, |time| time.timestamp_millis())
    }

    /// Returns whether an operand is of a type.
    pub(super) fn is_of(&mut self, operand: &Operand, of: ValueType) -> Result<bool> {
        Ok(match operand {
            Operand::Char(_) => matches!(of, ValueType::Character | ValueType::Any),
            Operand::View(..) => matches!(of, ValueType::Collection | ValueType::Any),
            Operand::Entry(..) | Operand::Object(_) | Operand::Time(_) | Operand::Duration(_) => {
                of == ValueType::Any
            }
            Operand::Reference(reference) => self.view(reference).is_some_and(|value| of.holds(value)),
            scalar => {
                let value = self.copy_value(scalar)?;
                of.holds(&value)
            }
        })
    }

    /// Casts an operand.
    pub(super) fn cast(&mut self, node: &Node, of: ValueType, value: Operand) -> Result<Operand> {
        Ok(match (of, widen(of, value)) {
            (ValueType::Integer | ValueType::Long, Operand::Double(number)) => Operand::Int(number as i64),
            (ValueType::Character, Operand::Int(_)) => Operand::Char(char::REPLACEMENT_CHARACTER),
            (ValueType::Character, Operand::Text(text)) => {
                let reason = format!("cannot cast [String] with length not equal to one to [char]: [{text}]");
                return Err(self.fail(node, "class_cast_exception", &reason));
            }
            (ValueType::Text, Operand::Char(letter)) => Operand::Text(letter.to_string().into()),
            (ValueType::Any, value) | (_, value @ Operand::Null) => value,
            (ValueType::Integer | ValueType::Long, value @ Operand::Int(_)) => value,
            (of, value) => {
                if !self.is_of(&value, of)? {
                    let reason = format!("Cannot cast from [{}] to [{of:?}].", value.type_name());
                    return Err(self.fail(node, "class_cast_exception", &reason));
                }
                value
            }
        })
    }
}
