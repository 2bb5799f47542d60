//! Renders a plan as a search: the body in the query DSL that answers the rows, or the groups, of the plan.
//!
//! `_explain` shows the body, the format `json` runs it. [`FlatSelect`] folds the nodes of a plan over one scan into one level,
//! [`clauses`] writes the query, [`groups`] the aggregations. The language of the statement does not matter: a plan of any
//! language is rendered. A plan that no search answers is refused with the reason ([`RenderRefusal`]).

mod clauses;
mod flat_select;
mod groups;
mod selector;

use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use millrace_mapping::{FieldType, Mapping};
use millrace_matching::table::{SCORE, TableSnapshot};
use serde_json::{Map, Value, json};

use self::flat_select::{Elements, FlatSelect};
use super::bind::OutColumn;
use super::push::Clause;
use super::source::top_level;
use super::table::ScanSource;
use super::types::SqlType;

/// A plan as a search.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedSearch {
    /// The index expression.
    pub index: String,
    /// The body.
    pub body: Value,
    /// `true` for a search of groups, which has no hits.
    pub is_grouped: bool,
}

/// The reason why no search answers a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenderRefusal(pub(crate) String);

impl<T: Into<String>> From<T> for RenderRefusal {
    fn from(reason: T) -> Self {
        Self(reason.into())
    }
}

/// Writes a condition as a clause.
pub(crate) fn clause_json(condition: &Clause) -> Value {
    clauses::clause(condition, false)
}

type RenderResult<T> = std::result::Result<T, RenderRefusal>;

/// Most rows of a search, as `index.max_result_window` has it by default: those where the statement does not say how many, and of
/// a page of one side of a join. Groups have the same number.
const PAGE: usize = 10_000;

/// Renders a plan whose columns are `columns`; `cut` is applied to its rows.
pub(crate) fn render(
    plan: &LogicalPlan,
    columns: &[OutColumn],
    cut: Option<(usize, Option<usize>)>,
) -> RenderResult<RenderedSearch> {
    let mut select = FlatSelect::new(plan)?;
    if let Some((skip, limit)) = cut {
        select.cut(skip, limit)?;
    }
    let outputs = select.outputs(plan)?;
    let (from, limit) = select.cut.unwrap_or((0, None));
    let mut body = Map::new();
    let is_grouped = select.groups.is_some();
    let limit = limit.unwrap_or(PAGE.saturating_sub(from));
    if !is_grouped && from.saturating_add(limit) > PAGE {
        return Err(format!("LIMIT beyond {PAGE} rows").into());
    }
    body.insert("from".into(), json!(if is_grouped { 0 } else { from }));
    body.insert("size".into(), json!(if is_grouped { 0 } else { limit }));
    let scored = outputs.iter().chain(select.sorts.iter().map(|sort| &sort.expr)).any(is_score);
    let having_elements = select.elements.as_ref().map(Elements::document_clause);
    let having_elements = having_elements.filter(|clause| !select.scan.conditions.contains(clause));
    let conditions = select.scan.conditions.iter().chain(&select.filters).chain(&having_elements);
    let conditions: Vec<_> = conditions.collect();
    if let Some(query) = clauses::query(&conditions, select.scan.filter.as_ref(), scored) {
        body.insert("query".into(), query);
    }
    match &select.groups {
        None => {
            selected_fields(&select.scan, &outputs, &mut body)?;
            let sorts = select.sorts.iter().map(|sort| field_sort(&select.scan, sort));
            let sorts = sorts.collect::<RenderResult<Vec<Value>>>()?;
            if scored && !sorts.is_empty() && !select.sorts.iter().any(|sort| is_score(&sort.expr)) {
                body.insert("track_scores".into(), json!(true));
            }
            if !sorts.is_empty() {
                body.insert("sort".into(), json!(sorts));
            }
        }
        Some(own) => groups::render(&select, own, columns, &outputs, &mut body)?,
    }
    Ok(RenderedSearch { index: select.scan.index.clone(), body: Value::Object(body), is_grouped })
}

