//! Leaf clauses as functions of DataFusion's expression language.
//!
//! A leaf is evaluated inside the scan and nowhere else: the functions carry a clause through
//! planning, and [`super::predicate`] takes it out again. They name the `_row` column so that no
//! rule takes them for constants.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, col, lit,
};
use millrace_dsl::query::geo::GeoPoint;
use millrace_dsl::query::{FunctionScoreQuery, NestedQuery, Query};
use serde_json::Value;

use super::ROW;

/// A leaf clause with what it adds to the score.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The clause; never one that is made of others, such as `bool`.
    pub query: Query,
    /// Product of the boosts from the root down to here.
    pub boost: f32,
    /// Whether it scores; filters and exclusions do not.
    pub scored: bool,
}

impl Leaf {
    /// Makes a leaf.
    pub fn new(query: Query, boost: f32, scored: bool) -> Self {
        Self { query, boost, scored }
    }

    /// Names the kind of clause.
    pub fn kind(&self) -> &'static str {
        match &self.query {
            Query::MatchAll(_) => "match_all",
            Query::MatchNone(_) => "match_none",
            Query::Match(_) => "match",
            Query::MatchPhrase(_) => "match_phrase",
            Query::MatchPhrasePrefix(_) => "match_phrase_prefix",
            Query::MatchBoolPrefix(_) => "match_bool_prefix",
            Query::MultiMatch(_) => "multi_match",
            Query::QueryString(_) => "query_string",
            Query::SimpleQueryString(_) => "simple_query_string",
            Query::Term(_) => "term",
            Query::Terms(_) => "terms",
            Query::Range(_) => "range",
            Query::Exists(_) => "exists",
            Query::Ids(_) => "ids",
            Query::Intervals(_) => "intervals",
            Query::Prefix(_) => "prefix",
            Query::Wildcard(_) => "wildcard",
            Query::Regexp(_) => "regexp",
            Query::Fuzzy(_) => "fuzzy",
            Query::Bool(_) => "bool",
            Query::ConstantScore(_) => "constant_score",
            Query::Boosting(_) => "boosting",
            Query::DisMax(_) => "dis_max",
            Query::DistanceFeature(_) => "distance_feature",
            Query::FunctionScore(_) => "function_score",
            Query::GeoBoundingBox(_) => "geo_bounding_box",
            Query::GeoDistance(_) => "geo_distance",
            Query::GeoPolygon(_) => "geo_polygon",
            Query::Nested(_) => "nested",
            Query::RankFeature(_) => "rank_feature",
        }
    }
}

impl fmt::Display for Leaf {
    /// Writes what is asked; `~` marks a leaf that does not score.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scored {
            f.write_str("~")?;
        }
        match &self.query {
            Query::MatchAll(_) => f.write_str("*")?,
            Query::MatchNone(_)
            | Query::Bool(_)
            | Query::Boosting(_)
            | Query::ConstantScore(_)
            | Query::DisMax(_)
            | Query::FunctionScore(_)
            | Query::Nested(_) => {}
            Query::DistanceFeature(query) => {
                write!(f, "{} near {} by {}", query.field, query.origin, query.pivot)?;
            }
            Query::GeoBoundingBox(query) => {
                let bounds = &query.bounds;
                write!(
                    f,
                    "{} in [{}, {}] to [{}, {}]",
                    query.field, bounds.top, bounds.left, bounds.bottom, bounds.right
                )?;
            }
            Query::GeoDistance(query) => {
                let GeoPoint { lat, lon } = query.center;
                write!(f, "{} within {} m of [{lat}, {lon}]", query.field, query.distance)?;
            }
            Query::GeoPolygon(query) => {
                write!(f, "{} in a polygon of {} points", query.field, query.corners.len())?;
            }
            Query::Match(query) => write!(f, "{} = {}", query.field, query.query)?,
            Query::MatchPhrase(query) => write!(f, "{} = {}", query.field, query.query)?,
            Query::MatchPhrasePrefix(query) => write!(f, "{} = {}*", query.phrase.field, query.phrase.query)?,
            Query::MatchBoolPrefix(query) => write!(f, "{} = {}*", query.field, query.query)?,
            Query::MultiMatch(query) => f.write_str(&query.query)?,
            Query::QueryString(query) => f.write_str(&query.query)?,
            Query::SimpleQueryString(query) => f.write_str(&query.query)?,
            Query::Term(query) => write!(f, "{} = {}", query.field, query.value)?,
            Query::Terms(query) => {
                write!(f, "{} in ", query.field)?;
                listed(f, query.values.iter())?;
            }
            Query::Range(query) => {
                let sign = |included: bool| if included { "<=" } else { "<" };
                if let Some(from) = &query.from {
                    write!(f, "{} {} ", from.value, sign(from.included))?;
                }
                f.write_str(&query.field)?;
                if let Some(to) = &query.to {
                    write!(f, " {} {}", sign(to.included), to.value)?;
                }
            }
            Query::Exists(query) => f.write_str(&query.field)?,
            Query::RankFeature(query) => f.write_str(&query.field)?,
            Query::Ids(query) => {
                f.write_str("_id in ")?;
                listed(f, query.values.iter())?;
            }
            Query::Intervals(query) => f.write_str(&query.field)?,
            Query::Prefix(query) => {
                write!(f, "{} = {}*", query.field, Value::String(query.value.clone()))?;
            }
            Query::Wildcard(query) => write!(f, "{} like {}", query.field, query.value)?,
            Query::Regexp(query) => write!(f, "{} = /{}/", query.field, query.value)?,
            Query::Fuzzy(query) => write!(f, "{} = {}~", query.field, query.value)?,
        }
        if self.scored && self.boost != 1.0 {
            write!(f, " ^{}", self.boost)?;
        }
        Ok(())
    }
}

