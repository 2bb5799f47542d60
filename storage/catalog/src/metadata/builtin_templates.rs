//! Composable templates of the server's own: for names that no composable template of a user is for.
//!
//! They are not stored, so that a later version may have better ones. A write to a missing index makes a data stream. A request that
//! creates an index of such a name gets an index ([`Metadata::reserving_template`](super::Metadata::reserving_template)).

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::templates::{applies, parse_index_template};

/// Name of the template for the data streams of OpenTelemetry.
const OTEL: &str = "otel@template";

/// Returns the server's own template for a name.
pub(super) fn find(name: &str, hidden: Option<bool>) -> Option<(&'static str, &'static Value)> {
    applies(&OTEL_BODY, name, hidden).then_some((OTEL, &OTEL_BODY))
}

/// Documents of OpenTelemetry have attributes of whoever sends them. Those that contradict earlier ones are kept in the source.
static OTEL_BODY: LazyLock<Value> = LazyLock::new(|| {
    let keyword = json!({ "type": "keyword", "ignore_above": 1024 });
    let strings = |path: &str| json!({ path: { "path_match": format!("{path}.*"), "match_mapping_type": "string", "mapping": &keyword } });
    let body = json!({
        "index_patterns": ["logs-*.otel-*", "metrics-*.otel-*", "traces-*.otel-*"],
        "data_stream": {},
        "template": {
            "settings": { "index.mapping.overflow": "store" },
            "mappings": {
                "date_detection": false,
                "dynamic_templates": [
                    strings("attributes"), strings("resource.attributes"), strings("scope.attributes")
                ],
                "properties": {
                    "@timestamp": { "type": "date" },
                    "observed_timestamp": { "type": "date" },
                    "data_stream": { "properties": {
                        "type": &keyword, "dataset": &keyword, "namespace": &keyword
                    } },
                    "severity_text": &keyword,
                    "severity_number": { "type": "long" },
                    "event_name": &keyword,
                    "trace_id": &keyword,
                    "span_id": &keyword,
                    "trace_flags": { "type": "long" },
                    "body": { "properties": {
                        "text": { "type": "text" }, "structured": { "type": "flat_object" }
                    } },
                    "resource": { "properties": { "schema_url": &keyword } },
                    "scope": { "properties": {
                        "name": &keyword, "version": &keyword, "schema_url": &keyword
                    } },
                },
            },
        },
    });
    parse_index_template(OTEL, &body).unwrap_or_default()
});

#[cfg(test)]
mod tests {
    use super::super::{CreateIndex, Metadata, TemplateKind, Uuid};
    use super::*;

    const STREAM: &str = "logs-shop.otel-default";

    fn with(metadata: &Metadata, kind: TemplateKind, body: Value) -> Metadata {
        metadata.apply(&metadata.put_template(kind, "own", body, false).unwrap())
    }

    #[test]
    fn a_name_of_opentelemetry_becomes_a_data_stream_that_keeps_what_contradicts() {
        let metadata = Metadata::default();
        assert_eq!(metadata.stream_template(STREAM), Some((OTEL, "@timestamp")));
        assert_eq!(metadata.stream_template("logs-shop-default"), None);
        let metadata = metadata.apply(&metadata.create_data_stream(STREAM, 5, Uuid::nil()).unwrap());
        let index = metadata.index(".ds-logs-shop.otel-default-000001").unwrap();
        assert_eq!(index.setting("index.mapping.overflow"), Some("store"));
        assert!(metadata.list_templates(TemplateKind::Index, None).is_empty());
    }

    #[test]
    fn an_index_of_such_a_name_can_be_made_by_hand() {
        let metadata = Metadata::default();
        let request =
            CreateIndex { name: STREAM.into(), provided_name: STREAM.into(), ..CreateIndex::default() };
        let (index, mapping) = metadata.plan_index(&request, 5, Uuid::nil()).unwrap();
        assert_eq!((index.data_stream(), index.setting("index.mapping.overflow")), (None, Some("store")));
        assert_eq!(mapping.unwrap()["properties"]["body"]["properties"]["text"]["type"], "text");
    }

    #[test]
    fn a_template_of_a_user_may_have_the_same_name() {
        let own = json!({ "index_patterns": ["shop-*"], "data_stream": {} });
        let own = parse_index_template(OTEL, &own).unwrap();
        let metadata = Metadata::default();
        let metadata = metadata.apply(&metadata.put_template(TemplateKind::Index, OTEL, own, false).unwrap());
        let plan = |name: &str| {
            let request =
                CreateIndex { name: name.into(), provided_name: name.into(), ..CreateIndex::default() };
            metadata.plan_index(&request, 5, Uuid::nil())
        };
        assert!(plan("shop-1").unwrap_err().to_string().contains("creates data streams only"));
        assert!(plan(STREAM).is_ok());
        let metadata = metadata.apply(&metadata.create_data_stream(STREAM, 5, Uuid::nil()).unwrap());
        assert_eq!(metadata.streams_of_template(OTEL), Vec::<&str>::new());
    }

    #[test]
    fn composable_templates_of_users_come_first() {
        let own =
            json!({ "index_patterns": ["logs-*"], "template": { "settings": { "index.hidden": false } } });
        let metadata = with(&Metadata::default(), TemplateKind::Index, own);
        assert_eq!(metadata.stream_template(STREAM), None);
        assert!(!metadata.layers(STREAM, None).settings.contains_key("index.mapping.overflow"));
        let body = json!({ "index_patterns": ["*"], "settings": {} });
        let legacy = super::super::parse_legacy_template("own", &body, false, None).unwrap();
        let metadata = with(&Metadata::default(), TemplateKind::Legacy, legacy);
        assert!(metadata.stream_template(STREAM).is_some());
    }
}
