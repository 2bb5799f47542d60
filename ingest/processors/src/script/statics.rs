//! Functions of classes.

use serde_json::Value;

use super::evaluate::Machine;
use super::memory::{Operand, PathStep};
use super::static_function::StaticFunction;
use super::tree::Node;
use crate::error::{ProcessorError, Result};
use crate::processor;

/// Calls a function of `Character`; `None` where the function or the argument is another.
fn call_character(function: StaticFunction, arguments: &[Operand]) -> Option<Operand> {
    use StaticFunction as F;
    let test: fn(char) -> bool = match function {
        F::IsDigit => char::is_numeric,
        F::IsLetter => char::is_alphabetic,
        F::IsLetterOrDigit => char::is_alphanumeric,
        F::IsUpperCase => char::is_uppercase,
        F::IsLowerCase => char::is_lowercase,
        F::IsWhitespace => char::is_whitespace,
        _ => |_| false,
    };
    let letter = match arguments.first()? {
        Operand::Char(letter) => *letter,
        Operand::Int(code) => char::from_u32(u32::try_from(*code).ok()?)?,
        Operand::Text(text) if function == F::IsDigit => {
            return Some(Operand::Bool(!text.is_empty() && text.chars().all(test)));
        }
        Operand::Text(text) => {
            let mut letters = text.chars();
            letters.next().filter(|_| letters.next().is_none())?
        }
        _ => return None,
    };
    Some(match (function, arguments) {
        (
            F::IsDigit | F::IsLetter | F::IsLetterOrDigit | F::IsUpperCase | F::IsLowerCase | F::IsWhitespace,
            [_],
        ) => Operand::Bool(test(letter)),
        (F::ToLowerCase, [_]) => Operand::Char(letter.to_lowercase().next()?),
        (F::ToUpperCase, [_]) => Operand::Char(letter.to_uppercase().next()?),
        (F::CharacterDigit, [_, Operand::Int(radix @ 2..=36)]) => {
            let digit = letter.to_digit(u32::try_from(*radix).ok()?);
            Operand::Int(digit.map_or(-1, i64::from))
        }
        _ => return None,
    })
}

