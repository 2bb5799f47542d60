//! Methods of lists, maps, numbers and characters.

use serde_json::{Map, Value};

use super::evaluate::Machine;
use super::memory::{Operand, PathStep, Reference, Root, ViewKind};
use super::tree::Node;
use crate::error::Result;

/// Names of all methods. A call of another is refused when the script is compiled.
const METHODS: [&str; 122] = [
    "add",
    "addAll",
    "allMatch",
    "anyMatch",
    "append",
    "between",
    "charAt",
    "charValue",
    "chars",
    "clear",
    "clone",
    "collect",
    "compareTo",
    "computeIfAbsent",
    "concat",
    "contains",
    "containsAll",
    "containsKey",
    "containsValue",
    "count",
    "countTokens",
    "deleteCharAt",
    "distinct",
    "doubleValue",
    "each",
    "endsWith",
    "entrySet",
    "equals",
    "equalsIgnoreCase",
    "filter",
    "find",
    "floatValue",
    "forEach",
    "get",
    "getAt",
    "getEpochSecond",
    "getKey",
    "getMessage",
    "getMillis",
    "getNano",
    "getOrDefault",
    "getSeconds",
    "getValue",
    "group",
    "groupCount",
    "hasMoreElements",
    "hasMoreTokens",
    "hasNext",
    "indexOf",
    "intValue",
    "isAfter",
    "isBefore",
    "isBlank",
    "isEmpty",
    "isEqual",
    "isNegative",
    "isZero",
    "iterator",
    "keySet",
    "lastIndexOf",
    "length",
    "limit",
    "longValue",
    "map",
    "matcher",
    "matches",
    "minus",
    "minusDays",
    "minusHours",
    "minusMillis",
    "minusMinutes",
    "minusNanos",
    "minusSeconds",
    "next",
    "nextElement",
    "nextToken",
    "noneMatch",
    "pattern",
    "plus",
    "plusDays",
    "plusHours",
    "plusMillis",
    "plusMinutes",
    "plusNanos",
    "plusSeconds",
    "put",
    "putAll",
    "putIfAbsent",
    "remove",
    "removeIf",
    "replace",
    "replaceAll",
    "reverse",
    "set",
    "setCharAt",
    "setLength",
    "setValue",
    "size",
    "skip",
    "split",
    "splitOnToken",
    "startsWith",
    "stream",
    "strip",
    "substring",
    "toArray",
    "toCharArray",
    "toDays",
    "toEpochMilli",
    "toEpochSecond",
    "toHours",
    "toInstant",
    "toList",
    "toLowerCase",
    "toMillis",
    "toMinutes",
    "toNanos",
    "toSeconds",
    "toString",
    "toUpperCase",
    "trim",
    "values",
];

