//! `_explain`: how one document gets its score.

use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_catalog::metadata::IndicesOptions;
use millrace_dsl::body::SearchBody;
use millrace_dsl::source_filter::SourceFilter;
use millrace_engine::Session;
use millrace_matching::table::TableSnapshot;
use millrace_search::explain::Explainer;
use millrace_search::fetch;
use millrace_segment::{RowParts, StoredRow};
use millrace_target::lookup;
use millrace_work::PARSED_SHARE;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::{Outcome, SearchService};
use crate::request::source_filter;
use crate::visibility;

impl SearchService {
    /// Answers `_explain`. `doc_type` is the type of the path, if it names one.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn explain<'a>(
        &'a self,
        session: &'a Session,
        index: &'a str,
        (doc_type, id): (Option<&'a str>, &'a str),
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let action = match doc_type {
                None => format!("_explain/{id}"),
                Some(doc_type) => format!("{doc_type}/{id}/_explain"),
            };
            let mut opened = self.open(index, &action, params, body)?;
            let params = &mut opened.params;
            let from_body = opened.body.as_ref().map(SearchBody::parse_query_only).transpose()?.flatten();
            let query = params.uri_query()?.or(from_body);
            // Documents have no parents here but their routing.
            let parent = params.list("parent");
            let mut scope = params.scope()?;
            scope.options = IndicesOptions { allow_no_indices: false, ..IndicesOptions::open_only() };
            if scope.routing.is_none() {
                scope.routing = parent.or_else(|| Some(vec![id.to_owned()]));
            }
            let source = source_filter(params)?;
            let fields = params.list("stored_fields");
            opened.params.finish()?;
            let Some(mut query) = query else { return Err(Error::Validation("query is missing".to_owned())) };
            let searcher = self.searcher()?;
            let (compute, (work, _ends)) = (&searcher.compute, searcher.begin());
            Self::single(session, index)?;
            let snapshot = self.pin(session, index, &scope).await?;
            lookup::read(session, &snapshot, &mut query, compute, &work).await?;
            let shown_type = doc_type.unwrap_or("_doc");
            let mut answer = Map::new();
            let found = match wrong_type(&snapshot, doc_type) {
                true => None,
                false => visibility::find(searcher, &snapshot, id, opened.now_ms, &work).await?,
            };
            let name = snapshot.indices.first().map_or(index, |index| index.meta.name.as_ref());
            answer.insert("_index".into(), json!(name));
            answer.insert("_type".into(), json!(shown_type));
            answer.insert("_id".into(), json!(id));
            let Some(address) = found else {
                answer.insert("matched".into(), json!(false));
                return Ok(Outcome::json(404, Value::Object(answer)));
            };
            let explainer = Arc::new(Explainer::new(&query, &snapshot, false, opened.now_ms)?);
            let explained = explainer.explain(&[address], compute, &work).await?;
            let explained =
                explained.first().ok_or_else(|| Error::Execution("a row was not explained".to_owned()))?;
            answer.insert("matched".into(), json!(explained.matched));
            answer.insert("explanation".into(), explained.to_json());
            if source.as_ref().is_some_and(|source| *source != SourceFilter::None) || fields.is_some() {
                let parts = RowParts { source: source.is_some(), versions: true };
                let rows = fetch::rows(&snapshot, &[address], parts, compute, &work).await?;
                if let Some(row) = rows.into_iter().next() {
                    let place =
                        snapshot.segments.get(address.segment as usize).map_or(0, |segment| segment.index);
                    let allowed = snapshot.indices.get(place);
                    let allowed =
                        allowed.map_or(SourceFilter::None, |index| SourceFilter::of_mapping(&index.mapping));
                    let work = work.clone();
                    let show = move || {
                        let _parsed = work.part_of(PARSED_SHARE * row.source.len())?;
                        render_document(&row, source.as_ref(), &allowed)
                    };
                    answer.insert("get".into(), compute.run(show).await?);
                }
            }
            Ok(Outcome::json(200, Value::Object(answer)))
        })
    }

    /// Refuses what does not name one index.
    fn single(session: &Session, index: &str) -> Result<()> {
        let metadata = session.metadata();
        if metadata.index(index).is_some() || index.starts_with('<') {
            return Ok(());
        }
        match metadata.alias_indices(index) {
            // Before it is said to be missing: whether it is there is not told either.
            None if !session.access(index).allows(session.action()) => Err(session.refusal(index).into()),
            None => Err(millrace_runtime::Error::IndexNotFound { index: index.to_owned() }.into()),
            Some(names) if names.len() == 1 => Ok(()),
            Some(several) => {
                let names: Vec<&str> = several.iter().map(AsRef::as_ref).collect();
                Err(Error::IllegalArgument(format!(
                    "Alias [{index}] has more than one indices associated with it [[{}]], can't execute a single index op",
                    names.join(", ")
                )))
            }
        }
    }
}

/// Returns whether the path names a type that the index does not have.
fn wrong_type(snapshot: &TableSnapshot, doc_type: Option<&str>) -> bool {
    let Some(named) = doc_type.filter(|name| *name != "_doc") else { return false };
    snapshot.indices.iter().all(|index| index.meta.mapping_type() != named && index.meta.doc_type.is_some())
}

/// Renders what is shown of the document itself; `allowed` is what the mapping lets be shown of sources.
fn render_document(row: &StoredRow, source: Option<&SourceFilter>, allowed: &SourceFilter) -> Result<Value> {
    let mut document = Map::new();
    document.insert("_seq_no".into(), json!(row.seq_no));
    document.insert("_primary_term".into(), json!(row.primary_term));
    document.insert("found".into(), json!(true));
    if let Some(routing) = &row.routing {
        document.insert("_routing".into(), json!(routing));
    }
    if let Some(filter) = source.filter(|source| **source != SourceFilter::None)
        && !row.source.is_empty()
        && *allowed != SourceFilter::None
    {
        let source = serde_json::from_slice(&row.source)
            .map_err(|error| Error::Execution(format!("the source of [{}] is not JSON: {error}", row.id)))?;
        document.insert("_source".into(), filter.apply(allowed.apply(source)));
    }
    Ok(Value::Object(document))
}
