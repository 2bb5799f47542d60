//! `rank_feature` meets a mapping: the numbers of a feature are terms, each with a score.

use std::sync::Arc;

use millrace_dsl::query::{FeatureFunction, RankFeatureQuery};
use millrace_mapping::document::feature_lead;
use millrace_mapping::{Field, FieldType};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::{ExpandedScore, Expansion, ExpansionSelection, Node};
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};

use super::{LowerClause, Resolver};

/// Most numbers of a feature, whose precision is that of half of a float.
const MOST_NUMBERS: usize = 10_000;

impl LowerClause for RankFeatureQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let Some((field, feature)) = resolver.feature(&self.field) else { return Ok(Node::None) };
        let fits = match field.field_type {
            FieldType::RankFeature => feature.is_empty(),
            FieldType::RankFeatures => !feature.is_empty(),
            _ => false,
        };
        if !fits {
            return Err(Error::IllegalArgument(format!(
                "[rank_feature] query only works on [rank_feature] fields and features of [rank_features] fields, not [{}]",
                field.type_name()
            )));
        }
        let positive = field.params.get("positive_score_impact").and_then(|impact| impact.as_bool());
        if let (Some(false), FeatureFunction::Log(_)) = (positive, self.function) {
            return Err(Error::IllegalArgument(
                "Cannot use the [log] function with a field that has a negative score impact as it would trigger negative scores"
                    .to_owned(),
            ));
        }
        self.function.check()?;
        resolver.count_leaf()?;
        let lead = feature_lead(feature);
        let (boost, score) = match weight {
            Weight::Constant(boost) => (boost, ExpandedScore::Feature(self.function)),
            _ => (0.0, ExpandedScore::Boost),
        };
        resolver.expansions.push(Expansion {
            path: field.id,
            nested: resolver.nested_id(),
            field: Arc::clone(&field.path),
            text: false,
            pattern: Arc::new(Pattern::prefix(&lead, false)?),
            lead,
            keep: ExpansionSelection::AtMost(MOST_NUMBERS),
            score,
            boost,
            rules: resolver.rules,
        });
        Ok(Node::Expanded(resolver.expansions.len() - 1))
    }
}

impl<'a> Resolver<'a> {
    /// Finds the field of a feature, and the feature's name within it.
    fn feature<'q>(&self, path: &'q str) -> Option<(&'a Field, &'q str)> {
        let mapping = self.index.mapping;
        if let Some(field) = mapping.field(path) {
            return Some((field, ""));
        }
        let (path, feature) = path.rsplit_once('.')?;
        let field = mapping.field(path)?;
        (field.field_type == FieldType::RankFeatures).then_some((field, feature))
    }
}
