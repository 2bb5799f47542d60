//! Groups as aggregations, under the names that OpenSearch's first engine gives them: an alias, or else the field of a key and the
//! text of an aggregate. The first key is the outermost aggregation.

use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use serde_json::{Map, Value, json};

use super::flat_select::{FlatSelect, GroupMember, Groups};
use super::selector::{Selector, Variable};
use super::{ExactField, PAGE, RenderResult, field_of, unwrapped};
use crate::bind::OutColumn;
use crate::functions::search_aggregation::{SearchBuckets, SearchMetric};
use crate::types::SqlType;

/// Distinct values up to which their count is exact.
const EXACT_DISTINCT: usize = 40_000;

/// Name of the condition on groups among the aggregations.
const SELECTOR: &str = "bucket_filter";

/// Name of the cut of groups among the aggregations.
const CUT: &str = "bucket_cut";

/// Writes the aggregations of groups, and what belongs to them.
pub(super) fn render(
    select: &FlatSelect,
    groups: &Groups,
    columns: &[OutColumn],
    outputs: &[Expr],
    body: &mut Map<String, Value>,
) -> RenderResult<()> {
    let mut names = Names::new(select, groups, columns, outputs)?;
    let keys = key_bodies(select, groups)?;
    let orders = names.orders(select, groups)?;
    let mut having = None;
    if !select.having.is_empty() {
        if keys.is_empty() {
            return Err("HAVING without GROUP BY".into());
        }
        having = Some(
            Selector::new(|metric, is_null| names.having(groups, metric, is_null)).body(&select.having)?,
        );
    }
    let mut inner = Map::new();
    for (name, at) in &names.metrics {
        let metric = groups.metrics.get(*at).ok_or("this aggregate")?;
        insert_wrapped(&mut inner, names.wrappers(*at), name, metric_body(select, metric)?);
    }
    for (name, at) in &names.counts {
        let metric = groups.metrics.get(*at).ok_or("this aggregate")?;
        let own = json!({"value_count": {"field": metric_field(&metric_body(select, metric)?)?}});
        insert_wrapped(&mut inner, names.wrappers(*at), name, own);
    }
    let (skip, limit) = select.cut.unwrap_or((0, None));
    if limit == Some(0) {
        return Err("LIMIT 0 of groups".into());
    }
    let limit = limit.unwrap_or(PAGE.saturating_sub(skip));
    if keys.is_empty() {
        if skip > 0 {
            return Err("OFFSET of one group".into());
        }
        body.insert("aggregations".into(), Value::Object(inner));
        return Ok(());
    }
    // Of several keys each has so many groups. Conditions on groups leave some of all.
    let cuts_behind = having.is_some() || skip > 0;
    if cuts_behind && skip.saturating_add(limit) > PAGE {
        return Err(format!("LIMIT beyond {PAGE} groups").into());
    }
    let size = if cuts_behind { PAGE } else { limit };
    if let Some(having) = having {
        inner.insert(SELECTOR.to_owned(), having);
    }
    if keys.len() > 1 && skip > 0 {
        return Err("OFFSET of groups by several keys".into());
    }
    if cuts_behind {
        inner.insert(CUT.to_owned(), json!({"bucket_sort": {"from": skip, "size": limit}}));
    }
    for (name, own, order) in levels(keys, names.keys.clone(), orders).into_iter().rev() {
        let mut own = bucket_body(own, order, size)?;
        if !inner.is_empty() {
            own["aggregations"] = Value::Object(inner);
        }
        inner = Map::new();
        inner.insert(name, own);
    }
    if !names.selected.is_empty() {
        body.insert("_source".into(), json!({"includes": names.selected, "excludes": []}));
        let stored = match names.selected.as_slice() {
            [only] => json!(only),
            several => json!(several),
        };
        body.insert("stored_fields".into(), stored);
    }
    body.insert("aggregations".into(), Value::Object(inner));
    Ok(())
}

/// A key of groups: its name, its aggregation, and those around it.
struct KeyAggregation {
    name: String,
    body: Value,
    wrappers: Vec<(String, Value)>,
}

