//! Objects of a script that are no values of documents: builders and tokenizers of texts, iterators, streams, patterns.
//!
//! A script holds an object by its number. A stream is a list of operands: its steps run when they are called.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::evaluate::Machine;
use super::memory::{MAX_LOCALS, Operand, PathStep, Reference, Root};
use super::pattern::{Matcher, ScriptPattern};
use super::tree::{Class, Node};
use crate::document::VALUE_BYTES;
use crate::error::{ProcessorError, Result};

/// An object.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Builder(String),
    Tokenizer(VecDeque<Arc<str>>),
    Iterator(ElementIterator),
    /// Elements of a stream, or of an array of characters, with the number of moves before.
    Stream(Arc<[Operand]>, usize),
    Pattern(Arc<ScriptPattern>),
    Matcher(Matcher),
}

/// Elements of a list or map, with the position in them.
#[derive(Clone, Debug)]
pub(super) struct ElementIterator {
    elements: Arc<[Operand]>,
    position: usize,
    source: Option<Reference>,
    /// Elements that were removed of the source.
    removed: usize,
    /// `true` if there is an element to remove: the last one, once.
    can_remove: bool,
    moves: usize,
}

impl Object {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Builder(_) => "java.lang.StringBuilder",
            Self::Tokenizer(_) => "java.util.StringTokenizer",
            Self::Iterator(_) => "java.util.Iterator",
            Self::Stream(..) => "java.util.stream.Stream",
            Self::Pattern(_) => "java.util.regex.Pattern",
            Self::Matcher(_) => "java.util.regex.Matcher",
        }
    }
}

