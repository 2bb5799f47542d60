//! Schemas of Avro 1.11: JSON to types. Names refer to types that were defined before.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Largest schema, in bytes.
pub(super) const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Deepest nesting of a schema.
const MAX_DEPTH: usize = 64;
/// Most named types of a schema.
const MAX_NAMED: usize = 10_000;

/// Type of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Vec<Type>),
    /// A record, an enumeration or a fixed value, by its number.
    Named(usize),
    /// Days since 1970.
    Date,
    TimestampMillis,
    TimestampMicros,
}

/// A named type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Definition {
    Record(Vec<RecordField>),
    Enumeration(Vec<String>),
    /// Bytes of this number.
    Fixed(usize),
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordField {
    pub(super) name: String,
    pub(super) kind: Type,
    pub(super) default: Option<Value>,
}

/// A schema: its type, and the named types in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Schema {
    pub(super) root: Type,
    pub(super) definitions: Vec<Definition>,
}

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// The text is no JSON, or no schema, with the part that is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("the schema exceeds {MAX_SCHEMA_BYTES} bytes"));
        }
        let json: Value =
            serde_json::from_str(text).map_err(|error| format!("the schema is no JSON: {error}"))?;
        let mut parser = SchemaParser { definitions: Vec::new(), names: HashMap::new() };
        let root = parser.parse(&json, "", MAX_DEPTH)?;
        Ok(Self { root, definitions: parser.definitions })
    }
}

struct SchemaParser {
    definitions: Vec<Definition>,
    /// Numbers of named types, by their full names.
    names: HashMap<String, usize>,
}

impl SchemaParser {
    fn parse(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<Type, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("the schema is nested deeper than {MAX_DEPTH} levels"));
        };
        match json {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let branches: Result<Vec<Type>, String> =
                    branches.iter().map(|branch| self.parse(branch, namespace, depth)).collect();
                Ok(Type::Union(branches?))
            }
            Value::Object(members) => self.object(members, namespace, depth),
            other => Err(format!("[{other}] is no type")),
        }
    }

    fn named(&self, name: &str, namespace: &str) -> Result<Type, String> {
        if let Some(primitive) = primitive(name) {
            return Ok(primitive);
        }
        let number = self.names.get(&full_name(name, namespace)).or_else(|| self.names.get(name));
        number.map(|number| Type::Named(*number)).ok_or_else(|| format!("there is no type [{name}]"))
    }

    fn object(
        &mut self,
        members: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<Type, String> {
        let kind = members.get("type").ok_or("a type has no member [type]")?;
        let Value::String(kind) = kind else { return self.parse(kind, namespace, depth) };
        let inner =
            |name: &str| members.get(name).ok_or_else(|| format!("[{kind}] needs the member [{name}]"));
        match kind.as_str() {
            "array" => Ok(Type::Array(Box::new(self.parse(inner("items")?, namespace, depth)?))),
            "map" => Ok(Type::Map(Box::new(self.parse(inner("values")?, namespace, depth)?))),
            "record" | "error" => self.record(members, namespace, depth),
            "enum" => {
                let symbols = inner("symbols")?.as_array().map(Vec::as_slice).unwrap_or_default();
                let symbols = symbols.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                self.define(members, namespace, Definition::Enumeration(symbols))
                    .map(|(number, _)| Type::Named(number))
            }
            "fixed" => {
                let size = inner("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or("[size] of [fixed] must be a number")?;
                self.define(members, namespace, Definition::Fixed(size))
                    .map(|(number, _)| Type::Named(number))
            }
            name => {
                let plain = self.named(name, namespace)?;
                let logical = members.get("logicalType").and_then(Value::as_str);
                Ok(match (plain, logical) {
                    (Type::Int, Some("date")) => Type::Date,
                    (Type::Long, Some("timestamp-millis")) => Type::TimestampMillis,
                    (Type::Long, Some("timestamp-micros")) => Type::TimestampMicros,
                    (plain, _) => plain,
                })
            }
        }
    }

    fn record(
        &mut self,
        members: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<Type, String> {
        // A record may have itself among its fields.
        let (number, namespace) = self.define(members, namespace, Definition::Record(Vec::new()))?;
        let mut fields = Vec::new();
        for field in
            members.get("fields").and_then(Value::as_array).ok_or("a record needs the member [fields]")?
        {
            let name = field.get("name").and_then(Value::as_str).ok_or("a field of a record has no name")?;
            let kind = field.get("type").ok_or_else(|| format!("the field [{name}] has no type"))?;
            let kind = self.parse(kind, &namespace, depth)?;
            fields.push(RecordField { name: name.to_owned(), kind, default: field.get("default").cloned() });
        }
        if let Some(definition) = self.definitions.get_mut(number) {
            *definition = Definition::Record(fields);
        }
        Ok(Type::Named(number))
    }

    /// Adds a named type; returns its number, and the namespace of the names in it.
    fn define(
        &mut self,
        members: &Map<String, Value>,
        namespace: &str,
        definition: Definition,
    ) -> Result<(usize, String), String> {
        let name = members.get("name").and_then(Value::as_str).ok_or("a named type has no name")?;
        let own = members.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, own);
        let namespace = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        if self.definitions.len() >= MAX_NAMED {
            return Err(format!("the schema has more than {MAX_NAMED} named types"));
        }
        let number = self.definitions.len();
        self.definitions.push(definition);
        if self.names.insert(full.clone(), number).is_some() {
            return Err(format!("the schema defines [{full}] twice"));
        }
        Ok((number, namespace))
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn primitive(name: &str) -> Option<Type> {
    Some(match name {
        "null" => Type::Null,
        "boolean" => Type::Boolean,
        "int" => Type::Int,
        "long" => Type::Long,
        "float" => Type::Float,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "string" => Type::Text,
        _ => return None,
    })
}
