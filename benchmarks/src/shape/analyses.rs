//! Aggregations, each also as SQL over the rows, for an engine that reads the segments' Parquet files.

use serde_json::{Value, json};

use crate::query::Operation;

/// An aggregation, and the same question in SQL over a table `docs`.
#[derive(Clone, Debug)]
pub(crate) struct Analysis {
    /// The search.
    pub(crate) operation: Operation,
    /// The question in DuckDB's SQL.
    pub(crate) sql: String,
}

/// One question: name, query, aggregations, SQL.
type Question = (&'static str, Value, Value, &'static str);

fn analyses(index: &str, questions: Vec<Question>) -> Vec<Analysis> {
    let analysis = |(name, query, aggs, sql): Question| Analysis {
        operation: Operation {
            name: name.to_owned(),
            // Answers are to be computed, not remembered.
            path: format!("/{index}/_search?request_cache=false"),
            body: json!({"size": 0, "track_total_hits": true, "query": query, "aggs": {"a": aggs}}),
        },
        sql: sql.to_owned(),
    };
    questions.into_iter().map(analysis).collect()
}

/// Aggregations over http_logs.
pub(super) fn http_logs(index: &str) -> Vec<Analysis> {
    let all = || json!({"match_all": {}});
    let hourly = json!({"field": "@timestamp", "fixed_interval": "1h"});
    let day = json!({"range": {"@timestamp": {
        "gte": "1998-05-06T00:00:00Z", "lt": "1998-05-07T00:00:00Z", "format": "strict_date_optional_time",
    }}});
    analyses(
        index,
        vec![
            (
                "terms status",
                all(),
                json!({"terms": {"field": "status"}}),
                "SELECT status, count(*) n FROM docs GROUP BY 1 ORDER BY n DESC LIMIT 10",
            ),
            (
                "hourly",
                all(),
                json!({"date_histogram": hourly}),
                r#"SELECT date_trunc('hour', "@timestamp"::TIMESTAMP) h, count(*) FROM docs GROUP BY 1 ORDER BY 1"#,
            ),
            (
                "hourly with avg size",
                all(),
                json!({"date_histogram": hourly, "aggs": {"s": {"avg": {"field": "size"}}}}),
                r#"SELECT date_trunc('hour', "@timestamp"::TIMESTAMP) h, count(*), avg(size) FROM docs GROUP BY 1 ORDER BY 1"#,
            ),
            (
                "one day, hourly by status",
                day,
                json!({"date_histogram": hourly, "aggs": {"s": {"terms": {"field": "status"}}}}),
                r#"SELECT date_trunc('hour', "@timestamp"::TIMESTAMP) h, status, count(*) FROM docs
                   WHERE "@timestamp" >= '1998-05-06T00:00:00Z' AND "@timestamp" < '1998-05-07T00:00:00Z'
                   GROUP BY 1, 2 ORDER BY 1, 3 DESC"#,
            ),
            (
                "terms request.raw",
                all(),
                json!({"terms": {"field": "request.raw"}}),
                "SELECT request, count(*) n FROM docs GROUP BY 1 ORDER BY n DESC LIMIT 10",
            ),
            (
                "terms clientip by sum of size",
                all(),
                json!({
                    "terms": {"field": "clientip", "order": {"s": "desc"}},
                    "aggs": {"s": {"sum": {"field": "size"}}},
                }),
                "SELECT clientip, count(*), sum(size) s FROM docs GROUP BY 1 ORDER BY s DESC LIMIT 10",
            ),
            (
                "cardinality clientip",
                all(),
                json!({"cardinality": {"field": "clientip"}}),
                "SELECT count(DISTINCT clientip) FROM docs",
            ),
            (
                "percentiles size",
                all(),
                json!({"percentiles": {"field": "size"}}),
                "SELECT quantile_cont(size, [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]) FROM docs",
            ),
            (
                "stats size, status 404",
                json!({"term": {"status": 404}}),
                json!({"stats": {"field": "size"}}),
                "SELECT count(size), min(size), max(size), avg(size), sum(size) FROM docs WHERE status = 404",
            ),
            (
                "match pdf, terms status",
                json!({"match": {"request": "pdf"}}),
                json!({"terms": {"field": "status"}}),
                r"SELECT status, count(*) n FROM docs WHERE regexp_matches(lower(request), '\bpdf\b')
                  GROUP BY 1 ORDER BY n DESC LIMIT 10",
            ),
            (
                "composite of clientip and status, 100 buckets",
                all(),
                json!({"composite": {"size": 100, "sources": [
                    {"c": {"terms": {"field": "clientip"}}}, {"s": {"terms": {"field": "status"}}},
                ]}}),
                "SELECT clientip, status, count(*) FROM docs GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 100",
            ),
        ],
    )
}

