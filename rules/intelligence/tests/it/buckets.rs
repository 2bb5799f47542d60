//! Detectors of buckets: odd ones found as they close, late ones scored anew, and forecasts with bounds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::detectors::{detector, open, results, save, with, write_all};
use crate::fixture::{MINUTE, START, Server, until};

/// A detector of buckets of a minute.
fn of_buckets(name: &str) -> Value {
    let members = json!({"model_type": "univariate", "fields": null, "field": "took", "value_type": "max", "time_frame": "4 h"});
    with(detector(name), members)
}

/// Values of some minutes from [`START`] on, which go up and down twice an hour; the same ids give the same documents.
async fn minutes(server: &Server, from: i64, to: i64, value: impl Fn(i64) -> f64) {
    let document =
        |minute: i64| json!({"@timestamp": START + minute * MINUTE + 1_000, "took": value(minute)});
    write_all(server, "logs", (from..to).map(|minute| (minute.to_string(), document(minute))).collect())
        .await;
}

fn wave(minute: i64) -> f64 {
    // No two periods are the same.
    let noise = (minute.wrapping_mul(7_919).rem_euclid(97)) as f64 / 97.0;
    100.0 + 40.0 * (minute.rem_euclid(30) as f64 / 30.0 * std::f64::consts::TAU).sin() + 2.0 * noise
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_buckets_are_found_once_they_close_and_late_ones_are_scored_anew() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    minutes(&server, -240, 0, wave).await;
    server.clock.advance_ms(31_000);
    let id = save(&server, of_buckets("took")).await;
    server.run(&id).await.unwrap();
    assert_eq!(server.shown(&id)["model"]["seasons"], json!([30]), "{}", server.shown(&id));
    minutes(&server, 0, 40, |minute| if minute == 20 { 400.0 } else { wave(minute) }).await;
    server.clock.advance_ms(40 * MINUTE);
    let of_minutes = async |count: usize| {
        until(&format!("results of {count} buckets"), async || {
            let found = results(&server, "logs-univariate-anomaly-2026.03.02").await;
            let by_time =
                found.into_values().map(|result| (result["@timestamp"].as_str().unwrap().to_owned(), result));
            let by_time: BTreeMap<String, Value> = by_time.collect();
            (by_time.len() >= count).then_some(by_time)
        })
        .await
    };
    let found = of_minutes(40).await;
    assert_eq!(found.len(), 40);
    let odd = &found["2026-03-02T10:20:00.000Z"]["ai"];
    assert_eq!((&odd["anomaly_flag"], &odd["took"]), (&json!(true), &json!(400.0)));
    assert!(odd["expected"].as_f64().unwrap() < 150.0 && odd["upper"].as_f64().unwrap() < 400.0, "{odd}");
    assert_eq!(odd["reasons"][0]["reason"], "above the expected range");
    for result in found.values() {
        let reasons = result["ai"]["reasons"].as_array().unwrap().len();
        assert_eq!(reasons, usize::from(result["ai"]["anomaly_flag"] == true), "{result}");
    }
    let flagged = found.values().filter(|result| result["ai"]["anomaly_flag"] == true).count();
    assert!(flagged <= 4, "{flagged} buckets are flagged");
    let picture = server.intelligence.plot(&server.admin(), &id, None).await.unwrap();
    assert!(picture.contains("expected") && picture.contains("anomalies"), "{picture}");
    // A document of a bucket that is scored.
    let late = json!({"@timestamp": START + 10 * MINUTE + 2_000, "took": 500});
    write_all(&server, "logs", vec![("late".to_owned(), late)]).await;
    until("the late bucket", async || {
        let found = of_minutes(40).await;
        let late = &found["2026-03-02T10:10:00.000Z"]["ai"];
        (late["took"] == 500.0 && late["anomaly_flag"] == true && found.len() == 40).then_some(())
    })
    .await;
    drop(server);
    // What closes while the server is down is scored after it.
    let server = Server::reopen(dir.path(), START + 45 * MINUTE).await;
    minutes(&server, 40, 44, wave).await;
    until("results of what closed meanwhile", async || {
        (results(&server, "logs-univariate-anomaly-").await.len() >= 44).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_go_on_in_buckets_of_another_length() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    minutes(&server, -240, 0, wave).await;
    server.clock.advance_ms(31_000);
    let id = save(&server, of_buckets("took")).await;
    server.run(&id).await.unwrap();
    minutes(&server, 0, 10, wave).await;
    server.clock.advance_ms(10 * MINUTE);
    let until_time = async |time: &str| {
        until(&format!("a result of {time}"), async || {
            let found = results(&server, "logs-univariate-anomaly-").await;
            found.values().any(|result| result["@timestamp"] == json!(time)).then_some(())
        })
        .await;
    };
    until_time("2026-03-02T10:09:00.000Z").await;
    // Two days have buckets of five minutes, whose numbers are a fifth.
    save(&server, with(of_buckets("took"), json!({"id": id, "time_frame": "2 days"}))).await;
    server.run(&id).await.unwrap();
    minutes(&server, 10, 20, wave).await;
    server.clock.advance_ms(10 * MINUTE);
    until_time("2026-03-02T10:15:00.000Z").await;
    let found = results(&server, "logs-univariate-anomaly-").await;
    assert_eq!(
        found.len(),
        12,
        "{:?}",
        found.values().map(|result| &result["@timestamp"]).collect::<Vec<_>>()
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn series_that_cannot_be_learnt_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    let id = save(&server, of_buckets("took")).await;
    assert!(server.run(&id).await.unwrap_err().to_string().contains("no document of [logs*]"));
    minutes(&server, -240, 0, |_| 5.0).await;
    server.clock.advance_ms(31_000);
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert_eq!(
        (&server.shown(&id)["status"], &server.shown(&id)["error_message"]),
        (&json!("Error"), &json!(refused))
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forecasts_have_bounds_and_learn_what_became_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    minutes(&server, -240, 0, wave).await;
    server.clock.advance_ms(31_000);
    let forecasting = json!({"model_type": "forecasting", "forecast_steps": 10, "seasonality": 30, "algorithm": "mstl_ets"});
    let id = save(&server, with(of_buckets("took ahead"), forecasting)).await;
    let built = server.run(&id).await.unwrap();
    assert!(built.ends_with("10 buckets are forecast"), "{built}");
    let predictions = server.predictions().await;
    assert_eq!(predictions.len(), 10);
    for (at, prediction) in predictions.values().enumerate() {
        let number = |name: &str| prediction[name].as_f64().unwrap();
        assert!(
            number("took_lower") < number("took_pre") && number("took_pre") < number("took_upper"),
            "{prediction}"
        );
        assert!((number("took_pre") - wave(at as i64)).abs() < 15.0, "{at}: {prediction}");
    }
    assert!(server.intelligence.plot(&server.admin(), &id, None).await.unwrap().starts_with("<svg"));
    minutes(&server, 0, 5, wave).await;
    server.clock.advance_ms(5 * MINUTE);
    server.run(&id).await.unwrap();
    let known =
        server.predictions().await.values().filter(|prediction| prediction["took_cur"].is_number()).count();
    assert_eq!(known, 5);
    server.stop().await;
}
