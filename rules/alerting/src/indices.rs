//! The indices that rules write: alerts, statuses of rules, their errors, and silences of keys.
//!
//! They are made when something is to be written, so also anew once somebody has deleted them. Nobody else writes them.

use millrace_catalog::access::Principal;
use millrace_engine::Engine;
use millrace_notifications::outbox;
use millrace_runtime::{Error as StorageError, Result};
use serde_json::{Value, json};

pub(crate) use millrace_notifications::outbox::OUTBOX;
pub(crate) use millrace_percolator::rule_indices::{ALERT, ERROR, SILENCE, STATUS};

/// Roles that may read the document: see `accounts`.
const ROLES: &str = "roles";
/// A field that a version before did not have, of each index.
fn newest(name: &str) -> &'static str {
    match name {
        ALERT => "status_by",
        ERROR => "alert_id",
        _ => ROLES,
    }
}

/// Makes an index where it is missing, and adds what its mapping lacks where a version before made it.
///
/// # Errors
/// The store's.
pub(crate) async fn make(engine: &Engine, name: &str) -> Result<()> {
    // Mostly it is there: its mapping need not be written down then.
    match engine.index(name) {
        Err(StorageError::IndexNotFound { .. }) if name == OUTBOX => {
            engine.make_own_index(name, &outbox::index_body()).await.map(drop)
        }
        Ok(_) if name == OUTBOX => Ok(()),
        Err(StorageError::IndexNotFound { .. }) => engine.make_own_index(name, &body(name)).await.map(drop),
        Ok(index) if index.mapping().field(newest(name)).is_none() => {
            engine.put_mapping(&Principal::system(), name, &body(name)["mappings"]).await
        }
        // One that is closed refuses what is written.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn body(name: &str) -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 8191});
    let words = json!({"type": "text", "fields": {"keyword": keyword}});
    let (text, date, long) = (json!({"type": "text"}), json!({"type": "date"}), json!({"type": "long"}));
    let document = json!({"properties": {"_index": keyword, "_id": keyword, "_seq_no": long}});
    let mut properties = json!({"@timestamp": date, "rule_id": keyword, "rule_name": words});
    // Without a bound beyond which a value is not indexed: the document would be everybody's.
    properties[ROLES] = json!({"type": "keyword"});
    let own = match name {
        ALERT => json!({
            "alert_id": keyword,
            "rule_revision": long,
            "rule_type": keyword,
            "alert_info": {"properties": {
                "type": keyword,
                "command": text,
                "recipients": keyword,
                "risk_value": long,
                "playbooks": keyword,
                "username": keyword,
            }},
            "alert_sent": {"type": "boolean"},
            "alert_sent_time": date,
            "alert_time": date,
            "alert_subject": text,
            "alert_text": text,
            "status": keyword,
            "status_by": keyword,
            "status_time": date,
            "status_note": text,
            "depth": long,
            "key": keyword,
            "trigger": document,
            "events": document,
            "event_count": long,
            "window": {"properties": {"start": date, "end": date}},
            "holds": {"type": "boolean"},
            "revised": {"type": "boolean"},
            "revised_at": date,
            "recovered": {"type": "boolean"},
            "recovered_at": date,
            "match_body": {"type": "flat_object"},
        }),
        STATUS => json!({
            "starttime": date,
            "endtime": date,
            "hits": long,
            "matches": long,
            "time_taken": {"type": "double"},
        }),
        SILENCE => json!({"key": keyword, "until": date, "exponent": long}),
        _ => {
            json!({"alert_id": keyword, "method": keyword, "message": text, "frame": long, "first_frame": long, "last_frame": long})
        }
    };
    if let (Value::Object(properties), Value::Object(own)) = (&mut properties, own) {
        properties.extend(own);
    }
    json!({
        "settings": {
            "index.number_of_shards": 1,
            "index.number_of_replicas": 0,
            // Alerts are found at once, and many of them make one refresh.
            "index.refresh_interval": "100ms",
        },
        "mappings": {"dynamic": "strict", "properties": properties},
    })
}
