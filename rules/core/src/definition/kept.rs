//! Options that are known and not used: kept as they were written, and shown with the reason.

use serde_json::{Map, Value};

use super::ImportNotice;
use super::options::short;
use super::rule_type::RuleType;
use crate::error::{Error, Result};

/// Option with the format of event times: of its values `unix` says that numbers are seconds.
pub(super) const TIMESTAMP_TYPE: &str = "timestamp_type";
/// Options that may be kept.
const MAX_KEPT: usize = 200;
/// Bytes of one that is kept.
const MAX_BYTES: usize = 64 << 10;
/// Placeholder for a value that would be a secret.
pub(super) const NOT_STORED: &str = "(not stored)";

const POLLED: &str = "events are evaluated as they arrive: nothing is polled, and none is left out";
const SERVER: &str = "the events are in this server";
const LINKS: &str = "alerts have no links";
const GROUPED: &str = "alerts are gathered by when they are raised";
const CHANNELS: &str = "no channel of the rule uses it";
const MAIL: &str = "the server of mail is that of the configuration, notifications.smtp";
const SHOWN: &str = "it is shown with the rule only";
const LAYOUT: &str = "the text of an alert has no such part";
const TIMES: &str = "times are shown in UTC";

/// Names, or beginnings of names that end in `*`, with the reason.
const KNOWN: &[(&str, &str)] = &[
    ("aggregate_by_match_time", GROUPED),
    ("aggregation_alert_time_compared_with_timestamp_field", GROUPED),
    ("alert_time_limit", CHANNELS),
    ("alerta_*", CHANNELS),
    ("alertmanager_*", CHANNELS),
    ("allow_buffer_time_overlap", POLLED),
    ("aws_*", SERVER),
    ("bcc", CHANNELS),
    ("boto_profile", SERVER),
    ("buffer_time", POLLED),
    ("ca_certs", SERVER),
    ("category", SHOWN),
    ("cc", CHANNELS),
    ("chatwork_*", CHANNELS),
    ("client_cert", SERVER),
    ("client_key", SERVER),
    ("command", CHANNELS),
    ("custom_pretty_ts_format", TIMES),
    ("datadog_*", CHANNELS),
    ("debug", SHOWN),
    ("dingtalk_*", CHANNELS),
    ("discord_*", CHANNELS),
    ("doc_type", SERVER),
    ("email_*", CHANNELS),
    ("es_*", SERVER),
    ("exotel_*", CHANNELS),
    ("fail_on_non_zero_exit", CHANNELS),
    ("filter_by_list", POLLED),
    ("from_addr", CHANNELS),
    ("gelf_*", CHANNELS),
    ("generate_*", LINKS),
    ("gitter_*", CHANNELS),
    ("googlechat_*", CHANNELS),
    ("hive_*", CHANNELS),
    ("http_post*", CHANNELS),
    ("include_fields", LAYOUT),
    ("include_match_in_root", LAYOUT),
    ("include_rule_params_*", LAYOUT),
    ("indexer_*", CHANNELS),
    ("iris_*", CHANNELS),
    ("jinja_*", LAYOUT),
    ("jira_*", CHANNELS),
    ("hipchat_*", CHANNELS),
    ("kibana4_*", LINKS),
    ("kibana_*", LINKS),
    ("lark_*", CHANNELS),
    ("linenotify_*", CHANNELS),
    ("mattermost_*", CHANNELS),
    ("max_query_size", POLLED),
    ("max_scrolling*", POLLED),
    ("max_threads", POLLED),
    ("misfire_grace_time", POLLED),
    ("ms_power_automate_*", CHANNELS),
    ("ms_teams_*", CHANNELS),
    ("notify_email", CHANNELS),
    ("opensearch_*", LINKS),
    ("opsgenie_*", CHANNELS),
    ("owner", SHOWN),
    ("pagerduty_*", CHANNELS),
    ("pagertree_*", CHANNELS),
    ("pipe_match_json", CHANNELS),
    ("pipe_alert_text", CHANNELS),
    ("post_*", CHANNELS),
    ("priority", SHOWN),
    ("profile", SERVER),
    ("query_delay", POLLED),
    ("query_timezone", TIMES),
    ("raw_count_keys", LAYOUT),
    ("realert_key", "the key of [realert] is that of [query_key]"),
    ("replace_dots_in_field_names", LAYOUT),
    ("rocket_chat_*", CHANNELS),
    ("rule_file", SHOWN),
    ("run_enhancements_first", LAYOUT),
    ("run_every", POLLED),
    ("scan_entire_timeframe", POLLED),
    ("scan_subdirectories", SERVER),
    ("search_extra_index", POLLED),
    ("servicenow_*", CHANNELS),
    ("ses_*", CHANNELS),
    ("shorten_*", LINKS),
    ("slack_*", CHANNELS),
    ("smtp_*", MAIL),
    ("sns_*", CHANNELS),
    ("ssl_show_warn", SERVER),
    ("start_date", POLLED),
    ("statsd_*", SERVER),
    ("stomp_*", CHANNELS),
    ("summary_*", LAYOUT),
    ("telegram_*", CHANNELS),
    ("tencent_sms_*", CHANNELS),
    ("terms_size", POLLED),
    ("thehive_*", CHANNELS),
    ("timestamp_format*", "formats are those of the mapping"),
    (
        TIMESTAMP_TYPE,
        "numbers are seconds with unix, else milliseconds; formats of texts are those of the mapping",
    ),
    ("top_count_*", LAYOUT),
    ("twilio_*", CHANNELS),
    ("use_count_query", POLLED),
    ("use_kibana*", LINKS),
    ("use_keyword_postfix", "values are those of the source"),
    ("use_local_time", TIMES),
    ("use_run_every_query_size", POLLED),
    ("use_ssl", SERVER),
    ("use_strftime_index", "the pattern is taken as it is written"),
    ("use_terms_query", POLLED),
    ("users", CHANNELS),
    ("verify_certs", SERVER),
    ("victorops_*", CHANNELS),
    ("webhook_*", CHANNELS),
    ("window_step_size", POLLED),
    ("workwechat_*", CHANNELS),
    ("yzj_*", CHANNELS),
    ("zbx_*", CHANNELS),
    ("_source_enabled", SERVER),
    ("matrixhookshot_*", CHANNELS),
    ("flashduty_*", CHANNELS),
    ("sync_bucket_interval", "windows begin at whole multiples of their length, whenever a rule begins"),
    ("metric_format_string", LAYOUT),
    ("percentage_format_string", LAYOUT),
];