impl Machine<'_> {
    /// Calls a function of a class.
    pub(super) fn call_static(
        &mut self,
        node: &Node,
        function: StaticFunction,
        arguments: &[Operand],
    ) -> Result<Operand> {
        use StaticFunction as F;
        let wrong = |machine: &Self, error: ProcessorError| machine.fail(node, error.kind(), error.reason());
        if let Some(called) = self.call_static_time(node, function, arguments)? {
            return Ok(called);
        }
        if let Some(called) = call_character(function, arguments) {
            return Ok(called);
        }
        let double = |operation: fn(f64) -> f64| match arguments {
            [value] => value.as_double().map(|number| Operand::Double(operation(number))),
            _ => None,
        };
        let called = match (function, arguments) {
            (F::ProcessorJson, [Operand::Reference(map), field]) => {
                let key = self.text_of(field)?;
                let text = self.load(map, PathStep::Key(key)).unwrap_or(Operand::Null);
                let text = self.text_of(&text)?;
                self.budget().check_bytes(processor::estimate_json(&text))?;
                let parsed = processor::parse_json(&text).map_err(|e| wrong(self, e))?;
                self.budget().charge_value(&parsed, 0)?;
                let Value::Object(parsed) = parsed else {
                    let reason = "cannot add non-map fields to root of document";
                    return Err(self.illegal(node, reason));
                };
                self.extend_map(node, map, parsed)?;
                Some(Operand::Null)
            }
            (F::ProcessorBytes | F::ProcessorLowercase | F::ProcessorUppercase, [Operand::Text(text)])
            | (F::ProcessorJson | F::ProcessorUrlDecode, [Operand::Text(text)]) => {
                if function == F::ProcessorJson {
                    self.budget().check_bytes(processor::estimate_json(text))?;
                }
                let value = match function {
                    F::ProcessorBytes => processor::parse_bytes(text).map(Value::from),
                    F::ProcessorJson => processor::parse_json(text),
                    F::ProcessorUrlDecode => processor::decode_url(text).map(Value::from),
                    F::ProcessorLowercase => Ok(text.to_lowercase().into()),
                    _ => Ok(text.to_uppercase().into()),
                };
                let value = value.map_err(|error| wrong(self, error))?;
                self.budget().charge(text.len().saturating_mul(4))?;
                Some(self.make(value)?)
            }
            (F::ParseInt, [value, Operand::Int(radix @ 2..=36)]) => {
                let text = self.text_of(value)?;
                let number = i64::from_str_radix(&text, u32::try_from(*radix).unwrap_or(10));
                Some(Operand::Int(number.map_err(|_| self.not_a_number(node, &text))?))
            }
            (F::ParseInt, [value]) => match value {
                Operand::Int(_) => Some(value.clone()),
                other => {
                    let text = self.text_of(other)?;
                    let number = text.parse().map(Operand::Int);
                    Some(number.map_err(|_| self.not_a_number(node, &text))?)
                }
            },
            (F::ParseDouble, [value]) => match value.as_double() {
                Some(number) => Some(Operand::Double(number)),
                None => {
                    let text = self.text_of(value)?;
                    let number = text.trim().parse().map(Operand::Double);
                    Some(number.map_err(|_| self.not_a_number(node, &text))?)
                }
            },
            (F::ParseBoolean, [value]) => {
                Some(Operand::Bool(self.text_of(value)?.eq_ignore_ascii_case("true")))
            }
            (F::TextValueOf, [value]) => Some(Operand::Text(self.text_of(value)?)),
            (F::TextJoin, [separator, Operand::Reference(list)]) => {
                let separator = self.text_of(separator)?;
                let separators = self.items(list).len().saturating_mul(separator.len());
                self.budget().check_bytes(separators)?;
                let texts: Vec<String> = self.items(list).iter().map(crate::java::text_of).collect();
                let joined = texts.join(&separator);
                self.budget().charge(joined.len())?;
                Some(Operand::Text(joined.into()))
            }
            (F::Abs, [Operand::Int(number)]) => Some(Operand::Int(number.wrapping_abs())),
            (F::Abs, _) => double(f64::abs),
            (F::Max | F::Min, [left, right]) => match (left, right) {
                (Operand::Int(left), Operand::Int(right)) => {
                    Some(Operand::Int(if function == F::Max { *left.max(right) } else { *left.min(right) }))
                }
                _ => left.as_double().zip(right.as_double()).map(|(left, right)| {
                    Operand::Double(if function == F::Max { left.max(right) } else { left.min(right) })
                }),
            },
            (F::Floor, _) => double(f64::floor),
            (F::Ceil, _) => double(f64::ceil),
            (F::Sqrt, _) => double(f64::sqrt),
            (F::Log, _) => double(f64::ln),
            (F::Log10, _) => double(f64::log10),
            (F::Round, [value]) => {
                value.as_double().map(|number| Operand::Int((number + 0.5).floor() as i64))
            }
            (F::Pow, [left, right]) => {
                left.as_double().zip(right.as_double()).map(|(left, right)| Operand::Double(left.powf(right)))
            }
            (F::Pi, _) => Some(Operand::Double(std::f64::consts::PI)),
            (F::Equals, [left, right]) => Some(Operand::Bool(self.equal(left, right)?)),
            (F::Millis, []) => Some(Operand::Int(self.now_ms())),
            (F::AsList, [list @ (Operand::Reference(_) | Operand::Object(_))]) => {
                let elements = self.elements(node, list)?;
                Some(self.make_list(&elements)?)
            }
            (F::AsList, elements) => Some(self.make_list(elements)?),
            (F::StreamOf, [list @ (Operand::Reference(_) | Operand::Object(_))]) => {
                let elements = self.elements(node, list)?;
                Some(self.make_stream(elements)?)
            }
            (F::StreamOf, elements) => Some(self.make_stream(elements.to_vec())?),
            (F::Format, [Operand::Text(format), values @ ..]) => {
                Some(self.format_text(node, format, values)?)
            }
            _ => None,
        };
        called.ok_or_else(|| self.illegal(node, "the function does not take these arguments"))
    }

    /// Formats values as `%s`, `%d` and `%%` say.
    fn format_text(&mut self, node: &Node, format: &str, values: &[Operand]) -> Result<Operand> {
        let values = match values {
            [list @ Operand::Reference(_)] => self.elements(node, list)?,
            values => values.to_vec(),
        };
        let mut values = values.iter();
        let mut out = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push(letter);
                continue;
            }
            let more: std::sync::Arc<str> = match letters.next() {
                Some('%') => "%".into(),
                Some('n') => "\n".into(),
                Some('s' | 'd') => match values.next() {
                    Some(value) => self.text_of(value)?,
                    None => return Err(self.illegal(node, "a format has more specifiers than values")),
                },
                other => {
                    let other = other.map_or_else(String::new, String::from);
                    return Err(
                        self.illegal(node, &format!("the format [%{other}] is not supported: use %s or %d"))
                    );
                }
            };
            self.budget().charge(more.len())?;
            out.push_str(&more);
        }
        self.budget().charge(out.len())?;
        Ok(Operand::Text(out.into()))
    }

    fn not_a_number(&self, node: &Node, text: &str) -> ProcessorError {
        self.fail(node, "number_format_exception", &format!("For input string: \"{text}\""))
    }
}
