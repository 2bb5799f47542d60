//! The walk over a document: objects, keys and arrays, along the mapping's tree.
//!
//! Recursion is one level an object of the mapping, whose depth is bounded; arrays and everything that
//! is skipped are walked in loops.

use std::hash::BuildHasher;
use std::sync::Arc;

use jiter::{Jiter, Peek};
use millrace_runtime::Error;

use super::ChunkBuilder;
use super::failure::{Failure, ParseResult};
use crate::mapping::{Cause, Child, Dynamic, FieldType, Object, Scope};

/// Deepest nesting of objects and arrays in a document.
pub const MAX_DEPTH: usize = 1000;

/// Names of a document's root that are metadata, given with the request instead.
const METADATA: [&str; 13] = [
    "_doc_count",
    "_feature",
    "_field_names",
    "_id",
    "_ignored",
    "_index",
    "_nested_path",
    "_primary_term",
    "_routing",
    "_seq_no",
    "_source",
    "_type",
    "_version",
];

/// Finds names that occur twice in an object. Mapped ones carry the stamp of the object that had them
/// last; others are compared by hash.
#[derive(Debug, Default)]
pub(super) struct Keys {
    stamp: u32,
    leaves: Vec<u32>,
    objects: Vec<u32>,
    /// Unmapped names of the objects that are open: hash, and end in `names`.
    unmapped: Vec<(u64, u32)>,
    names: String,
    hasher: foldhash::fast::RandomState,
    /// Objects (true) and arrays being skipped, each object with the start of its names.
    skipped: Vec<Option<usize>>,
}

impl Keys {
    /// Starts a document.
    pub(super) fn begin(&mut self) {
        self.unmapped.clear();
        self.names.clear();
        self.skipped.clear();
        if self.stamp > u32::MAX - (1 << 30) {
            self.leaves.fill(0);
            self.objects.fill(0);
            self.stamp = 0;
        }
    }

    fn open(&mut self) -> u32 {
        self.stamp = self.stamp.saturating_add(1);
        self.stamp
    }

    /// Stamps a mapped name; false where the object of that stamp had it already.
    fn mark(&mut self, child: Child, stamp: u32) -> bool {
        let (stamps, at) = match child {
            Child::Leaf(at) => (&mut self.leaves, at as usize),
            Child::Object(at) => (&mut self.objects, at as usize),
            Child::Alias(_) => return true,
        };
        if at >= stamps.len() {
            stamps.resize((at + 1).next_power_of_two(), 0);
        }
        std::mem::replace(&mut stamps[at], stamp) != stamp
    }

    /// Starts an object: says where its unmapped names will start.
    pub(super) fn open_unmapped(&self) -> usize {
        self.unmapped.len()
    }

    /// Adds an unmapped name. Names are compared when their object ends.
    pub(super) fn add(&mut self, name: &str) {
        self.names.push_str(name);
        self.unmapped.push((self.hasher.hash_one(name), self.names.len() as u32));
    }

    /// Ends an object whose unmapped names start at `from`; returns one that occurs twice.
    fn close(&mut self, from: usize) -> Option<String> {
        let start_of = |at: usize| if at == 0 { 0 } else { self.unmapped[at - 1].1 as usize };
        let first_byte = start_of(from);
        let mut twice = None;
        let names = &self.unmapped[from..];
        if names.len() > 8 {
            let mut hashes: Vec<(u64, usize)> =
                names.iter().enumerate().map(|(at, (hash, _))| (*hash, from + at)).collect();
            hashes.sort_unstable();
            twice = hashes.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1);
        } else {
            for at in 1..names.len() {
                if names[..at].iter().any(|(hash, _)| *hash == names[at].0) {
                    twice = Some(from + at);
                }
            }
        }
        let twice = twice.map(|at| self.names[start_of(at)..self.unmapped[at].1 as usize].to_owned());
        self.unmapped.truncate(from);
        self.names.truncate(first_byte);
        twice
    }
}

/// Target that a key leads to.
enum Target {
    Leaf(u32),
    Object(u32),
    /// The value is kept in the source only.
    Skip,
    /// The value is kept in the source only, and said to be ignored.
    Ignore(Arc<str>),
    /// A name (dotted where objects are missing too) that `object` does not have yet.
    Unknown {
        object: u32,
        name: Box<str>,
        stamp: u32,
    },
}

impl ChunkBuilder {
    pub(super) fn document(&mut self, json: &mut Jiter<'_>, source: &[u8]) -> ParseResult<()> {
        if source.is_empty() {
            return Err(Failure::mapping("failed to parse, document is empty"));
        }
        if json.peek()? != Peek::Object {
            return Err(Failure::mapping("Malformed content, must start with an object"));
        }
        if self.mapping.object(0).enabled {
            self.object(json, 0)?;
        } else {
            self.skip(json)?;
        }
        self.member = 0;
        json.finish()?;
        self.waiting_completions(source)?;
        self.constants(Scope::DOCUMENT)
    }

