//! Values of leaves: from scalar tokens to columns, with multi-fields and `copy_to`.

use std::sync::Arc;

use jiter::{Jiter, Peek};

use super::failure::{Failure, ParseResult};
use super::scopes::Scopes;
use super::{ChunkBuilder, features};
use crate::mapping::{Cause, Child, Field, FieldType, Leaf, Mapping, NullValue, Scope, Token, values};
use crate::term::{check_term, check_wildcard};

/// Outcome of storing a value.
enum StoreOutcome {
    Yes,
    /// It is not indexed, or not to its end: the row says so.
    Ignored,
}

/// Why a value is not stored.
enum ValueRefusal {
    Misfit(Cause),
    Error(millrace_runtime::Error),
}

impl From<Cause> for ValueRefusal {
    fn from(cause: Cause) -> Self {
        Self::Misfit(cause)
    }
}

impl From<millrace_runtime::Error> for ValueRefusal {
    fn from(error: millrace_runtime::Error) -> Self {
        Self::Error(error)
    }
}

impl ChunkBuilder {
    /// Parses the value of a leaf.
    pub(super) fn leaf(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        match self.mapping.leaf(leaf).field.field_type {
            FieldType::GeoPoint => self.points(json, leaf),
            FieldType::FlatObject => self.flat_objects(json, leaf),
            FieldType::Completion => self.completions(json, leaf),
            FieldType::RankFeatures => self.features(json, leaf),
            FieldType::Range(_) => self.ranges(json, leaf),
            _ => self.flatten(json, |builder, json, peek| builder.scalar(json, leaf, peek)),
        }
    }

    /// Parses one value of a leaf, which is no array.
    pub(super) fn scalar(&mut self, json: &mut Jiter<'_>, leaf: u32, peek: Peek) -> ParseResult<()> {
        match peek {
            Peek::String => {
                let text = json.known_str()?;
                self.put(leaf, Token::Str(text))
            }
            Peek::Null => {
                json.known_null()?;
                self.put_null(leaf)
            }
            Peek::True | Peek::False => {
                let flag = json.known_bool(peek)?;
                self.put(leaf, Token::Bool(flag))
            }
            Peek::Object => self.object_for_leaf(json, leaf),
            _ => {
                let text = number_text(json, peek)?;
                self.put(leaf, Token::Number(text))
            }
        }
    }

    /// Puts the `null_value`s of a leaf and its multi-fields where a document has null.
    pub(super) fn put_null(&mut self, leaf: u32) -> ParseResult<()> {
        let mapping = self.mapping.clone();
        let mapped = mapping.leaf(leaf);
        match &mapped.rules.null_value {
            Some(NullValue::Point(point)) => self.put_point(leaf, *point)?,
            Some(value) => {
                if let Some(token) = value.token() {
                    self.put_one(leaf, token)?;
                }
            }
            None => {}
        }
        for sub in &mapped.fan {
            if let Some(token) = mapping.leaf(*sub).rules.null_value.as_ref().and_then(NullValue::token) {
                self.put_one(*sub, token)?;
            }
        }
        Ok(())
    }

    /// Puts a value into a leaf, its multi-fields, and the fields that it is copied to.
    pub(super) fn put(&mut self, leaf: u32, token: Token<'_>) -> ParseResult<()> {
        self.put_with_multi_fields(leaf, token)?;
        self.copies(leaf, token)
    }

    /// Puts a value into the fields that a leaf's values are copied to.
    pub(super) fn copies(&mut self, leaf: u32, token: Token<'_>) -> ParseResult<()> {
        if self.mapping.leaf(leaf).rules.copy_to.is_empty() {
            return Ok(());
        }
        let targets = self.mapping.leaf(leaf).rules.copy_to.clone();
        for target in targets {
            self.copy(&target, token)?;
        }
        Ok(())
    }

    fn put_with_multi_fields(&mut self, leaf: u32, token: Token<'_>) -> ParseResult<()> {
        self.put_one(leaf, token)?;
        if self.mapping.analyzers().multiply() {
            self.ignore_exceeding(leaf, token.text());
        }
        for at in 0..self.mapping.leaf(leaf).fan.len() {
            let sub = self.mapping.leaf(leaf).fan[at];
            if self.wanted.as_ref().is_none_or(|wanted| wanted.leaf(sub)) {
                self.put_one(sub, token)?;
            }
        }
        Ok(())
    }

