//! Tests of licences: signatures, dates, and what is refused.

use std::sync::Arc;

use millrace_runtime::ManualClock;

use super::*;

/// Noon of 2026-01-31.
const NOW: i64 = 1_769_860_800_000;
const SEED: [u8; LICENSE_KEY_BYTES] = [7; LICENSE_KEY_BYTES];

fn members() -> Value {
    json!({
        "nodes": "5", "indices": "[*]", "customerName": "Acme", "issuedOn": "2026-01-01T16:49:50.136294",
        "validity_in_months": "12", "documents": "", "expiration_date": "2027-01-01T16:49", "siemPlan": "true",
        "networkProbe": "true", "noOfNetworkProbes": "5",
    })
}

fn key() -> [u8; LICENSE_KEY_BYTES] {
    read_license_key(&public_license_key(&SEED).unwrap()).unwrap()
}

fn signed(members: &Value) -> Value {
    let license = License::sign(members.to_string().as_bytes(), &SEED).unwrap();
    serde_json::from_str(&license.to_text()).unwrap()
}

fn verify(license: &Value) -> Result<License, LicenseError> {
    License::verify(license.to_string().as_bytes(), Some(&key()))
}

#[test]
fn a_signed_licence_is_read_whatever_the_order_of_its_members() {
    let license = signed(&members());
    let mut turned = Map::new();
    turned.insert("signature".into(), license["signature"].clone());
    license.as_object().unwrap().iter().rev().for_each(|(name, value)| {
        turned.insert(name.clone(), value.clone());
    });
    let read = verify(&Value::Object(turned)).unwrap();
    assert_eq!(read, verify(&license).unwrap());
    let status = license_status(Some(&read), "7.10.2", NOW);
    assert_eq!((&status["customerName"], &status["days_left"]), (&json!("Acme"), &json!("335")));
    assert_eq!((&status["status"], &status["version"]), (&json!(200), &json!("7.10.2")));
    assert!(status.get("signature").is_none());
}

#[test]
fn what_is_no_licence_of_the_issuer_is_refused_by_name() {
    let good = signed(&members());
    let changed = |name: &str, value: Value| {
        let mut license = good.clone();
        license[name] = value;
        verify(&license).unwrap_err().to_string()
    };
    let foreign = LicenseError::Foreign.to_string();
    assert_eq!(changed("nodes", json!("500")), foreign);
    assert_eq!(changed("signature", json!(STANDARD.encode([1; 64]))), foreign);
    assert_eq!(changed("signature", json!("")), "the licence cannot be read: [signature] is missing");
    assert_eq!(changed("signature", json!("???")), "the licence cannot be read: [signature] is no Base64");
    assert_eq!(changed("nodes", json!(5)), "the licence cannot be read: [nodes] is no string");
    assert_eq!(
        changed("color", json!("red")),
        "the licence cannot be read: [color] is no member of a licence"
    );
    let date = "the licence cannot be read: [expiration_date] is no date such as 2026-01-31T12:00 but [soon]";
    assert_eq!(changed("expiration_date", json!("soon")), date);
    let mut without = good.clone();
    without.as_object_mut().unwrap().remove("customerName");
    assert_eq!(
        verify(&without).unwrap_err().to_string(),
        "the licence cannot be read: [customerName] is missing"
    );
    for text in ["", "[]", "{", "null", "\u{feff}{}"] {
        let refused = License::verify(text.as_bytes(), Some(&key())).unwrap_err();
        assert!(matches!(refused, LicenseError::Malformed(_)), "{text}: {refused}");
    }
    let long = vec![b' '; MAX_LICENSE_BYTES + 1];
    assert!(License::verify(&long, Some(&key())).unwrap_err().to_string().contains("more than 16384 bytes"));
    assert_eq!(License::verify(good.to_string().as_bytes(), None), Err(LicenseError::NoKey));
    assert_eq!(read_license_key("AAAA"), Err(LicenseError::Key));
}

#[test]
fn days_follow_a_clock_that_is_set_back_or_forward() {
    let license = verify(&signed(&members())).unwrap();
    for (now_ms, days) in [(i64::MIN, i64::MAX / DAY_MS), (0, 20_819), (NOW, 335), (i64::MAX, 0)] {
        assert_eq!(license.days_left(now_ms), days, "{now_ms}");
    }
    assert!(license.check_current(NOW).is_ok());
    assert_eq!(license.check_current(i64::MAX), Err(LicenseError::Expired("2027-01-01T16:49".to_owned())));
    let community = license_status(None, "7.10.2", NOW);
    assert_eq!((&community["customerName"], &community["siemPlan"]), (&json!("community"), &json!("true")));
}

#[tokio::test]
async fn an_installed_licence_is_there_after_a_restart_and_a_refused_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(NOW));
    let open = || LicenseStore::new(directory.path(), Some(key()), clock.clone());
    let store = open();
    store.reload().await.unwrap();
    assert!(store.installed().is_none());
    let good = signed(&members()).to_string();
    store.install(good.as_bytes()).await.unwrap();
    let mut expired = members();
    expired["expiration_date"] = json!("2026-01-01T00:00");
    let refused = store.install(signed(&expired).to_string().as_bytes()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the licence expired at [2026-01-01T00:00]");
    let other = open();
    other.reload().await.unwrap();
    assert_eq!(other.installed(), store.installed());
    assert!(other.installed().is_some());
    // One that has ended since stays, over a restart, too.
    clock.advance_ms(1_000 * DAY_MS);
    let late = open();
    late.reload().await.unwrap();
    assert_eq!(late.installed().map(|license| license.days_left(NOW + 1_000 * DAY_MS)), Some(0));
    // A file that somebody has put there is checked as well.
    std::fs::write(directory.path().join("license.json"), good.replace("Acme", "Evil")).unwrap();
    assert_eq!(other.reload().await, Err(LicenseError::Foreign));
    assert!(other.installed().is_some());
    std::fs::remove_file(directory.path().join("license.json")).unwrap();
    other.reload().await.unwrap();
    assert!(other.installed().is_none());
}
