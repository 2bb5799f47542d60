//! `_cat`: the same figures as elsewhere, as tables for people.

mod cluster;
mod indices;
mod names;
mod nodes;
mod segments;
mod shards;
mod table;

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
    // Civil date from days since the epoch (Howard Hinnant, "chrono-Compatible Low-Level Date
    // Algorithms").
    let days = ms.div_euclid(86_400_000) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{}.{:03}Z", time_of_day(ms), ms.rem_euclid(1000))
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
