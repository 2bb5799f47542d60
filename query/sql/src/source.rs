//! Sources of FROM, and the lookup of column names in them; [`NestedSource`] is one of the elements of a nested path.

mod nested;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use millrace_mapping::{ColumnKind, Field, FieldType, Mapping};
use millrace_matching::table::{SCORE, TableSnapshot};

pub(crate) use self::nested::NestedSource;
use super::bind::Bound;
use super::column::{ColumnSource, SqlColumn};
use super::error::{Result, SqlError};
use super::highlight::HighlightColumn;
use super::push::Clause;
use super::table::mark_name;
use super::types::SqlType;

/// Name of the column of whole documents.
const SOURCE: &str = "_source";

/// Most columns of one table of a statement.
const MAX_COLUMNS: usize = 4_096;

/// One source of a SELECT.
#[derive(Debug)]
pub(crate) struct Source {
    /// Name in plans.
    pub qualifier: String,
    /// Name by which the statement qualifies its columns: the alias, or the index expression without one.
    pub name: Option<String>,
    /// Kind of the source.
    pub kind: SourceKind,
}

/// Kind of a source.
#[derive(Debug)]
pub(crate) enum SourceKind {
    /// Indices.
    Index(IndexSource),
    /// The elements of a nested path of another source.
    Nested(NestedSource),
    /// A query.
    Derived(Box<DerivedSource>),
    /// Nothing, one row of it.
    Nothing,
}

impl SourceKind {
    /// Returns the indices that have the fields of a source.
    pub(crate) fn snapshot(&self) -> Option<&Arc<TableSnapshot>> {
        match self {
            Self::Index(index) => Some(&index.snapshot),
            Self::Nested(nested) => Some(&nested.index.snapshot),
            Self::Derived(_) | Self::Nothing => None,
        }
    }
}

/// A query in FROM, or one of WITH.
#[derive(Debug)]
pub(crate) struct DerivedSource {
    /// Its plan.
    pub plan: LogicalPlan,
    /// Its columns.
    pub columns: Vec<SourceColumn>,
    /// The order of its rows, by its columns.
    pub order: Vec<SortExpr>,
}

/// A column of a query in FROM.
#[derive(Clone, Debug)]
pub(crate) struct SourceColumn {
    /// Name in the plan.
    pub column: String,
    /// Name that the outer query knows it by.
    pub name: String,
    /// Type.
    pub ty: SqlType,
    /// `true` if it holds several values.
    pub list: bool,
    /// Type that a schema shows.
    pub shown: &'static str,
    /// Type of the elements of an array, where it is known.
    pub element: Option<SqlType>,
}

impl SourceColumn {
    /// Refers to the column of a source.
    pub(crate) fn bound(&self, qualifier: &str) -> Bound {
        let expr = Expr::Column(Column::new(Some(qualifier), &self.column));
        let shown = (self.shown != self.ty.name()).then_some(self.shown);
        Bound { list: self.list, shown, element: self.element, ..Bound::new(expr, self.ty) }
    }
}

/// Suffix of the name of a column of highlights.
const HIGHLIGHT_SUFFIX: &str = " [highlight]";

/// Returns whether a column of a plan has highlights.
pub(crate) fn is_highlight(column: &str) -> bool {
    column.ends_with(HIGHLIGHT_SUFFIX)
}

/// The columns of indices that a statement names, in the order in which it does.
#[derive(Debug)]
pub(crate) struct IndexSource {
    /// The index expression. Behind an alias it names the source only where nothing else has the name.
    pub expression: String,
    /// The indices.
    pub snapshot: Arc<TableSnapshot>,
    /// Columns named so far.
    pub columns: Vec<SqlColumn>,
    /// Clauses that have a column.
    pub marks: Vec<Clause>,
    /// Fields whose elements hold several values.
    pub list_valued: Arc<HashSet<String>>,
    known: HashMap<String, usize>,
}

impl IndexSource {
    /// Takes over the snapshot of an index expression.
    pub(crate) fn new(expression: String, snapshot: Arc<TableSnapshot>) -> Self {
        let (columns, marks, known) = (Vec::new(), Vec::new(), HashMap::new());
        Self { expression, snapshot, columns, marks, list_valued: Arc::default(), known }
    }

    /// Adds a column of highlights.
    pub(crate) fn highlight(&mut self, call: &str, column: HighlightColumn, qualifier: &str) -> Bound {
        let name = format!("{call}{HIGHLIGHT_SUFFIX}");
        let ty = if column.is_pattern() { SqlType::Object } else { SqlType::Nested };
        if !self.known.contains_key(&name) {
            let source = ColumnSource::Highlight(Arc::new(column));
            let sources = vec![source; self.snapshot.indices.len()];
            self.known.insert(name.clone(), self.columns.len());
            let (list, bits, elements) = (false, false, None);
            self.columns.push(SqlColumn { name: name.clone(), ty, list, bits, elements, sources });
        }
        Bound::new(Expr::Column(Column::new(Some(qualifier), name)), ty)
    }

