//! Methods of lists, maps and numbers, and functions of classes.

use serde_json::{Map, Value};

use super::evaluate::Machine;
use super::memory::{Operand, PathStep, Reference};
use super::tree::{Node, StaticFunction};
use crate::error::{ProcessorError, Result};
use crate::processor;

impl Machine<'_> {
    /// Calls a method.
    pub(super) fn call(
        &mut self,
        node: &Node,
        target: &Operand,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Operand> {
        let called = match (target, name, arguments) {
            (Operand::Null, ..) => {
                let reason = format!("cannot access method/field [{name}] from a null def reference");
                return Err(self.fail(node, "null_pointer_exception", &reason));
            }
            (_, "equals", [other]) => Some(Operand::Bool(self.equal(target, other)?)),
            (_, "toString", []) => Some(Operand::Text(self.text_of(target)?)),
            (_, "hashCode", _) => None,
            (Operand::Text(text), ..) => {
                let text = std::rc::Rc::clone(text);
                self.call_text(node, &text, name, arguments)?
            }
            (Operand::Int(_) | Operand::Double(_), "intValue" | "longValue", []) => {
                Some(Operand::Int(target.as_int().or(target.as_double().map(|n| n as i64)).unwrap_or(0)))
            }
            (Operand::Int(_) | Operand::Double(_), "doubleValue" | "floatValue", []) => {
                target.as_double().map(Operand::Double)
            }
            (Operand::Int(_) | Operand::Double(_), "compareTo", [other]) => {
                let pair = (target.as_double(), other.as_double());
                let (Some(left), Some(right)) = pair else {
                    return Err(self.fail(node, "class_cast_exception", "compareTo compares numbers"));
                };
                Some(Operand::Int(left.total_cmp(&right) as i64))
            }
            (Operand::Reference(reference), ..) => match self.view(reference) {
                Some(Value::Array(_)) => self.call_list(node, reference, name, arguments)?,
                Some(Value::Object(_)) => self.call_map(node, reference, name, arguments)?,
                _ => return Err(self.illegal(node, "the value is not there any more")),
            },
            _ => None,
        };
        called.ok_or_else(|| {
            let found = match target {
                Operand::Reference(reference) => match self.view(reference) {
                    Some(Value::Array(_)) => "java.util.List",
                    _ => "java.util.Map",
                },
                other => other.type_name(),
            };
            self.illegal(node, &format!("dynamic method [{found}, {name}/{}] not found", arguments.len()))
        })
    }

    fn items(&self, list: &Reference) -> &[Value] {
        match self.view(list) {
            Some(Value::Array(items)) => items,
            _ => &[],
        }
    }

    fn items_mut(&mut self, node: &Node, list: &Reference) -> Result<&mut Vec<Value>> {
        let missing = self.illegal(node, "the value is no list any more");
        match self.view_mut(node, list)? {
            Value::Array(items) => Ok(items),
            _ => Err(missing),
        }
    }

    fn members_mut(&mut self, node: &Node, map: &Reference) -> Result<&mut Map<String, Value>> {
        let missing = self.illegal(node, "the value is no map any more");
        match self.view_mut(node, map)? {
            Value::Object(members) => Ok(members),
            _ => Err(missing),
        }
    }

    /// Puts members into a map.
    fn extend_map(&mut self, node: &Node, map: &Reference, more: Map<String, Value>) -> Result<()> {
        for step in self.members_in_variables(map) {
            if matches!(&step, PathStep::Key(key) if more.contains_key(&**key)) {
                self.detach(map, &step)?;
            }
        }
        self.members_mut(node, map)?.extend(more);
        Ok(())
    }

    fn call_list(
        &mut self,
        node: &Node,
        list: &Reference,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let length = self.items(list).len();
        // What a search reads is work, too.
        if matches!(name, "contains" | "indexOf" | "remove" | "addAll" | "clear" | "sort") {
            self.budget().charge(length.saturating_mul(8))?;
        }
        let position = |machine: &Self, number: i64, bound: usize| match usize::try_from(number) {
            Ok(position) if position < bound => Ok(position),
            _ => {
                let reason = format!("Index {number} out of bounds for length {length}");
                Err(machine.fail(node, "index_out_of_bounds_exception", &reason))
            }
        };
        Ok(Some(match (name, arguments) {
            ("size", []) => Operand::Int(length as i64),
            ("isEmpty", []) => Operand::Bool(length == 0),
            ("get" | "getAt", [Operand::Int(number)]) => {
                let position = position(self, *number, length)?;
                self.load(list, PathStep::Position(position)).unwrap_or(Operand::Null)
            }
            ("add", [value]) => {
                let json = self.copy_value(value)?;
                self.items_mut(node, list)?.push(json);
                self.alias(list, PathStep::Position(length), value);
                Operand::Bool(true)
            }
            ("add", [Operand::Int(number), value]) => {
                let position = position(self, *number, length + 1)?;
                let json = self.copy_value(value)?;
                self.budget().charge(length.saturating_mul(8))?;
                self.items_mut(node, list)?.insert(position, json);
                self.shift_positions(list, position, 1);
                Operand::Null
            }
            ("set", [Operand::Int(number), value]) => {
                let position = position(self, *number, length)?;
                let before = self.items(list).get(position).cloned().unwrap_or_default();
                self.store(node, list, PathStep::Position(position), value)?;
                self.make(before)?
            }
            ("addAll", [value @ Operand::Reference(_)]) => {
                let Value::Array(more) = self.copy_value(value)? else { return Ok(None) };
                let is_changed = !more.is_empty();
                self.items_mut(node, list)?.extend(more);
                Operand::Bool(is_changed)
            }
            ("remove", [Operand::Int(number)]) => {
                let position = position(self, *number, length)?;
                let variables = self.variables_in(list, Some(&PathStep::Position(position)));
                let removed = self.items_mut(node, list)?.remove(position);
                let removed = self.make(removed)?;
                self.redirect(variables, &removed);
                self.shift_positions(list, position + 1, -1);
                removed
            }
            ("remove", [value]) => {
                let value = self.copy_value(value)?;
                match self.items(list).iter().position(|item| *item == value) {
                    Some(position) => {
                        self.detach(list, &PathStep::Position(position))?;
                        self.items_mut(node, list)?.remove(position);
                        self.shift_positions(list, position + 1, -1);
                        Operand::Bool(true)
                    }
                    None => Operand::Bool(false),
                }
            }
            ("contains", [value]) => {
                let value = self.copy_value(value)?;
                Operand::Bool(self.items(list).contains(&value))
            }
            ("indexOf", [value]) => {
                let value = self.copy_value(value)?;
                let found = self.items(list).iter().position(|item| *item == value);
                Operand::Int(found.map_or(-1, |position| position as i64))
            }
            ("clear", []) => {
                self.detach_members(list)?;
                self.items_mut(node, list)?.clear();
                Operand::Null
            }
            _ => return Ok(None),
        }))
    }

    fn call_map(
        &mut self,
        node: &Node,
        map: &Reference,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let members = |machine: &Self| match machine.view(map) {
            Some(Value::Object(members)) => members.clone(),
            _ => Map::new(),
        };
        let length = self.view(map).and_then(Value::as_object).map_or(0, Map::len);
        let copies = matches!(name, "keySet" | "values" | "entrySet" | "containsValue" | "putAll" | "remove");
        if copies {
            // The copy of the members is charged as a made value below.
            self.budget().charge(length.saturating_mul(8))?;
        }
        Ok(Some(match (name, arguments) {
            ("size", []) => Operand::Int(length as i64),
            ("isEmpty", []) => Operand::Bool(length == 0),
            ("containsKey", [key]) => {
                let key = self.text_of(key)?;
                Operand::Bool(self.view(map).is_some_and(|map| map.get(&*key).is_some()))
            }
            ("containsValue", [value]) => {
                let value = self.copy_value(value)?;
                let members = self.view(map).and_then(Value::as_object);
                Operand::Bool(members.is_some_and(|members| members.values().any(|member| *member == value)))
            }
            ("get", [key]) => {
                let key = self.text_of(key)?;
                self.load(map, PathStep::Key(key)).unwrap_or(Operand::Null)
            }
            ("getOrDefault", [key, default]) => {
                let key = self.text_of(key)?;
                self.load(map, PathStep::Key(key)).unwrap_or_else(|| default.clone())
            }
            ("getKey", []) => self.load(map, PathStep::Key("key".into())).unwrap_or(Operand::Null),
            ("getValue", []) => self.load(map, PathStep::Key("value".into())).unwrap_or(Operand::Null),
            ("put" | "putIfAbsent", [key, value]) => {
                let key = self.text_of(key)?;
                let before = self.load(map, PathStep::Key(std::rc::Rc::clone(&key)));
                let keeps =
                    name == "putIfAbsent" && before.as_ref().is_some_and(|value| *value != Operand::Null);
                let before = match before {
                    Some(reference @ Operand::Reference(_)) => {
                        let value = self.copy_value(&reference)?;
                        self.make(value)?
                    }
                    other => other.unwrap_or(Operand::Null),
                };
                if !keeps {
                    self.store(node, map, PathStep::Key(key), value)?;
                }
                before
            }
            ("putAll", [value @ Operand::Reference(_)]) => {
                let Value::Object(more) = self.copy_value(value)? else { return Ok(None) };
                self.extend_map(node, map, more)?;
                Operand::Null
            }
            ("remove", [key]) => {
                let key = self.text_of(key)?;
                let variables = self.variables_in(map, Some(&PathStep::Key(std::rc::Rc::clone(&key))));
                let removed = self.members_mut(node, map)?.shift_remove(&*key);
                let removed = self.make(removed.unwrap_or_default())?;
                self.redirect(variables, &removed);
                removed
            }
            ("clear", []) => {
                self.detach_members(map)?;
                self.members_mut(node, map)?.clear();
                Operand::Null
            }
            ("keySet", []) => {
                let keys = self.view(map).and_then(Value::as_object).into_iter().flat_map(Map::keys);
                let keys = keys.map(|key| Value::from(key.as_str())).collect();
                self.make(Value::Array(keys))?
            }
            ("values", []) => {
                let values = members(self).into_iter().map(|(_, value)| value).collect();
                self.make(Value::Array(values))?
            }
            ("entrySet", []) => {
                let entries = members(self).into_iter().map(|(key, value)| {
                    let members = [("key".to_owned(), Value::from(key)), ("value".to_owned(), value)];
                    Value::Object(Map::from_iter(members))
                });
                let entries = entries.collect();
                self.make(Value::Array(entries))?
            }
            _ => return Ok(None),
        }))
    }

    /// Calls a function of a class.
    pub(super) fn call_static(
        &mut self,
        node: &Node,
        function: StaticFunction,
        arguments: &[Operand],
    ) -> Result<Operand> {
        use StaticFunction as F;
        let wrong = |machine: &Self, error: ProcessorError| machine.fail(node, error.kind(), error.reason());
        let double = |operation: fn(f64) -> f64| match arguments {
            [value] => value.as_double().map(|number| Operand::Double(operation(number))),
            _ => None,
        };
        let called = match (function, arguments) {
            (F::ProcessorJson, [map @ Operand::Reference(_), field]) => {
                let key = self.text_of(field)?;
                let Operand::Reference(map) = map else { return Ok(Operand::Null) };
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
            (F::IsDigit, [Operand::Text(text)]) => {
                Some(Operand::Bool(!text.is_empty() && text.chars().all(char::is_numeric)))
            }
            _ => None,
        };
        called.ok_or_else(|| self.illegal(node, "the function does not take these arguments"))
    }

    fn not_a_number(&self, node: &Node, text: &str) -> ProcessorError {
        self.fail(node, "number_format_exception", &format!("For input string: \"{text}\""))
    }
}
