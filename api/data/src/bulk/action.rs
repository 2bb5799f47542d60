//! The action line of a bulk item: `{"index":{"_index":"logs","_id":"1"}}`.
//!
//! The usual line is read in one pass, borrowing from the body. What that does not know is read again
//! as a JSON value, to accept a rarer spelling or to refuse it in the words of OpenSearch.

use std::borrow::Cow;

use millrace_engine::ActionKind;
use serde_json::Value;

use crate::error::Error;
use crate::http::MemoryAllowance;
use crate::http::json::{self, token};

/// Metadata of an item. Ids and routing values come as numbers too, and are read as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Meta<'a> {
    pub(super) index: Option<Cow<'a, str>>,
    pub(super) doc_type: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) routing: Option<Cow<'a, str>>,
    pub(super) op_type: Option<Cow<'a, str>>,
    pub(super) version: Option<i64>,
    pub(super) version_type: Option<Cow<'a, str>>,
    pub(super) if_seq_no: Option<i64>,
    pub(super) if_primary_term: Option<i64>,
    pub(super) retry_on_conflict: Option<i64>,
    pub(super) pipeline: Option<Cow<'a, str>>,
    pub(super) require_alias: Option<bool>,
    pub(super) source: Option<Value>,
}

/// A parsed action line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Action<'a> {
    pub(super) kind: ActionKind,
    pub(super) meta: Meta<'a>,
}

/// Parses the action line with this number (from 1).
pub(super) fn parse<'a>(
    line: &'a [u8],
    number: usize,
    allowance: &MemoryAllowance,
) -> Result<Action<'a>, Error> {
    match FastActionReader::parse(line) {
        Some(action) => Ok(action),
        None => parse_slowly(line, number, allowance),
    }
}

/// Reader of the usual line: one action, members with strings without escapes or whole numbers.
struct FastActionReader<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> FastActionReader<'a> {
    fn parse(line: &'a [u8]) -> Option<Action<'a>> {
        let mut reader = Self { line, at: 0 };
        reader.expect(b'{')?;
        let kind = ActionKind::parse(reader.string()?)?;
        reader.expect(b':')?;
        reader.expect(b'{')?;
        let mut meta = Meta::default();
        if reader.peek()? == b'}' {
            reader.at += 1;
        } else {
            loop {
                reader.member(&mut meta)?;
                match reader.peek()? {
                    b',' => reader.at += 1,
                    b'}' => break,
                    _ => return None,
                }
            }
            reader.at += 1;
        }
        reader.expect(b'}')?;
        reader.peek().is_none().then_some(Action { kind, meta })
    }

    fn member(&mut self, meta: &mut Meta<'a>) -> Option<()> {
        let name = self.string()?;
        self.expect(b':')?;
        let slot = match name {
            "_index" => &mut meta.index,
            "_id" => &mut meta.id,
            "_type" => &mut meta.doc_type,
            "routing" => &mut meta.routing,
            "op_type" => &mut meta.op_type,
            "version_type" => &mut meta.version_type,
            "pipeline" => &mut meta.pipeline,
            _ => return self.number_member(name, meta),
        };
        if slot.is_some() {
            return None;
        }
        let text = if self.peek()? == b'"' { self.string()? } else { self.digits()? };
        *slot = Some(Cow::Borrowed(text));
        Some(())
    }

    fn number_member(&mut self, name: &str, meta: &mut Meta<'a>) -> Option<()> {
        let slot = match name {
            "version" => &mut meta.version,
            "if_seq_no" => &mut meta.if_seq_no,
            "if_primary_term" => &mut meta.if_primary_term,
            "retry_on_conflict" => &mut meta.retry_on_conflict,
            _ => return None,
        };
        if slot.is_some() {
            return None;
        }
        *slot = Some(self.digits()?.parse().ok()?);
        Some(())
    }

    /// Skips white space and shows the next byte.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.line.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.line.get(self.at)? {
                b'"' => break,
                b'\\' | 0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
        let text = std::str::from_utf8(&self.line[start..self.at]).ok()?;
        self.at += 1;
        Some(text)
    }

    /// A whole number without sign and leading zeros.
    fn digits(&mut self) -> Option<&'a str> {
        self.peek()?;
        let start = self.at;
        while self.line.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = std::str::from_utf8(&self.line[start..self.at]).ok()?;
        let canonical =
            !digits.is_empty() && digits.len() < 19 && (digits == "0" || !digits.starts_with('0'));
        let ends = matches!(self.line.get(self.at), Some(b',' | b'}' | b' '));
        (canonical && ends).then_some(digits)
    }
}

