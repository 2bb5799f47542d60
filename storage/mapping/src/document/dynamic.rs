//! Fields that the mapping does not know: what they become, and their values.

use std::sync::Arc;

use jiter::{Jiter, Peek};
use millrace_runtime::Error;

use super::ChunkBuilder;
use super::failure::{Failure, ParseResult};
use super::leaf::number_text;
use crate::mapping::{Child, DateFormat, DetectedType, Dynamic, FieldType, Token, values};

impl ChunkBuilder {
    /// Parses the value of a name that `object` does not have; adds the field at its first value.
    pub(super) fn unknown(
        &mut self,
        json: &mut Jiter<'_>,
        object: u32,
        name: &str,
        stamp: u32,
    ) -> ParseResult<()> {
        // A template may turn arrays of numbers into points; nothing else reads an array as a whole.
        if json.peek()? == Peek::Array
            && !self.mapping.templates().is_empty()
            && self.array_is_point(object, name)?
        {
            let added = self.add(object, name, DetectedType::Object, None)?;
            return match added {
                Some(Child::Leaf(leaf)) => {
                    self.stamp(Child::Leaf(leaf), stamp);
                    self.leaf(json, leaf)
                }
                _ => self.skip(json),
            };
        }
        self.flatten(json, |builder, json, peek| builder.unknown_value(json, object, name, stamp, peek))
    }

    fn array_is_point(&self, object: u32, name: &str) -> ParseResult<bool> {
        let path = self.path_below(object, name);
        let simple = name.rsplit('.').next().unwrap_or(name);
        let spec = values::choose(
            self.mapping.templates(),
            &path,
            simple,
            DetectedType::Object,
            None,
            self.mapping.context(),
        );
        Ok(spec.is_ok_and(|spec| spec.is_leaf_of(&FieldType::GeoPoint)))
    }

