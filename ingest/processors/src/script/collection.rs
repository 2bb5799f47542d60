//! Elements of lists and maps: views of maps, removal, and the steps of streams. Methods with lambdas are here, too.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::evaluate::{Completion, Machine};
use super::memory::{Operand, PathStep, Reference, ViewKind};
use super::object::Object;
use super::static_function::StaticFunction;
use super::tree::{Expression, Lambda, Node};
use crate::document::VALUE_BYTES;
use crate::error::Result;

/// Methods that take lambdas.
const LAMBDA_METHODS: [&str; 11] = [
    "allMatch",
    "anyMatch",
    "collect",
    "computeIfAbsent",
    "each",
    "filter",
    "forEach",
    "map",
    "noneMatch",
    "removeIf",
    "replaceAll",
];

/// Returns whether a method takes lambdas.
pub(super) fn takes_lambdas(method: &str) -> bool {
    LAMBDA_METHODS.contains(&method)
}

/// Returns whether an argument is a lambda, or has some.
pub(super) fn has_lambdas(node: &Node) -> bool {
    matches!(node.expression, Expression::Lambda(_))
        || matches!(node.expression, Expression::Static(function, _) if is_collector(function))
}

fn is_collector(function: StaticFunction) -> bool {
    matches!(
        function,
        StaticFunction::ToMap | StaticFunction::ToList | StaticFunction::ToSet | StaticFunction::Joining
    )
}