    /// Names the multi-fields that read a leaf's column and make too much of a value.
    fn ignore_exceeding(&mut self, leaf: u32, text: &str) {
        let mapping = Arc::clone(&self.mapping);
        let own = mapping.leaf(leaf);
        for sub in &own.multi {
            let field = &mapping.leaf(*sub).field;
            if field.column == own.field.column && exceeds_bounds(&mapping, field, text) {
                self.ignore(Arc::clone(&field.path));
            }
        }
    }

    /// Copies a value to a field by its full path, adding the field where dynamic mapping may.
    fn copy(&mut self, target: &Arc<str>, token: Token<'_>) -> ParseResult<()> {
        match self.mapping.lookup(target) {
            Some(Child::Leaf(leaf)) => self.put_with_multi_fields(leaf, token),
            Some(Child::Alias(_) | Child::Object(_)) if self.lenient => {
                self.ignore(target.clone());
                Ok(())
            }
            Some(Child::Alias(_)) => Err(Failure::rule(format!("Cannot copy to a field alias [{target}]."))),
            Some(Child::Object(_)) => Err(Failure::mapping(format!(
                "Cannot copy to field [{target}] since it is mapped as an object"
            ))),
            None => match self.add_for_copy(target, token)? {
                Some(leaf) => self.put_with_multi_fields(leaf, token),
                None => Ok(()),
            },
        }
    }

    /// Puts a value into the one leaf.
    pub(super) fn put_one(&mut self, leaf: u32, token: Token<'_>) -> ParseResult<()> {
        let mapping = &self.mapping;
        let mapped = mapping.leaf(leaf);
        if mapped.field.field_type == FieldType::Completion {
            return self.put_plain_completion(leaf, token.text());
        }
        let scopes = scopes_of(mapping, mapped);
        match store(mapping, mapped, scopes, token, &mut self.columns) {
            Ok(StoreOutcome::Yes) => Ok(()),
            Err(ValueRefusal::Error(_)) if self.lenient => {
                let path = mapped.field.path.clone();
                self.ignore(path);
                Ok(())
            }
            Ok(StoreOutcome::Ignored) => {
                let path = mapped.field.path.clone();
                self.ignore(path);
                Ok(())
            }
            Err(ValueRefusal::Error(error)) => Err(error.into()),
            Err(ValueRefusal::Misfit(cause)) => self.refuse(leaf, token.text().to_owned(), cause),
        }
    }

    /// Refuses a value, or ignores it where the mapping says so.
    pub(super) fn refuse(&mut self, leaf: u32, preview: String, cause: Cause) -> ParseResult<()> {
        let mapped = self.mapping.leaf(leaf);
        let ignores = mapped.rules.ignore_malformed || self.mapping.settings().ignore_malformed;
        if ignores || self.overflows(mapped.object) {
            let path = mapped.field.path.clone();
            self.ignore(path);
            return Ok(());
        }
        Err(self.misfit(leaf, preview, cause))
    }

    /// The failure of a value that does not fit a leaf.
    pub(super) fn misfit(&self, leaf: u32, mut preview: String, cause: Cause) -> Box<Failure> {
        values::cut(&mut preview);
        let field = &self.mapping.leaf(leaf).field;
        Box::new(Failure::Field {
            path: field.path.to_string(),
            type_name: field.type_name(),
            preview,
            cause,
        })
    }