impl Machine<'_> {
    pub(super) fn create_map(&mut self, members: &[(Node, Node)]) -> Result<Operand> {
        let mut map = Map::new();
        for (key, member) in members {
            let key = self.evaluate(key)?;
            let member = self.evaluate(member)?;
            let key = self.text_of(&key)?;
            self.budget().charge(key.len())?;
            map.insert(key.to_string(), self.copy_value(&member)?);
        }
        self.make(Value::Object(map))
    }

    /// Makes an object of a class.
    pub(super) fn create(&mut self, node: &Node, class: Class, arguments: &[Node]) -> Result<Operand> {
        let arguments = self.evaluate_all(arguments)?;
        let source = arguments.first();
        match (class, arguments.as_slice()) {
            (Class::StringBuilder, _) => self.make_builder(node, source),
            (Class::StringTokenizer, [text]) => self.make_tokenizer(node, text, " \t\n\r\u{c}"),
            (Class::StringTokenizer, [text, delimiters, ..]) => {
                let delimiters = self.text_of(delimiters)?;
                self.make_tokenizer(node, text, &delimiters)
            }
            (Class::Map, [source @ Operand::Reference(_)]) => {
                let copy = self.copy_value(source)?;
                self.make(copy)
            }
            (Class::Map, _) => self.make(Value::Object(Map::new())),
            (Class::Set, [source @ (Operand::Reference(_) | Operand::View(..) | Operand::Object(_))]) => {
                let elements = self.elements(node, source)?;
                let set = self.make_distinct_list(node, elements)?;
                Ok(self.mark_set(set))
            }
            (Class::Set, _) => {
                let set = self.make(Value::Array(Vec::new()))?;
                Ok(self.mark_set(set))
            }
            (_, [source @ (Operand::Reference(_) | Operand::View(..) | Operand::Object(_))]) => {
                let elements = self.elements(node, source)?;
                self.make_list(&elements)
            }
            _ => self.make(Value::Array(Vec::new())),
        }
    }

    /// Has a new list be a set.
    pub(super) fn mark_set(&mut self, set: Operand) -> Operand {
        if let Operand::Reference(Reference { root: Root::Local(number), .. }) = &set {
            self.sets.push(*number);
        }
        set
    }

    /// Returns the object of a pattern, which is made once.
    pub(super) fn pattern(&mut self, pattern: &Arc<ScriptPattern>) -> Result<Operand> {
        let address = Arc::as_ptr(pattern);
        if let Some((_, number)) = self.patterns.iter().find(|(known, _)| *known == address) {
            return Ok(Operand::Object(*number));
        }
        let made = self.make_object(Object::Pattern(Arc::clone(pattern)))?;
        if let Operand::Object(number) = made {
            self.patterns.push((address, number));
        }
        Ok(made)
    }

    /// Adds an object.
    pub(super) fn make_object(&mut self, object: Object) -> Result<Operand> {
        if self.objects.len() == MAX_LOCALS {
            return Err(ProcessorError::exceeded(format!("a script makes more than {MAX_LOCALS} objects")));
        }
        self.budget().charge(VALUE_BYTES)?;
        self.objects.push(object);
        Ok(Operand::Object(self.objects.len() - 1))
    }

    /// Makes a stream of elements.
    pub(super) fn make_stream(&mut self, elements: Vec<Operand>) -> Result<Operand> {
        self.budget().charge(elements.len().saturating_mul(std::mem::size_of::<Operand>()))?;
        self.make_object(Object::Stream(elements.into(), self.moves.len()))
    }

    /// Makes a builder of a text.
    pub(super) fn make_builder(&mut self, node: &Node, source: Option<&Operand>) -> Result<Operand> {
        let text = match source {
            None | Some(Operand::Int(_)) => String::new(),
            Some(Operand::Null) => return Err(self.fail(node, "null_pointer_exception", "a text is null")),
            Some(source) => self.text_of(source)?.to_string(),
        };
        self.budget().charge(text.len())?;
        self.make_object(Object::Builder(text))
    }

    /// Makes a tokenizer: of the texts between the characters of `delimiters`.
    pub(super) fn make_tokenizer(
        &mut self,
        node: &Node,
        text: &Operand,
        delimiters: &str,
    ) -> Result<Operand> {
        let (Operand::Text(_) | Operand::Char(_)) = text else {
            return Err(self.fail(node, "null_pointer_exception", "a StringTokenizer takes a text"));
        };
        let text = self.text_of(text)?;
        let tokens = || text.split(|letter| delimiters.contains(letter)).filter(|token| !token.is_empty());
        self.budget().charge(text.len().saturating_add(tokens().count().saturating_mul(VALUE_BYTES)))?;
        self.make_object(Object::Tokenizer(tokens().map(Arc::from).collect()))
    }

    /// Makes an iterator over the elements of a list or map.
    pub(super) fn make_iterator(&mut self, node: &Node, of: &Operand) -> Result<Operand> {
        let elements = self.elements(node, of)?.into();
        let source = of.reference().cloned();
        self.make_object(Object::Iterator(ElementIterator {
            elements,
            position: 0,
            source,
            removed: 0,
            can_remove: false,
            moves: self.moves.len(),
        }))
    }

    /// Refuses elements that have left their places since they were listed.
    pub(super) fn check_moves(&mut self, node: &Node, elements: &[Operand], moves: usize) -> Result<()> {
        match self.have_moved(elements, moves)? {
            true => {
                let reason =
                    "lists or maps were changed since the stream or iterator was made: collect it before";
                Err(self.fail(node, "concurrent_modification_exception", reason))
            }
            false => Ok(()),
        }
    }

    pub(super) fn object(&self, number: usize) -> Option<&Object> {
        self.objects.get(number)
    }

    /// Calls a method of an object; `None` where it has no such method.
    pub(super) fn call_object(
        &mut self,
        node: &Node,
        number: usize,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        match self.objects.get(number) {
            None => Ok(None),
            Some(Object::Builder(_)) => self.call_builder(node, number, name, arguments),
            Some(Object::Tokenizer(_)) => self.call_tokenizer(node, number, name, arguments),
            Some(Object::Iterator(_)) => self.call_iterator(node, number, name, arguments),
            Some(Object::Stream(elements, moves)) => {
                let (elements, moves) = (Arc::clone(elements), *moves);
                self.check_moves(node, &elements, moves)?;
                self.call_stream(node, &elements, name, arguments)
            }
            Some(Object::Pattern(pattern)) => {
                let pattern = Arc::clone(pattern);
                self.call_pattern(&pattern, name, arguments)
            }
            Some(Object::Matcher(matcher)) => {
                let mut matcher = matcher.clone();
                let result = self.call_matcher(node, &mut matcher, name, arguments)?;
                if let Some(object) = self.objects.get_mut(number) {
                    *object = Object::Matcher(matcher);
                }
                Ok(result)
            }
        }
    }

    fn call_builder(
        &mut self,
        node: &Node,
        number: usize,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        if let ("append", [value]) = (name, arguments) {
            let more = self.text_of(value)?;
            self.budget().charge(more.len())?;
            if let Some(Object::Builder(text)) = self.objects.get_mut(number) {
                text.push_str(&more);
            }
            return Ok(Some(Operand::Object(number)));
        }
        let Some(Object::Builder(text)) = self.objects.get(number) else { return Ok(None) };
        let length = text.len();
        self.budget().charge_read(length)?;
        let Some(Object::Builder(text)) = self.objects.get_mut(number) else { return Ok(None) };
        Ok(Some(match (name, arguments) {
            ("length", []) => Operand::Int(text.chars().count() as i64),
            ("reverse", []) => {
                *text = text.chars().rev().collect();
                Operand::Object(number)
            }
            ("setLength", [Operand::Int(0)]) => {
                text.clear();
                Operand::Null
            }
            ("setCharAt", [Operand::Int(at), Operand::Char(letter)]) => {
                self.replace_letter(node, number, *at, Some(*letter))?;
                Operand::Null
            }
            ("deleteCharAt", [Operand::Int(at)]) => {
                self.replace_letter(node, number, *at, None)?;
                Operand::Object(number)
            }
            _ => {
                let text = self.text_of(&Operand::Object(number))?;
                return self.call_text(node, &text, name, arguments);
            }
        }))
    }

    /// Replaces or removes a character of a builder.
    fn replace_letter(
        &mut self,
        node: &Node,
        number: usize,
        at: i64,
        replacement: Option<char>,
    ) -> Result<()> {
        let Some(Object::Builder(text)) = self.objects.get_mut(number) else { return Ok(()) };
        let start = usize::try_from(at).ok().and_then(|at| text.char_indices().nth(at));
        let Some((start, letter)) = start else {
            let reason = format!("index {at}, length {}", text.chars().count());
            return Err(self.fail(node, "string_index_out_of_bounds_exception", &reason));
        };
        let mut letters = [0; 4];
        let with = replacement.map_or("", |letter| letter.encode_utf8(&mut letters));
        text.replace_range(start..start + letter.len_utf8(), with);
        Ok(())
    }

    fn call_tokenizer(
        &mut self,
        node: &Node,
        number: usize,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let Some(Object::Tokenizer(tokens)) = self.objects.get_mut(number) else { return Ok(None) };
        Ok(Some(match (name, arguments) {
            ("nextToken" | "nextElement", []) => match tokens.pop_front() {
                Some(token) => Operand::Text(token),
                None => {
                    return Err(self.fail(node, "no_such_element_exception", "there is no further token"));
                }
            },
            ("countTokens", []) => Operand::Int(tokens.len() as i64),
            ("hasMoreTokens" | "hasMoreElements", []) => Operand::Bool(!tokens.is_empty()),
            _ => return Ok(None),
        }))
    }

    fn call_iterator(
        &mut self,
        node: &Node,
        number: usize,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let Some(Object::Iterator(iterator)) = self.objects.get(number) else { return Ok(None) };
        if matches!(name, "next" | "remove") {
            let (elements, moves) = (Arc::clone(&iterator.elements), iterator.moves);
            self.check_moves(node, &elements, moves)?;
        }
        let moves = self.moves.len();
        let Some(Object::Iterator(iterator)) = self.objects.get_mut(number) else { return Ok(None) };
        let could_remove = iterator.can_remove;
        if name != "hasNext" {
            iterator.moves = moves;
            iterator.can_remove = name == "next";
        }
        Ok(Some(match (name, arguments) {
            ("hasNext", []) => Operand::Bool(iterator.position < iterator.elements.len()),
            ("next", []) => {
                let Some(element) = iterator.elements.get(iterator.position).cloned() else {
                    return Err(self.fail(node, "no_such_element_exception", "there is no further element"));
                };
                iterator.position += 1;
                // Behind removed items of a list the others have moved.
                match (element, iterator.removed) {
                    (Operand::Reference(mut reference), removed @ 1..) => {
                        if let Some(PathStep::Position(position)) = reference.path.last_mut() {
                            *position = position.saturating_sub(removed);
                        }
                        Operand::Reference(reference)
                    }
                    (element, _) => element,
                }
            }
            ("remove", []) => {
                let last = iterator.position.checked_sub(1).filter(|_| could_remove);
                let (Some(last), Some(source)) = (last, iterator.source.clone()) else {
                    return Err(self.fail(node, "illegal_state_exception", "there is no element to remove"));
                };
                let is_list = matches!(self.view(&source), Some(Value::Array(_)));
                let Some(Object::Iterator(iterator)) = self.objects.get_mut(number) else { return Ok(None) };
                let step = match iterator.elements.get(last) {
                    _ if is_list => PathStep::Position(last.saturating_sub(iterator.removed)),
                    Some(Operand::Entry(_, key) | Operand::Text(key)) => PathStep::Key(Arc::clone(key)),
                    _ => return Ok(None),
                };
                iterator.removed += usize::from(is_list);
                self.remove_member(node, &source, &step)?;
                let moves = self.moves.len();
                if let Some(Object::Iterator(iterator)) = self.objects.get_mut(number) {
                    iterator.moves = moves;
                }
                Operand::Null
            }
            _ => return Ok(None),
        }))
    }
}
