//! Functions of arrays that take a lambda.
//!
//! Arrays are the text of JSON ([`json`](super::json)). Elements become rows of a batch, beside the values of the columns around the call.
//! The body is computed over whole batches, and the results become arrays again. A fold computes one step of all arrays at a time.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Int32Array, RecordBatch, RecordBatchOptions,
    StringViewBuilder, UInt32Array,
};
use datafusion::arrow::compute::{interleave, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, DFSchema, Result as PlanResult, exec_err};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use millrace_work::QueryContext;
use serde_json::Value;

use super::json::{MAX_BYTES, element, size, too_long, value_of};
use super::row::{Reader, Val, Writer, held};
use crate::error::evaluation;
use crate::types::SqlType;

/// Elements that are computed at a time.
const BATCH: usize = 16_384;
/// Bytes of arrays that are read at a time; one array may have more.
const BATCH_BYTES: usize = 4 << 20;

/// Operation of a lambda on an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LambdaKind {
    /// The values of all elements.
    Transform,
    /// The elements for which the body holds.
    Filter,
    /// True where it holds for each element.
    All,
    /// True where it holds for one element.
    Any,
    /// The accumulator of this number, behind the last element.
    Fold(usize),
}

/// A call of a function with a lambda.
#[derive(Clone, Debug)]
pub(crate) struct LambdaCall {
    /// The operation.
    pub(crate) kind: LambdaKind,
    /// Number of lambdas around, which makes the names of columns its own.
    pub(crate) depth: usize,
    /// Type of the elements.
    pub(crate) element: SqlType,
    /// Type of the values that the body makes of elements.
    pub(crate) body: SqlType,
    /// The body; a fold has one for each accumulator, with the number of it, in the order in which they are computed.
    pub(crate) bodies: Vec<(usize, Expr)>,
    /// Types of accumulators.
    pub(crate) accumulators: Vec<SqlType>,
    /// The answer of a fold, over the accumulators.
    pub(crate) finish: Option<Expr>,
    /// Type of the answer.
    pub(crate) result: SqlType,
    /// `true` if a missing array makes a missing answer.
    pub(crate) is_strict: bool,
}

/// Returns whether a column of a name is one of a lambda of this depth.
pub(crate) fn is_own(name: &str, depth: usize) -> bool {
    let is_accumulator = name.strip_prefix(&format!("\u{1}accumulator{depth}_")).is_some();
    is_accumulator || name == name_of(&item(depth)) || name == name_of(&index(depth))
}

/// Refers to the element.
pub(crate) fn item(depth: usize) -> Expr {
    column(format!("\u{1}item{depth}"))
}

/// Refers to the number of the element, from zero.
pub(crate) fn index(depth: usize) -> Expr {
    column(format!("\u{1}index{depth}"))
}

/// Refers to an accumulator.
pub(crate) fn accumulator(depth: usize, number: usize) -> Expr {
    column(format!("\u{1}accumulator{depth}_{number}"))
}

/// Refers to the value of a column around the call.
pub(crate) fn captured(depth: usize, number: usize) -> Expr {
    column(format!("\u{1}captured{depth}_{number}"))
}

fn column(name: String) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn name_of(column: &Expr) -> String {
    match column {
        Expr::Column(column) => column.name.clone(),
        other => other.to_string(),
    }
}

/// Calls a function with a lambda: `arguments` are the array, the first values of accumulators, and the columns around.
pub(crate) fn call(call: LambdaCall, arguments: Vec<Expr>) -> Expr {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::from(LambdaFunction { call, signature, work: QueryContext::default() }).call(arguments)
}

/// A function with a lambda in a plan.
#[derive(Debug)]
pub(super) struct LambdaFunction {
    call: LambdaCall,
    signature: Signature,
    /// Context of the statement that calls it.
    work: QueryContext,
}

impl LambdaFunction {
    /// Makes the function part of some work, with all functions of its bodies.
    ///
    /// # Errors
    /// Those of the change of a body.
    pub(super) fn at_work(
        &self,
        work: &QueryContext,
        change: &dyn Fn(Expr) -> PlanResult<Expr>,
    ) -> PlanResult<Self> {
        let mut call = self.call.clone();
        for (_, body) in &mut call.bodies {
            *body = change(body.clone())?;
        }
        call.finish = call.finish.map(change).transpose()?;
        Ok(Self { call, signature: self.signature.clone(), work: work.clone() })
    }