/// Writes the first values of a list and how many more there are.
fn listed<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    values: impl ExactSizeIterator<Item = T>,
) -> fmt::Result {
    const SHOWN: usize = 4;
    let count = values.len();
    f.write_str("[")?;
    for (at, value) in values.take(SHOWN).enumerate() {
        write!(f, "{}{value}", if at > 0 { ", " } else { "" })?;
    }
    if count > SHOWN {
        write!(f, ", … {} more", count - SHOWN)?;
    }
    f.write_str("]")
}

/// The function that carries a leaf.
#[derive(Debug)]
pub struct LeafFunction {
    /// The leaf.
    pub leaf: Arc<Leaf>,
    /// All of the leaf as text: what equality and hash go by.
    identity: String,
    signature: Signature,
}

impl PartialEq for LeafFunction {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for LeafFunction {}

impl Hash for LeafFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl ScalarUDFImpl for LeafFunction {
    fn name(&self) -> &str {
        self.leaf.kind()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} is evaluated by the index scan only", self.leaf.kind())
    }
}

/// How the clauses of a [`CombineFunction`] are combined.
#[derive(Clone, Debug)]
pub enum Combine {
    /// At least so many match; those that do, score. With 0 everything matches.
    AtLeast(usize),
    /// The one clause matches, with this score.
    Constant(f32),
    /// The first clause matches; its score is multiplied.
    Boosting {
        /// By this.
        boost: f32,
        /// And by this where the second clause matches too.
        negative: f32,
    },
    /// Any clause matches; the best score counts, the others by this share.
    DisMax(f32),
    /// The first clause matches, with its score combined with functions; the others are the filters of
    /// those functions that have one.
    FunctionScore(Arc<FunctionScoreQuery>),
    /// The one clause matches an element of a nested path.
    Nested(Arc<NestedQuery>),
}

/// The function that combines clauses where AND, OR and NOT cannot say it.
#[derive(Debug)]
pub struct CombineFunction {
    /// How.
    pub combine: Combine,
    name: String,
    /// All of `combine` as text: what equality and hash go by.
    identity: String,
    signature: Signature,
}

impl PartialEq for CombineFunction {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for CombineFunction {}

impl Hash for CombineFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl ScalarUDFImpl for CombineFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} is evaluated by the index scan only", self.name)
    }
}

/// Makes the call that carries a leaf.
pub(crate) fn leaf(leaf: Leaf) -> Expr {
    let shown = leaf.to_string();
    let identity = format!("{:?}", leaf);
    let function = LeafFunction {
        leaf: Arc::new(leaf),
        identity,
        signature: Signature::variadic_any(Volatility::Immutable),
    };
    ScalarUDF::from(function).call(vec![col(ROW), lit(shown)])
}

/// Makes the call that combines clauses.
pub(crate) fn combined(combine: Combine, clauses: Vec<Expr>) -> Expr {
    let name = match &combine {
        Combine::AtLeast(required) => format!("at_least_{required}"),
        Combine::Constant(score) => format!("constant_score_{score}"),
        Combine::Boosting { negative, .. } => format!("boosting_{negative}"),
        Combine::DisMax(tie_breaker) => format!("dis_max_{tie_breaker}"),
        Combine::FunctionScore(_) => "function_score".to_owned(),
        Combine::Nested(query) => format!("nested_{}", query.path),
    };
    let identity = format!("{combine:?}");
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::from(CombineFunction { combine, name, identity, signature }).call(clauses)
}

/// Makes the call that gives a clause one score.
pub(crate) fn constant(score: f32, clause: Expr) -> Expr {
    combined(Combine::Constant(score), vec![clause])
}
