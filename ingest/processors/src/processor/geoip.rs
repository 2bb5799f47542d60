//! `geoip`: places and networks of addresses, by a MaxMind database.

use std::net::IpAddr;
use std::path::Path;

use millrace_ingest::geoip::{DIRECTORIES, GeoDatabase, GeoDatabaseKind, GeoRecord, SharedGeoDatabase};
use serde_json::{Map, Value};

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, not_castable, null_value};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

/// Database where none is named.
const DATABASE: &str = "GeoLite2-City.mmdb";
/// Properties of a kind of databases, with the fields of records that they are.
type Properties = &'static [(&'static str, &'static str)];

const CITY: Properties = &[
    ("ip", "ip"),
    ("country_iso_code", "country_code2"),
    ("country_name", "country_name"),
    ("continent_name", "continent_name"),
    ("region_iso_code", "region_iso_code"),
    ("region_name", "region_name"),
    ("city_name", "city_name"),
    ("timezone", "timezone"),
    ("location", "location"),
];
const COUNTRY: Properties = &[
    ("ip", "ip"),
    ("continent_name", "continent_name"),
    ("country_name", "country_name"),
    ("country_iso_code", "country_code2"),
];
const ASN: Properties =
    &[("ip", "ip"), ("asn", "asn"), ("organization_name", "as_org"), ("network", "network")];

#[derive(Debug)]
struct GeoIp {
    field: FieldPath,
    target: FieldPath,
    database: SharedGeoDatabase,
    properties: Vec<(&'static str, &'static str)>,
    first_only: bool,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.path_or("target_field", &FieldPath::parse("geoip")?)?;
    let file = config.text("database_file")?.unwrap_or_else(|| DATABASE.to_owned());
    let wanted = config.texts("properties")?;
    let first_only = config.flag("first_only", true)?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let database = open(&file).map_err(|reason| config.refusal("database_file", &reason))?;
    let kind = database.current().kind();
    let (known, defaults): (Properties, &[&str]) = match kind {
        GeoDatabaseKind::City | GeoDatabaseKind::Enterprise => (
            CITY,
            &[
                "continent_name",
                "country_name",
                "country_iso_code",
                "region_iso_code",
                "region_name",
                "city_name",
                "location",
            ],
        ),
        GeoDatabaseKind::Country => (COUNTRY, &["continent_name", "country_name", "country_iso_code"]),
        GeoDatabaseKind::Asn | GeoDatabaseKind::Isp => (ASN, &["ip", "asn", "organization_name", "network"]),
        GeoDatabaseKind::Domain | GeoDatabaseKind::AnonymousIp => {
            let reason =
                format!("the type of database [{file}] is not supported: give one of City, Country or ASN");
            return Err(config.refusal("database_file", &reason));
        }
    };
    let properties = match wanted {
        None => known.iter().filter(|(name, _)| defaults.contains(name)).copied().collect(),
        Some(names) => {
            let property = |name: &String| {
                let lower = name.to_lowercase();
                known.iter().find(|(known, _)| *known == lower).copied().ok_or_else(|| {
                    let all: Vec<String> = known.iter().map(|(name, _)| name.to_uppercase()).collect();
                    let reason =
                        format!("illegal property value [{name}]. valid values are [{}]", all.join(", "));
                    config.refusal("properties", &reason)
                })
            };
            names.iter().map(property).collect::<Result<_>>()?
        }
    };
    Ok(Box::new(GeoIp { field, target, database, properties, first_only, ignore_missing }))
}

/// Opens a database of the system by its name.
fn open(file: &str) -> Result<SharedGeoDatabase, String> {
    if file.is_empty() || file.contains(['/', '\0']) || file.starts_with('.') {
        return Err(format!("[{file}] is no name of a file in one of {DIRECTORIES:?}"));
    }
    let path =
        DIRECTORIES.iter().map(|directory| Path::new(directory).join(file)).find(|path| path.is_file());
    let path = path.ok_or_else(|| {
        format!("database file [{file}] doesn't exist in any of {DIRECTORIES:?}: this server ships none")
    })?;
    SharedGeoDatabase::open(path)
}