    fn key(&self) -> impl Hash + PartialEq + '_ {
        let LambdaCall { kind, depth, element, body, bodies, accumulators, finish, result, is_strict } =
            &self.call;
        (kind, depth, element, body, bodies, accumulators, finish, (result, is_strict))
    }
}

impl PartialEq for LambdaFunction {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for LambdaFunction {}

impl Hash for LambdaFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl ScalarUDFImpl for LambdaFunction {
    fn name(&self) -> &str {
        match self.call.kind {
            LambdaKind::Transform => "transform",
            LambdaKind::Filter => "filter",
            LambdaKind::All => "forall",
            LambdaKind::Any => "exists",
            LambdaKind::Fold(_) => "fold",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.call.result.arrow())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows;
        let arguments = args.args.iter().map(|argument| argument.to_array(rows));
        let arguments = arguments.collect::<PlanResult<Vec<ArrayRef>>>()?;
        let Some((array, rest)) = arguments.split_first() else { return exec_err!("an array is missing") };
        let Some((accumulators, captured)) = rest.split_at_checked(self.call.accumulators.len()) else {
            return exec_err!("an accumulator is missing");
        };
        let Some(texts) = array.as_string_view_opt() else { return exec_err!("the argument is no array") };
        let work = LambdaWork { call: &self.call, captured, part: self.work.part() };
        let array = match self.call.kind {
            LambdaKind::Fold(answered) => work.fold(texts, accumulators.to_vec(), answered)?,
            LambdaKind::All | LambdaKind::Any => work.truths(texts)?,
            LambdaKind::Transform | LambdaKind::Filter => work.arrays(texts)?,
        };
        Ok(ColumnarValue::Array(array))
    }
}

/// The work of one batch of rows.
struct LambdaWork<'w> {
    call: &'w LambdaCall,
    captured: &'w [ArrayRef],
    part: QueryContext,
}

/// Arrays of some rows of a batch; `None` where a row has none.
type ArraysOfRows = Vec<(u32, Option<Vec<Value>>)>;

