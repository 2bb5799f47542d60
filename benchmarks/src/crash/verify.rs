//! After a restart: everything that the server has, compared with what it may have.
//!
//! First every id by `_mget`, which is realtime; then, after a refresh, every document by scroll and
//! their number by `_count`. Search must show each document once, and as get does.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use anyhow::{Context, Result, anyhow, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::oracle::ServedDocument;
use super::writer::{COUNTERS, Counters, INDEX, Writer, is_generated};
use crate::target::Target;

const BATCH: usize = 500;
const PAGE: usize = 1_000;

/// Compares everything.
///
/// # Errors
///
/// What the server has cannot be, given what it acknowledged; or it does not answer.
pub(super) async fn run(target: &Target, writers: &mut [Writer], counters: &Counters) -> Result<u64> {
    // A node may answer before it serves its shards.
    target.ask(Method::GET, "/_cluster/health?wait_for_status=green&timeout=60s", &Value::Null).await?;
    for writer in writers.iter_mut() {
        by_id(target, writer).await?;
    }
    target.ask(Method::POST, &format!("/{INDEX}/_refresh"), &Value::Null).await?;
    let adopted = by_search(target, writers).await?;
    for (writer, ids) in writers.iter_mut().zip(&adopted) {
        // Documents found by search alone: get must know them, too.
        for (id, stored) in get(target, ids).await? {
            if stored.is_none() {
                bail!("search shows `{id}`, get does not");
            }
            writer.model.observe(&id, stored.as_ref()).map_err(|problem| anyhow!(problem))?;
        }
        writer.model.forget_absent(is_generated);
    }
    let live: u64 = writers.iter().map(|writer| writer.model.present().len() as u64).sum();
    let counted = target.count(INDEX).await?;
    if counted != live {
        bail!("_count says {counted}, search showed {live}");
    }
    for (number, counter) in counters.iter().enumerate() {
        let path = format!("/{COUNTERS}/_doc/{number}");
        let (status, answer) = target.json(Method::GET, &path, &Value::Null).await?;
        let value = if status == StatusCode::NOT_FOUND { Some(0) } else { answer["_source"]["n"].as_u64() };
        let value = value.with_context(|| format!("counter {number} is {answer}"))?;
        let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
        counter.observe(value).map_err(|problem| anyhow!("counter {number}: {problem}"))?;
    }
    Ok(live)
}

async fn by_id(target: &Target, writer: &mut Writer) -> Result<()> {
    let ids: Vec<String> = writer.model.ids().map(str::to_owned).collect();
    for (id, stored) in get(target, &ids).await? {
        writer.model.observe(&id, stored.as_ref()).map_err(|problem| anyhow!("by id: {problem}"))?;
    }
    Ok(())
}

async fn get(target: &Target, ids: &[String]) -> Result<Vec<(String, Option<ServedDocument>)>> {
    let mut all = Vec::with_capacity(ids.len());
    for batch in ids.chunks(BATCH) {
        let answer = target.ask(Method::POST, &format!("/{INDEX}/_mget"), &json!({"ids": batch})).await?;
        let docs = answer["docs"].as_array().with_context(|| format!("_mget answered {answer}"))?;
        if docs.len() != batch.len() {
            bail!("_mget answered {} of {} ids", docs.len(), batch.len());
        }
        for (id, doc) in batch.iter().zip(docs) {
            if doc["_id"] != json!(id) {
                bail!("_mget answered {} for `{id}`", doc["_id"]);
            }
            all.push((id.clone(), stored(doc)?));
        }
    }
    Ok(all)
}

fn stored(doc: &Value) -> Result<Option<ServedDocument>> {
    match doc["found"].as_bool() {
        Some(false) => return Ok(None),
        Some(true) => {}
        None => bail!("_mget failed: {doc}"),
    }
    let number = |name: &str| doc[name].as_u64().with_context(|| format!("no {name} in {doc}"));
    Ok(Some(ServedDocument {
        version: number("_version")?,
        seq_no: number("_seq_no")?,
        primary_term: number("_primary_term")?,
        source: doc["_source"].clone(),
    }))
}

/// Scrolls through everything; returns the ids that each writer adopted.
async fn by_search(target: &Target, writers: &mut [Writer]) -> Result<Vec<Vec<String>>> {
    let known: BTreeSet<String> =
        writers.iter().flat_map(|writer| writer.model.ids()).map(str::to_owned).collect();
    let mut adopted = vec![Vec::new(); writers.len()];
    let mut seen = BTreeSet::new();
    let body = json!({"size": PAGE, "query": {"match_all": {}}, "sort": ["_doc"]});
    let mut page = target.ask(Method::POST, &format!("/{INDEX}/_search?scroll=1m"), &body).await?;
    loop {
        let hits = page["hits"]["hits"].as_array().with_context(|| format!("search answered {page}"))?;
        if hits.is_empty() {
            break;
        }
        for hit in hits {
            let id = hit["_id"].as_str().with_context(|| format!("a hit without id: {hit}"))?;
            if !seen.insert(id.to_owned()) {
                bail!("search shows `{id}` twice");
            }
            let mut owner = None;
            for (number, writer) in writers.iter_mut().enumerate() {
                if writer.model.observe_hit(id, &hit["_source"]).map_err(|problem| anyhow!(problem))? {
                    owner = Some(number);
                    break;
                }
            }
            let Some(owner) = owner else {
                bail!("search shows `{id}`, which nobody wrote or which is there already: {hit}");
            };
            if !known.contains(id) {
                adopted[owner].push(id.to_owned());
            }
        }
        let scroll = json!({"scroll": "1m", "scroll_id": page["_scroll_id"]});
        page = target.ask(Method::POST, "/_search/scroll", &scroll).await?;
    }
    let scroll = json!({"scroll_id": page["_scroll_id"]});
    target.json(Method::DELETE, "/_search/scroll", &scroll).await?;
    for writer in writers.iter() {
        if let Some(id) = writer.model.present().into_iter().find(|id| !seen.contains(*id)) {
            bail!("get finds `{id}`, search does not");
        }
    }
    Ok(adopted)
}