impl GeoIp {
    /// Returns the properties of an address; none where the database has none.
    fn properties(&self, database: &GeoDatabase, text: &str) -> Result<Option<Map<String, Value>>> {
        let address: IpAddr = text.parse().map_err(|_| {
            ProcessorError::illegal_argument(format!("'{text}' is not an IP string literal."))
        })?;
        Ok(database.lookup(address).map(|record| properties(&record, &self.properties)))
    }
}

fn properties(record: &GeoRecord, wanted: &[(&'static str, &'static str)]) -> Map<String, Value> {
    let found = wanted.iter().filter_map(|(name, field)| Some(((*name).to_owned(), record.field(field)?)));
    found.collect()
}

impl Processor for GeoIp {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let value = match document.get(&self.field) {
            Ok(Value::Null) | Err(_) if self.ignore_missing => return Ok(Flow::Continue),
            value => value?,
        };
        let database = self.database.current();
        let found = match value {
            Value::String(text) => self.properties(&database, text)?.map(Value::Object),
            Value::Array(items) => {
                let mut all = Vec::with_capacity(items.len());
                for item in items {
                    let Value::String(text) = item else {
                        let name = self.field.as_str();
                        let reason = format!("array in field [{name}] should only contain strings");
                        return Err(ProcessorError::illegal_argument(reason));
                    };
                    let found = self.properties(&database, text)?.map(Value::Object);
                    if self.first_only && found.is_some() {
                        all = vec![found];
                        break;
                    }
                    all.push(found);
                }
                match self.first_only {
                    true => all.into_iter().flatten().next(),
                    false if all.iter().all(Option::is_none) => None,
                    false => Some(all.into_iter().map(Option::unwrap_or_default).collect()),
                }
            }
            Value::Null => return Err(null_value(&self.field, "extract geoip information")),
            other => return Err(not_castable(&self.field, other, "java.lang.String")),
        };
        if let Some(found) = found {
            document.set(&self.target, found)?;
        }
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::geoip::testing::write_database;
    use serde_json::json;

    use super::*;
    use crate::pipeline::PipelineSet;

    #[test]
    fn databases_are_files_of_the_system() {
        for wrong in ["", "../x.mmdb", "/etc/passwd", "a/b.mmdb", ".mmdb"] {
            assert!(open(wrong).unwrap_err().contains("is no name"), "{wrong}");
        }
        assert!(open("absent-of-all.mmdb").unwrap_err().contains("doesn't exist"));
    }

    #[test]
    fn addresses_have_their_properties() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("asn.mmdb");
        let record = json!({ "autonomous_system_number": 7, "autonomous_system_organization": "A" });
        write_database(&path, "GeoLite2-ASN", &[(10, record)]);
        let apply = |first_only: bool, value: Value| {
            let (field, target) = (FieldPath::parse("ip").unwrap(), FieldPath::parse("geo").unwrap());
            let database = SharedGeoDatabase::open(path.clone()).unwrap();
            let properties = vec![("asn", "asn"), ("organization_name", "as_org")];
            let processor = GeoIp { field, target, database, properties, first_only, ignore_missing: false };
            let source = Map::from_iter([("ip".to_owned(), value)]);
            let mut document = IngestDocument::new(source, [], String::new());
            let (pipelines, now) = (PipelineSet::default(), chrono::DateTime::UNIX_EPOCH);
            processor.apply(&mut document, &mut PipelineRun::new(&pipelines, now))?;
            Ok::<_, ProcessorError>(document.render()["_source"]["geo"].clone())
        };
        let known = json!({ "asn": 7, "organization_name": "A" });
        assert_eq!(apply(true, json!("10.1.2.3")).unwrap(), known);
        assert_eq!(apply(true, json!("11.1.2.3")).unwrap(), Value::Null, "no record, no field");
        assert_eq!(apply(true, json!(["11.0.0.1", "10.0.0.1"])).unwrap(), known);
        assert_eq!(apply(false, json!(["11.0.0.1", "10.0.0.1"])).unwrap(), json!([null, known]));
        for (wrong, reason) in [
            (json!("x"), "'x' is not an IP string literal."),
            (json!(["10.0.0.1", 5]), "should only contain strings"),
            (json!(5), "cannot be cast"),
            (Value::Null, "cannot extract geoip information"),
        ] {
            let error = apply(false, wrong).unwrap_err();
            assert!(error.reason().contains(reason), "{}", error.reason());
        }
    }
}