/// Aggregations over big5.
pub(super) fn big5(index: &str) -> Vec<Analysis> {
    let all = || json!({"match_all": {}});
    let between = |from: &str, to: &str| json!({"range": {"@timestamp": {"gte": from, "lt": to}}});
    let day = || between("2023-01-02T00:00:00", "2023-01-03T00:00:00");
    let sizes = json!({"field": "metrics.size", "ranges": [
        {"to": -10}, {"from": -10, "to": 10}, {"from": 10, "to": 100}, {"from": 100, "to": 1_000},
        {"from": 1_000, "to": 2_000}, {"from": 2_000},
    ]});
    let auto = json!({"field": "@timestamp", "buckets": 20});
    let metrics = json!({
        "tmin": {"min": {"field": "metrics.tmin"}},
        "tavg": {"avg": {"field": "metrics.size"}},
        "tmax": {"max": {"field": "metrics.size"}},
    });
    analyses(
        index,
        vec![
            (
                "hourly",
                all(),
                json!({"date_histogram": {"field": "@timestamp", "calendar_interval": "hour"}}),
                r#"SELECT date_trunc('hour', "@timestamp"::TIMESTAMP) h, count(*) FROM docs GROUP BY 1 ORDER BY 1"#,
            ),
            (
                "one day, by minute",
                day(),
                json!({"date_histogram": {"field": "@timestamp", "calendar_interval": "minute"}}),
                r#"SELECT date_trunc('minute', "@timestamp"::TIMESTAMP) m, count(*) FROM docs
                   WHERE "@timestamp" >= '2023-01-02T00:00:00Z' AND "@timestamp" < '2023-01-03T00:00:00Z'
                   GROUP BY 1 ORDER BY 1"#,
            ),
            (
                "keyword terms of 500",
                all(),
                json!({"terms": {"field": "aws.cloudwatch.log_stream", "size": 500}}),
                r#"SELECT "aws.cloudwatch.log_stream" k, count(*) n FROM docs GROUP BY 1 ORDER BY n DESC LIMIT 500"#,
            ),
            (
                "keyword terms of 7",
                all(),
                json!({"terms": {"field": "cloud.region"}}),
                r#"SELECT "cloud.region" k, count(*) n FROM docs GROUP BY 1 ORDER BY n DESC LIMIT 10"#,
            ),
            (
                "one day, composite of two keywords",
                day(),
                json!({"composite": {"sources": [
                    {"process_name": {"terms": {"field": "process.name", "order": "desc"}}},
                    {"cloud_region": {"terms": {"field": "cloud.region", "order": "asc"}}},
                ]}}),
                r#"SELECT "process.name", "cloud.region", count(*) FROM docs
                   WHERE "@timestamp" >= '2023-01-02T00:00:00Z' AND "@timestamp" < '2023-01-03T00:00:00Z'
                   GROUP BY 1, 2 ORDER BY 1 DESC, 2 LIMIT 10"#,
            ),
            (
                "one day, multi_terms of three keywords",
                day(),
                json!({"multi_terms": {"terms": [
                    {"field": "process.name"}, {"field": "event.id"}, {"field": "cloud.region"},
                ]}}),
                r#"SELECT "process.name", "event.id", "cloud.region", count(*) n FROM docs
                   WHERE "@timestamp" >= '2023-01-02T00:00:00Z' AND "@timestamp" < '2023-01-03T00:00:00Z'
                   GROUP BY 1, 2, 3 ORDER BY n DESC LIMIT 10"#,
            ),
            (
                "cardinality of 7",
                all(),
                json!({"cardinality": {"field": "cloud.region"}}),
                r#"SELECT count(DISTINCT "cloud.region") FROM docs"#,
            ),
            (
                "cardinality of all",
                all(),
                json!({"cardinality": {"field": "event.id"}}),
                r#"SELECT count(DISTINCT "event.id") FROM docs"#,
            ),
            (
                "range",
                all(),
                json!({"range": sizes}),
                r#"SELECT CASE WHEN "metrics.size" < -10 THEN 0 WHEN "metrics.size" < 10 THEN 1
                     WHEN "metrics.size" < 100 THEN 2 WHEN "metrics.size" < 1000 THEN 3
                     WHEN "metrics.size" < 2000 THEN 4 ELSE 5 END k, count(*) FROM docs GROUP BY 1 ORDER BY 1"#,
            ),
            (
                "range with auto_date_histogram",
                all(),
                json!({"range": sizes, "aggs": {"date": {"auto_date_histogram": auto}}}),
                r#"SELECT CASE WHEN "metrics.size" < -10 THEN 0 WHEN "metrics.size" < 10 THEN 1
                     WHEN "metrics.size" < 100 THEN 2 WHEN "metrics.size" < 1000 THEN 3
                     WHEN "metrics.size" < 2000 THEN 4 ELSE 5 END k, date_trunc('day', "@timestamp"::TIMESTAMP) d, count(*)
                   FROM docs GROUP BY 1, 2 ORDER BY 1, 2"#,
            ),
            (
                "range with auto_date_histogram and metrics",
                all(),
                json!({"range": sizes, "aggs": {"date": {"auto_date_histogram": auto, "aggs": metrics}}}),
                r#"SELECT CASE WHEN "metrics.size" < -10 THEN 0 WHEN "metrics.size" < 10 THEN 1
                     WHEN "metrics.size" < 100 THEN 2 WHEN "metrics.size" < 1000 THEN 3
                     WHEN "metrics.size" < 2000 THEN 4 ELSE 5 END k, date_trunc('day', "@timestamp"::TIMESTAMP) d, count(*),
                     min("metrics.tmin"), avg("metrics.size"), max("metrics.size")
                   FROM docs GROUP BY 1, 2 ORDER BY 1, 2"#,
            ),
            (
                "terms with daily histogram",
                all(),
                json!({
                    "terms": {"field": "log.file.path", "size": 10},
                    "aggs": {"d": {"date_histogram": {"field": "@timestamp", "calendar_interval": "day"}}},
                }),
                r#"WITH top AS (SELECT "log.file.path" k, count(*) n FROM docs GROUP BY 1 ORDER BY n DESC LIMIT 10)
                   SELECT "log.file.path", date_trunc('day', "@timestamp"::TIMESTAMP) d, count(*) FROM docs
                   WHERE "log.file.path" IN (SELECT k FROM top) GROUP BY 1, 2 ORDER BY 1, 2"#,
            ),
        ],
    )
}