    fn unknown_value(
        &mut self,
        json: &mut Jiter<'_>,
        object: u32,
        name: &str,
        stamp: u32,
        peek: Peek,
    ) -> ParseResult<()> {
        let known = self.find_below(object, name);
        match peek {
            Peek::Null => match known {
                Some(Child::Leaf(leaf)) => self.scalar_or_structure(json, leaf, peek),
                _ => Ok(json.known_null()?),
            },
            Peek::Object => {
                let child = match known {
                    Some(child) => Some(child),
                    None => self.add(object, name, DetectedType::Object, None)?,
                };
                match child {
                    Some(child) => {
                        self.stamp(child, stamp);
                        match child {
                            Child::Object(at) if !self.mapping.object(at).enabled => self.skip(json),
                            Child::Object(at) => self.one_object(json, at, peek),
                            Child::Leaf(leaf) => {
                                match self.contradiction(child).filter(|_| known.is_some()) {
                                    Some(failure) if !self.is_structured(leaf) => Err(failure),
                                    _ => self.scalar_or_structure(json, leaf, peek),
                                }
                            }
                            Child::Alias(_) => {
                                Err(Failure::rule(format!("Cannot write to a field alias [{name}].")))
                            }
                        }
                    }
                    None => self.skip(json),
                }
            }
            _ => {
                let token = match peek {
                    Peek::String => Token::Str(json.known_str()?),
                    Peek::True | Peek::False => Token::Bool(json.known_bool(peek)?),
                    _ => Token::Number(number_text(json, peek)?),
                };
                let child = match known {
                    Some(child) => Some(child),
                    None => self.add_for(object, name, token)?,
                };
                match child {
                    Some(Child::Leaf(leaf)) => {
                        self.stamp(Child::Leaf(leaf), stamp);
                        self.put(leaf, token)
                    }
                    Some(Child::Object(at)) => {
                        let mapped = self.mapping.object(at);
                        if self.overflows(object) {
                            let path = mapped.path.clone();
                            self.ignore(path);
                            return Ok(());
                        }
                        if let Some(failure) = self.contradiction(Child::Object(at)) {
                            return Err(failure);
                        }
                        Err(Failure::mapping(format!(
                            "object mapping for [{}] tried to parse field [{}] as object, but found a concrete value",
                            mapped.path, mapped.name
                        )))
                    }
                    Some(Child::Alias(_)) => {
                        Err(Failure::rule(format!("Cannot write to a field alias [{name}].")))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// Returns true if an object may be a value of a field.
    fn is_structured(&self, leaf: u32) -> bool {
        matches!(
            self.mapping.leaf(leaf).field.field_type,
            FieldType::GeoPoint
                | FieldType::FlatObject
                | FieldType::Completion
                | FieldType::RankFeatures
                | FieldType::Range(_)
        )
    }

    fn scalar_or_structure(&mut self, json: &mut Jiter<'_>, leaf: u32, peek: Peek) -> ParseResult<()> {
        match self.mapping.leaf(leaf).field.field_type {
            FieldType::GeoPoint => self.point(json, leaf, peek),
            FieldType::FlatObject => self.flat_object(json, leaf, peek),
            FieldType::Completion => self.completions(json, leaf),
            FieldType::RankFeatures => self.features(json, leaf),
            FieldType::Range(_) => self.range(json, leaf, peek),
            _ => self.scalar(json, leaf, peek),
        }
    }

    /// Adds a field for a value that is copied to it by full path.
    pub(super) fn add_for_copy(&mut self, path: &str, token: Token<'_>) -> ParseResult<Option<u32>> {
        let (mut object, mut rest) = (0, path);
        while let Some((name, below)) = rest.split_once('.') {
            match self.mapping.object(object).children.get(name).copied() {
                Some(Child::Object(child)) => (object, rest) = (child, below),
                Some(_) => {
                    return Err(Failure::mapping(format!(
                        "Could not dynamically add mapping for field [{path}]. Existing mapping for [{name}] must be of type object."
                    )));
                }
                None => break,
            }
        }
        match self.mapping.dynamic(object) {
            Dynamic::True | Dynamic::StrictAllowTemplates => {}
            Dynamic::False => return Ok(None),
            Dynamic::Strict if self.lenient => return Ok(None),
            Dynamic::Strict => {
                return Err(Box::new(Failure::Mapping(self.strict_refusal(object, rest))));
            }
        }
        match self.add_for(object, rest, token)? {
            Some(Child::Leaf(leaf)) => Ok(Some(leaf)),
            _ => Ok(None),
        }
    }

    /// Adds a field of the type that a scalar suggests.
    fn add_for(&mut self, object: u32, name: &str, token: Token<'_>) -> ParseResult<Option<Child>> {
        let (seen, format) = detect(&self.mapping, token);
        // The mapping is about to grow: it must not be borrowed, and a format is only cloned for a new
        // date field.
        let format = format.cloned();
        self.add(object, name, seen, format.as_ref())
    }

    /// Adds a field below an object, with the objects that its dotted name lacks. `None` where it does
    /// not fit, or none may be added, and is kept in the source only.
    fn add(
        &mut self,
        object: u32,
        name: &str,
        seen: DetectedType,
        format: Option<&DateFormat>,
    ) -> ParseResult<Option<Child>> {
        let overflows = self.overflows(object);
        if !self.grows && !overflows {
            return Ok(None);
        }
        if !self.grows || self.mapping.is_full() && overflows {
            let path = self.path_below(object, name);
            self.ignore(path.into());
            return Ok(None);
        }
        let mark = self.mapping.mark();
        match self.try_add(object, name, seen, format) {
            Ok(child) => Ok(Some(child)),
            Err(_) if overflows => {
                self.forget_fields(mark);
                let path = self.path_below(object, name);
                self.ignore(path.into());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn try_add(
        &mut self,
        object: u32,
        name: &str,
        seen: DetectedType,
        format: Option<&DateFormat>,
    ) -> millrace_runtime::Result<Child> {
        let mut at = object;
        let mut parts = name.split('.').peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            if !is_last
                && let Some(Child::Object(child)) = self.mapping.object(at).children.get(part).copied()
            {
                at = child;
                continue;
            }
            let path = self.path_below(at, part);
            let (seen, format) = if is_last { (seen, format) } else { (DetectedType::Object, None) };
            if self.mapping.dynamic(at) == Dynamic::StrictAllowTemplates
                && !values::is_templated(self.mapping.templates(), &path, part, seen)
            {
                return Err(self.strict_refusal(at, part));
            }
            let spec =
                values::choose(self.mapping.templates(), &path, part, seen, format, self.mapping.context())?;
            let mark = self.mapping.mark();
            let mapping = Arc::make_mut(&mut self.mapping);
            let child = mapping.add(at, part, spec, None)?;
            mapping.check_limits(mark)?;
            match child {
                _ if is_last => return Ok(child),
                Child::Object(child) => at = child,
                _ => {
                    return Err(Error::mapper_parsing(format!(
                        "Could not dynamically add mapping for field [{name}]. Existing mapping for [{path}] must be of type object."
                    )));
                }
            }
        }
        Err(Error::Internal(format!("no field in the name [{name}]")))
    }

    fn path_below(&self, object: u32, name: &str) -> String {
        let above = &self.mapping.object(object).path;
        if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
    }

    /// Finds what a (dotted) name leads to below an object.
    fn find_below(&self, object: u32, name: &str) -> Option<Child> {
        let mut at = object;
        let mut rest = name;
        loop {
            let Some((first, below)) = rest.split_once('.') else {
                return self.mapping.object(at).children.get(rest).copied();
            };
            match self.mapping.object(at).children.get(first).copied()? {
                Child::Object(child) => (at, rest) = (child, below),
                _ => return None,
            }
        }
    }
}

/// Says what a scalar looks like, and by which format where it is a date.
fn detect<'m>(
    mapping: &'m crate::mapping::Mapping,
    token: Token<'_>,
) -> (DetectedType, Option<&'m DateFormat>) {
    match token {
        Token::Bool(_) => (DetectedType::Boolean, None),
        Token::Number(text) if text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) => {
            (DetectedType::Double, None)
        }
        Token::Number(_) => (DetectedType::Long, None),
        Token::Str(text) => {
            let is_long = text.parse::<i64>().is_ok();
            let is_double =
                is_long || values::float(&FieldType::Double, token, true).is_ok_and(|v| v.is_some());
            if mapping.numeric_detection() && is_double {
                return (if is_long { DetectedType::Long } else { DetectedType::Double }, None);
            }
            if !is_double && mapping.date_detection() && may_be_date(text) {
                let formats = mapping.dynamic_date_formats();
                if let Some(format) = formats.iter().find(|format| format.reads(text)) {
                    return (DetectedType::Date, Some(format));
                }
            }
            (DetectedType::String, None)
        }
    }
}

/// Leaves out what no date format reads, before trying each.
fn may_be_date(text: &str) -> bool {
    text.len() <= 128 && text.bytes().any(|b| b.is_ascii_digit())
}
