//! `_cat/repositories` and `_cat/snapshots`.

use millrace_snapshot::{SnapshotFilter, SnapshotOverview};

use super::super::options;
use super::super::snapshots::{refuse, service};
use super::table::{Cell, Column, Format, Table, column};
use super::time_of_day;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

const REPOSITORIES: &[Column] =
    &[column("id", "id,repoId", "unique repository id"), column("type", "t,type", "repository type")];

pub(crate) fn repositories(served: &DataApi, request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(REPOSITORIES);
    for (name, body) in service(served)?.repositories(None).map_err(refuse)? {
        table.push(vec![name.into(), body["type"].as_str().unwrap_or_default().into()]);
    }
    table.render(&format)
}

#[rustfmt::skip]
const SNAPSHOTS: &[Column] = &[
    column("id", "id,snapshot", "unique snapshot"),
    column("status", "s,status", "snapshot name").right(),
    column("start_epoch", "ste,startEpoch", "start time in seconds since 1970-01-01 00:00:00"),
    column("start_time", "sti,startTime", "start time in HH:MM:SS"),
    column("end_epoch", "ete,endEpoch", "end time in seconds since 1970-01-01 00:00:00"),
    column("end_time", "eti,endTime", "end time in HH:MM:SS"),
    column("duration", "dur,duration", "duration").right(),
    column("indices", "i,indices", "number of indices").right(),
    column("successful_shards", "ss,successful_shards", "number of successful shards").right(),
    column("failed_shards", "fs,failed_shards", "number of failed shards").right(),
    column("total_shards", "ts,total_shards", "number of total shards").right(),
    column("reason", "r,reason", "reason for failures").on_request(),
];

pub(crate) async fn snapshots(
    served: &DataApi,
    request: &mut Request,
    repositories: Option<&str>,
) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let ignore_unavailable = options::flag(&mut request.params, "ignore_unavailable")?;
    let named = if repositories.is_none() { request.params.take("repository") } else { None };
    let repositories = repositories.or(named.as_deref());
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(SNAPSHOTS);
    // The columns are known without a repository.
    if format.is_help() {
        return table.render(&format);
    }
    let service = service(served)?;
    let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable };
    for (name, _) in service.repositories(repositories).map_err(refuse)? {
        for snapshot in service.overviews(&name, &filter).await.map_err(refuse)? {
            table.push(row(snapshot));
        }
    }
    table.render(&format)
}

fn row(snapshot: SnapshotOverview) -> Vec<Cell> {
    let SnapshotOverview { started_ms, ended_ms, .. } = snapshot;
    vec![
        snapshot.snapshot.into(),
        snapshot.state.into(),
        (started_ms / 1000).into(),
        time_of_day(started_ms).into(),
        (ended_ms / 1000).into(),
        time_of_day(ended_ms).into(),
        Cell::Millis(u64::try_from(ended_ms - started_ms).unwrap_or(0)),
        snapshot.indices.into(),
        snapshot.successful_shards.into(),
        snapshot.failed_shards.into(),
        snapshot.total_shards.into(),
        snapshot.reason.into(),
    ]
}