impl Machine<'_> {
    /// Lists the elements of a list, of a view of a map, or of a stream.
    pub(super) fn elements(&mut self, node: &Node, of: &Operand) -> Result<Vec<Operand>> {
        let count = match of {
            Operand::Reference(list) => self.view(list).and_then(Value::as_array).map_or(0, Vec::len),
            Operand::View(_, map) => self.view(map).and_then(Value::as_object).map_or(0, Map::len),
            _ => 0,
        };
        // Each element that is a list or a map has a path of its own.
        let steps = of.reference().map_or(0, |reference| reference.path.len() + 1);
        let size = std::mem::size_of::<Operand>() + steps * std::mem::size_of::<PathStep>();
        self.budget().charge(count.saturating_mul(size))?;
        let elements = self.list_elements(node, of, count)?;
        let bytes = elements.iter().map(|element| match element {
            Operand::Text(text) => text.len(),
            _ => 0,
        });
        self.budget().charge(bytes.sum())?;
        Ok(elements)
    }

    fn list_elements(&mut self, node: &Node, of: &Operand, count: usize) -> Result<Vec<Operand>> {
        match of {
            Operand::Reference(list) if matches!(self.view(list), Some(Value::Array(_))) => {
                let elements = (0..count).map(|position| self.load(list, PathStep::Position(position)));
                Ok(elements.map(|element| element.unwrap_or(Operand::Null)).collect())
            }
            Operand::View(kind, map) => {
                let members = self.view(map).and_then(Value::as_object);
                let keys: Vec<Arc<str>> =
                    members.into_iter().flat_map(Map::keys).map(|key| key.as_str().into()).collect();
                self.budget().charge(keys.iter().map(|key| key.len()).sum())?;
                Ok(keys.into_iter().map(|key| self.view_element(*kind, map, key)).collect())
            }
            Operand::Object(number) => match self.object(*number) {
                Some(Object::Stream(elements, moves)) => {
                    let (elements, moves) = (Arc::clone(elements), *moves);
                    self.check_moves(node, &elements, moves)?;
                    Ok(elements.to_vec())
                }
                _ => Err(self.illegal(node, "only a list can be iterated over")),
            },
            Operand::Null => Err(self.fail(node, "null_pointer_exception", "Cannot iterate over [null]")),
            Operand::Reference(_) => {
                Err(self.illegal(node, "only a list can be iterated over; a map has entrySet()"))
            }
            _ => Err(self.illegal(node, "only a list can be iterated over")),
        }
    }

    fn view_element(&self, kind: ViewKind, map: &Reference, key: Arc<str>) -> Operand {
        match kind {
            ViewKind::Keys => Operand::Text(key),
            ViewKind::Values => self.load(map, PathStep::Key(key)).unwrap_or(Operand::Null),
            ViewKind::Entries => Operand::Entry(map.clone(), key),
        }
    }

    /// Calls a method of an entry of a map; `None` where it has no such method.
    pub(super) fn call_entry(
        &mut self,
        node: &Node,
        map: &Reference,
        key: &Arc<str>,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let step = PathStep::Key(Arc::clone(key));
        Ok(Some(match (name, arguments) {
            ("getKey", []) => Operand::Text(Arc::clone(key)),
            ("getValue", []) => self.load(map, step).unwrap_or(Operand::Null),
            ("setValue", [value]) => {
                self.store(node, map, step, value)?;
                Operand::Null
            }
            _ => return Ok(None),
        }))
    }

    /// Calls a method of a view of a map; `None` where it has no such method.
    pub(super) fn call_view(
        &mut self,
        node: &Node,
        view: &Operand,
        map: &Reference,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let length = self.view(map).and_then(Value::as_object).map_or(0, Map::len);
        Ok(Some(match (name, arguments) {
            ("size", []) => Operand::Int(length as i64),
            ("isEmpty", []) => Operand::Bool(length == 0),
            ("iterator", []) => self.make_iterator(node, view)?,
            ("stream", []) => {
                let elements = self.elements(node, view)?;
                self.make_stream(elements)?
            }
            ("remove", [Operand::Text(key)]) if matches!(view, Operand::View(ViewKind::Keys, _)) => {
                let is_there = self.view(map).is_some_and(|map| map.get(&**key).is_some());
                if is_there {
                    self.remove_member(node, map, &PathStep::Key(Arc::clone(key)))?;
                }
                Operand::Bool(is_there)
            }
            ("contains", [key @ Operand::Text(_)]) if matches!(view, Operand::View(ViewKind::Keys, _)) => {
                return self.call_map(node, map, "containsKey", std::slice::from_ref(key));
            }
            ("clear", []) => return self.call_map(node, map, name, arguments),
            // The others read a copy.
            ("contains" | "get" | "indexOf" | "toArray" | "clone" | "containsAll", _) => {
                let copy = self.copy_value(view)?;
                match self.make(copy)? {
                    Operand::Reference(list) => return self.call_list(node, &list, name, arguments),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Calls a method of a stream without lambdas; `None` where it has no such method.
    pub(super) fn call_stream(
        &mut self,
        node: &Node,
        elements: &Arc<[Operand]>,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let count = |number: &i64| usize::try_from(*number).unwrap_or(0);
        self.budget().charge(elements.len().saturating_mul(8))?;
        Ok(Some(match (name, arguments) {
            ("stream", []) => self.make_stream(elements.to_vec())?,
            ("count" | "size", []) => Operand::Int(elements.len() as i64),
            ("skip", [Operand::Int(number)]) => {
                self.make_stream(elements.iter().skip(count(number)).cloned().collect())?
            }
            ("limit", [Operand::Int(number)]) => {
                self.make_stream(elements.iter().take(count(number)).cloned().collect())?
            }
            ("distinct", []) => {
                let mut distinct: Vec<Operand> = Vec::new();
                for element in elements.iter() {
                    self.budget().step()?;
                    let mut is_known = false;
                    for known in &distinct {
                        self.budget().charge_read(VALUE_BYTES)?;
                        is_known = is_known || self.equal(known, element)?;
                    }
                    if !is_known {
                        distinct.push(element.clone());
                    }
                }
                self.make_stream(distinct)?
            }
            ("toArray" | "toList", [] | [Operand::Null]) => self.make_list(elements)?,
            ("iterator", []) => {
                let number = self.make_stream(elements.to_vec())?;
                self.make_iterator(node, &number)?
            }
            _ => return Ok(None),
        }))
    }

    /// Makes a list of copies of the distinct elements.
    pub(super) fn make_distinct_list(&mut self, node: &Node, elements: Vec<Operand>) -> Result<Operand> {
        let distinct = self.call_stream(node, &elements.into(), "distinct", &[])?;
        let elements = self.elements(node, &distinct.unwrap_or(Operand::Null))?;
        self.make_list(&elements)
    }

    /// Makes a list of copies.
    pub(super) fn make_list(&mut self, elements: &[Operand]) -> Result<Operand> {
        let list = elements.iter().map(|element| self.copy_value(element)).collect::<Result<_>>()?;
        self.make(Value::Array(list))
    }

    /// Removes a member of a list or map. Variables within it keep it.
    pub(super) fn remove_member(
        &mut self,
        node: &Node,
        container: &Reference,
        step: &PathStep,
    ) -> Result<()> {
        self.detach(container, step)?;
        match step {
            PathStep::Key(key) => drop(self.members_mut(node, container)?.shift_remove(&**key)),
            PathStep::Position(position) => {
                let items = self.items_mut(node, container)?;
                if *position < items.len() {
                    items.remove(*position);
                    self.shift_positions(container, position + 1, -1);
                }
            }
        }
        let length = self.view(container).map_or(0, |value| match value {
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        });
        // The members behind it move.
        self.budget().charge_read(length.saturating_mul(8))
    }

    /// Runs a lambda.
    pub(super) fn apply(&mut self, lambda: &Lambda, arguments: &[Operand]) -> Result<Operand> {
        for (number, slot) in lambda.parameters.iter().enumerate() {
            self.set_variable(*slot, arguments.get(number).cloned().unwrap_or(Operand::Null));
        }
        match self.block(&lambda.body)? {
            Completion::Return(value) => Ok(value),
            _ => Ok(Operand::Null),
        }
    }

    /// Forgets the arguments of a lambda, so that they do not outlive what is removed.
    fn forget_arguments(&mut self, lambda: &Lambda) {
        for slot in &lambda.parameters {
            self.set_variable(*slot, Operand::Null);
        }
    }

    /// Returns whether a lambda holds for an element.
    fn test(&mut self, node: &Node, lambda: &Lambda, element: &Operand) -> Result<bool> {
        self.budget().step()?;
        let value = self.apply(lambda, std::slice::from_ref(element))?;
        self.flag(node, value)
    }

    /// Calls a method whose arguments have lambdas.
    pub(super) fn call_with_lambdas(
        &mut self,
        node: &Node,
        target: &Operand,
        name: &str,
        arguments: &[Node],
    ) -> Result<Operand> {
        if *target == Operand::Null {
            let reason = format!("cannot access method/field [{name}] from a null def reference");
            return Err(self.fail(node, "null_pointer_exception", &reason));
        }
        let called = match (name, arguments) {
            ("collect", [collector]) => self.collect(node, target, collector)?,
            ("computeIfAbsent", [key, function]) => self.compute_if_absent(node, target, key, function)?,
            (_, [Node { expression: Expression::Lambda(lambda), .. }]) => {
                self.call_with_lambda(node, target, name, lambda)?
            }
            _ => None,
        };
        called.ok_or_else(|| {
            let found = self.type_name(target);
            self.illegal(node, &format!("dynamic method [{found}, {name}/{}] not found", arguments.len()))
        })
    }

    fn call_with_lambda(
        &mut self,
        node: &Node,
        target: &Operand,
        name: &str,
        lambda: &Lambda,
    ) -> Result<Option<Operand>> {
        if let ("forEach" | "each", Operand::Reference(map)) = (name, target)
            && matches!(self.view(map), Some(Value::Object(_)))
        {
            let entries = self.elements(node, &Operand::View(ViewKind::Keys, map.clone()))?;
            for key in entries {
                self.budget().step()?;
                let Operand::Text(name) = &key else { continue };
                let value = self.load(map, PathStep::Key(Arc::clone(name))).unwrap_or(Operand::Null);
                self.charge_text(&value)?;
                self.apply(lambda, &[key.clone(), value])?;
            }
            return Ok(Some(Operand::Null));
        }
        let is_stream = matches!(target, Operand::Object(number) if matches!(self.object(*number), Some(Object::Stream(..))));
        let elements = self.elements(node, target)?;
        Ok(Some(match name {
            "forEach" | "each" => {
                for element in &elements {
                    self.budget().step()?;
                    self.apply(lambda, std::slice::from_ref(element))?;
                }
                Operand::Null
            }
            "removeIf" if !is_stream => Operand::Bool(self.remove_if(node, target, &elements, lambda)?),
            "replaceAll" if !is_stream => {
                let Operand::Reference(list) = target else { return Ok(None) };
                for (position, element) in elements.iter().enumerate() {
                    self.budget().step()?;
                    let value = self.apply(lambda, std::slice::from_ref(element))?;
                    self.store(node, list, PathStep::Position(position), &value)?;
                }
                Operand::Null
            }
            "filter" => {
                let mut kept = Vec::new();
                for element in elements {
                    if self.test(node, lambda, &element)? {
                        kept.push(element);
                    }
                }
                self.make_stream(kept)?
            }
            "map" => {
                let mut mapped = Vec::with_capacity(elements.len());
                for element in &elements {
                    self.budget().step()?;
                    let value = self.apply(lambda, std::slice::from_ref(element))?;
                    // The stream keeps what a script else reads and forgets.
                    let steps = value.reference().map_or(0, |reference| reference.path.len());
                    let bytes = steps * std::mem::size_of::<PathStep>();
                    let text = if let Operand::Text(text) = &value { text.len() } else { 0 };
                    self.budget().charge(bytes + text)?;
                    mapped.push(value);
                }
                self.make_stream(mapped)?
            }
            "anyMatch" | "allMatch" | "noneMatch" => {
                let stops_at = name != "allMatch";
                for element in &elements {
                    if self.test(node, lambda, element)? == stops_at {
                        return Ok(Some(Operand::Bool(name == "anyMatch")));
                    }
                }
                Operand::Bool(name != "anyMatch")
            }
            _ => return Ok(None),
        }))
    }

    fn remove_if(
        &mut self,
        node: &Node,
        target: &Operand,
        elements: &[Operand],
        lambda: &Lambda,
    ) -> Result<bool> {
        let mut is_changed = false;
        match target {
            Operand::View(kind, map) => {
                let keys = self.elements(node, &Operand::View(ViewKind::Keys, map.clone()))?;
                for key in keys {
                    let Operand::Text(key) = key else { continue };
                    let element = self.view_element(*kind, map, Arc::clone(&key));
                    self.charge_text(&element)?;
                    if self.test(node, lambda, &element)? {
                        self.forget_arguments(lambda);
                        self.remove_member(node, map, &PathStep::Key(key))?;
                        is_changed = true;
                    }
                }
            }
            Operand::Reference(list) => {
                let mut removed = Vec::new();
                for (position, element) in elements.iter().enumerate() {
                    if self.test(node, lambda, element)? {
                        removed.push(position);
                    }
                }
                self.forget_arguments(lambda);
                is_changed = !removed.is_empty();
                for position in removed.into_iter().rev() {
                    self.remove_member(node, list, &PathStep::Position(position))?;
                }
            }
            _ => {}
        }
        Ok(is_changed)
    }

    fn compute_if_absent(
        &mut self,
        node: &Node,
        target: &Operand,
        key: &Node,
        function: &Node,
    ) -> Result<Option<Operand>> {
        let (Operand::Reference(map), Expression::Lambda(lambda)) = (target, &function.expression) else {
            return Ok(None);
        };
        if !matches!(self.view(map), Some(Value::Object(_))) {
            return Ok(None);
        }
        let key = self.evaluate(key)?;
        let step = PathStep::Key(self.text_of(&key)?);
        if let Some(found) = self.load(map, step.clone()).filter(|found| *found != Operand::Null) {
            self.charge_text(&found)?;
            return Ok(Some(found));
        }
        let value = self.apply(lambda, &[key])?;
        self.store(node, map, step.clone(), &value)?;
        Ok(Some(self.load(map, step).unwrap_or(Operand::Null)))
    }

    /// Collects a stream as a list, a map or a text.
    fn collect(&mut self, node: &Node, stream: &Operand, collector: &Node) -> Result<Option<Operand>> {
        let Expression::Static(function, arguments) = &collector.expression else { return Ok(None) };
        let elements = self.elements(node, stream)?;
        Ok(Some(match (function, arguments.as_slice()) {
            (StaticFunction::ToList, []) => self.make_list(&elements)?,
            (StaticFunction::ToSet, []) => {
                let set = self.make_distinct_list(node, elements)?;
                self.mark_set(set)
            }
            (StaticFunction::Joining, separator) => {
                let separator = match separator {
                    [] => "".into(),
                    [separator] => {
                        let separator = self.evaluate(separator)?;
                        self.text_of(&separator)?
                    }
                    _ => return Ok(None),
                };
                let mut joined = String::new();
                for (number, element) in elements.iter().enumerate() {
                    let text = self.text_of(element)?;
                    self.budget().charge(text.len() + separator.len())?;
                    if number > 0 {
                        joined.push_str(&separator);
                    }
                    joined.push_str(&text);
                }
                Operand::Text(joined.into())
            }
            (StaticFunction::ToMap, [key, value]) => {
                let (Expression::Lambda(key), Expression::Lambda(value)) =
                    (&key.expression, &value.expression)
                else {
                    return Ok(None);
                };
                let mut map = Map::new();
                for element in &elements {
                    self.budget().step()?;
                    let found = self.apply(key, std::slice::from_ref(element))?;
                    let name = self.text_of(&found)?;
                    let value = self.apply(value, std::slice::from_ref(element))?;
                    if value == Operand::Null {
                        return Err(self.fail(
                            node,
                            "null_pointer_exception",
                            "a map of a stream has no null",
                        ));
                    }
                    if map.contains_key(&*name) {
                        let reason = format!("Duplicate key {name}");
                        return Err(self.fail(node, "illegal_state_exception", &reason));
                    }
                    self.budget().charge(name.len())?;
                    map.insert(name.to_string(), self.copy_value(&value)?);
                }
                self.make(Value::Object(map))?
            }
            _ => return Ok(None),
        }))
    }
}