/// An aggregation of buckets: its name, its body, and its order where the statement says one.
type BucketLevel = (String, Value, Option<Value>);

/// Lists the aggregations of keys, each within the one before it.
fn levels(keys: Vec<KeyAggregation>, names: Vec<String>, orders: Vec<Option<Value>>) -> Vec<BucketLevel> {
    let mut levels: Vec<BucketLevel> = Vec::new();
    let mut is_wrapped = false;
    for ((key, name), order) in keys.into_iter().zip(names).zip(orders) {
        // A filter behind a key of inner documents is one on these.
        let inner = levels.len().checked_sub(1).filter(|_| is_wrapped && key.body.get("filter").is_some());
        is_wrapped = !key.wrappers.is_empty();
        levels.extend(key.wrappers.into_iter().map(|(name, body)| (name, body, None)));
        match inner {
            Some(at) => levels.insert(at, (name, key.body, order)),
            None => levels.push((name, key.body, order)),
        }
    }
    levels
}

/// Completes an aggregation of buckets.
fn bucket_body(mut body: Value, order: Option<Value>, size: usize) -> RenderResult<Value> {
    if let Some(terms) = body.get_mut("terms").and_then(Value::as_object_mut) {
        for (member, default) in [
            ("size", json!(size)),
            ("min_doc_count", json!(1)),
            ("shard_min_doc_count", json!(0)),
            ("show_term_doc_count_error", json!(false)),
        ] {
            terms.entry(member).or_insert(default);
        }
    }
    let kind = body.as_object().and_then(|body| body.keys().next()).cloned().unwrap_or_default();
    if matches!(kind.as_str(), "terms" | "histogram" | "date_histogram")
        && let Some(options) = body.get_mut(&kind).and_then(Value::as_object_mut)
    {
        match order {
            Some(order) => drop(options.insert("order".to_owned(), order)),
            None if kind == "terms" => {
                options.entry("order").or_insert(json!([{"_count": "desc"}, {"_key": "asc"}]));
            }
            None => {}
        }
    } else if order.is_some() {
        return Err("an order of these groups".into());
    }
    Ok(body)
}

/// Inserts an aggregation within those around it.
fn insert_wrapped(into: &mut Map<String, Value>, wrappers: &[(String, Value)], name: &str, body: Value) {
    let (mut name, mut body) = (name.to_owned(), body);
    for (outer, wrapper) in wrappers.iter().rev() {
        let mut wrapper = wrapper.clone();
        wrapper["aggregations"] = json!({name: body});
        (name, body) = (outer.clone(), wrapper);
    }
    match into.get_mut(&name).and_then(|known| known.get_mut("aggregations")).and_then(Value::as_object_mut) {
        Some(known) if !wrappers.is_empty() => {
            let inner = body.get_mut("aggregations").and_then(Value::as_object_mut);
            known.extend(inner.map(std::mem::take).unwrap_or_default());
        }
        _ => drop(into.insert(name, body)),
    }
}

/// Names of aggregations.
struct Names {
    /// Of the keys.
    keys: Vec<String>,
    /// Of the aggregates that are shown, with their numbers.
    metrics: Vec<(String, usize)>,
    /// Fields of the keys that are shown.
    selected: Vec<String>,
    /// Of the counts of the values of aggregates, with the numbers of these.
    counts: Vec<(String, usize)>,
    /// Aggregations around each aggregate.
    wrappers: Vec<Vec<(String, Value)>>,
}