    /// Parses an object of the document by an object of the mapping.
    pub(super) fn object(&mut self, json: &mut Jiter<'_>, object: u32) -> ParseResult<()> {
        self.enter()?;
        let stamp = self.keys.open();
        let unmapped = self.keys.open_unmapped();
        let mut key = json.known_object()?;
        while let Some(name) = key {
            if self.lenient && self.depth == 1 {
                self.member += 1;
                if self.given_up.contains(&self.member) {
                    self.ignore(name.into());
                    self.skip(json)?;
                    key = json.next_key()?;
                    continue;
                }
            }
            let target = match self.resolve(object, name, stamp)? {
                Ok(target) => target,
                Err(name) => return Err(Box::new(Failure::Duplicate { name, index: json.current_index() })),
            };
            match target {
                Target::Leaf(leaf) if self.wanted.as_ref().is_some_and(|wanted| !wanted.leaf(leaf)) => {
                    self.skip(json)?;
                }
                Target::Object(child) if self.wanted.as_ref().is_some_and(|wanted| !wanted.below(child)) => {
                    self.skip(json)?;
                }
                Target::Leaf(leaf) => self.leaf(json, leaf)?,
                Target::Object(child) => self.objects(json, child)?,
                Target::Skip => self.skip(json)?,
                Target::Ignore(path) => {
                    if json.peek()? != Peek::Null {
                        self.ignore(path);
                    }
                    self.skip(json)?;
                }
                Target::Unknown { object, name, stamp } => self.unknown(json, object, &name, stamp)?,
            }
            key = json.next_key()?;
        }
        self.end_names(json, unmapped)?;
        self.depth -= 1;
        Ok(())
    }

    /// Ends an object whose unmapped names start at `from`, refusing one that occurs twice.
    pub(super) fn end_names(&mut self, json: &Jiter<'_>, from: usize) -> ParseResult<()> {
        match self.keys.close(from) {
            None => Ok(()),
            Some(name) => Err(Box::new(Failure::Duplicate { name, index: json.current_index() })),
        }
    }