fn parse_slowly(line: &[u8], number: usize, room: &MemoryAllowance) -> Result<Action<'static>, Error> {
    let malformed =
        |rest: String| Error::illegal_argument(format!("Malformed action/metadata line [{number}], {rest}"));
    let value = match json::parse(line, room) {
        Ok(value) => value,
        Err(error) if error.status() != 400 => return Err(error),
        Err(error) => return Err(malformed(format!("it is not JSON: {}", error.reason()))),
    };
    let Value::Object(members) = value else {
        return Err(malformed(format!("expected START_OBJECT but found [{}]", token(&value))));
    };
    let mut members = members.into_iter();
    let Some((name, value)) = members.next() else {
        return Err(malformed("expected FIELD_NAME but found [END_OBJECT]".to_owned()));
    };
    let Some(kind) = ActionKind::parse(&name) else {
        return Err(malformed(format!(
            "expected field [create], [delete], [index] or [update] but found [{name}]"
        )));
    };
    if members.next().is_some() {
        return Err(malformed("expected END_OBJECT but found [FIELD_NAME]".to_owned()));
    }
    let Value::Object(fields) = value else {
        return Err(malformed(format!("expected START_OBJECT but found [{}]", token(&value))));
    };
    let mut meta = Meta::default();
    for (name, value) in fields {
        if value.is_null() {
            continue;
        }
        if name == "_source" {
            meta.source = Some(value);
            continue;
        }
        let known = matches!(
            name.as_str(),
            "_index"
                | "_type"
                | "_id"
                | "routing"
                | "op_type"
                | "version"
                | "version_type"
                | "if_seq_no"
                | "if_primary_term"
                | "retry_on_conflict"
                | "pipeline"
                | "require_alias"
        );
        let text = match value {
            Value::Array(_) | Value::Object(_) => {
                return Err(malformed(format!(
                    "expected a simple value for field [{name}] but found [{}]",
                    token(&value)
                )));
            }
            _ if !known => {
                return Err(Error::illegal_argument(format!(
                    "Action/metadata line [{number}] contains an unknown parameter [{name}]"
                )));
            }
            Value::String(text) => text,
            other => other.to_string(),
        };
        let whole = || {
            text.parse::<i64>().map_err(|_| {
                malformed(format!("expected a whole number for field [{name}] but found [{text}]"))
            })
        };
        match name.as_str() {
            "version" => meta.version = Some(whole()?),
            "if_seq_no" => meta.if_seq_no = Some(whole()?),
            "if_primary_term" => meta.if_primary_term = Some(whole()?),
            "retry_on_conflict" => meta.retry_on_conflict = Some(whole()?),
            "require_alias" => {
                meta.require_alias = Some(match text.as_str() {
                    "true" => true,
                    "false" => false,
                    other => {
                        return Err(malformed(format!(
                            "expected [true] or [false] for field [{name}] but found [{other}]"
                        )));
                    }
                });
            }
            _ => {
                let slot = match name.as_str() {
                    "_index" => &mut meta.index,
                    "_type" => &mut meta.doc_type,
                    "_id" => &mut meta.id,
                    "routing" => &mut meta.routing,
                    "op_type" => &mut meta.op_type,
                    "version_type" => &mut meta.version_type,
                    _ => &mut meta.pipeline,
                };
                *slot = Some(Cow::Owned(text));
            }
        }
    }
    Ok(Action { kind, meta })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_readers_agree() {
        for line in [
            r#"{"index":{}}"#,
            r#" { "index" : { } } "#,
            r#"{"index":{"_index":"logs-2024","_id":"a b","routing":"5","_type":"t"}}"#,
            r#"{"create":{"_id":12,"routing":0,"pipeline":"p","op_type":"create"}}"#,
            r#"{"delete":{"_id":"1","version":7,"version_type":"external"}}"#,
            r#"{"update":{"_id":"1","if_seq_no":3,"if_primary_term":1,"retry_on_conflict":2}}"#,
            "{\"index\":{\"_id\":\"中\"}}\r",
        ] {
            let usual = FastActionReader::parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                usual,
                parse_slowly(line.as_bytes(), 1, &MemoryAllowance::with_limit(0)).unwrap(),
                "{line}"
            );
        }
    }

    #[test]
    fn rarer_spellings_are_read_slowly() {
        for (line, id) in [
            (r#"{"index":{"_id":"a\"b"}}"#, Some("a\"b")),
            (r#"{"index":{"_id":-7}}"#, Some("-7")),
            (r#"{"index":{"_id":true}}"#, Some("true")),
            (r#"{"index":{"_id":null,"require_alias":false}}"#, None),
            (r#"{"in\u0064ex":{"_id":"1"}}"#, Some("1")),
        ] {
            assert_eq!(FastActionReader::parse(line.as_bytes()), None, "{line}");
            assert_eq!(
                parse(line.as_bytes(), 1, &MemoryAllowance::with_limit(0)).unwrap().meta.id.as_deref(),
                id,
                "{line}"
            );
        }
        for line in [
            r#"{"index":{"_id":"1","_id":"2"}}"#,
            r#"{"index":{"_id":01}}"#,
            r#"{"index":{}}x"#,
            r#"{"index":{"_id":"1",}}"#,
            r#"{"index":{"#,
            "",
        ] {
            assert!(parse(line.as_bytes(), 1, &MemoryAllowance::with_limit(0)).is_err(), "{line}");
        }
    }
}
