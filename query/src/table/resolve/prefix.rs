//! `prefix`, and values in either case of their letters.

use millrace_storage::mapping::{ColumnKind, FieldType};
use serde_json::Value;

use super::{PRESENT, Resolver, Target, searchable};
use crate::dsl::query::PrefixQuery;
use crate::error::{Error, Result};
use crate::table::node::{Node, Weight};

/// Letters whose spellings in either case are looked up one by one.
const FOLDED_LETTERS: usize = 8;

impl Resolver<'_> {
    pub(super) fn prefix(&mut self, query: &PrefixQuery, weight: Weight) -> Result<Node> {
        let mapping = self.index.mapping;
        let Some(target) = self.target(&query.field) else {
            if query.field == "_index" {
                let pattern = Value::String(format!("{}*", query.value));
                return self.metadata_term("_index", &[&pattern], weight).unwrap_or(Ok(Node::None));
            }
            return match PRESENT.contains(&query.field.as_str()) {
                true => Err(unfit_for_prefix(&query.field, &query.field)),
                false => Ok(Node::None),
            };
        };
        let field = target.field;
        let string = matches!(
            field.field_type,
            FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword | FieldType::FlatObject
        );
        let text = matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText);
        if !string && !text {
            return Err(unfit_for_prefix(&field.path, field.type_name()));
        }
        searchable(field)?;
        let value = Value::String(query.value.clone());
        if query.case_insensitive {
            return self.folded(&target, &value, false, weight);
        }
        let value = if string { target.string(mapping, &value)? } else { query.value.clone() };
        Ok(Node::Prefix { path: field.id, prefixes: vec![value], text, weight })
    }

    /// A value or prefix in either case of its letters.
    pub(super) fn folded(
        &mut self,
        target: &Target<'_>,
        value: &Value,
        whole: bool,
        weight: Weight,
    ) -> Result<Node> {
        let field = target.field;
        let text = matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText);
        let string = field.column_kind() == ColumnKind::Str && field.field_type != FieldType::Binary;
        if !string {
            return Err(Error::QueryShard {
                reason: format!(
                    "[{}] field which is of type [{}], does not support case insensitive term queries",
                    field.path,
                    field.type_name()
                ),
                caused_by: None,
            });
        }
        searchable(field)?;
        let value = match text {
            true => crate::dsl::json::text(value).unwrap_or_default(),
            false => target.string(self.index.mapping, value)?,
        };
        let (prefixes, complete) = spellings(&value);
        if text {
            if !complete {
                return Err(Error::IllegalArgument(format!(
                    "[case_insensitive] on the text field [{}] is limited to {FOLDED_LETTERS} letters, found [{value}]",
                    field.path
                )));
            }
            return Ok(match whole {
                false => Node::Prefix { path: field.id, prefixes, text: true, weight },
                true => {
                    let terms = prefixes
                        .into_iter()
                        .map(|term| Node::Text { path: field.id, term, weight: Weight::None })
                        .collect();
                    let any = Node::AtLeast(1, terms);
                    match weight {
                        Weight::Constant(score) => Node::Constant(score, Box::new(any)),
                        _ => any,
                    }
                }
            });
        }
        if complete && !whole {
            return Ok(Node::Prefix { path: field.id, prefixes, text: false, weight });
        }
        Ok(Node::Folded {
            path: field.id,
            column: field.column,
            prefixes,
            value: value.to_lowercase(),
            whole,
            ignore_above: field.ignore_above,
            weight,
        })
    }
}

/// Spells a text in either case of its first letters; whether that covers the whole text.
fn spellings(text: &str) -> (Vec<String>, bool) {
    let mut spelled = vec![String::new()];
    let mut letters = 0;
    for c in text.chars() {
        let (lower, upper) = (c.to_lowercase().to_string(), c.to_uppercase().to_string());
        if lower == upper {
            spelled.iter_mut().for_each(|prefix| prefix.push(c));
            continue;
        }
        if letters == FOLDED_LETTERS {
            return (spelled, false);
        }
        letters += 1;
        let raised: Vec<String> = spelled.iter().map(|prefix| format!("{prefix}{upper}")).collect();
        spelled.iter_mut().for_each(|prefix| prefix.push_str(&lower));
        spelled.extend(raised);
    }
    (spelled, true)
}

fn unfit_for_prefix(field: &str, kind: &str) -> Error {
    Error::QueryShard {
        reason: format!(
            "Can only use prefix queries on keyword, text and wildcard fields - not on [{field}] which is of type [{kind}]"
        ),
        caused_by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_cover_letters_only() {
        assert_eq!(spellings("a1"), (vec!["a1".to_owned(), "A1".to_owned()], true));
        let (spelled, complete) = spellings("abcdefghij");
        assert_eq!((spelled.len(), complete), (256, false));
        assert!(spelled.contains(&"aBcDeFgH".to_owned()));
    }
}
