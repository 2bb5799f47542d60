//! Values of range fields: objects of bounds, and blocks of addresses, each as one string (see [`RangeType`]).

use std::sync::Arc;

use jiter::{Jiter, Peek};

use super::ChunkBuilder;
use super::failure::{Failure, ParseResult};
use super::features::kind;
use super::leaf::{number_text, scopes_of};
use crate::mapping::{Cause, FieldType, RangeBound, RangeEnd, RangeType, Token};

/// Refusal of a range, with the value that a message shows of it.
struct RangeRefusal {
    preview: String,
    cause: Cause,
}

impl ChunkBuilder {
    /// Parses the value of a range field: a range, or an array of them.
    pub(super) fn ranges(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        self.flatten(json, |builder, json, peek| builder.range(json, leaf, peek))
    }

    pub(super) fn range(&mut self, json: &mut Jiter<'_>, leaf: u32, peek: Peek) -> ParseResult<()> {
        if peek != Peek::Object {
            return self.scalar(json, leaf, peek);
        }
        let text = match self.range_object(json, leaf)? {
            Ok(text) => text,
            Err(refused) => return self.refuse(leaf, refused.preview, refused.cause),
        };
        if let Some(target) = self.copy_target(leaf) {
            if !self.lenient {
                let reason = format!(
                    "a range that is an object has no value for [{target}]: multi-fields and copy_to take values that are no objects"
                );
                return self.refuse(leaf, "null".to_owned(), Cause::argument(reason));
            }
            self.ignore(target);
        }
        let mapped = self.mapping.leaf(leaf);
        let scopes = scopes_of(&self.mapping, mapped);
        Ok(self.columns.push_str(scopes, mapped.field.column, text.as_bytes())?)
    }

    /// Finds a field that takes values of a leaf as they are written: a multi-field, or a target of `copy_to`.
    fn copy_target(&self, leaf: u32) -> Option<Arc<str>> {
        // Where only some columns are read, the document was accepted before.
        if self.wanted.is_some() {
            return None;
        }
        let mapped = self.mapping.leaf(leaf);
        let multi_field = mapped.fan.first().map(|sub| &self.mapping.leaf(*sub).field.path);
        multi_field.or_else(|| mapped.rules.copy_to.first()).cloned()
    }

