//! The stored form of a definition: a document of `.alertrules`.

use serde_json::{Map, Value, json};

use super::{Definition, RuleType, schedule};

impl Definition {
    /// Writes the document of the rule. [`Definition::parse`] reads the same definition from it.
    pub fn document(&self) -> Value {
        let mut request = Map::new();
        if let Some(search_type) = &self.search_type {
            request.insert("search_type".to_owned(), json!(search_type));
        }
        if !self.search_index.is_empty() {
            request.insert("index".to_owned(), json!(self.search_index));
        }
        request.insert("body".to_owned(), self.body.clone());
        let mut document = json!({
            "alertrulename": self.name,
            "alertruleindexpattern": self.index.join(","),
            "alertruletype": self.rule_type.name(),
            "alertrulemethod": self.notification.method(),
            "alertruleimportance": self.importance,
            "enable": self.enabled,
            "search": {"request": request},
            "alertrule_any": self.options(),
        });
        let mut set = |name: &str, value: Value| document[name] = value;
        if let Some(id) = &self.id {
            set("id", json!(id));
        }
        if !self.description.is_empty() {
            set("description", json!(self.description));
        }
        if !self.method_data.is_empty() {
            set("alertrulemethoddata", Value::Object(self.method_data.clone()));
        }
        if let Some(risk_key) = &self.risk_key {
            set("alertruleriskkey", json!(risk_key));
        }
        for (name, list) in
            [("alertruleplaybooks", &self.playbooks), ("selectedroles", &self.roles), ("email", &self.email)]
        {
            if !list.is_empty() {
                set(name, json!(list));
            }
        }
        document
    }

    /// The options that stand in `alertrule_any`.
    fn options(&self) -> Value {
        let mut options = self.kept.clone();
        let mut set = |name: &str, value: Value| {
            options.insert(name.to_owned(), value);
        };
        match &self.rule_type {
            RuleType::Any => {}
            RuleType::Frequency { num_events, timeframe, attach_related } => {
                set("num_events", json!(num_events));
                set("timeframe", json!(timeframe.text()));
                set("attach_related", json!(attach_related));
            }
            RuleType::Cardinality { field, max, timeframe } => {
                set("cardinality_field", json!(field));
                set("max_cardinality", json!(max));
                set("timeframe", json!(timeframe.text()));
            }
            RuleType::MinCardinality { field, min, timeframe } => {
                set("cardinality_field", json!(field));
                set("min_cardinality", json!(min));
                set("timeframe", json!(timeframe.text()));
            }
            RuleType::Spike(spike) => spike.write(&mut set),
            RuleType::Flatline { threshold, timeframe, forget_keys } => {
                set("threshold", json!(threshold));
                set("timeframe", json!(timeframe.text()));
                set("forget_keys", json!(forget_keys));
            }
            RuleType::MetricAggregation(aggregation) => aggregation.write(&mut set),
            RuleType::PercentageMatch(percentage) => percentage.write(&mut set),
            RuleType::Blacklist { compare_key, entries } => {
                set("compare_key", json!(compare_key));
                set("blacklist", json!(entries.iter().collect::<Vec<_>>()));
            }
            RuleType::Whitelist { compare_key, entries, .. } => {
                set("compare_key", json!(compare_key));
                set("whitelist", json!(entries.iter().collect::<Vec<_>>()));
            }
            RuleType::Change { compare_key, timeframe, .. } => {
                set("compare_key", json!(compare_key));
                if let Some(timeframe) = timeframe {
                    set("timeframe", json!(timeframe.text()));
                }
            }
            RuleType::NewTerm { fields, window, alert_on_missing_field } => {
                set("fields", json!(fields));
                set("terms_window_size", json!(window.text()));
                set("alert_on_missing_field", json!(alert_on_missing_field));
            }
        }
        if !self.query_key.is_empty() {
            set("query_key", json!(self.query_key));
        }
        for (name, flag) in [
            ("ignore_null", self.ignore_null),
            ("include_updates", self.include_updates),
            ("allow_alerts", self.allow_alerts),
        ] {
            if flag {
                set(name, json!(true));
            }
        }
        self.notification.write(&mut options);
        let mut set = |name: &str, value: Value| {
            options.insert(name.to_owned(), value);
        };
        set("timestamp_field", json!(self.timestamp_field));
        set("realert", json!(self.realert.wait.text()));
        if self.recovery {
            set("recovery", json!(true));
        }
        if let Some(most) = self.realert.at_most {
            set("exponential_realert", json!(most.text()));
        }
        if let Some(schedule) = &self.schedule {
            set("schedule", schedule::value(schedule));
        }
        if self.recovery {
            set("recovery", json!(true));
        }
        if let Some(delay) = self.delay {
            set("query_delay", json!(delay.text()));
        }
        if !self.include.is_empty() {
            set("include", json!(self.include));
        }
        let text = &self.text;
        for (name, value) in [
            ("alert_subject", &text.subject),
            ("alert_text", &text.text),
            ("alert_missing_value", &text.missing),
        ] {
            if let Some(value) = value {
                set(name, json!(value));
            }
        }
        if let Some(bytes) = text.subject_max_len {
            set("alert_subject_max_len", json!(bytes));
        }
        if let Some(text_type) = text.text_type {
            set("alert_text_type", json!(text_type.name()));
        }
        for (name, args) in [("alert_subject_args", &text.subject_args), ("alert_text_args", &text.text_args)]
        {
            if !args.is_empty() {
                set(name, json!(args));
            }
        }
        if !text.text_kw.is_empty() {
            let members = text.text_kw.iter().map(|(field, name)| (field.clone(), json!(name)));
            set("alert_text_kw", Value::Object(members.collect()));
        }
        Value::Object(options)
    }
}
