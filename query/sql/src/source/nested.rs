//! Sources of the elements of nested paths, and their columns.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use millrace_mapping::Mapping;
use millrace_matching::table::TableSnapshot;

use super::{IndexSource, MAX_COLUMNS, has_column, too_many_columns, two_types};
use crate::bind::Bound;
use crate::column::{ColumnSource, SqlColumn};
use crate::elements::{ElementColumn, ElementLayout, ElementMark, ElementValue, nested_clause};
use crate::error::Result;
use crate::push::Clause;
use crate::table::mark_name;
use crate::types::SqlType;

/// The elements of a nested path, whose columns the scan of another source has.
#[derive(Debug)]
pub(crate) struct NestedSource {
    /// Place of the source with the documents.
    pub root: usize,
    /// Name of that source in plans.
    pub root_qualifier: String,
    /// Place of the source of elements that these lie in.
    pub around: Option<(usize, String)>,
    /// The nested path.
    pub path: String,
    /// True for the elements that calls of `nested` unnest: they have no name, and a document without any has a row.
    pub implicit: bool,
    /// The columns of elements.
    pub index: IndexSource,
    /// Clauses on elements that a document has to have one for.
    pub conditions: Vec<Clause>,
}

impl NestedSource {
    /// Finds the column of a path below this one, or of whole elements.
    pub(crate) fn column(&mut self, number: usize, path: &str, qualifier: &str) -> Result<Option<Bound>> {
        let layout = if self.around.is_some() { ElementLayout::Within } else { ElementLayout::Each };
        let of =
            NestedPath { nested: &self.path, around: self.around.as_ref().map(|(_, path)| path.as_str()) };
        let name = format!("{path} [{qualifier}]");
        let Some((name, ty, list)) = self.index.element_column(of, path, name, layout)? else {
            return Ok(None);
        };
        let bound = Bound { list, ..Bound::new(Self::reference(name), ty) };
        Ok(Some(Bound { field: Some((number, path.to_owned())), ..bound }))
    }

    /// Makes the clause of the documents that have an element for which all conditions hold.
    pub(crate) fn narrowing(&self) -> Option<Clause> {
        let all = || Clause::And(self.conditions.clone());
        (!self.conditions.is_empty()).then(|| Clause::Leaf(nested_clause(&self.path, &all())))
    }

    /// Refers to a column behind the node that unnests it, which leaves its qualifier out.
    fn reference(name: String) -> Expr {
        Expr::Column(Column::new_unqualified(name))
    }

    /// Refers to a column of elements that no field has.
    fn made_column(&mut self, name: String, ty: SqlType, value: ElementValue) -> Expr {
        let layout = if self.around.is_some() { ElementLayout::Within } else { ElementLayout::Each };
        if !self.index.known.contains_key(&name) {
            let around = self.around.as_ref().map(|(_, path)| path.as_str());
            let sources = self.index.snapshot.indices.iter().map(|index| {
                let path = index.mapping.nested_id(&self.path)?;
                let around = around.and_then(|path| index.mapping.nested_id(path));
                Some(ColumnSource::Elements(ElementColumn { path, around, value: value.clone() }))
            });
            let sources = sources.map(|source| source.unwrap_or(ColumnSource::Missing)).collect();
            let column = SqlColumn {
                name: name.clone(),
                ty,
                list: false,
                bits: false,
                elements: Some(layout),
                sources,
            };
            self.index.known.insert(name.clone(), self.index.columns.len());
            self.index.columns.push(column);
        }
        Self::reference(name)
    }

    /// Refers to the places of elements in their documents.
    pub(crate) fn ordinal(&mut self, qualifier: &str) -> Expr {
        self.made_column(format!("ordinal [{qualifier}]"), SqlType::Integer, ElementValue::Ordinal)
    }

    /// Refers to the column that tells for which elements a clause holds.
    pub(super) fn mark(&mut self, clause: &Clause, qualifier: &str) -> Expr {
        let known = self.index.marks.iter().position(|known| known == clause);
        let at = known.unwrap_or_else(|| {
            self.index.marks.push(clause.clone());
            self.index.marks.len() - 1
        });
        let mark = Arc::new(ElementMark::new(&self.path, clause.clone()));
        self.made_column(
            format!("{} [{qualifier}]", mark_name(at)),
            SqlType::Boolean,
            ElementValue::Mark(mark),
        )
    }