    /// Gives the current row of a scope the constants of constant_keyword fields.
    pub(super) fn constants(&mut self, scope: Scope) -> ParseResult<()> {
        for leaf in self.mapping.constants() {
            let leaf = self.mapping.leaf(*leaf);
            if let Some(constant) = &leaf.rules.constant
                && self.mapping.object(leaf.object).scopes.contains(&scope)
            {
                self.columns.push_str(&[scope], leaf.field.column, constant.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Reads a number as it is written.
pub(super) fn number_text<'t>(json: &'t mut Jiter<'_>, peek: Peek) -> ParseResult<&'t str> {
    let bytes = json.known_number_bytes(peek)?;
    std::str::from_utf8(bytes)
        .map_err(|_| Box::new(Failure::Rule(Cause::new("json_parse_exception", "number is not ASCII"))))
}

/// Finds the kinds of rows that hold the values of a leaf.
pub(super) fn scopes_of<'m>(mapping: &'m Mapping, leaf: &Leaf) -> &'m [Scope] {
    if leaf.fills { &mapping.object(leaf.object).scopes } else { &[] }
}

/// Coerces a value and appends it to the leaf's column in the scopes given.
fn store(
    mapping: &Mapping,
    leaf: &Leaf,
    scopes: &[Scope],
    token: Token<'_>,
    columns: &mut Scopes,
) -> Result<StoreOutcome, ValueRefusal> {
    let field = &leaf.field;
    let rules = &leaf.rules;
    let id = field.column;
    match &field.field_type {
        FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => {
            columns.push_str(scopes, id, token.text().as_bytes())?;
            if exceeds_bounds(mapping, field, token.text()) {
                return Ok(StoreOutcome::Ignored);
            }
        }
        FieldType::Keyword | FieldType::Wildcard => {
            let text = token.text();
            if field.ignores(text) {
                return Ok(StoreOutcome::Ignored);
            }
            // Beyond this, the inverted index could not be built once the document is acknowledged.
            let check: fn(&str, &[u8]) -> millrace_runtime::Result<()> = match field.field_type {
                _ if !field.index => |_, _| Ok(()),
                FieldType::Wildcard => check_wildcard,
                _ => check_term,
            };
            check(&field.path, text.as_bytes())?;
            if !scopes.is_empty() {
                match &field.normalizer {
                    None => columns.push_str(scopes, id, text.as_bytes())?,
                    Some(normalizer) => match mapping.analyzers().normalize(normalizer, text) {
                        Some(normalized) => {
                            check(&field.path, normalized.as_bytes())?;
                            columns.push_str(scopes, id, normalized.as_bytes())?;
                        }
                        None => {
                            return Err(Cause::argument(format!(
                                "normalizer [{normalizer}] not found for field [{}]",
                                field.path
                            ))
                            .into());
                        }
                    },
                }
            }
        }
        FieldType::Byte | FieldType::Short | FieldType::Integer | FieldType::Long => {
            match values::integer(&field.field_type, token, rules.coerce)? {
                Some(value) => columns.push_i64(scopes, id, field.column_kind(), value)?,
                None => return null_instead(mapping, leaf, scopes, columns),
            }
        }
        FieldType::UnsignedLong => match values::unsigned_long(token, rules.coerce)? {
            Some(value) => columns.push_u64(scopes, id, value)?,
            None => return null_instead(mapping, leaf, scopes, columns),
        },
        FieldType::HalfFloat | FieldType::Float | FieldType::Double | FieldType::ScaledFloat { .. } => {
            match values::float(&field.field_type, token, rules.coerce)? {
                Some(value) => columns.push_f64(scopes, id, field.column_kind(), value)?,
                None => return null_instead(mapping, leaf, scopes, columns),
            }
        }
        FieldType::Boolean => {
            let value = values::boolean(token)?;
            columns.push_bool(scopes, id, value)?;
        }
        FieldType::Date | FieldType::DateNanos => {
            let Some(format) = &rules.format else {
                return Err(Cause::argument(format!("date field [{}] has no format", field.path)).into());
            };
            let value = values::date(&field.field_type, token, format)?;
            columns.push_i64(scopes, id, field.column_kind(), value)?;
        }
        FieldType::Ip => {
            let value = values::ip(token.text())?;
            columns.push_ip(scopes, id, value)?;
        }
        FieldType::Binary => store_binary(field, scopes, token, columns)?,
        FieldType::ConstantKeyword => {
            let constant = rules.constant.as_deref().unwrap_or_default();
            if token.text() != constant {
                return Err(Cause::argument(format!(
                    "constant keyword field [{}] must have a value of [{constant}]",
                    field.path
                ))
                .into());
            }
        }
        FieldType::GeoPoint => {
            let point = match token {
                Token::Str(text) => values::point(text)?,
                _ => return Err(Cause::new("parse_exception", "geo_point expected").into()),
            };
            values::check_point(point, &field.path)?;
            columns.push_point(scopes, id, point)?;
        }
        FieldType::TokenCount => {
            let positions = flag(field, "enable_position_increments");
            let analyzer = mapping.analyzers().get(&field.analyzer).ok_or_else(|| {
                Cause::argument(format!("analyzer [{}] has not been configured in mappings", field.analyzer))
            })?;
            let count = analyzer.count(token.text(), positions);
            columns.push_i64(scopes, id, field.column_kind(), count)?;
        }
        FieldType::RankFeature => {
            let text = features::encode(field, "", token)?;
            if scopes.first().is_some_and(|scope| columns.has_str(*scope, id, |_| true)) {
                return Err(Cause::argument(format!(
                    "[rank_feature] fields do not support indexing multiple values for the same field [{}] in the same document",
                    field.path
                ))
                .into());
            }
            columns.push_str(scopes, id, text.as_bytes())?;
        }
        FieldType::Range(range_type) => {
            let text = range_type.read_text(&field.path, token)?;
            columns.push_str(scopes, id, text.as_bytes())?;
        }
        FieldType::FlatObject | FieldType::RankFeatures | FieldType::Completion => {
            return Err(Cause::new(
                "parsing_exception",
                format!("[{}] unexpected token in {} field value", field.path, field.type_name()),
            )
            .into());
        }
    }
    Ok(StoreOutcome::Yes)
}

/// Appends a value of a binary field. Nothing is made of one that is neither a column nor stored by itself.
fn store_binary(
    field: &Field,
    scopes: &[Scope],
    token: Token<'_>,
    columns: &mut Scopes,
) -> Result<(), ValueRefusal> {
    if scopes.is_empty() {
        return Ok(());
    }
    let Token::Str(text) = token else {
        return Err(Cause::new(
            "json_parse_exception",
            "Current token not VALUE_STRING, can not access as binary",
        )
        .into());
    };
    match check_base64(text) {
        Ok(()) => Ok(columns.push_str(scopes, field.column, text.as_bytes())?),
        Err(cause) if flag_or(field, "doc_values", false) || flag_or(field, "store", false) => {
            Err(cause.into())
        }
        // Nobody decodes it: it stays in the source alone, as in OpenSearch.
        Err(_) => Ok(()),
    }
}

/// Returns true if the end of a text is left out of a field, since its analyzer would make too much of it.
fn exceeds_bounds(mapping: &Mapping, field: &Field, text: &str) -> bool {
    let analyzers = mapping.analyzers();
    field.index
        && field.field_type.is_text()
        && analyzers.multiply()
        && analyzers.get(&field.analyzer).is_some_and(|analyzer| analyzer.exceeds_bounds(text))
}

fn flag(field: &Field, name: &str) -> bool {
    flag_or(field, name, true)
}

/// A parameter of a field that is true or false; `default` where it is not given.
fn flag_or(field: &Field, name: &str, default: bool) -> bool {
    field.params.get(name).and_then(|flag| flag.as_bool()).unwrap_or(default)
}

/// An empty string in a number field counts as null.
fn null_instead(
    mapping: &Mapping,
    leaf: &Leaf,
    scopes: &[Scope],
    columns: &mut Scopes,
) -> Result<StoreOutcome, ValueRefusal> {
    match leaf.rules.null_value.as_ref().and_then(NullValue::token) {
        Some(Token::Str("")) | None => Ok(StoreOutcome::Yes),
        Some(token) => store(mapping, leaf, scopes, token, columns),
    }
}

/// Checks that a string is base64, standard or URL-safe, padded or not.
fn check_base64(text: &str) -> Result<(), Cause> {
    let body = text.trim_end_matches('=');
    let fine = body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_'))
        && text.len() - body.len() <= 2
        && body.len() % 4 != 1;
    if fine {
        Ok(())
    } else {
        Err(Cause::new("json_parse_exception", "Failed to decode VALUE_STRING as base64"))
    }
}
