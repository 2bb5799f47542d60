//! `_field_caps`: which fields indices have, and what can be done with them.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use millrace_dsl::{json, query};
use millrace_engine::Session;
use millrace_mapping::pattern::matches;
use millrace_mapping::{Field, FieldType, Mapping};
use millrace_matching::table::TableSnapshot;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::{Outcome, SearchService};
use crate::skip::{index_has_none, without_match};

/// Most names and patterns of one request.
const MAX_PATTERNS: usize = 10_000;

/// Fields that every index has: name, whether searches and aggregations can use it.
const METADATA: [(&str, bool, bool); 10] = [
    ("_field_names", true, false),
    ("_id", true, true),
    ("_ignored", true, false),
    ("_index", true, true),
    ("_nested_path", true, false),
    ("_routing", true, false),
    ("_seq_no", true, true),
    ("_source", false, false),
    ("_type", true, true),
    ("_version", false, false),
];

/// A field of one index.
#[derive(Debug)]
struct Capability {
    searchable: bool,
    aggregatable: bool,
    meta: BTreeMap<String, String>,
}

/// A field of one type over the indices that have it so.
#[derive(Debug, Default)]
struct MergedField<'a> {
    indices: Vec<&'a str>,
    not_searchable: Vec<&'a str>,
    not_aggregatable: Vec<&'a str>,
    meta: BTreeMap<String, BTreeSet<String>>,
}

impl SearchService {
    /// Answers `_field_caps`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn field_caps<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let mut opened = self.open(expression, "_field_caps", params, body)?;
            let mut patterns = opened.params.list("fields").unwrap_or_default();
            // Younger clients name them in the body.
            let in_body =
                opened.body.as_mut().and_then(Value::as_object_mut).and_then(|body| body.remove("fields"));
            if let Some(fields) = in_body {
                if !patterns.is_empty() {
                    let reason = "can't specify a request body and [fields] request parameter, either specify a request body or the [fields] request parameter";
                    return Err(Error::IllegalArgument(reason.to_owned()));
                }
                let wrong = || Error::Parsing("[fields] must be a name or a list of names".to_owned());
                patterns = json::strings(&fields).ok_or_else(wrong)?;
            }
            let include_unmapped = opened.params.boolean("include_unmapped")?.unwrap_or(false);
            let scope = opened.params.scope()?;
            opened.params.finish()?;
            if patterns.is_empty() {
                return Err(Error::IllegalArgument("specified fields can't be null or empty".to_owned()));
            }
            if patterns.len() > MAX_PATTERNS {
                return Err(Error::IllegalArgument(format!(
                    "too many fields: {} given, at most {MAX_PATTERNS} allowed",
                    patterns.len()
                )));
            }
            let mut filter = None;
            for (key, value) in opened.body.as_ref().and_then(Value::as_object).into_iter().flatten() {
                match key.as_str() {
                    "index_filter" => filter = Some(query::parse(value)?),
                    _ => return Err(Error::Parsing(format!("request does not support [{key}]"))),
                }
            }
            let snapshot = self.pin(session, expression, &scope).await?;
            let searcher = self.searcher()?;
            let (compute, (work, _ends)) = (&searcher.compute, searcher.begin());
            let without = match &filter {
                None => None,
                Some(filter) => Some(without_match(&snapshot, filter, opened.now_ms, compute, &work).await?),
            };
            let gather = move || gathered(&snapshot, without.as_deref(), &patterns, include_unmapped, &work);
            Ok(Outcome::json(200, compute.run(gather).await?))
        })
    }
}

/// Bytes of a field of one type with what it is rendered to, but for its name and the indices that have it.
const FIELD_BYTES: usize = 1_024;
/// Bytes of a field of one index.
const PLACE_BYTES: usize = 3 * size_of::<&str>();
/// Bytes of the name of an index in the answer, beside its text.
const NAME_BYTES: usize = size_of::<Value>() + 16;

/// Joins what the indices of a snapshot have, but for those without a match, and makes the answer of it.
fn gathered(
    snapshot: &TableSnapshot,
    without: Option<&[bool]>,
    patterns: &[String],
    include_unmapped: bool,
    work: &QueryContext,
) -> Result<Value> {
    let mut places: Vec<usize> = (0..snapshot.indices.len())
        .filter(|at| without.is_none_or(|without| !index_has_none(without, snapshot, *at)))
        .collect();
    places.sort_by_key(|at| &snapshot.indices[*at].meta.name);
    let mut fields: BTreeMap<String, BTreeMap<String, MergedField<'_>>> = BTreeMap::new();
    for at in &places {
        let index = &snapshot.indices[*at];
        let name: &str = &index.meta.name;
        for (field, (kind, own)) in capabilities(&index.mapping, patterns, work)? {
            let field_bytes = FIELD_BYTES + field.len();
            let kinds = fields.entry(field).or_default();
            if !kinds.contains_key(&kind) {
                work.hold(field_bytes)?;
            }
            let merged = kinds.entry(kind).or_default();
            work.hold(PLACE_BYTES)?;
            merged.indices.push(name);
            if !own.searchable {
                merged.not_searchable.push(name);
            }
            if !own.aggregatable {
                merged.not_aggregatable.push(name);
            }
            for (key, value) in own.meta {
                let (key_bytes, value_bytes) = (key.len(), value.len());
                if merged.meta.entry(key).or_default().insert(value) {
                    work.hold(key_bytes + value_bytes + NAME_BYTES)?;
                }
            }
        }
    }
    let names: Vec<&str> = places.iter().map(|at| snapshot.indices[*at].meta.name.as_ref()).collect();
    if include_unmapped {
        for kinds in fields.values_mut() {
            work.check()?;
            let have: BTreeSet<&str> =
                kinds.values().flat_map(|merged| merged.indices.iter().copied()).collect();
            let lack: Vec<&str> = names.iter().copied().filter(|name| !have.contains(name)).collect();
            if !lack.is_empty() {
                work.hold(FIELD_BYTES + lack.len() * PLACE_BYTES)?;
                let unmapped = MergedField {
                    not_searchable: lack.clone(),
                    not_aggregatable: lack.clone(),
                    indices: lack,
                    meta: BTreeMap::new(),
                };
                kinds.insert("unmapped".to_owned(), unmapped);
            }
        }
    }
    let mut answer = Map::new();
    for (field, kinds) in fields {
        work.check()?;
        let several = kinds.len() > 1;
        let mut rendered = Map::new();
        for (kind, merged) in kinds {
            work.hold(merged.named(several).into_iter().flatten().map(|name| NAME_BYTES + name.len()).sum())?;
            let value = merged.to_json(&kind, several);
            rendered.insert(kind, value);
        }
        answer.insert(field, Value::Object(rendered));
    }
    Ok(json!({"indices": names, "fields": answer}))
}