impl Names {
    fn new(
        select: &FlatSelect,
        groups: &Groups,
        columns: &[OutColumn],
        outputs: &[Expr],
    ) -> RenderResult<Self> {
        let mut keys: Vec<Option<String>> = vec![None; groups.keys.len()];
        let (mut metrics, mut selected) = (Vec::new(), Vec::new());
        for (output, column) in outputs.iter().zip(columns) {
            match GroupMember::new(unwrapped(output)) {
                Some(GroupMember::Key(at)) => {
                    let name = keys.get_mut(at).ok_or("this key")?;
                    if name.is_none() {
                        name.clone_from(&column.alias);
                    }
                    if let Some(key) = groups.keys.get(at)
                        && let Some(path) = element_path(select, key).or_else(|| field_of(unwrapped(key)))
                    {
                        selected.push(path.to_owned());
                    }
                }
                Some(GroupMember::Metric(at)) => {
                    let name = match groups.metrics.get(at).and_then(SearchMetric::of) {
                        Some(metric) => {
                            column.alias.clone().unwrap_or_else(|| metric.aggregation().name().to_owned())
                        }
                        None => column.alias.clone().unwrap_or_else(|| column.name.clone()),
                    };
                    metrics.push((name, at));
                }
                None => return Err("an expression over groups in SELECT".into()),
            }
        }
        let own = keys.into_iter().zip(&groups.keys).map(|(name, key)| match name {
            Some(name) => Ok(name),
            None => Ok(key_body(select, key)?.name),
        });
        let keys = own.collect::<RenderResult<_>>()?;
        let wrappers = groups.metrics.iter().map(|metric| metric_wrappers(select, groups, metric));
        let wrappers = wrappers.collect::<RenderResult<_>>()?;
        Ok(Self { keys, metrics, selected, counts: Vec::new(), wrappers })
    }

    /// Lists the aggregations around an aggregate.
    fn wrappers(&self, metric: usize) -> &[(String, Value)] {
        self.wrappers.get(metric).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the path of an aggregation in a bucket.
    fn path(&self, metric: usize, name: &str) -> String {
        let wrappers = self.wrappers(metric).iter().map(|(name, _)| name.as_str());
        wrappers.chain([name]).collect::<Vec<_>>().join(">")
    }

    /// Returns the variable and the path by which pipelines read an aggregate, which is shown if no other name fits.
    fn variable(&mut self, groups: &Groups, metric: usize) -> RenderResult<(String, String)> {
        let expr = groups.metrics.get(metric).ok_or("this aggregate")?;
        let plain = |name: &str| {
            name.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        let known = self.metrics.iter().find(|(name, at)| *at == metric && plain(name));
        if let Some((name, _)) = known {
            return Ok((name.clone(), self.path(metric, name)));
        }
        let Expr::AggregateFunction(function) = unwrapped(expr) else { return Err("this aggregate".into()) };
        let name = format!("{}_{}", function.func.name(), self.unnamed());
        if counts_rows(function) && self.wrappers(metric).is_empty() {
            return Ok((name, "_count".to_owned()));
        }
        self.metrics.push((name.clone(), metric));
        let path = self.path(metric, &name);
        Ok((name, path))
    }

    /// Returns the variable of an aggregate in a condition, and that of the count of its values where the comparison needs it.
    ///
    /// An empty sum is 0. Other empty aggregates are NaN, which no comparison but `!=` accepts.
    fn having(&mut self, groups: &Groups, metric: usize, accepts_nan: bool) -> RenderResult<Variable> {
        let (name, path) = self.variable(groups, metric)?;
        let expr = groups.metrics.get(metric).ok_or("this aggregate")?;
        let kind = match SearchMetric::of(expr) {
            Some(own) => own.aggregation().body().as_object().and_then(|body| body.keys().next().cloned()),
            None => match unwrapped(expr) {
                Expr::AggregateFunction(function) => Some(function.func.name().to_owned()),
                _ => None,
            },
        };
        let counted = match kind.as_deref() {
            Some("sum") => true,
            Some("min" | "max" | "avg") => accepts_nan,
            _ => false,
        };
        let count = counted.then(|| {
            let mut count = format!("{name}_values");
            while self.metrics.iter().any(|(known, _)| *known == count) {
                count.push('_');
            }
            if !self.counts.iter().any(|(known, _)| *known == count) {
                self.counts.push((count.clone(), metric));
            }
            let path = match path.rsplit_once('>') {
                Some((around, _)) => format!("{around}>{count}"),
                None => count.clone(),
            };
            (count, path)
        });
        Ok(Variable { name, path, count })
    }

    /// Returns a number that no aggregate has in its name.
    fn unnamed(&self) -> usize {
        let mut numbers = 0..;
        let taken =
            |number: &usize| self.metrics.iter().any(|(name, _)| name.ends_with(&format!("_{number}")));
        numbers.find(|number| !taken(number)).unwrap_or_default()
    }

    /// Returns the order of each key's groups.
    fn orders(&mut self, select: &FlatSelect, groups: &Groups) -> RenderResult<Vec<Option<Value>>> {
        let mut orders: Vec<Option<Value>> = vec![None; groups.keys.len()];
        if groups.keys.is_empty() {
            return Ok(orders);
        }
        let refused = || "this ORDER BY of groups".into();
        let (mut by, mut last) = (Vec::new(), None);
        for sort in &select.sorts {
            let direction = if sort.asc { "asc" } else { "desc" };
            match GroupMember::new(unwrapped(&sort.expr)) {
                Some(GroupMember::Key(0)) if groups.keys.len() == 1 => by.push(json!({"_key": direction})),
                // Each key orders the groups within those of the keys before it.
                Some(GroupMember::Key(at)) if last.is_none_or(|last| last < at) => {
                    last = Some(at);
                    *orders.get_mut(at).ok_or_else(refused)? = Some(json!({"_key": direction}));
                }
                Some(GroupMember::Metric(at)) if groups.keys.len() == 1 => {
                    by.push(json!({self.variable(groups, at)?.1: direction}));
                }
                _ => return Err(refused()),
            }
        }
        if let (false, Some(order)) = (by.is_empty(), orders.first_mut()) {
            *order = Some(match by.as_slice() {
                [only] => only.clone(),
                several => json!(several),
            });
        }
        Ok(orders)
    }
}

/// Returns the path of the elements' field, or of the whole elements, that an expression is.
fn element_path<'s>(select: &'s FlatSelect, expr: &Expr) -> Option<&'s str> {
    let (Expr::Column(column), Some(_)) = (unwrapped(expr), &select.elements) else { return None };
    let own = select.scan.columns.iter().find(|own| own.name == column.name && !own.list)?;
    own.element_path()
}

