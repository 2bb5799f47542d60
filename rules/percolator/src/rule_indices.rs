//! Names of the indices that rules write, and the indices whose documents are no events.

use millrace_catalog::access::backed_stream;

/// Alerts.
pub const ALERT: &str = "alert";
/// A document a rule: its last activity.
pub const STATUS: &str = "alert_status";
/// Error of an attempt.
pub const ERROR: &str = "alert_error";
/// Keys that are silent.
pub const SILENCE: &str = "alert_silence";

/// Returns whether the documents of an index are never events: the server's own indices, and what rules tell beside alerts.
pub fn is_never_fed(index: &str) -> bool {
    // Indices of data streams are the users'.
    (index.starts_with('.') && backed_stream(index).is_none()) || matches!(index, STATUS | ERROR | SILENCE)
}

#[cfg(test)]
mod tests {
    use super::is_never_fed;

    #[test]
    fn indices_of_data_streams_have_events() {
        assert!(!is_never_fed(".ds-logs-000001") && !is_never_fed("logs") && !is_never_fed("alert"));
        assert!(is_never_fed(".tasks") && is_never_fed(".ds-logs") && is_never_fed("alert_error"));
    }
}