/// Renders the search that finds what a DELETE deletes.
pub(crate) fn render_deletion(plan: &LogicalPlan, page: usize) -> RenderResult<RenderedSearch> {
    let select = FlatSelect::new(plan)?;
    let mut body = Map::new();
    body.insert("size".into(), json!(page));
    let conditions: Vec<_> = select.scan.conditions.iter().chain(&select.filters).collect();
    if let Some(query) = clauses::query(&conditions, select.scan.filter.as_ref(), false) {
        body.insert("query".into(), query);
    }
    body.insert("_source".into(), json!(false));
    Ok(RenderedSearch { index: select.scan.index.clone(), body: Value::Object(body), is_grouped: false })
}

/// Renders the searches of the scans of a plan that is no search itself: each is read in pages.
pub(crate) fn render_scans(plan: &LogicalPlan) -> Vec<RenderedSearch> {
    let mut searches = Vec::new();
    flat_select::for_each_scan(plan, |scan, fields| {
        let mut body = Map::new();
        body.insert("from".into(), json!(0));
        body.insert("size".into(), json!(PAGE));
        let conditions: Vec<_> = scan.conditions.iter().collect();
        if let Some(query) = clauses::query(&conditions, scan.filter.as_ref(), false) {
            body.insert("query".into(), query);
        }
        body.insert("_source".into(), json!({"includes": fields, "excludes": []}));
        searches.push(RenderedSearch {
            index: scan.index.clone(),
            body: Value::Object(body),
            is_grouped: false,
        });
    });
    searches
}

/// Fields that a hit has beside its source.
const HIT_MEMBERS: [&str; 4] = ["_id", "_index", "_routing", SCORE];

/// Writes which parts of documents the hits show.
fn selected_fields(scan: &ScanSource, outputs: &[Expr], body: &mut Map<String, Value>) -> RenderResult<()> {
    let (mut includes, mut beside) = (Vec::new(), Vec::new());
    for output in outputs {
        let path = field_of(output).ok_or("an expression in SELECT")?;
        if path.starts_with('_')
            && !HIT_MEMBERS.contains(&path)
            && scan.snapshot.indices.iter().all(|index| index.mapping.field(path).is_none())
        {
            return Err(format!("the column [{path}]").into());
        }
        match is_in_source(&scan.snapshot, path) {
            true => includes.push(path),
            false => beside.push(path),
        }
    }
    let all = top_level(&scan.snapshot);
    if includes != all || all.is_empty() {
        body.insert("_source".into(), json!({"includes": includes, "excludes": []}));
    }
    if !beside.is_empty() {
        body.insert("docvalue_fields".into(), json!(beside));
    }
    Ok(())
}

/// Returns whether the source of a document, or its hit, has a path.
fn is_in_source(snapshot: &TableSnapshot, path: &str) -> bool {
    let beside = snapshot.indices.iter().any(|index| {
        let is_alias = index.mapping.aliases().any(|(alias, _)| alias == path);
        let parent = path.rsplit_once('.').map(|(parent, _)| parent);
        let is_sub_field = parent.is_some_and(|parent| index.mapping.field(parent).is_some());
        is_alias || is_sub_field
    });
    HIT_MEMBERS.contains(&path) || !beside
}

/// Writes a sort by a field.
fn field_sort(scan: &ScanSource, sort: &SortExpr) -> RenderResult<Value> {
    let field = field_of(unwrapped(&sort.expr)).ok_or("an expression in ORDER BY")?;
    let exact = match field {
        SCORE => ExactField { path: field.to_owned(), unmapped_type: None },
        field => ExactField::new(&scan.snapshot, field)?,
    };
    let mut order = json!({"order": if sort.asc { "asc" } else { "desc" }});
    if sort.nulls_first {
        order["missing"] = json!("_first");
    }
    if let Some(unmapped) = exact.unmapped_type {
        order["unmapped_type"] = json!(unmapped);
    }
    Ok(json!({exact.path: order}))
}