/// Lists the aggregations of keys. Keys of elements come behind those of documents, and the first is within the elements.
fn key_bodies(select: &FlatSelect, groups: &Groups) -> RenderResult<Vec<KeyAggregation>> {
    let mut is_within = false;
    let keys = groups.keys.iter().map(|key| {
        let mut own = key_body(select, key)?;
        let is_element = element_path(select, key).is_some();
        if is_within {
            if !is_element {
                return Err("a key of documents behind one of their elements".into());
            }
            own.wrappers.clear();
        }
        is_within |= is_element;
        Ok(own)
    });
    keys.collect()
}

/// Lists the aggregations around an aggregate.
fn metric_wrappers(
    select: &FlatSelect,
    groups: &Groups,
    metric: &Expr,
) -> RenderResult<Vec<(String, Value)>> {
    let own = SearchMetric::of(metric);
    let Some(elements) = &select.elements else {
        return Ok(own.map(|metric| metric.aggregation().wrappers().to_vec()).unwrap_or_default());
    };
    let Expr::AggregateFunction(function) = unwrapped(metric) else { return Err("this aggregate".into()) };
    if own.is_some() {
        return Err("this aggregate of elements".into());
    }
    let field = match function.params.args.as_slice() {
        _ if counts_rows(function) => elements.path.as_str(),
        [argument] => {
            element_path(select, argument).ok_or("an aggregate of documents over their elements")?
        }
        _ => return Err("this aggregate of elements".into()),
    };
    let is_within = groups.keys.iter().any(|key| element_path(select, key).is_some());
    Ok(if is_within { Vec::new() } else { elements.wrappers(field) })
}