    fn enter(&mut self) -> ParseResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Box::new(Failure::TooDeep)) } else { Ok(()) }
    }

    /// Finds what a key of an object leads to. The inner error is a name that occurs twice.
    fn resolve(&mut self, object: u32, key: &str, stamp: u32) -> ParseResult<Result<Target, String>> {
        if let Some(child) = self.mapping.object(object).children.get(key).copied() {
            if !self.keys.mark(child, stamp) {
                return Ok(Err(key.to_owned()));
            }
            return self.target(child).map(Ok);
        }
        if key.contains('.') {
            return self.resolve_dotted(object, key, stamp);
        }
        if key.is_empty() {
            return Err(Failure::rule("field name cannot be an empty string"));
        }
        if object == 0 && key.starts_with('_') && METADATA.binary_search(&key).is_ok() {
            return Err(Failure::mapping(format!(
                "Field [{key}] is a metadata field and cannot be added inside a document. Use the index API request parameters."
            )));
        }
        self.keys.add(key);
        self.missing(object, key, stamp).map(Ok)
    }

    fn target(&self, child: Child) -> ParseResult<Target> {
        Ok(match child {
            Child::Leaf(leaf) => Target::Leaf(leaf),
            Child::Object(object) if !self.mapping.object(object).enabled => Target::Skip,
            Child::Object(object) => Target::Object(object),
            Child::Alias(alias) if self.lenient => Target::Ignore(self.mapping.alias_path(alias).into()),
            Child::Alias(alias) => {
                return Err(Failure::rule(format!(
                    "Cannot write to a field alias [{}].",
                    self.mapping.alias_path(alias)
                )));
            }
        })
    }

    /// Decides what happens to a name that an object does not have.
    fn missing(&self, object: u32, name: &str, stamp: u32) -> ParseResult<Target> {
        match self.mapping.dynamic(object) {
            Dynamic::True | Dynamic::StrictAllowTemplates => {
                Ok(Target::Unknown { object, name: name.into(), stamp })
            }
            Dynamic::False => Ok(Target::Skip),
            Dynamic::Strict if self.lenient => Ok(Target::Skip),
            Dynamic::Strict => {
                let first = name.split('.').next().unwrap_or(name);
                Err(Box::new(Failure::Mapping(self.strict_refusal(object, first))))
            }
        }
    }

    /// The refusal of a field that an object does not have and may not get.
    pub(super) fn strict_refusal(&self, object: u32, name: &str) -> Error {
        let parent = &self.mapping.object(object).path;
        Error::StrictDynamicMapping {
            field: name.to_owned(),
            parent: if parent.is_empty() { "_doc".to_owned() } else { parent.to_string() },
        }
    }

    fn resolve_dotted(&mut self, object: u32, key: &str, stamp: u32) -> ParseResult<Result<Target, String>> {
        check_dotted(key)?;
        let mut at = object;
        let mut rest = key;
        loop {
            let (name, below) = match rest.split_once('.') {
                Some((name, below)) => (name, Some(below)),
                None => (rest, None),
            };
            let child = self.mapping.object(at).children.get(name).copied();
            match (child, below) {
                (None, _) => {
                    self.keys.add(key);
                    return self.missing(at, rest, stamp).map(Ok);
                }
                (Some(child), None) => {
                    if !self.keys.mark(child, stamp) {
                        return Ok(Err(key.to_owned()));
                    }
                    return self.target(child).map(Ok);
                }
                (Some(Child::Object(child)), Some(below)) => {
                    let object: &Object = self.mapping.object(child);
                    if !object.enabled {
                        self.keys.add(key);
                        return Ok(Ok(Target::Skip));
                    }
                    if object.nested.is_some() && self.lenient {
                        self.keys.add(key);
                        return Ok(Ok(Target::Ignore(object.path.clone())));
                    }
                    if object.nested.is_some() {
                        return Err(Failure::mapping(format!(
                            "Cannot add a value for field [{key}] since one of the intermediate objects is mapped as a nested object: [{}]",
                            object.path
                        )));
                    }
                    at = child;
                    rest = below;
                }
                (Some(child @ Child::Leaf(leaf)), Some(_)) => {
                    let leaf = self.mapping.leaf(leaf);
                    if self.overflows(leaf.object) {
                        self.keys.add(key);
                        let above = &self.mapping.object(object).path;
                        let path = if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") };
                        return Ok(Ok(Target::Ignore(path.into())));
                    }
                    if let Some(failure) = self.contradiction(child) {
                        return Err(failure);
                    }
                    return Err(Failure::mapping(format!(
                        "Could not dynamically add mapping for field [{key}]. Existing mapping for [{}] must be of type object but found [{}].",
                        leaf.field.path,
                        leaf.field.type_name()
                    )));
                }
                (Some(child @ Child::Alias(_)), Some(_)) => return self.target(child).map(Ok),
            }
        }
    }

    /// Returns whether what does not fit is kept in the source instead of refused (`index.mapping.overflow: store`, where dynamic
    /// mapping is on).
    pub(super) fn overflows(&self, object: u32) -> bool {
        self.lenient || self.mapping.settings().overflow && self.mapping.dynamic(object) == Dynamic::True
    }

    /// Hands every value of a possibly nested array to `each`, or the one value that is none.
    pub(super) fn flatten<'j>(
        &mut self,
        json: &mut Jiter<'j>,
        mut each: impl FnMut(&mut Self, &mut Jiter<'j>, Peek) -> ParseResult<()>,
    ) -> ParseResult<()> {
        let mut peek = json.peek()?;
        if peek != Peek::Array {
            return each(self, json, peek);
        }
        let mut open = 0usize;
        loop {
            let mut next = if peek == Peek::Array {
                self.enter()?;
                open += 1;
                json.known_array()?
            } else {
                each(self, json, peek)?;
                json.array_step()?
            };
            // Arrays end one after another; the outermost ends the loop.
            loop {
                if let Some(value) = next {
                    peek = value;
                    break;
                }
                self.depth -= 1;
                open -= 1;
                if open == 0 {
                    return Ok(());
                }
                next = json.array_step()?;
            }
        }
    }

    /// Parses the value of an object of the mapping: an object, or arrays of them.
    pub(super) fn objects(&mut self, json: &mut Jiter<'_>, object: u32) -> ParseResult<()> {
        self.flatten(json, |builder, json, peek| builder.one_object(json, object, peek))
    }

    pub(super) fn one_object(&mut self, json: &mut Jiter<'_>, object: u32, peek: Peek) -> ParseResult<()> {
        match peek {
            Peek::Object => {
                if let Some(path) = self.mapping.object(object).nested_id {
                    self.nested += 1;
                    let limit = self.mapping.settings().nested_objects;
                    if self.nested > limit && !self.lenient {
                        return Err(Failure::mapping(format!(
                            "The number of nested documents has exceeded the allowed limit of [{limit}]. This limit can be set by changing the [index.mapping.nested_objects.limit] index level setting."
                        )));
                    }
                    let outer = self.mapping.enclosing_nested(self.mapping.object(object));
                    self.columns.open(path, outer);
                    self.object(json, object)?;
                    return self.constants(Scope::of_nested(path));
                }
                self.object(json, object)
            }
            Peek::Null => Ok(json.known_null()?),
            _ => {
                let mapped = self.mapping.object(object);
                if self.overflows(mapped.parent) {
                    let path = mapped.path.clone();
                    self.ignore(path);
                    return self.skip(json);
                }
                if let Some(failure) = self.contradiction(Child::Object(object)) {
                    return Err(failure);
                }
                Err(Failure::mapping(format!(
                    "object mapping for [{}] tried to parse field [{}] as object, but found a concrete value",
                    mapped.path, mapped.name
                )))
            }
        }
    }

    /// Passes over a value, checking that it is JSON.
    pub(super) fn skip(&mut self, json: &mut Jiter<'_>) -> ParseResult<()> {
        let base = self.keys.skipped.len();
        let mut peek = json.peek()?;
        loop {
            // One value, or the opening of one.
            match peek {
                Peek::Object => {
                    self.enter()?;
                    let from = self.keys.open_unmapped();
                    self.keys.skipped.push(Some(from));
                    if let Some(name) = json.known_object()? {
                        self.keys.add(name);
                        peek = json.peek()?;
                        continue;
                    }
                    self.end_skipped(json)?;
                }
                Peek::Array => {
                    self.enter()?;
                    self.keys.skipped.push(None);
                    if let Some(first) = json.known_array()? {
                        peek = first;
                        continue;
                    }
                    self.end_skipped(json)?;
                }
                Peek::String => {
                    json.known_str()?;
                }
                Peek::Null => json.known_null()?,
                Peek::True | Peek::False => {
                    json.known_bool(peek)?;
                }
                _ => {
                    json.known_number_bytes(peek)?;
                }
            }
            // On to the next value, through the ends of what is open.
            loop {
                if self.keys.skipped.len() == base {
                    return Ok(());
                }
                if let Some(Some(_)) = self.keys.skipped.last() {
                    if let Some(name) = json.next_key()? {
                        self.keys.add(name);
                        peek = json.peek()?;
                        break;
                    }
                } else if let Some(next) = json.array_step()? {
                    peek = next;
                    break;
                }
                self.end_skipped(json)?;
            }
        }
    }

    fn end_skipped(&mut self, json: &Jiter<'_>) -> ParseResult<()> {
        self.depth -= 1;
        match self.keys.skipped.pop() {
            Some(Some(from)) => self.end_names(json, from),
            _ => Ok(()),
        }
    }

    /// Stamps a node that was just added for a key.
    pub(super) fn stamp(&mut self, child: Child, stamp: u32) {
        self.keys.mark(child, stamp);
    }

    /// The refusal of an object, or of what an unfinished array holds, where a leaf wants a value; passes
    /// over it where it is to be kept in the source only.
    pub(super) fn object_for_leaf(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        let start = json.current_index();
        self.skip(json)?;
        let object = self.mapping.leaf(leaf).object;
        // The setting of the index takes objects in, too; the parameter of a field is about its scalars.
        if self.mapping.settings().ignore_malformed || self.overflows(object) {
            let path = self.mapping.leaf(leaf).field.path.clone();
            self.ignore(path);
            return Ok(());
        }
        let place = json.error_position(start).short();
        let cause = match self.mapping.leaf(leaf).field.field_type {
            FieldType::Byte
            | FieldType::Short
            | FieldType::Integer
            | FieldType::Long
            | FieldType::TokenCount
            | FieldType::UnsignedLong
            | FieldType::HalfFloat
            | FieldType::Float
            | FieldType::Double
            | FieldType::ScaledFloat { .. } => Cause::argument("Cannot parse object as number"),
            FieldType::Boolean => Cause::new(
                "json_parse_exception",
                format!("Current token (START_OBJECT) not of boolean type\n at [{place}]"),
            ),
            _ => {
                Cause::new("illegal_state_exception", format!("Can't get text on a START_OBJECT at {place}"))
            }
        };
        let preview = super::failure::preview(json.slice_to_current(start));
        Err(self.misfit(leaf, preview, cause))
    }
}

/// Refuses empty parts of a dotted name.
fn check_dotted(key: &str) -> ParseResult<()> {
    if key.bytes().all(|b| b == b'.') {
        return Err(Failure::rule("field name cannot contain only the character [.]"));
    }
    for part in key.split('.') {
        if part.is_empty() {
            return Err(Failure::rule(format!(
                "object field starting or ending with a [.] makes object resolution ambiguous: [{key}]"
            )));
        }
        if part.trim().is_empty() {
            return Err(Failure::rule(format!("object field cannot contain only whitespace: ['{key}']")));
        }
    }
    Ok(())
}
