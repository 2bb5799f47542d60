//! Lookups in databases that the tests write.

use std::path::Path;

use chrono::Utc;
use millrace_ingest::geoip::testing::write_database as write;
use millrace_ingest::options::{Location, Setting};
use millrace_ingest::{Event, Options};
use serde_json::{Value, json};

use super::super::Outcome;
use super::{address_text, build};

fn options(path: &Path, given: &[(&str, Setting)]) -> Options {
    let text = |text: &str| Setting::Text(text.to_owned());
    let mut all = vec![("database".to_owned(), Location::default(), text(&path.display().to_string()))];
    all.extend(given.iter().map(|(name, value)| ((*name).to_owned(), Location::default(), value.clone())));
    Options::new("geoip", Location::default(), all)
}

fn texts(texts: &[&str]) -> Setting {
    Setting::Array(texts.iter().map(|text| Setting::Text((*text).to_owned())).collect())
}

fn run(options: Options, fields: Value) -> (Outcome, Value) {
    let filter = build(options).unwrap();
    let Value::Object(fields) = fields else { panic!("an object") };
    let mut event = Event::from_fields(fields, Utc::now());
    let outcome = filter.apply(&mut event, &mut Vec::new());
    (outcome, Value::Object(event.fields().clone()))
}

fn city() -> Value {
    json!({
        "city": {"names": {"en": "Milton", "de": "Milltown"}}, "continent": {"code": "NA", "names": {"en": "North America"}},
        "country": {"iso_code": "US", "names": {"en": "United States"}},
        "location": {"latitude": 47.25, "longitude": -122.5, "metro_code": 819, "time_zone": "America/Los_Angeles"},
        "postal": {"code": "98354"}, "subdivisions": [{"iso_code": "WA", "names": {"en": "Washington"}}],
        "traits": {"is_anonymous_vpn": true}
    })
}

#[test]
fn cities_have_their_fields_by_both_schemas() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("city.mmdb");
    write(&path, "GeoLite2-City", &[(216, city()), (10, json!({"country": {"iso_code": "DE"}}))]);
    let source = ("source", Setting::Text("[c][ip]".to_owned()));
    let legacy = json!({
        "ip": "216.160.83.56", "city_name": "Milton", "continent_code": "NA", "country_name": "United States",
        "country_code2": "US", "country_code3": "US", "postal_code": "98354", "dma_code": 819, "region_name": "Washington",
        "region_code": "WA", "timezone": "America/Los_Angeles", "location": {"lat": 47.25, "lon": -122.5},
        "latitude": 47.25, "longitude": -122.5
    });
    let address = json!({"c": {"ip": "216.160.83.56"}});
    let found = run(options(&path, std::slice::from_ref(&source)), address.clone());
    assert_eq!(found, (Outcome::Matched, json!({"c": {"ip": "216.160.83.56"}, "geoip": legacy})));
    let ecs = ("ecs_compatibility", Setting::Text("v8".to_owned()));
    let found = run(options(&path, &[source.clone(), ecs]), json!({"c": {"ip": ["216.160.83.56", "x"]}}));
    let geo = json!({
        "city_name": "Milton", "continent_code": "NA", "country_name": "United States", "country_iso_code": "US",
        "postal_code": "98354", "region_name": "Washington", "region_iso_code": "US-WA", "timezone": "America/Los_Angeles",
        "location": {"lat": 47.25, "lon": -122.5}
    });
    assert_eq!(found.1, json!({"c": {"ip": "216.160.83.56", "geo": geo, "mmdb": {"dma_code": 819}}}));
    let some = ("fields", texts(&["CITY_NAME", "location", "real_region_name", "continent_name", "network"]));
    let found = run(options(&path, &[source.clone(), some]), address);
    let some = json!({
        "city_name": "Milton", "continent_name": "North America", "region_name": "Washington",
        "location": {"lat": 47.25, "lon": -122.5}, "network": "216.0.0.0/8"
    });
    assert_eq!(found.1["geoip"], some);
    for (address, is_set) in [
        (json!("10.0.0.1"), true),
        (json!("1.1.1.1"), true),
        (json!("::1"), true),
        (json!("x"), true),
        (json!(" "), false),
        (json!(5), false),
    ] {
        let (outcome, event) =
            run(options(&path, std::slice::from_ref(&source)), json!({"c": {"ip": address}}));
        assert_eq!(outcome, Outcome::Unmatched, "{event}");
        assert_eq!(event["tags"], json!(["_geoip_lookup_failure"]));
        assert_eq!(event.get("geoip"), is_set.then_some(&json!({})), "{event}");
    }
}

#[test]
fn other_databases_have_other_fields() {
    let directory = tempfile::tempdir().unwrap();
    let source = ("source", Setting::Text("ip".to_owned()));
    let asn = json!({"autonomous_system_number": 1221, "autonomous_system_organization": "Telstra", "isp": "T", "organization": "O"});
    for (kind, record, expected) in [
        ("GeoLite2-ASN", asn.clone(), json!({"ip": "1.128.0.1", "asn": 1221, "as_org": "Telstra"})),
        (
            "GeoIP2-ISP",
            asn,
            json!({"ip": "1.128.0.1", "asn": 1221, "as_org": "Telstra", "isp": "T", "organization": "O"}),
        ),
        ("GeoIP2-Domain", json!({"domain": "a.test"}), json!({"domain": "a.test"})),
        (
            "GeoIP2-Anonymous-IP",
            json!({"is_anonymous": true}),
            json!({"anonymous": true, "anonymous_vpn": false, "hosting_provider": false, "public_proxy": false, "residential_proxy": false, "tor_exit_node": false}),
        ),
        (
            "GeoLite2-Country",
            city(),
            json!({"ip": "1.128.0.1", "country_code2": "US", "country_name": "United States", "continent_name": "North America"}),
        ),
    ] {
        let path = directory.path().join(kind);
        write(&path, kind, &[(1, record)]);
        let (outcome, event) = run(options(&path, std::slice::from_ref(&source)), json!({"ip": "1.128.0.1"}));
        assert_eq!((outcome, &event["geoip"]), (Outcome::Matched, &expected), "{kind}");
    }
    // A record that was customized wrongly counts as none, but for databases of names.
    for (kind, expected) in [("GeoLite2-ASN", Outcome::Unmatched), ("GeoIP2-Domain", Outcome::Matched)] {
        let path = directory.path().join(format!("customized-{kind}"));
        let record = json!({"autonomous_system_number": 1221, "domain": "a.test", "traits": {"is_odd": 1}});
        write(&path, kind, &[(1, record)]);
        let (outcome, _) = run(options(&path, std::slice::from_ref(&source)), json!({"ip": "1.128.0.1"}));
        assert_eq!(outcome, expected, "{kind}");
    }
    assert_eq!(address_text("2a02:d5c0::1".parse().unwrap()), "2a02:d5c0:0:0:0:0:0:1");
    let path = directory.path().join("other");
    write(&path, "Other", &[(1, json!({"a": "b"}))]);
    let faults = build(options(&path, std::slice::from_ref(&source))).unwrap_err();
    assert!(faults[0].message.contains("has the type [Other]"), "{faults:?}");
    std::fs::write(&path, "no database").unwrap();
    let faults = build(options(&path, &[source])).unwrap_err();
    assert!(faults[0].message.contains("is not a MaxMind database"), "{faults:?}");
}