/// Writes the aggregation of a key.
fn key_body(select: &FlatSelect, key: &Expr) -> RenderResult<KeyAggregation> {
    let scan = &select.scan;
    let plain = |name: String, body: Value| KeyAggregation { name, body, wrappers: Vec::new() };
    let key = unwrapped(key);
    if let Some(elements) = &select.elements {
        if let Some(path) = element_path(select, key) {
            let exact = ExactField::within(&scan.snapshot, path, Some(&elements.path))?.path;
            let body = json!({"terms": {"field": exact}});
            return Ok(KeyAggregation { wrappers: elements.wrappers(path), ..plain(exact, body) });
        }
        if !matches!(key, Expr::Column(_)) {
            return Err("an expression in GROUP BY of elements".into());
        }
    }
    if let Expr::ScalarFunction(ScalarFunction { func, args }) = key {
        if let Some(own) = func.inner().downcast_ref::<SearchBuckets>() {
            let own = own.aggregation();
            let (name, body) = (own.name().to_owned(), own.body());
            return Ok(KeyAggregation { name, body, wrappers: own.wrappers().to_vec() });
        }
        if let ("histogram", [value, Expr::Literal(width, _)]) = (func.name(), args.as_slice())
            && let Some(field) = field_of(unwrapped(value))
            && let Ok(width) = width.to_string().parse::<f64>()
        {
            let field = ExactField::new(&scan.snapshot, field)?.path;
            let body = json!({"histogram": {"field": field, "interval": width, "min_doc_count": 1}});
            return Ok(plain(format!("histogram({field},{width})"), body));
        }
    }
    let path = field_of(key).ok_or("an expression in GROUP BY")?;
    let exact = ExactField::new(&scan.snapshot, path)?.path;
    let body = json!({"terms": {"field": exact}});
    Ok(plain(exact, body))
}

fn counts_rows(function: &AggregateFunction) -> bool {
    let params = &function.params;
    let of_rows = matches!(params.args.as_slice(), [Expr::Literal(value, _)] if !value.is_null());
    function.func.name() == "count" && of_rows && !params.distinct && params.filter.is_none()
}

/// Returns the field that the aggregation of one value reads.
fn metric_field(body: &Value) -> RenderResult<&Value> {
    let options = body.as_object().and_then(|body| body.values().next());
    options.and_then(|options| options.get("field")).ok_or_else(|| "this aggregate".into())
}

/// Writes the aggregation of an aggregate.
fn metric_body(select: &FlatSelect, metric: &Expr) -> RenderResult<Value> {
    let Expr::AggregateFunction(function) = unwrapped(metric) else { return Err("this aggregate".into()) };
    if let Some(own) = SearchMetric::of(metric) {
        return Ok(own.aggregation().body());
    }
    if counts_rows(function) {
        return Ok(json!({"value_count": {"field": "_index"}}));
    }
    let (name, params) = (function.func.name(), &function.params);
    if params.filter.is_some() {
        return Err("FILTER of an aggregate".into());
    }
    let scan = &select.scan;
    let [argument] = params.args.as_slice() else { return Err(format!("the function [{name}]").into()) };
    let own = field_of(unwrapped(argument)).ok_or("an aggregate of an expression")?;
    let ty = scan.columns.iter().find(|column| column.path() == own).map(|column| column.ty);
    let is_number = ty.is_some_and(|ty| ty.is_number() || ty.is_temporal() || ty == SqlType::Boolean);
    let nested = select.elements.as_ref().map(|elements| elements.path.as_str());
    let field = match element_path(select, argument) {
        // Each row has an element.
        Some(path) if Some(path) == nested && name == "count" && !params.distinct => "_index".to_owned(),
        Some(path) => ExactField::within(&scan.snapshot, path, nested)?.path,
        None => ExactField::new(&scan.snapshot, own)?.path,
    };
    Ok(match (name, params.distinct) {
        ("count", true) => json!({"cardinality": {"field": field, "precision_threshold": EXACT_DISTINCT}}),
        ("count", false) => json!({"value_count": {"field": field}}),
        ("sum" | "avg" | "min" | "max", false) if is_number => json!({name: {"field": field}}),
        _ => return Err(format!("the function [{name}] of [{field}]").into()),
    })
}
