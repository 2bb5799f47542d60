//! `_cat`: the same figures as elsewhere, as tables for people.

mod cluster;
mod indices;
mod names;
mod nodes;
mod segments;
mod shards;
mod table;

use std::sync::LazyLock;

use millrace_storage::mapping::DateFormat;

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

const HELP: &str = "=^.^=
/_cat/aliases
/_cat/aliases/{alias}
/_cat/allocation
/_cat/allocation/{nodes}
/_cat/cluster_manager
/_cat/count
/_cat/count/{index}
/_cat/fielddata
/_cat/fielddata/{fields}
/_cat/health
/_cat/indices
/_cat/indices/{index}
/_cat/master
/_cat/nodeattrs
/_cat/nodes
/_cat/pending_tasks
/_cat/plugins
/_cat/segments
/_cat/segments/{index}
/_cat/shards
/_cat/shards/{index}
/_cat/templates
/_cat/templates/{name}
";

pub(super) async fn route(
    api: &Api,
    request: &mut Request,
    rest: &[&str],
) -> Option<Result<Response, Error>> {
    if request.method.as_str() != "GET" {
        return None;
    }
    Some(match rest {
        [] => help(request),
        ["indices"] => indices::get(api, request, "_all"),
        ["indices", index] => indices::get(api, request, index),
        ["count"] => cluster::count(api, request, "_all"),
        ["count", index] => cluster::count(api, request, index),
        ["shards"] => shards::get(api, request, "_all"),
        ["shards", index] => shards::get(api, request, index),
        ["segments"] => segments::get(api, request, "_all"),
        ["segments", index] => segments::get(api, request, index),
        ["health"] => cluster::health(api, request),
        ["master" | "cluster_manager"] => nodes::master(api, request),
        ["nodes"] => nodes::get(api, request),
        ["allocation"] => nodes::allocation(api, request, "_all"),
        ["allocation", nodes] => nodes::allocation(api, request, nodes),
        ["plugins"] => nodes::plugins(api, request),
        ["nodeattrs"] => nodes::attributes(request),
        ["aliases"] => names::aliases(api, request, None),
        ["aliases", names] => names::aliases(api, request, Some(names)),
        ["templates"] => names::templates(api, request, None),
        ["templates", names] => names::templates(api, request, Some(names)),
        ["pending_tasks"] => cluster::pending_tasks(request),
        ["fielddata"] | ["fielddata", _] => cluster::fielddata(request),
        _ => return None,
    })
}

fn help(request: &mut Request) -> Result<Response, Error> {
    for name in ["help", "s", "h", "v", "format"] {
        request.params.take(name);
    }
    request.finish()?;
    Ok(Response::text(200, HELP))
}

/// Renders the time of day, `HH:MM:SS` in UTC.
fn time_of_day(now_ms: i64) -> String {
    let seconds = now_ms.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Renders a moment as `2026-11-21T07:08:09.123Z`.
pub(super) fn moment(ms: i64) -> String {
    static FORMAT: LazyLock<DateFormat> =
        LazyLock::new(|| DateFormat::parse("strict_date_time").expect("a format that is built in"));
    FORMAT.format_nanos(i128::from(ms) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_render() {
        assert_eq!(moment(1_711_069_323_456), "2024-03-22T01:02:03.456Z");
        assert_eq!(moment(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(moment(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(moment(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(time_of_day(86_399_999), "23:59:59");
    }
}
