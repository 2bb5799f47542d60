//! Get, exists, and the source by itself.

use bytes::Bytes;
use millrace_engine::{Session, StoredDoc, VersionType};
use serde_json::{Map, Value, json};

use crate::Api;
use crate::documents::answer::push_address;
use crate::documents::source::SourceFilter;
use crate::documents::stored::StoredFields;
use crate::documents::target::Target;
use crate::documents::{DEFAULT_TYPE, options};
use crate::error::Error;
use crate::http::json::{push_str, push_u64};
use crate::http::{MemoryAllowance, Request, Response};

/// Parameters of a read of one document.
#[derive(Clone, Debug, Default)]
pub(super) struct GetParams {
    pub(super) routing: Option<String>,
    pub(super) source: Option<SourceFilter>,
    pub(super) stored: Option<StoredFields>,
    pub(super) version: Option<i64>,
    pub(super) version_type: Option<VersionType>,
    pub(super) realtime: bool,
    pub(super) refresh: bool,
}

impl GetParams {
    /// Takes the parameters of single and many gets; `stored_fields` where the request knows it.
    pub(super) fn take(request: &mut Request, stored: bool) -> Result<Self, Error> {
        let params = &mut request.params;
        let refresh = params.take_bool("refresh")?.unwrap_or(false);
        // One copy serves every preference.
        params.take("preference");
        Ok(Self {
            routing: params.take("routing"),
            source: SourceFilter::take(params)?,
            stored: if stored { params.take_list("stored_fields").map(StoredFields::new) } else { None },
            version: None,
            version_type: None,
            realtime: params.take_bool("realtime")?.unwrap_or(true),
            refresh,
        })
    }

    fn take_version(&mut self, request: &mut Request) -> Result<(), Error> {
        self.version = request.params.take_int("version")?;
        self.version_type =
            request.params.take("version_type").map(|text| options::version_type(&text)).transpose()?;
        Ok(())
    }

    /// The part of the source that is answered: by default all, or none where fields were asked for.
    fn filter(&self) -> SourceFilter {
        match (&self.source, &self.stored) {
            (Some(filter), _) => filter.clone(),
            (None, Some(stored)) if !stored.source => SourceFilter::None,
            (None, _) => SourceFilter::All,
        }
    }
}

/// Reads a document, as single and many gets do.
pub(super) async fn read(
    session: &Session,
    target: &Target,
    id: &str,
    get_params: &GetParams,
) -> Result<Option<StoredDoc>, Error> {
    if get_params.refresh {
        session.refresh(std::slice::from_ref(&target.index)).await?;
    }
    let routing = target.routing.as_deref();
    let found = session.get(&target.name, id, routing, get_params.realtime).await?;
    if let (Some(doc), Some(version)) = (&found, get_params.version)
        && i64::try_from(doc.version).ok() != Some(version)
    {
        let current = doc.version;
        let reason = format!(
            "[{id}]: version conflict, current version [{current}] is different than the one provided [{version}]"
        );
        return Err(Error::new(409, "version_conflict_engine_exception", reason)
            .with("index", &*target.name)
            .with("index_uuid", target.index.meta().uuid.to_string()));
    }
    Ok(found)
}

/// Appends the answer for a document that was found.
pub(super) fn push_found(
    out: &mut Vec<u8>,
    target: &Target,
    doc_type: Option<&str>,
    doc: &StoredDoc,
    get_params: &GetParams,
) -> Result<(), Error> {
    let mapping = &target.mapping;
    let fields = match &get_params.stored {
        Some(stored) if mapping.source_enabled() => stored.collect(mapping, &doc.source)?,
        _ => Map::new(),
    };
    let shown =
        if mapping.source_enabled() { SourceFilter::of_mapping(mapping).apply(&doc.source)? } else { None };
    let source = shown.map(|shown| get_params.filter().apply(&shown)).transpose()?.flatten();
    out.push(b'{');
    push_address(out, &doc.index, doc_type, Some(&doc.id));
    out.extend_from_slice(b",\"_version\":");
    push_u64(out, doc.version);
    out.extend_from_slice(b",\"_seq_no\":");
    push_u64(out, doc.seq_no);
    out.extend_from_slice(b",\"_primary_term\":");
    push_u64(out, doc.primary_term);
    if let Some(routing) = &doc.routing {
        out.extend_from_slice(b",\"_routing\":");
        push_str(out, routing);
    }
    out.extend_from_slice(b",\"found\":true");
    if let Some(source) = source {
        out.extend_from_slice(b",\"_source\":");
        out.extend_from_slice(&source);
    }
    if !fields.is_empty() {
        out.extend_from_slice(b",\"fields\":");
        out.extend_from_slice(Value::Object(fields).to_string().as_bytes());
    }
    out.push(b'}');
    Ok(())
}

/// Answers `GET` and `HEAD` of a document. A bare `?_source` answers the source by itself.
pub(crate) async fn get(
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
    id: &str,
) -> Result<Response, Error> {
    let bare_source = request.params.peek("_source") == Some("");
    let mut get_params = GetParams::take(request, true)?;
    get_params.take_version(request)?;
    request.finish()?;
    let target = Target::read(&api.session, index, doc_type, id, get_params.routing.take())?;
    let Some(doc) = read(&api.session, &target, id, &get_params).await? else {
        return Ok(Response::json(
            404,
            json!({ "_index": &*target.name, "_type": doc_type.unwrap_or(DEFAULT_TYPE), "_id": id, "found": false }),
        ));
    };
    if bare_source {
        return source_alone(&target, doc_type, id, &doc, &get_params, &request.answer);
    }
    request.answer.take(doc.source.len())?;
    let mut out = Vec::with_capacity(doc.source.len() + 160);
    push_found(&mut out, &target, doc_type, &doc, &get_params)?;
    Ok(Response::held_json(200, out, &request.answer))
}

/// Answers `_source` of a document.
pub(crate) async fn source(
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
    id: &str,
) -> Result<Response, Error> {
    let mut get_params = GetParams::take(request, false)?;
    get_params.take_version(request)?;
    request.finish()?;
    if get_params.source == Some(SourceFilter::None) {
        return Err(Error::validation(&["fetching source can not be disabled"]));
    }
    let target = Target::read(&api.session, index, doc_type, id, get_params.routing.take())?;
    match read(&api.session, &target, id, &get_params).await? {
        Some(doc) => source_alone(&target, doc_type, id, &doc, &get_params, &request.answer),
        None => Err(absent("Document", &target, doc_type, id)),
    }
}

fn source_alone(
    target: &Target,
    doc_type: Option<&str>,
    id: &str,
    doc: &StoredDoc,
    get_params: &GetParams,
    allowance: &MemoryAllowance,
) -> Result<Response, Error> {
    let mapping = &target.mapping;
    if !mapping.source_enabled() {
        return Err(absent("Source", target, doc_type, id));
    }
    allowance.take(doc.source.len())?;
    let filter = get_params.source.clone().unwrap_or_default();
    let shown = SourceFilter::of_mapping(mapping).apply(&doc.source)?;
    let source: Option<Bytes> = shown.map(|shown| filter.apply(&shown)).transpose()?.flatten();
    // A copy: what was read may be part of a larger block.
    source
        .map(|source| Response::held_json(200, source.to_vec(), allowance))
        .ok_or_else(|| absent("Source", target, doc_type, id))
}

fn absent(what: &str, target: &Target, doc_type: Option<&str>, id: &str) -> Error {
    let doc_type = doc_type.unwrap_or(DEFAULT_TYPE);
    Error::resource_not_found(format!("{what} not found [{}]/[{doc_type}]/[{id}]", target.name))
}