    /// Has the columns of highlights mark what conditions match.
    pub(crate) fn set_conditions(&self, truths: &[Clause]) -> Result<()> {
        let clauses: Vec<&Clause> = truths.iter().chain(&self.marks).collect();
        for source in self.columns.iter().filter_map(|column| column.sources.first()) {
            if let ColumnSource::Highlight(column) = source {
                column.set_conditions(&clauses)?;
            }
        }
        Ok(())
    }

    /// Finds the nested path that a path is in, or is, in an index that has it.
    pub(crate) fn nested_path(&self, path: &str) -> Option<&str> {
        self.snapshot.indices.iter().find_map(|index| index.mapping.nested_path(path))
    }

    /// Returns true for a path that an index has.
    pub(crate) fn has(&self, path: &str) -> bool {
        let mut mappings = self.snapshot.indices.iter().map(|index| &index.mapping);
        mappings.any(|mapping| mapping.field(path).is_some() || mapping.is_object(path))
    }

    /// Finds a column by its path; `None` where no index has it.
    fn column(&mut self, path: &str) -> Result<Option<&SqlColumn>> {
        if let Some(at) = self.known.get(path) {
            return Ok(self.columns.get(*at));
        }
        let Some(column) = column_of(&self.snapshot, path)? else { return Ok(None) };
        if self.columns.len() >= MAX_COLUMNS {
            return Err(too_many_columns());
        }
        self.known.insert(path.to_owned(), self.columns.len());
        self.columns.push(column);
        Ok(self.columns.last())
    }

    /// Finds the column of the bits of a column of addresses; `None` where there can be none.
    fn address_bits(&mut self, path: &str) -> Option<&SqlColumn> {
        let bits = self.columns.get(*self.known.get(path)?)?.address_bits()?;
        let at = match self.known.get(&bits.name) {
            Some(at) => *at,
            None if self.columns.len() < MAX_COLUMNS => {
                self.known.insert(bits.name.clone(), self.columns.len());
                self.columns.push(bits);
                self.columns.len() - 1
            }
            None => return None,
        };
        // A field may have that name.
        self.columns.get(at).filter(|column| column.bits)
    }
}

