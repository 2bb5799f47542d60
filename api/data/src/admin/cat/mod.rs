//! `_cat`: the same figures as elsewhere, as tables for people.

pub(crate) mod cluster;
pub(crate) mod indices;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod recovery;
pub(crate) mod segments;
pub(crate) mod shards;
pub(crate) mod snapshots;
mod table;
pub(crate) mod tasks;

use std::sync::LazyLock;

use millrace_mapping::DateFormat;

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
/_cat/recovery
/_cat/recovery/{index}
/_cat/repositories
/_cat/segments
/_cat/segments/{index}
/_cat/shards
/_cat/shards/{index}
/_cat/snapshots
/_cat/snapshots/{repository}
/_cat/tasks
/_cat/templates
/_cat/templates/{name}
";

pub(crate) fn help(request: &mut Request) -> Result<Response, Error> {
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