/// Returns the path of the field that an expression is.
fn field_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Alias(alias) => field_of(&alias.expr),
        Expr::Column(column) if !flat_select::is_of_group(column) => Some(flat_select::path_of(column)),
        _ => None,
    }
}

fn is_score(expr: &Expr) -> bool {
    field_of(expr) == Some(SCORE)
}

/// Functions that keep the value of their argument: the least of several is the one that a search sorts by, too.
const TRANSPARENT: [&str; 5] =
    ["least_value", "greatest_value", "sum_as_integer", "address", "address_order"];

/// Returns an expression without what changes only the form of its value. Casts that keep values are gone before.
fn unwrapped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unwrapped(&alias.expr),
        Expr::ScalarFunction(call) if TRANSPARENT.contains(&call.func.name()) => {
            call.args.first().map_or(expr, unwrapped)
        }
        _ => expr,
    }
}

/// The field of a search that has the values of a path as they are.
struct ExactField {
    path: String,
    /// Its type, where an index lacks it.
    unmapped_type: Option<&'static str>,
}

impl ExactField {
    /// Finds the field, which is the same in all indices.
    fn new(snapshot: &TableSnapshot, path: &str) -> RenderResult<Self> {
        Self::within(snapshot, path, None)
    }

    /// Finds the field of the elements of a nested path.
    fn within(snapshot: &TableSnapshot, path: &str, nested: Option<&str>) -> RenderResult<Self> {
        let mut found: Option<(String, &'static str)> = None;
        let mut lacks = false;
        for index in &snapshot.indices {
            let Some(own) = exact_path(&index.mapping, path, nested)? else {
                lacks = true;
                continue;
            };
            match &found {
                Some((known, _)) if *known != own.0 => {
                    return Err(
                        format!("the field [{path}], which is [{known}] and [{}] by index,", own.0).into()
                    );
                }
                Some(_) => {}
                None => found = Some(own),
            }
        }
        Ok(match found {
            Some((path, ty)) => Self { path, unmapped_type: lacks.then_some(ty) },
            None => Self { path: path.to_owned(), unmapped_type: None },
        })
    }
}

/// Returns the path of the field that has the values of a path as they are, also of one of nested elements; the path itself where no
/// field has them.
pub(crate) fn exact_path_of(snapshot: &TableSnapshot, path: &str) -> String {
    let nested = snapshot.indices.iter().find_map(|index| index.mapping.nested_path(path));
    ExactField::within(snapshot, path, nested).map_or_else(|_| path.to_owned(), |own| own.path)
}

/// Finds the field of an index that has the values of a path as they are, and its type; `None` where the index lacks the path.
fn exact_path(
    mapping: &Mapping,
    path: &str,
    nested: Option<&str>,
) -> RenderResult<Option<(String, &'static str)>> {
    let Some(field) = mapping.field(path) else {
        return match mapping.is_object(path) || mapping.flat_object(path).is_some() {
            true => Err(format!("the object [{path}]").into()),
            false => Ok(None),
        };
    };
    if mapping.nested_path(path) != nested {
        return Err(format!("the field [{path}] of a nested path").into());
    }
    if field.field_type.is_text() {
        let keyword = format!("{path}.keyword");
        let exact = mapping.field(&keyword).filter(|own| own.field_type == FieldType::Keyword);
        if exact.is_some_and(|own| own.doc_values && own.normalizer.is_none()) {
            return Ok(Some((keyword, FieldType::Keyword.name())));
        }
        if !field.params.get("fielddata").is_some_and(|on| *on == true) {
            return Err(format!("the values of [{path}], a text field without a keyword field,").into());
        }
        return Ok(Some((path.to_owned(), field.type_name())));
    }
    let has_values = field.doc_values
        && !SqlType::of_column(&field.field_type).is_json()
        && !matches!(field.field_type, FieldType::Binary | FieldType::RankFeature);
    match has_values {
        true => Ok(Some((path.to_owned(), field.type_name()))),
        false => Err(format!("the values of [{path}], which no column of the index has,").into()),
    }
}