impl LambdaWork<'_> {
    /// Computes transformed or filtered arrays.
    fn arrays(&self, texts: &datafusion::arrow::array::StringViewArray) -> PlanResult<ArrayRef> {
        let mut out = StringViewBuilder::with_capacity(texts.len());
        let mut body = None;
        self.grouped(texts, |group, elements| {
            let values = self.evaluated(&mut body, group, elements)?;
            let reader = Reader::new(&values)?;
            let mut at = 0;
            for (_, array) in group {
                let Some(array) = array else {
                    out.append_null();
                    continue;
                };
                let (mut kept, mut left) = (Vec::with_capacity(array.len()), MAX_BYTES);
                for element in array {
                    let value = reader.value(at);
                    at += 1;
                    // A value may be a string of a column around, so that its copies are far longer than the array.
                    if let (LambdaKind::Transform, Val::Str(_)) = (self.call.kind, &value) {
                        left = left.checked_sub(size(&value)).ok_or_else(|| evaluation(too_long()))?;
                    }
                    match self.call.kind {
                        LambdaKind::Filter if value == Val::Bool(true) => kept.push(element.clone()),
                        LambdaKind::Filter => {}
                        _ => kept.push(match self.call.body.is_json() {
                            true => serde_json::from_str(value.text()).unwrap_or(Value::Null),
                            false => value_of(&value),
                        }),
                    }
                }
                let text = Value::Array(kept).to_string();
                if text.len() > MAX_BYTES {
                    return Err(evaluation(too_long()));
                }
                self.part.hold(text.len())?;
                out.append_value(text);
            }
            Ok(())
        })?;
        held(&(Arc::new(out.finish()) as ArrayRef), &self.part)
    }

    /// Computes whether the body holds for all elements, or for one.
    fn truths(&self, texts: &datafusion::arrow::array::StringViewArray) -> PlanResult<ArrayRef> {
        let mut out = BooleanBuilder::with_capacity(texts.len());
        let mut body = None;
        let is_all = self.call.kind == LambdaKind::All;
        self.grouped(texts, |group, elements| {
            let values = self.evaluated(&mut body, group, elements)?;
            let Some(truths) = values.as_boolean_opt() else { return exec_err!("a body is no condition") };
            let mut at = 0;
            for (_, array) in group {
                out.append_option(array.as_ref().map(|array| {
                    let own = at..at + array.len();
                    at = own.end;
                    let mut truths = own.map(|at| truths.is_valid(at) && truths.value(at));
                    if is_all { truths.all(|truth| truth) } else { truths.any(|truth| truth) }
                }));
            }
            Ok(())
        })?;
        Ok(Arc::new(out.finish()))
    }

    /// Reads arrays, and hands on some rows at a time, with the number of their elements.
    fn grouped(
        &self,
        texts: &datafusion::arrow::array::StringViewArray,
        mut each: impl FnMut(&ArraysOfRows, usize) -> PlanResult<()>,
    ) -> PlanResult<()> {
        let (mut group, mut elements, mut bytes): (ArraysOfRows, usize, usize) = (Vec::new(), 0, 0);
        for (row, text) in texts.iter().enumerate() {
            let array = text.and_then(values_of);
            bytes = bytes.saturating_add(text.map_or(0, str::len));
            elements += array.as_ref().map_or(0, Vec::len);
            group.push((u32::try_from(row).unwrap_or(u32::MAX), array));
            if elements >= BATCH || bytes >= BATCH_BYTES {
                self.part.check()?;
                each(&group, elements)?;
                group.clear();
                (elements, bytes) = (0, 0);
            }
        }
        each(&group, elements)
    }

    /// Computes the body over all elements of some rows.
    fn evaluated(
        &self,
        body: &mut Option<CompiledBody>,
        group: &ArraysOfRows,
        elements: usize,
    ) -> PlanResult<ArrayRef> {
        let depth = self.call.depth;
        let mut items = Writer::new(self.call.element, elements)?;
        let (mut numbers, mut owners) = (Vec::with_capacity(elements), Vec::with_capacity(elements));
        for (row, array) in group {
            for (number, value) in array.iter().flatten().enumerate() {
                items.push(element(value, self.call.element)).map_err(evaluation)?;
                numbers.push(i32::try_from(number).unwrap_or(i32::MAX));
                owners.push(*row);
            }
        }
        let owners = UInt32Array::from(owners);
        let numbers: ArrayRef = Arc::new(Int32Array::from(numbers));
        let mut columns = vec![(name_of(&item(depth)), items.finish()), (name_of(&index(depth)), numbers)];
        for (number, array) in self.captured.iter().enumerate() {
            columns.push((name_of(&captured(depth, number)), take(array, &owners, None)?));
        }
        let batch = batch_of(columns, elements)?;
        let Some((_, expr)) = self.call.bodies.first() else { return exec_err!("a lambda has no body") };
        if body.is_none() {
            *body = Some(CompiledBody::new(expr, batch.schema_ref())?);
        }
        match body {
            Some(body) => body.evaluate(&batch),
            None => exec_err!("a lambda has no body"),
        }
    }

    /// Computes the accumulators of all rows, one element of each at a time.
    fn fold(
        &self,
        texts: &datafusion::arrow::array::StringViewArray,
        mut states: Vec<ArrayRef>,
        answered: usize,
    ) -> PlanResult<ArrayRef> {
        let depth = self.call.depth;
        let mut arrays: Vec<Option<Vec<Value>>> = Vec::with_capacity(texts.len());
        for text in texts {
            let array = text.and_then(elements_of);
            // All arrays of a batch are in memory, since each step reads one element of each.
            let elements = array.as_ref().map_or(0, Vec::len) * size_of::<Value>();
            self.part.hold(elements + text.map_or(0, str::len))?;
            arrays.push(array);
        }
        let steps = arrays.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let mut bodies: Vec<Option<CompiledBody>> = self.call.bodies.iter().map(|_| None).collect();
        for step in 0..steps {
            self.part.check()?;
            let mut items = Writer::new(self.call.element, arrays.len())?;
            let mut rows = Vec::new();
            for (row, array) in arrays.iter().enumerate() {
                if let Some(value) = array.as_ref().and_then(|array| array.get(step)) {
                    items.push(element(value, self.call.element)).map_err(evaluation)?;
                    rows.push(u32::try_from(row).unwrap_or(u32::MAX));
                }
            }
            let rows = UInt32Array::from(rows);
            let numbers: ArrayRef =
                Arc::new(Int32Array::from(vec![i32::try_from(step).unwrap_or(i32::MAX); rows.len()]));
            let mut columns =
                vec![(name_of(&item(depth)), items.finish()), (name_of(&index(depth)), numbers)];
            for (number, array) in self.captured.iter().enumerate() {
                columns.push((name_of(&captured(depth, number)), take(array, &rows, None)?));
            }
            let first_state = columns.len();
            for (number, state) in states.iter().enumerate() {
                columns.push((name_of(&accumulator(depth, number)), take(state, &rows, None)?));
            }
            for ((number, expr), body) in self.call.bodies.iter().zip(&mut bodies) {
                let batch = batch_of(columns.clone(), rows.len())?;
                if body.is_none() {
                    *body = Some(CompiledBody::new(expr, batch.schema_ref())?);
                }
                let Some(body) = body else { continue };
                let value = body.evaluate(&batch)?;
                if let Some((_, state)) = columns.get_mut(first_state + number) {
                    *state = value;
                }
            }
            for (state, (_, changed)) in states.iter_mut().zip(columns.drain(first_state..)) {
                *state = merged(state, &changed, &rows)?;
            }
        }
        let is_missing = |array: &Option<Vec<Value>>| array.is_none() && self.call.is_strict;
        let missing = BooleanArray::from(arrays.iter().map(is_missing).collect::<Vec<_>>());
        let answer = match &self.call.finish {
            None => states.get(answered).cloned(),
            Some(finish) => {
                let mut columns: Vec<(String, ArrayRef)> = Vec::new();
                for (number, state) in states.iter().enumerate() {
                    columns.push((name_of(&accumulator(depth, number)), Arc::clone(state)));
                }
                for (number, array) in self.captured.iter().enumerate() {
                    columns.push((name_of(&captured(depth, number)), Arc::clone(array)));
                }
                let batch = batch_of(columns, arrays.len())?;
                Some(CompiledBody::new(finish, batch.schema_ref())?.evaluate(&batch)?)
            }
        };
        let Some(answer) = answer else { return exec_err!("a fold has no accumulator") };
        datafusion::arrow::compute::nullif(&answer, &missing).map_err(Into::into)
    }
}