impl<'a> MergedField<'a> {
    /// Lists the lists of indices that are shown: all where there are several types, and those that are not as the others.
    fn named(&self, several: bool) -> [&[&'a str]; 3] {
        let where_mixed = |list: &'_ Vec<&'a str>| !list.is_empty() && list.len() < self.indices.len();
        let listed = |list, is_listed| if is_listed { list } else { &[][..] };
        [
            listed(self.indices.as_slice(), several),
            listed(self.not_searchable.as_slice(), where_mixed(&self.not_searchable)),
            listed(self.not_aggregatable.as_slice(), where_mixed(&self.not_aggregatable)),
        ]
    }

    fn to_json(&self, kind: &str, several: bool) -> Value {
        let (searchable, aggregatable) = (self.not_searchable.is_empty(), self.not_aggregatable.is_empty());
        let mut rendered = Map::new();
        rendered.insert("type".into(), json!(kind));
        rendered.insert("searchable".into(), json!(searchable));
        rendered.insert("aggregatable".into(), json!(aggregatable));
        if several {
            rendered.insert("indices".into(), json!(self.indices));
        }
        // Named only where indices disagree.
        if !searchable && self.not_searchable.len() < self.indices.len() {
            rendered.insert("non_searchable_indices".into(), json!(self.not_searchable));
        }
        if !aggregatable && self.not_aggregatable.len() < self.indices.len() {
            rendered.insert("non_aggregatable_indices".into(), json!(self.not_aggregatable));
        }
        if !self.meta.is_empty() {
            rendered.insert("meta".into(), json!(self.meta));
        }
        Value::Object(rendered)
    }
}

/// Lists the fields of a mapping that a pattern names, and the objects that they are in, with their types.
fn capabilities(
    mapping: &Mapping,
    patterns: &[String],
    work: &QueryContext,
) -> Result<BTreeMap<String, (String, Capability)>> {
    let wanted = |name: &str| patterns.iter().any(|pattern| matches(pattern, name));
    let mut found = BTreeMap::new();
    let leaves = mapping.fields().map(|field| (field.path.as_ref(), field));
    let aliases = mapping.aliases().filter_map(|(alias, target)| Some((alias, mapping.field(target)?)));
    for (name, field) in leaves.chain(aliases) {
        work.check()?;
        if !wanted(name) {
            continue;
        }
        let kind = match field.field_type {
            FieldType::TokenCount => FieldType::Integer.name(),
            _ => field.type_name(),
        };
        found.insert(name.to_owned(), (kind.to_owned(), Capability::new(field)));
        let mut parent = name;
        while let Some(dot) = parent.rfind('.') {
            parent = &parent[..dot];
            if !mapping.is_object(parent) || found.contains_key(parent) {
                continue;
            }
            let nested = mapping.nested_path(parent) == Some(parent);
            let kind = if nested { "nested" } else { "object" };
            let own = Capability { searchable: false, aggregatable: false, meta: BTreeMap::new() };
            found.insert(parent.to_owned(), (kind.to_owned(), own));
        }
    }
    for (name, searchable, aggregatable) in METADATA.into_iter().filter(|(name, ..)| wanted(name)) {
        let own = Capability { searchable, aggregatable, meta: BTreeMap::new() };
        found.insert(name.to_owned(), (name.to_owned(), own));
    }
    Ok(found)
}

impl Capability {
    fn new(field: &Field) -> Self {
        let meta = field.params.get("meta").and_then(Value::as_object).into_iter().flatten();
        let aggregatable = match field.field_type {
            FieldType::Text => field.params.get("fielddata") == Some(&json!(true)),
            FieldType::MatchOnlyText | FieldType::FlatObject => false,
            _ => field.doc_values,
        };
        Self {
            searchable: field.index && field.field_type != FieldType::RankFeatures,
            aggregatable,
            meta: meta.filter_map(|(key, value)| Some((key.clone(), json::text(value)?))).collect(),
        }
    }
}