/// Returns whether some class has a method of a name.
pub(super) fn is_method(name: &str) -> bool {
    METHODS.binary_search(&name).is_ok()
}

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
            (Operand::Char(letter), "charValue", []) => Some(Operand::Char(*letter)),
            (Operand::Char(letter), "compareTo", [Operand::Char(other)]) => {
                Some(Operand::Int(letter.cmp(other) as i64))
            }
            (Operand::Text(text), ..) => self.call_text(node, text, name, arguments)?,
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
            (Operand::View(_, map), ..) => self.call_view(node, target, map, name, arguments)?,
            (Operand::Entry(map, key), ..) => self.call_entry(node, map, key, name, arguments)?,
            (Operand::Object(number), ..) => self.call_object(node, *number, name, arguments)?,
            (Operand::Time(time), ..) => self.call_time(node, time, name, arguments)?,
            (Operand::Duration(nanos), ..) => self.call_duration(node, *nanos, name, arguments)?,
            _ => None,
        };
        called.ok_or_else(|| {
            let found = self.type_name(target);
            self.illegal(node, &format!("dynamic method [{found}, {name}/{}] not found", arguments.len()))
        })
    }

    pub(super) fn items(&self, list: &Reference) -> &[Value] {
        match self.view(list) {
            Some(Value::Array(items)) => items,
            _ => &[],
        }
    }

    pub(super) fn items_mut(&mut self, node: &Node, list: &Reference) -> Result<&mut Vec<Value>> {
        let missing = self.illegal(node, "the value is no list any more");
        match self.view_mut(node, list)? {
            Value::Array(items) => Ok(items),
            _ => Err(missing),
        }
    }

    pub(super) fn members_mut(&mut self, node: &Node, map: &Reference) -> Result<&mut Map<String, Value>> {
        let missing = self.illegal(node, "the value is no map any more");
        match self.view_mut(node, map)? {
            Value::Object(members) => Ok(members),
            _ => Err(missing),
        }
    }

    /// Puts members into a map.
    pub(super) fn extend_map(
        &mut self,
        node: &Node,
        map: &Reference,
        more: Map<String, Value>,
    ) -> Result<()> {
        for step in self.members_in_variables(map) {
            if matches!(&step, PathStep::Key(key) if more.contains_key(&**key)) {
                self.detach(map, &step)?;
            }
        }
        self.members_mut(node, map)?.extend(more);
        Ok(())
    }

    fn index_of(&mut self, list: &Reference, value: &Operand) -> Result<Option<usize>> {
        let length = self.items(list).len();
        self.budget().charge_read(length.saturating_mul(8))?;
        let value = self.copy_value(value)?;
        Ok(self.items(list).iter().position(|item| *item == value))
    }

    /// Calls a method of a list; `None` where lists have no such method.
    pub(super) fn call_list(
        &mut self,
        node: &Node,
        list: &Reference,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let length = self.items(list).len();
        // What a search reads is work, too.
        if matches!(name, "contains" | "indexOf" | "remove" | "addAll" | "clear") {
            self.budget().charge(length.saturating_mul(8))?;
        }
        let position = |machine: &Self, number: i64, bound: usize| match usize::try_from(number) {
            Ok(position) if position < bound => Ok(position),
            _ => {
                let reason = format!("Index {number} out of bounds for length {length}");
                Err(machine.fail(node, "index_out_of_bounds_exception", &reason))
            }
        };
        let is_set = matches!(
            list, Reference { root: Root::Local(number), path } if path.is_empty() && self.sets.contains(number)
        );
        Ok(Some(match (name, arguments) {
            ("size", []) => Operand::Int(length as i64),
            ("isEmpty", []) => Operand::Bool(length == 0),
            ("add", [value]) if is_set && self.index_of(list, value)?.is_some() => Operand::Bool(false),
            ("addAll", [value]) if is_set => {
                let mut is_changed = false;
                for element in self.elements(node, value)? {
                    self.budget().step()?;
                    let added = self.call_list(node, list, "add", &[element])?;
                    is_changed = is_changed || added == Some(Operand::Bool(true));
                }
                Operand::Bool(is_changed)
            }
            ("get" | "getAt" | "set" | "indexOf", _) if is_set => return Ok(None),
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
                self.count_move(list, &PathStep::Position(position))?;
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
            ("addAll", [value @ (Operand::Reference(_) | Operand::View(..))]) => {
                let Value::Array(more) = self.copy_value(value)? else { return Ok(None) };
                let is_changed = !more.is_empty();
                self.items_mut(node, list)?.extend(more);
                Operand::Bool(is_changed)
            }
            ("remove", [Operand::Int(number)]) if !is_set => {
                let position = position(self, *number, length)?;
                self.count_move(list, &PathStep::Position(position))?;
                let variables = self.variables_in(list, Some(&PathStep::Position(position)));
                let removed = self.items_mut(node, list)?.remove(position);
                let removed = self.make(removed)?;
                self.redirect(variables, &removed);
                self.shift_positions(list, position + 1, -1);
                removed
            }
            ("remove", [value]) => match self.index_of(list, value)? {
                Some(position) => {
                    self.detach(list, &PathStep::Position(position))?;
                    self.items_mut(node, list)?.remove(position);
                    self.shift_positions(list, position + 1, -1);
                    Operand::Bool(true)
                }
                None => Operand::Bool(false),
            },
            ("contains", [value]) => Operand::Bool(self.index_of(list, value)?.is_some()),
            ("containsAll", [others]) => {
                let mut has_all = true;
                for other in self.elements(node, others)? {
                    self.budget().step()?;
                    has_all = has_all && self.index_of(list, &other)?.is_some();
                }
                Operand::Bool(has_all)
            }
            ("indexOf", [value]) => {
                Operand::Int(self.index_of(list, value)?.map_or(-1, |position| position as i64))
            }
            ("iterator", []) => self.make_iterator(node, &Operand::Reference(list.clone()))?,
            ("stream", []) => {
                let elements = self.elements(node, &Operand::Reference(list.clone()))?;
                self.make_stream(elements)?
            }
            ("clone" | "toArray", [] | [Operand::Null]) => {
                let copy = self.copy_value(&Operand::Reference(list.clone()))?;
                self.make(copy)?
            }
            ("clear", []) => {
                self.detach_members(list)?;
                self.items_mut(node, list)?.clear();
                Operand::Null
            }
            _ => return Ok(None),
        }))
    }

    /// Calls a method of a map; `None` where maps have no such method.
    pub(super) fn call_map(
        &mut self,
        node: &Node,
        map: &Reference,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let length = self.view(map).and_then(Value::as_object).map_or(0, Map::len);
        let reads_all = matches!(name, "containsValue" | "putAll" | "remove");
        if reads_all {
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
                let before = self.load(map, PathStep::Key(std::sync::Arc::clone(&key)));
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
                self.count_move(map, &PathStep::Key(std::sync::Arc::clone(&key)))?;
                let variables = self.variables_in(map, Some(&PathStep::Key(std::sync::Arc::clone(&key))));
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
            ("keySet", []) => Operand::View(ViewKind::Keys, map.clone()),
            ("values", []) => Operand::View(ViewKind::Values, map.clone()),
            ("entrySet", []) => Operand::View(ViewKind::Entries, map.clone()),
            ("clone", []) => {
                let copy = self.copy_value(&Operand::Reference(map.clone()))?;
                self.make(copy)?
            }
            ("getMessage", []) => self.load(map, PathStep::Key("message".into())).unwrap_or(Operand::Null),
            _ => return Ok(None),
        }))
    }
}