/// Puts the changed values of some rows in the place of those before.
fn merged(state: &ArrayRef, changed: &ArrayRef, rows: &UInt32Array) -> PlanResult<ArrayRef> {
    let mut sources: Vec<(usize, usize)> = (0..state.len()).map(|row| (0, row)).collect();
    for (at, row) in rows.values().iter().enumerate() {
        if let Some(source) = sources.get_mut(*row as usize) {
            *source = (1, at);
        }
    }
    Ok(interleave(&[state.as_ref(), changed.as_ref()], &sources)?)
}

fn batch_of(columns: Vec<(String, ArrayRef)>, rows: usize) -> PlanResult<RecordBatch> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

/// A body that is ready to run.
struct CompiledBody(Arc<dyn PhysicalExpr>);

impl CompiledBody {
    fn new(body: &Expr, schema: &Schema) -> PlanResult<Self> {
        let schema = Arc::new(DFSchema::try_from(schema.clone())?);
        let context = SimplifyContext::builder().with_schema(Arc::clone(&schema)).build();
        let body = ExprSimplifier::new(context).coerce(body.clone(), &schema)?;
        let context = PhysicalPlanningContext::default();
        Ok(Self(create_physical_expr(&body, &schema, &ExecutionProps::new(), &context)?))
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ArrayRef> {
        self.0.evaluate(batch)?.into_array(batch.num_rows())
    }
}

/// Reads the elements of an array; another value is its only element.
fn values_of(text: &str) -> Option<Vec<Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Array(values)) => Some(values),
        Ok(Value::Null) | Err(_) => None,
        Ok(other) => Some(vec![other]),
    }
}

/// Reads the elements of an array; another value has none.
fn elements_of(text: &str) -> Option<Vec<Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Array(values)) => Some(values),
        _ => None,
    }
}
