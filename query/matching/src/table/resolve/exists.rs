//! `exists` on fields, objects, patterns and paths inside of a flat_object.

use std::sync::Arc;

use millrace_dsl::query::ExistsQuery;
use millrace_mapping::pattern::matches;
use millrace_mapping::{FieldType, PathId};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::metadata::Metadata;
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};

use super::{LowerClause, PRESENT, Resolver, metadata, searchable};

impl LowerClause for ExistsQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.count_leaf()?;
        let name = self.field.as_str();
        if PRESENT.contains(&name) {
            return Ok(Node::All(weight));
        }
        match name {
            "_routing" => return Ok(metadata(Metadata::Routing(None), weight)),
            "_ignored" => return Ok(metadata(resolver.ignored(None), weight)),
            "_source" => {
                return Err(Error::QueryShard {
                    reason: "The _source field is not searchable".to_owned(),
                    caused_by: None,
                });
            }
            "_field_names" => {
                return Err(Error::Exception {
                    kind: "unsupported_operation_exception",
                    status: 400,
                    reason: "Cannot run exists query on _field_names".to_owned(),
                });
            }
            _ => {}
        }
        let mapping = resolver.index.mapping;
        if let Some(field) = mapping.field(name) {
            if field.field_type == FieldType::RankFeatures {
                return Err(Error::IllegalArgument(
                    "[rank_features] fields do not support [exists] queries".to_owned(),
                ));
            }
            if field.field_type == FieldType::Binary && !field.doc_values {
                return Ok(metadata(Metadata::InSource(field.path.to_string()), weight));
            }
            return Ok(Node::Exists { paths: vec![field.id], weight });
        }
        if let Some((field, below)) = mapping.flat_object(name) {
            searchable(field)?;
            let pattern = Arc::new(Pattern::prefixes(&[format!("{below}="), format!("{below}.")])?);
            return Ok(Node::Matching { path: field.id, text: false, column: None, pattern, weight });
        }
        let below = format!("{name}.");
        let pattern = name.contains('*');
        let paths: Vec<PathId> = mapping
            .fields()
            .filter(|field| match pattern {
                true => matches(name, &field.path),
                false => field.path.starts_with(&below),
            })
            .map(|field| field.id)
            .collect();
        Ok(if paths.is_empty() { Node::None } else { Node::Exists { paths, weight } })
    }
}
