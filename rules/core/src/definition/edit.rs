//! Effect of a change of a rule on its state.

use super::Definition;

/// A change of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Nothing is different.
    Same,
    /// State stays: the fields that changed say how alerts look and who hears of them.
    KeepsState {
        /// Fields that changed.
        changed: Vec<&'static str>,
    },
    /// A revision begins at the next frame, with empty state: the fields say which events there are and what they count.
    NewRevision {
        /// Fields for which it begins.
        because: Vec<&'static str>,
    },
}

/// Returns the effect of a change on the rule's state.
pub fn edit(old: &Definition, new: &Definition) -> Edit {
    let because = [
        ("index", old.index != new.index),
        ("search.request.body", old.query() != new.query()),
        ("type", old.rule_type.name() != new.rule_type.name()),
        ("options of the type", old.rule_type != new.rule_type),
        ("query_key", old.query_key != new.query_key),
        ("ignore_null", old.ignore_null != new.ignore_null),
        ("timestamp_field", old.timestamp_field != new.timestamp_field),
        ("include_updates", old.include_updates != new.include_updates),
        ("allow_alerts", old.allow_alerts != new.allow_alerts),
        // It is how long windows are kept.
        ("query_delay", old.delay != new.delay),
    ];
    let because: Vec<_> = because.iter().filter(|(_, differs)| *differs).map(|(field, _)| *field).collect();
    if !because.is_empty() {
        return Edit::NewRevision { because };
    }
    let changed = [
        ("name", old.name != new.name),
        ("description", old.description != new.description),
        ("realert", old.realert != new.realert),
        ("schedule", old.schedule != new.schedule),
        ("recovery", old.recovery != new.recovery),
        ("alert_text", old.text != new.text),
        ("include", old.include != new.include),
        ("importance", old.importance != new.importance),
        ("alertruleriskkey", old.risk_key != new.risk_key),
        ("playbooks", old.playbooks != new.playbooks),
        ("selectedroles", old.roles != new.roles),
        ("alert_method", old.notification != new.notification || old.method_data != new.method_data),
        ("email", old.email != new.email),
        ("enabled", old.enabled != new.enabled),
        (
            "search.request",
            old.body != new.body
                || old.search_type != new.search_type
                || old.search_index != new.search_index,
        ),
        ("options that are not used", old.kept != new.kept),
    ];
    let changed: Vec<_> = changed.iter().filter(|(_, differs)| *differs).map(|(field, _)| *field).collect();
    if changed.is_empty() { Edit::Same } else { Edit::KeepsState { changed } }
}