    /// Lists the names of what lies right below the path.
    pub(super) fn names_below(&self) -> Vec<String> {
        let below = format!("{}.", self.path);
        let (mut names, mut known) = (Vec::new(), HashSet::new());
        for index in &self.index.snapshot.indices {
            for field in index.mapping.fields() {
                let Some(rest) = field.path.strip_prefix(&below) else { continue };
                let top = rest.split('.').next().unwrap_or(rest);
                let path = format!("{below}{top}");
                let whole = index.mapping.field(&path).is_some() || index.mapping.is_object(&path);
                let name = if whole { top } else { rest };
                if known.insert(name) {
                    names.push(name.to_owned());
                }
            }
        }
        names
    }
}

/// A nested path, and the one around it that its elements are listed by.
#[derive(Clone, Copy, Debug)]
struct NestedPath<'p> {
    nested: &'p str,
    around: Option<&'p str>,
}

impl IndexSource {
    /// Finds the column of all values that the elements of a nested path have of a field.
    pub(crate) fn values_column(
        &mut self,
        number: usize,
        nested: &str,
        path: &str,
        qualifier: &str,
    ) -> Result<Option<Bound>> {
        let name = format!("{path} (values)");
        let of = NestedPath { nested, around: None };
        let found = self.element_column(of, path, name, ElementLayout::Values)?;
        Ok(found.map(|(name, ty, _)| {
            let expr = Expr::Column(Column::new(Some(qualifier), name));
            Bound { list: true, field: Some((number, path.to_owned())), ..Bound::new(expr, ty) }
        }))
    }

    /// Finds a column of elements, by its name in plans; with its type, and whether an item holds several values.
    fn element_column(
        &mut self,
        of: NestedPath<'_>,
        path: &str,
        name: String,
        layout: ElementLayout,
    ) -> Result<Option<(String, SqlType, bool)>> {
        let at = match self.known.get(&name) {
            Some(at) => *at,
            None => {
                let sources = element_sources(&self.snapshot, of, path)?;
                let Some((ty, sources)) = sources else { return Ok(None) };
                if self.columns.len() >= MAX_COLUMNS {
                    return Err(too_many_columns());
                }
                let list = layout == ElementLayout::Values || self.list_valued.contains(path);
                self.known.insert(name.clone(), self.columns.len());
                let elements = Some(layout);
                self.columns.push(SqlColumn { name, ty, list, bits: false, elements, sources });
                self.columns.len() - 1
            }
        };
        Ok(self.columns.get(at).map(|column| (column.name.clone(), column.ty, column.list)))
    }
}

/// Looks a path of elements up in each index.
fn element_sources(
    snapshot: &TableSnapshot,
    of: NestedPath<'_>,
    path: &str,
) -> Result<Option<(SqlType, Vec<ColumnSource>)>> {
    let mut ty: Option<SqlType> = None;
    let mut sources = Vec::with_capacity(snapshot.indices.len());
    for index in &snapshot.indices {
        let found = element_source(&index.mapping, of.nested, path);
        let Some(((own, value), nested)) = found.zip(index.mapping.nested_id(of.nested)) else {
            sources.push(ColumnSource::Missing);
            continue;
        };
        ty = Some(match ty {
            None => own,
            Some(ty) => ty.common(own).ok_or_else(|| two_types(path, ty, own))?,
        });
        let around = of.around.and_then(|path| index.mapping.nested_id(path));
        sources.push(ColumnSource::Elements(ElementColumn { path: nested, around, value }));
    }
    Ok(ty.map(|ty| (ty, sources)))
}

fn element_source(mapping: &Mapping, nested: &str, path: &str) -> Option<(SqlType, ElementValue)> {
    let steps = |path: &str| path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect();
    let rest = path.strip_prefix(nested)?;
    let stored = || ElementValue::Source(steps(nested), steps(rest));
    if rest.is_empty() {
        return Some((SqlType::Object, stored()));
    }
    if let Some(field) = mapping.field(path) {
        // Values of a nested path within this one belong to its elements.
        if mapping.nested_path(path) != Some(nested) {
            return Some((SqlType::Array, stored()));
        }
        let ty = SqlType::of_field(field);
        if !has_column(field) {
            return Some((ty, stored()));
        }
        let ignore_above = field.ignore_above.filter(|_| field.column != field.id);
        let source = ColumnSource::Column { id: field.column, ty, ignore_above };
        return Some((ty, ElementValue::Column(Box::new(source), field.column)));
    }
    if mapping.is_object(path) {
        let ty = if mapping.nested_path(path) == Some(path) { SqlType::Nested } else { SqlType::Object };
        return Some((ty, stored()));
    }
    mapping.flat_object(path).map(|_| (SqlType::Array, stored()))
}