/// In place of the reason of an option of a type.
const OTHER_TYPE: &str = "";

/// Options of the types that are there, which other types do not use.
const OF_TYPES: [&str; 31] = [
    "threshold",
    "threshold_ref",
    "threshold_cur",
    "spike_height",
    "spike_type",
    "field_value",
    "alert_on_new_data",
    "forget_keys",
    "metric_agg_key",
    "metric_agg_type",
    "percentile_range",
    "max_threshold",
    "min_threshold",
    "bucket_interval",
    "min_doc_count",
    "match_bucket_filter",
    "min_percentage",
    "max_percentage",
    "min_denominator",
    "num_events",
    "timeframe",
    "attach_related",
    "cardinality_field",
    "max_cardinality",
    "min_cardinality",
    "compare_key",
    "blacklist",
    "whitelist",
    "fields",
    "terms_window_size",
    "alert_on_missing_field",
];

/// Options that would change which alerts there are, and are refused.
const REFUSED: [(&str, &str); 6] = [
    ("metric_agg_script", "code is not run: metric_agg_key names a field"),
    ("import", "files are not read: write what it imports into the rule"),
    ("match_enhancements", "code that changes or drops alerts is not run"),
    ("recovery_command", "is not there: recovery tells each channel of the rule"),
    ("timestamp_to_datetime_format_expr", "code is not run"),
    ("timestamp_format_expr", "code is not run"),
];

/// Members of a listed record beside the rule.
const READ_ONLY: [&str; 10] = [
    "last_run",
    "last_alert",
    "lag",
    "error",
    "paused",
    "revision",
    "state",
    "notices",
    "passed_over",
    "catching_up",
];

fn reason(name: &str) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(known, _)| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => *known == name,
    });
    found.map(|(_, reason)| *reason).or_else(|| OF_TYPES.contains(&name).then_some(OTHER_TYPE))
}

pub(super) fn is_secret(name: &str) -> bool {
    // Addresses of webhooks have their token in them.
    const PARTS: [&str; 9] =
        ["password", "secret", "token", "api_key", "apikey", "webhook", "bearer", "auth", "_key_id"];
    let url_of_channel = name.ends_with("_url") && reason(name) == Some(CHANNELS);
    url_of_channel || PARTS.iter().any(|part| name.contains(part))
}

/// Sorts what nobody took: known options are kept, others refused.
pub(super) fn keep_known_options(rest: Map<String, Value>) -> Result<Map<String, Value>> {
    let mut kept = Map::new();
    for (name, value) in rest {
        if value.is_null() || READ_ONLY.contains(&name.as_str()) {
            continue;
        }
        // An option that is empty asks for nothing.
        let is_empty = matches!(&value, Value::Array(list) if list.is_empty());
        if let Some((name, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            if is_empty {
                continue;
            }
            return Err(Error::invalid(*name, *why));
        }
        if name == TIMESTAMP_TYPE && !matches!(value.as_str(), Some("iso" | "unix" | "unix_ms" | "custom")) {
            let reason = format!("{value} is not there; iso, unix, unix_ms and custom are");
            return Err(Error::invalid(name, reason));
        }
        if reason(&name).is_none() {
            let reason = "unknown option; docs/rules.md lists those that there are";
            return Err(Error::invalid(short(&name), reason));
        }
        let size = value.to_string().len();
        if size > MAX_BYTES {
            return Err(Error::TooLarge { field: name, size, unit: "bytes", bound: MAX_BYTES });
        }
        let value = if is_secret(&name) { Value::from(NOT_STORED) } else { value };
        kept.insert(name, value);
    }
    if kept.len() > MAX_KEPT {
        let field = "alertrule_any".to_owned();
        return Err(Error::TooLarge { field, size: kept.len(), unit: "entries", bound: MAX_KEPT });
    }
    Ok(kept)
}

/// Tells why each option that is kept is not used.
pub(super) fn notices(kept: &Map<String, Value>, rule_type: &RuleType) -> Vec<ImportNotice> {
    let of = |(name, value): (&String, &Value)| {
        let mut reason = match reason(name) {
            None | Some(OTHER_TYPE) => format!("type [{}] does not use it", rule_type.name()),
            Some(reason) => reason.to_owned(),
        };
        if value == NOT_STORED {
            reason.push_str("; rules keep no secrets");
        }
        ImportNotice { option: name.clone(), reason }
    };
    kept.iter().map(of).collect()
}
