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
use millrace_dsl::query::{FunctionScoreQuery, NestedQuery, Query};

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
}

impl fmt::Display for Leaf {
    /// Writes what is asked; `~` marks a leaf that does not score.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scored {
            f.write_str("~")?;
        }
        write!(f, "{}", self.query)?;
        if self.scored && self.boost != 1.0 {
            write!(f, " ^{}", self.boost)?;
        }
        Ok(())
    }
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
        self.leaf.query.kind()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} is evaluated by the index scan only", self.leaf.query.kind())
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
