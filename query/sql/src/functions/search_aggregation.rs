//! Functions that only a search answers: buckets of GROUP BY (`terms(…)`, `range(…)`) and aggregates of several values
//! (`topHits(…)`, `stats(…)`). A plan holds them, the [renderer](crate::renderer) writes their aggregations, and a plan that
//! runs refuses them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use serde_json::Value;

use crate::error::evaluation;

/// An aggregation, by the name of OpenSearch's first engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchAggregation {
    name: String,
    body: Value,
    /// Aggregations of one bucket around it, by name, the outermost first: the way to documents within documents.
    wrappers: Vec<(String, Value)>,
    signature: Signature,
}

impl SearchAggregation {
    /// Makes an aggregation.
    pub(crate) fn new(name: String, body: Value, wrappers: Vec<(String, Value)>) -> Self {
        Self { name, body, wrappers, signature: Signature::variadic_any(Volatility::Immutable) }
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its body.
    pub(crate) fn body(&self) -> Value {
        self.body.clone()
    }

    /// Lists the aggregations around it, the outermost first.
    pub(crate) fn wrappers(&self) -> &[(String, Value)] {
        &self.wrappers
    }

    fn refusal(&self) -> datafusion::error::DataFusionError {
        evaluation(format!("[{}] is answered in the format [json] only", self.name))
    }
}

impl Hash for SearchAggregation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.body.to_string().hash(state);
        self.wrappers.iter().for_each(|(name, _)| name.hash(state));
    }
}

/// Buckets of rows, as a key of groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SearchBuckets(SearchAggregation);

impl SearchBuckets {
    /// Makes a key of groups over columns.
    pub(crate) fn call(aggregation: SearchAggregation, columns: Vec<Expr>) -> Expr {
        ScalarUDF::from(Self(aggregation)).call(columns)
    }

    /// Returns its aggregation.
    pub(crate) fn aggregation(&self) -> &SearchAggregation {
        &self.0
    }
}

impl ScalarUDFImpl for SearchBuckets {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        Err(self.0.refusal())
    }
}

/// An aggregate of several values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SearchMetric(SearchAggregation);

impl SearchMetric {
    /// Makes an aggregate over columns.
    pub(crate) fn call(aggregation: SearchAggregation, columns: Vec<Expr>) -> Expr {
        let function = Arc::new(AggregateUDF::from(Self(aggregation)));
        Expr::AggregateFunction(AggregateFunction::new_udf(function, columns, false, None, Vec::new(), None))
    }

    /// Finds the aggregate that an expression is.
    pub(crate) fn of(expr: &Expr) -> Option<&Self> {
        match expr {
            Expr::Alias(alias) => Self::of(&alias.expr),
            Expr::AggregateFunction(function) => function.func.inner().downcast_ref::<Self>(),
            _ => None,
        }
    }

    /// Returns its aggregation.
    pub(crate) fn aggregation(&self) -> &SearchAggregation {
        &self.0
    }
}

impl AggregateUDFImpl for SearchMetric {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn accumulator(&self, _args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Err(self.0.refusal())
    }
}
