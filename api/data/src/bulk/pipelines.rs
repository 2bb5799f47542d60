//! Ingest pipelines of a bulk: each document by itself. An item fails or is dropped alone.

use millrace_engine::Session;
use millrace_runtime::Priority;

use super::parse::{Bulk, Outcome, REFUSAL_BYTES};
use super::{refuse_by_metadata, set_aside};
use crate::Api;
use crate::error::Error;
use crate::http::MemoryAllowance;
use crate::ingest::{DocumentPipelines, PipelineVerdict, names_pipelines};
use crate::route::DataApi;

/// Returns whether any operation of a bulk has pipelines. Each index is looked at once.
pub(super) fn concern(session: &Session, bulk: &Bulk) -> Result<bool, Error> {
    if bulk.requested.iter().any(|(_, name)| &**name != "_none") {
        return Ok(true);
    }
    let mut known: Vec<&std::sync::Arc<str>> = Vec::new();
    for op in &bulk.ops {
        // Names are shared within a bulk: most have one or two.
        if known.iter().any(|name| std::sync::Arc::ptr_eq(name, &op.index)) {
            continue;
        }
        if known.len() == MAX_COMPARED || names_pipelines(session, &op.index) {
            return Ok(true);
        }
        known.push(&op.index);
    }
    Ok(false)
}

/// Most indices that are looked at before the documents are.
const MAX_COMPARED: usize = 64;

/// Most failures of a bulk that keep their whole errors. Errors of scripts carry the script.
const MAX_WHOLE_ERRORS: usize = 1_000;

/// Takes the documents of a bulk through their pipelines, on the threads of writes.
pub(super) async fn run(
    served: &DataApi,
    api: &Api,
    mut bulk: Bulk,
    require_data_stream: bool,
    allowance: &MemoryAllowance,
) -> Result<Bulk, Error> {
    let service = served.ingest()?.clone();
    let stored = service.stored().await?;
    let (session, allowance) = (api.session.clone(), allowance.clone());
    let work = move || {
        let mut pipelines = DocumentPipelines::new(&session, &stored, service.total());
        let (mut decided, mut failures) = (Vec::new(), 0_usize);
        let mut requested = std::mem::take(&mut bulk.requested).into_iter().peekable();
        for (number, op) in bulk.ops.iter_mut().enumerate() {
            let name = requested.next_if(|(at, _)| *at == number).map(|(_, name)| name);
            match pipelines.apply(op, name.as_deref(), &allowance) {
                Ok(PipelineVerdict::Untouched) => {}
                Ok(PipelineVerdict::Write) => session.compute().give_way(),
                Ok(PipelineVerdict::Drop) => decided.push((number, Outcome::Dropped)),
                Err(error) => {
                    failures += 1;
                    let error = if failures > MAX_WHOLE_ERRORS { error.cut_short() } else { error };
                    let mut rendered = Vec::new();
                    error.write_item(&mut rendered);
                    if let Err(refusal) = allowance.take(rendered.len().max(REFUSAL_BYTES)) {
                        return Ok(Err(refusal));
                    }
                    decided.push((number, Outcome::Refused(Box::new(error))));
                }
            }
        }
        // An item that fails later is answered with the index that it went to.
        let mut targets = bulk.ops.iter().map(|op| op.index.clone());
        for item in bulk.items.iter_mut().filter(|item| matches!(item.outcome, Outcome::Sent)) {
            if let Some(target) = targets.next()
                && *target != *item.index
            {
                item.index = target;
            }
        }
        set_aside(&mut bulk, decided);
        let refused = refuse_by_metadata(&session, &mut bulk, require_data_stream, &allowance);
        Ok(refused.map(|()| bulk))
    };
    api.session.compute().run(Priority::Ingest, work).await?
}