/// Lists the fields of indices that are neither objects nor other forms of a field.
pub(crate) fn leaves(snapshot: &TableSnapshot) -> Vec<String> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for index in &snapshot.indices {
        let is_sub_field = |path: &str| {
            path.rsplit_once('.').is_some_and(|(parent, _)| index.mapping.field(parent).is_some())
        };
        for field in index.mapping.fields() {
            let path = field.path.as_ref();
            let below_nested = index.mapping.nested_path(path).is_some();
            let name = match below_nested {
                true => path.split('.').next().unwrap_or(path),
                false => path,
            };
            if !is_sub_field(path) && known.insert(name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Lists the top-level fields of indices, which `*` stands for.
pub(crate) fn top_level(snapshot: &TableSnapshot) -> Vec<String> {
    top_level_among(snapshot, |_| true)
}

/// Lists those of the top-level fields of indices that a statement may use.
pub(crate) fn top_level_among(snapshot: &TableSnapshot, may_use: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for index in &snapshot.indices {
        let leaves = index.mapping.fields().map(|field| field.path.as_ref());
        for path in leaves.chain(index.mapping.aliases().map(|(path, _)| path)) {
            let name = match path.split_once('.') {
                Some((top, _)) if index.mapping.field(top).is_some() || index.mapping.is_object(top) => top,
                _ => path,
            };
            if may_use(name) && known.insert(name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

impl Source {
    /// Lists the names of the columns that `*` stands for.
    pub(crate) fn column_names(&self) -> Vec<String> {
        match &self.kind {
            SourceKind::Index(index) => top_level(&index.snapshot),
            SourceKind::Nested(nested) if !nested.implicit => nested.names_below(),
            SourceKind::Derived(own) => own.columns.iter().map(|column| column.name.clone()).collect(),
            SourceKind::Nested(_) | SourceKind::Nothing => Vec::new(),
        }
    }

    /// Returns the nested path of the elements that FROM has of a source.
    pub(crate) fn unnested_path(&self, root: usize) -> Option<String> {
        match &self.kind {
            SourceKind::Nested(nested) if !nested.implicit && nested.root == root => {
                Some(nested.path.clone())
            }
            _ => None,
        }
    }

    /// Returns the path of a field of elements behind the name of this source.
    pub(crate) fn element_path(&self, path: &str) -> Option<String> {
        match &self.kind {
            SourceKind::Nested(nested) if !nested.implicit => {
                Some(format!("{}.{}", nested.path, self.unqualified(path)?))
            }
            _ => None,
        }
    }

    /// Returns true for a source that is not named by its index expression.
    fn is_aliased(&self) -> bool {
        self.expression() != self.name.as_deref()
    }

    /// Returns the index expression of a source of indices.
    fn expression(&self) -> Option<&str> {
        match &self.kind {
            SourceKind::Index(index) => Some(&index.expression),
            SourceKind::Nested(_) | SourceKind::Derived(_) | SourceKind::Nothing => None,
        }
    }

    /// Returns the path behind the name of this source.
    fn unqualified<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.name.as_deref()?)?.strip_prefix('.')
    }

    /// Returns the path behind the index expression of this source.
    fn behind_expression<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.expression()?)?.strip_prefix('.')
    }

    /// Refers to the column that tells where a clause holds; `None` for a source without clauses.
    pub(crate) fn mark(&mut self, clause: &Clause) -> Option<Expr> {
        let index = match &mut self.kind {
            SourceKind::Index(index) => index,
            SourceKind::Nested(nested) => return Some(nested.mark(clause, &self.qualifier)),
            _ => return None,
        };
        let known = index.marks.iter().position(|known| known == clause);
        let at = known.unwrap_or_else(|| {
            index.marks.push(clause.clone());
            index.marks.len() - 1
        });
        Some(Expr::Column(Column::new(Some(self.qualifier.as_str()), mark_name(at))))
    }

    /// Finds a column of this source by its own path.
    fn own(&mut self, number: usize, path: &str) -> Result<Option<Bound>> {
        let qualifier = self.qualifier.clone();
        match &mut self.kind {
            SourceKind::Nothing => Ok(None),
            SourceKind::Nested(nested) if nested.implicit => Ok(None),
            SourceKind::Nested(nested) => {
                let whole = self.name.as_deref() == Some(path);
                let path = if whole { nested.path.clone() } else { format!("{}.{path}", nested.path) };
                nested.column(number, &path, &qualifier)
            }
            SourceKind::Derived(own) => {
                let found = own.columns.iter().find(|column| column.name == path);
                Ok(found.map(|column| column.bound(&qualifier)))
            }
            SourceKind::Index(index) => {
                if path == SCORE {
                    let expr = Expr::Column(Column::new(Some(qualifier), SCORE));
                    return Ok(Some(Bound::new(expr, SqlType::Float)));
                }
                let Some(column) = index.column(path)? else { return Ok(None) };
                let expr = Expr::Column(Column::new(Some(qualifier), &column.name));
                let bound = Bound { list: column.list, ..Bound::new(expr, column.ty) };
                Ok(Some(Bound { field: Some((number, path.to_owned())), ..bound }))
            }
        }
    }
}

fn too_many_columns() -> SqlError {
    SqlError::TooLarge(format!("the statement names more than {MAX_COLUMNS} columns"))
}

/// Finds what the rows of a column of addresses are told apart by in less time: the column of their bits.
pub(crate) fn address_bits(sources: &mut [Source], expr: &Expr) -> Option<Expr> {
    let Expr::Column(column) = expr else { return None };
    let qualifier = column.relation.as_ref()?.table();
    let source = sources.iter_mut().find(|source| source.qualifier == qualifier)?;
    let SourceKind::Index(index) = &mut source.kind else { return None };
    let bits = index.address_bits(&column.name)?;
    Some(Expr::Column(Column::new(Some(qualifier), &bits.name)))
}

/// Finds a column by its name in the statement: behind an alias first, then behind an index expression, then in any source.
pub(crate) fn resolve(sources: &mut [Source], path: &str) -> Result<Option<Bound>> {
    for aliased in [true, false] {
        for (number, source) in sources.iter_mut().enumerate() {
            if source.is_aliased() == aliased
                && let Some(rest) = source.unqualified(path)
                && let Some(found) = source.own(number, rest)?
            {
                return Ok(Some(found));
            }
        }
    }
    for (number, source) in sources.iter_mut().enumerate() {
        if let Some(found) = source.own(number, path)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds a column behind the index expression of a source that has an alias. Names of the queries around it come before that.
pub(crate) fn resolve_behind_alias(sources: &mut [Source], path: &str) -> Result<Option<Bound>> {
    for (number, source) in sources.iter_mut().enumerate() {
        if let Some(rest) = source.behind_expression(path)
            && let Some(found) = source.own(number, rest)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds a source by its name: an alias first, then an index expression, also one behind an alias.
pub(crate) fn source_named(sources: &[Source], name: &str) -> Option<usize> {
    let named = |aliased: bool| {
        let own = |source: &Source| source.is_aliased() == aliased && source.name.as_deref() == Some(name);
        sources.iter().position(own)
    };
    let behind_alias = || sources.iter().position(|source| source.expression() == Some(name));
    named(true).or_else(|| named(false)).or_else(behind_alias)
}

/// Finds a column by its own name in some of the sources.
pub(crate) fn column_within(
    sources: &mut [Source],
    within: std::ops::Range<usize>,
    name: &str,
) -> Result<Option<Bound>> {
    for number in within {
        if let Some(source) = sources.get_mut(number)
            && let Some(found) = source.own(number, name)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the name of a column without the source that qualifies it.
pub(crate) fn unqualified<'p>(sources: &[Source], path: &'p str) -> &'p str {
    let own = sources.iter().find_map(|source| source.unqualified(path));
    own.or_else(|| sources.iter().find_map(|source| source.behind_expression(path))).unwrap_or(path)
}

fn two_types(path: &str, one: SqlType, other: SqlType) -> SqlError {
    SqlError::Semantic(format!(
        "field [{path}] is of type [{}] and of type [{}] in the indices of the statement",
        one.name(),
        other.name()
    ))
}

/// Looks a path up in each index.
pub(crate) fn column_of(snapshot: &TableSnapshot, path: &str) -> Result<Option<SqlColumn>> {
    let mut ty: Option<SqlType> = None;
    let mut list = false;
    let mut sources = Vec::with_capacity(snapshot.indices.len());
    for (place, index) in snapshot.indices.iter().enumerate() {
        let (own, source) = match source_of(&index.mapping, &index.meta.name, path) {
            None => {
                sources.push(ColumnSource::Missing);
                continue;
            }
            Some(found) => found,
        };
        if let ColumnSource::Column { id, .. } = &source {
            let own = snapshot.segments.iter().filter(|segment| segment.index == place);
            list |= own.into_iter().any(|segment| segment.reader.is_list(*id));
        }
        ty = Some(match ty {
            None => own,
            Some(ty) => ty.common(own).ok_or_else(|| two_types(path, ty, own))?,
        });
        sources.push(source);
    }
    Ok(ty.map(|ty| SqlColumn { name: path.to_owned(), ty, list, bits: false, elements: None, sources }))
}

fn source_of(mapping: &Mapping, index: &str, path: &str) -> Option<(SqlType, ColumnSource)> {
    match path {
        "_id" => return Some((SqlType::Keyword, ColumnSource::Id)),
        "_routing" => return Some((SqlType::Keyword, ColumnSource::Routing)),
        "_seq_no" => return Some((SqlType::Long, ColumnSource::SeqNo)),
        "_primary_term" => return Some((SqlType::Long, ColumnSource::PrimaryTerm)),
        "_index" => return Some((SqlType::Keyword, ColumnSource::Index(index.to_owned()))),
        _ => {}
    }
    let parts = || ColumnSource::Source(path.split('.').map(str::to_owned).collect());
    if path == SOURCE && mapping.field(path).is_none() {
        return Some((SqlType::Object, ColumnSource::Source(Vec::new())));
    }
    if let Some(field) = mapping.field(path) {
        // Values below a nested object belong to its elements.
        if mapping.nested_path(path).is_some() {
            return Some((SqlType::Array, parts()));
        }
        if !has_column(field) {
            return Some((SqlType::of_column(&field.field_type), parts()));
        }
        let ignore_above = field.ignore_above.filter(|_| field.column != field.id);
        let source = ColumnSource::Column {
            id: field.column,
            ty: SqlType::of_column(&field.field_type),
            ignore_above,
        };
        return Some((SqlType::of_field(field), source));
    }
    if mapping.is_object(path) {
        let nested = mapping.nested_path(path) == Some(path);
        return Some((if nested { SqlType::Nested } else { SqlType::Object }, parts()));
    }
    mapping.flat_object(path).map(|_| (SqlType::Array, parts()))
}

/// Returns whether a field's values are in a column.
fn has_column(field: &Field) -> bool {
    let own = field.index || field.doc_values || field.column_kind() == ColumnKind::Str;
    match field.field_type {
        // The columns of these hold terms of another form.
        FieldType::FlatObject
        | FieldType::RankFeature
        | FieldType::RankFeatures
        | FieldType::Completion
        | FieldType::Range(_) => false,
        FieldType::Binary => own && field.doc_values,
        _ => own,
    }
}
