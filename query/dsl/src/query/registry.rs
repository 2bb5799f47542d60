//! The kinds of clauses that there are. All that asks of which kind a clause is derives from this list.

use std::fmt;
use std::sync::Arc;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Clause, Common, Lookup, Parser, Role, wrapper};

/// Gives a macro all kinds of clauses: `name in requests => module::Variant(Type)`, by name; other names that
/// a kind has stand behind its own. Variants are those of
/// [`Query`](crate::query::Query).
#[macro_export]
macro_rules! clauses {
    ($take:ident) => {
        $take! {
            "bool" => bool_::Bool(BoolQuery),
            "boosting" => boosting::Boosting(BoostingQuery),
            "constant_score" => constant_score::ConstantScore(ConstantScoreQuery),
            "dis_max" => dis_max::DisMax(DisMaxQuery),
            "distance_feature" => distance_feature::DistanceFeature(DistanceFeatureQuery),
            "exists" => exists::Exists(ExistsQuery),
            "function_score" => function_score::FunctionScore(FunctionScoreQuery),
            "fuzzy" => fuzzy::Fuzzy(FuzzyQuery),
            "geo_bounding_box" => geo_bounding_box::GeoBoundingBox(GeoBoundingBoxQuery),
            "geo_distance" => geo_distance::GeoDistance(GeoDistanceQuery),
            "geo_polygon" => geo_polygon::GeoPolygon(GeoPolygonQuery),
            "ids" => ids::Ids(IdsQuery),
            "intervals" => intervals::Intervals(IntervalsQuery),
            "match" => match_::Match(MatchQuery),
            "match_all" => match_all::MatchAll(MatchAllQuery),
            "match_bool_prefix" => match_bool_prefix::MatchBoolPrefix(MatchBoolPrefixQuery),
            "match_none" => match_all::MatchNone(MatchNoneQuery),
            "match_phrase" => match_phrase::MatchPhrase(MatchPhraseQuery),
            "match_phrase_prefix" => match_phrase::MatchPhrasePrefix(MatchPhrasePrefixQuery),
            "more_like_this" => more_like_this::MoreLikeThis(MoreLikeThisQuery),
            "multi_match" => multi_match::MultiMatch(MultiMatchQuery),
            "nested" => nested::Nested(NestedQuery),
            "prefix" => prefix::Prefix(PrefixQuery),
            "query_string" => query_string::QueryString(QueryStringQuery),
            "range" => range::Range(RangeQuery),
            "rank_feature" => rank_feature::RankFeature(RankFeatureQuery),
            "regexp" => regexp::Regexp(RegexpQuery),
            "simple_query_string" => simple_query_string::SimpleQueryString(SimpleQueryStringQuery),
            "span_containing" => span_enclosure::SpanContaining(SpanContainingQuery),
            "span_field_masking" | "field_masking_span" => span_field_masking::SpanFieldMasking(SpanFieldMaskingQuery),
            "span_first" => span_first::SpanFirst(SpanFirstQuery),
            "span_gap" => span_near::SpanGap(SpanGapQuery),
            "span_multi" => span_multi::SpanMulti(SpanMultiQuery),
            "span_near" => span_near::SpanNear(SpanNearQuery),
            "span_not" => span_not::SpanNot(SpanNotQuery),
            "span_or" => span_or::SpanOr(SpanOrQuery),
            "span_term" => span_term::SpanTerm(SpanTermQuery),
            "span_within" => span_enclosure::SpanWithin(SpanWithinQuery),
            "term" => term::Term(TermQuery),
            "terms" => terms::Terms(TermsQuery),
            "wildcard" => wildcard::Wildcard(WildcardQuery),
        }
    };
}

/// Parses what stands behind a clause's name.
type Parse = fn(&mut Parser, &Map<String, Value>) -> Result<Query>;

macro_rules! registered {
    ($($name:literal $(| $alias:literal)* => $module:ident::$variant:ident($clause:ident),)*) => {
        $(pub use super::$module::$clause;)*

        /// A parsed clause.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        #[allow(clippy::enum_variant_names, reason = "`query_string` is the clause's name")]
        pub enum Query {
            $($variant(Arc<$clause>),)*
        }

        $(impl From<$clause> for Query {
            fn from(clause: $clause) -> Self {
                Self::$variant(Arc::new(clause))
            }
        })*

        /// The clauses by their names.
        pub(super) const PARSERS: &[(&str, Parse)] = &[
            $(
                ($name, |parser, fields| Ok($clause::parse(parser, fields)?.into())),
                $(($alias, |parser, fields| Ok($clause::parse(parser, fields)?.into())),)*
            )*
            ("wrapper", wrapper::parse),
        ];

        impl Query {
            /// Names the kind of clause.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            /// Returns boost and name.
            pub fn common(&self) -> &Common {
                match self {
                    $(Self::$variant(clause) => clause.common(),)*
                }
            }

            /// Returns whether it is made of other clauses and means nothing without them.
            pub fn is_compound(&self) -> bool {
                match self {
                    $(Self::$variant(clause) => clause.is_compound(),)*
                }
            }

            /// Lists the clauses below it.
            pub fn parts(&self) -> Vec<(Role, &Query)> {
                match self {
                    $(Self::$variant(clause) => clause.parts(),)*
                }
            }

            /// Returns whether it finds spans.
            pub fn is_span(&self) -> bool {
                match self {
                    $(Self::$variant(clause) => clause.is_span(),)*
                }
            }

            /// Lists the documents that the clause takes values from, where a search is of some indices.
            pub fn lookups(&self, searched: &[&str]) -> Vec<Lookup> {
                match self {
                    $(Self::$variant(clause) => clause.lookups(searched),)*
                }
            }

            /// Takes the values of those documents.
            pub fn fill(&mut self, searched: &[&str], values: &mut dyn FnMut(&Lookup) -> Vec<Value>) {
                match self {
                    $(Self::$variant(clause) => Arc::make_mut(clause).fill(searched, values),)*
                }
            }

            fn parts_mut(&mut self) -> Vec<&mut Query> {
                match self {
                    $(Self::$variant(clause) => Arc::make_mut(clause).parts_mut(),)*
                }
            }

            /// Estimates the bytes that the clause takes by itself.
            pub(super) fn own_bytes(&self) -> usize {
                match self {
                    $(Self::$variant(clause) => size_of::<$clause>() + clause.bytes(),)*
                }
            }
        }

        impl fmt::Display for Query {
            /// Writes what is asked, without boost and name.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(clause) => clause.write(f),)*
                }
            }
        }
    };
}

clauses!(registered);

impl Query {
    /// Returns the query that matches everything.
    pub fn match_all() -> Self {
        MatchAllQuery::default().into()
    }

    /// Calls `visit` for this clause and all below it.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Query)) {
        visit(self);
        self.parts().into_iter().for_each(|(_, clause)| clause.walk(visit));
    }

    /// Calls `visit` for this clause and all below it, to change them.
    pub fn walk_mut(&mut self, visit: &mut dyn FnMut(&mut Query)) {
        visit(self);
        self.parts_mut().into_iter().for_each(|clause| clause.walk_mut(visit));
    }
}