    /// Reads a range given as an object to its end, whatever is wrong with it.
    fn range_object(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<Result<String, RangeRefusal>> {
        let FieldType::Range(range_type) = self.mapping.leaf(leaf).field.field_type else {
            return Err(Failure::rule("the field holds no ranges"));
        };
        let (mut from, mut to) = (range_type.least(), range_type.greatest());
        let mut refused = None;
        self.depth += 1;
        let names = self.keys.open_unmapped();
        let mut key = json.known_object()?;
        while let Some(name) = key {
            self.keys.add(name);
            let bound = RangeBound::from_name(name).ok_or_else(|| {
                let path = &self.mapping.leaf(leaf).field.path;
                let reason = format!("error parsing field [{path}], with unknown parameter [{name}]");
                Cause::new("mapper_parsing_exception", reason)
            });
            let peek = json.peek()?;
            let read = match bound {
                Ok(_) if peek == Peek::Null => {
                    json.known_null()?;
                    None
                }
                Ok(bound) => Some(self.range_bound(json, leaf, range_type, bound)?.map(|end| (bound, end))),
                Err(cause) => {
                    let start = json.current_index();
                    self.skip(json)?;
                    let preview = super::failure::preview(json.slice_to_current(start));
                    Some(Err(RangeRefusal { preview, cause }))
                }
            };
            match read {
                None => {}
                Some(Ok((bound, end))) if bound.is_lower() => from = end,
                Some(Ok((_, end))) => to = end,
                Some(Err(refusal)) => {
                    refused.get_or_insert(refusal);
                }
            }
            key = json.next_key()?;
        }
        self.end_names(json, names)?;
        self.depth -= 1;
        Ok(match refused {
            Some(refusal) => Err(refusal),
            // Behind its last member, nothing of the object is left to show.
            None => range_type
                .between(from, to)
                .map_err(|cause| RangeRefusal { preview: "null".to_owned(), cause }),
        })
    }

    /// Reads the value of a bound.
    fn range_bound(
        &mut self,
        json: &mut Jiter<'_>,
        leaf: u32,
        range_type: RangeType,
        bound: RangeBound,
    ) -> ParseResult<Result<RangeEnd, RangeRefusal>> {
        let peek = json.peek()?;
        if matches!(peek, Peek::Object | Peek::Array) {
            let start = json.current_index();
            self.skip(json)?;
            let preview = super::failure::preview(json.slice_to_current(start));
            let cause = Cause::argument(format!("a bound of a range is a value, but got {}", kind(peek)));
            return Ok(Err(RangeRefusal { preview, cause }));
        }
        let token = match peek {
            Peek::String => Token::Str(json.known_str()?),
            Peek::True | Peek::False => Token::Bool(json.known_bool(peek)?),
            _ => Token::Number(number_text(json, peek)?),
        };
        let rules = &self.mapping.leaf(leaf).rules;
        let end = range_type.read_bound(token, bound, rules.format.as_deref(), rules.coerce);
        Ok(end.map_err(|cause| RangeRefusal { preview: token.text().to_owned(), cause }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_runtime::Error;
    use serde_json::{Value, json};

    use crate::document::{ChunkBuilder, Values};
    use crate::mapping::{Mapping, RangeType, Scalar};

    fn mapping() -> Arc<Mapping> {
        let body = json!({
            "dynamic_templates": [{"spans": {"match": "*_span", "mapping": {"type": "date_range"}}}],
            "properties": {
                "i": {"type": "integer_range"}, "l": {"type": "long_range", "coerce": false},
                "f": {"type": "float_range"}, "x": {"type": "double_range"}, "ip": {"type": "ip_range"},
                "d": {"type": "date_range", "format": "yyyy-MM-dd||epoch_millis"},
                "off": {"type": "integer_range", "index": false, "doc_values": false},
                "lax": {"type": "integer_range", "ignore_malformed": true},
                "k": {"type": "keyword", "fields": {"r": {"type": "ip_range"}}},
                "multi": {"type": "ip_range", "fields": {"raw": {"type": "keyword"}}},
                "copied": {"type": "ip_range", "copy_to": "all"}, "block": {"type": "keyword", "copy_to": "ip"}, "all": {"type": "text"}
            }
        });
        Arc::new(Mapping::parse(&body, &serde_json::Map::new()).unwrap())
    }

    fn values(source: &Value, path: &str) -> Result<Vec<String>, Error> {
        let mut builder = ChunkBuilder::new(mapping());
        builder.push("1", source.to_string().as_bytes())?;
        let (chunk, grown) = builder.finish();
        let column = grown.field(path).unwrap().column;
        let mut shown = Vec::new();
        for column in chunk.columns.iter().filter(|found| found.id == column) {
            let Values::Str(strings) = &column.values else { panic!("{:?}", column.values) };
            let texts = (0..column.rows.len()).map(|at| strings.value(at).to_vec());
            shown.extend(texts.map(|text| String::from_utf8(text).unwrap()));
        }
        Ok(shown)
    }

    fn whole(range_type: RangeType, from: i64, to: i64) -> String {
        let end = |value| range_type.end(&Scalar::I64(value)).unwrap();
        range_type.encode(end(from), end(to))
    }

    #[test]
    fn ranges_become_strings() {
        let integers = |from, to| whole(RangeType::Integer, from, to);
        let dates = |from, to| whole(RangeType::Date, from, to);
        const DAY: i64 = 86_400_000;
        let zero = RangeType::Double.end(&Scalar::F64(0.0)).unwrap();
        let zero = RangeType::Double.encode(zero, zero);
        for (source, path, expected) in [
            (json!({"i": {"gte": 1, "lte": 5}}), "i", vec![integers(1, 5)]),
            (json!({"i": {"gt": 1.0, "lt": "5"}}), "i", vec![integers(2, 4)]),
            (json!({"i": {"gte": 1, "lte": null}}), "i", vec![integers(1, i32::MAX.into())]),
            (json!({"i": {}}), "i", vec![integers(i32::MIN.into(), i32::MAX.into())]),
            (
                json!({"i": [[{"gte": 1, "lt": 3}], null, {"lte": -1}]}),
                "i",
                vec![integers(1, 2), integers(i32::MIN.into(), -1)],
            ),
            (json!({"i": null}), "i", vec![]),
            (json!({"off": {"gte": 1}}), "off", vec![]),
            (json!({"lax": [{"gte": "x"}, {"gte": 1, "lte": 1}]}), "lax", vec![integers(1, 1)]),
            (json!({"l": {"gte": i64::MIN, "lte": 1.0}}), "l", vec![whole(RangeType::Long, i64::MIN, 1)]),
            (json!({"d": {"gte": "1970-01-02", "lt": 259_200_000}}), "d", vec![dates(DAY, 3 * DAY - 1)]),
            (json!({"d": {"gte": "1970-01-05||/M", "lte": "1970-01-01||+1d"}}), "d", vec![dates(0, DAY)]),
            (
                json!({"a_span": {"gte": "1970-01-02", "lte": "1970-01-02T00:00:01Z"}}),
                "a_span",
                vec![dates(DAY, DAY + 1000)],
            ),
            (
                json!({"ip": ["10.0.0.0/31", {"gt": "::", "lte": "::2"}]}),
                "ip",
                vec![format!("{0:024x}0a000000{0:024x}0a000001", 0xffff), format!("{:032x}{:032x}", 1, 2)],
            ),
            (json!({"x": {"gte": 0.0, "lte": -0.0}}), "x", vec![zero.clone()]),
            (json!({"x": {"gte": -0.0, "lte": 0}}), "x", vec![zero]),
            (json!({"multi": "0.0.0.0/0"}), "multi.raw", vec!["0.0.0.0/0".to_owned()]),
            (json!({"copied": "0.0.0.0/0"}), "all", vec!["0.0.0.0/0".to_owned()]),
            (json!({"block": "0.0.0.0/0"}), "ip", vec![format!("{0:024x}00000000{0:024x}ffffffff", 0xffff)]),
            (json!({"k": "0.0.0.0/0"}), "k.r", vec![format!("{0:024x}00000000{0:024x}ffffffff", 0xffff)]),
        ] {
            assert_eq!(values(&source, path).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn a_range_stays_where_a_later_mapping_copies_it() {
        let mut builder = ChunkBuilder::new(mapping());
        for field in ["multi", "copied"] {
            let source = json!({field: {"gte": "::1", "lte": "::2"}}).to_string();
            builder.push_accepted(field, source.as_bytes()).unwrap();
        }
        let (chunk, grown) = builder.finish();
        for field in ["multi", "copied"] {
            let column = grown.field(field).unwrap().column;
            assert!(chunk.columns.iter().any(|found| found.id == column && found.rows.len() == 1), "{field}");
        }
    }

    #[test]
    fn misfits_name_the_field() {
        for (source, kind, reason) in [
            (
                json!({"i": {"gte": 9, "lte": 1}}),
                "illegal_argument_exception",
                "min value (9) is greater than max value (1)",
            ),
            (
                json!({"i": {"gt": 5, "lt": 6}}),
                "illegal_argument_exception",
                "min value (6) is greater than max value (5)",
            ),
            (
                json!({"f": {"gt": 1.5, "lt": 1.5}}),
                "illegal_argument_exception",
                "min value (1.5000001) is greater than max value (1.4999999)",
            ),
            (
                json!({"x": {"gte": 2.5, "lte": -1.5}}),
                "illegal_argument_exception",
                "min value (2.5) is greater than max value (-1.5)",
            ),
            (
                json!({"d": {"gte": "2020-01-31", "lte": "2020-01-01"}}),
                "illegal_argument_exception",
                "min value (1580428800000) is greater than max value (1577836800000)",
            ),
            (
                json!({"ip": {"gte": "10.0.0.9", "lte": "10.0.0.1"}}),
                "illegal_argument_exception",
                "min value cannot be greater than max value for InetAddressRange field",
            ),
            (
                json!({"ip": "10.0.0.1"}),
                "illegal_argument_exception",
                "Expected [ip/prefix] but was [10.0.0.1]",
            ),
            (
                json!({"ip": "10.0.0.0/8/1"}),
                "illegal_argument_exception",
                "Expected [ip/prefix] but was [10.0.0.0/8/1]",
            ),
            (
                json!({"ip": "10.0.0.0/33"}),
                "illegal_argument_exception",
                "Illegal prefix length [33] in [10.0.0.0/33]. Must be 0-32 for IPv4 ranges, 0-128 for IPv6 ranges",
            ),
            (json!({"ip": "x/8"}), "illegal_argument_exception", "'x' is not an IP string literal."),
            (
                json!({"ip": {"gt": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}}),
                "arithmetic_exception",
                "Overflow: there is no greater InetAddress than ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
            (
                json!({"ip": 5}),
                "mapper_parsing_exception",
                "error parsing field [ip], expected an object but got ip",
            ),
            (
                json!({"i": [5]}),
                "mapper_parsing_exception",
                "error parsing field [i], expected an object but got i",
            ),
            (
                json!({"d": "2020-01-01"}),
                "mapper_parsing_exception",
                "error parsing field [d], expected an object but got d",
            ),
            (json!({"d": {"gte": "now"}}), "parse_exception", "now is not used at indexing time"),
            (
                json!({"d": {"gte": "abc"}}),
                "parse_exception",
                "failed to parse date field [abc] with format [yyyy-MM-dd||epoch_millis]",
            ),
            (
                json!({"i": {"gte": 1, "x": {"y": 1}}}),
                "mapper_parsing_exception",
                "error parsing field [i], with unknown parameter [x]",
            ),
            (
                json!({"i": {"gte": {"a": 1}}}),
                "illegal_argument_exception",
                "a bound of a range is a value, but got START_OBJECT",
            ),
            (
                json!({"i": {"gt": 2_147_483_647}}),
                "illegal_argument_exception",
                "no value of a field of type [integer_range] is greater than [2147483647]",
            ),
            (json!({"i": {"gte": 1, "lte": ""}}), "number_format_exception", "empty String"),
            (
                json!({"multi": {"gte": "10.0.0.1"}}),
                "illegal_argument_exception",
                "a range that is an object has no value for [multi.raw]: multi-fields and copy_to take values that are no objects",
            ),
            (
                json!({"copied": ["10.0.0.0/8", {"gte": "10.0.0.1"}]}),
                "illegal_argument_exception",
                "a range that is an object has no value for [all]: multi-fields and copy_to take values that are no objects",
            ),
            (json!({"l": {"gte": "1"}}), "illegal_argument_exception", "Long value passed as String"),
            (
                json!({"l": {"gte": 1.5}}),
                "illegal_argument_exception",
                "1.5 cannot be converted to Long without data loss",
            ),
            (
                json!({"x": {"gte": "Infinity"}}),
                "illegal_argument_exception",
                "[double] supports only finite values, but got [Infinity]",
            ),
        ] {
            let error = values(&source, "i").unwrap_err();
            let Error::MapperParsing { reason: shown, caused_by: Some(cause) } = error else {
                panic!("{source}: {error}");
            };
            let field = source.as_object().unwrap().keys().next().unwrap();
            assert!(shown.starts_with(&format!("failed to parse field [{field}] of type [")), "{shown}");
            assert_eq!(cause, (kind.to_owned(), reason.to_owned()), "{source}");
        }
        let preview = |source: &Value| values(source, "i").unwrap_err().to_string();
        assert!(preview(&json!({"i": {"gte": 9, "lte": 1}})).ends_with("Preview of field's value: 'null'"));
        assert!(preview(&json!({"i": {"gte": "a", "lte": 1}})).ends_with("Preview of field's value: 'a'"));
        assert!(preview(&json!({"i": {"x": {"y": 1}}})).ends_with("Preview of field's value: '{y=1}'"));
        let twice = ChunkBuilder::new(mapping()).push("1", br#"{"i": {"gte": 1, "gte": 2}}"#);
        assert!(twice.unwrap_err().to_string().contains("failed to parse"));
    }
}
