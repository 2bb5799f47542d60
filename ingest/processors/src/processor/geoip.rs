//! `geoip`: places and networks of addresses, by a MaxMind database.
//!
//! A pipeline may name a database of GeoLite2 that is not on this server. Its documents get a tag, as in Elasticsearch, until
//! the file is there.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use millrace_ingest::geoip::{DIRECTORIES, GeoDatabase, GeoDatabaseKind, GeoRecord, SharedGeoDatabase};
use millrace_runtime::Instant;
use serde_json::{Map, Value};

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, not_castable, null_value};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

/// Database where none is named.
const DATABASE: &str = "GeoLite2-City.mmdb";
/// Databases that a pipeline may name before they are there, with their kinds.
const KNOWN_DATABASES: [(&str, GeoDatabaseKind); 3] = [
    (DATABASE, GeoDatabaseKind::City),
    ("GeoLite2-Country.mmdb", GeoDatabaseKind::Country),
    ("GeoLite2-ASN.mmdb", GeoDatabaseKind::Asn),
];
/// Prefix of the tag of a document whose database is not there.
const UNAVAILABLE_TAG: &str = "_geoip_database_unavailable_";
/// Time between two attempts to open a database that is not there.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
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
    database: DatabaseFile,
    properties: Vec<(&'static str, &'static str)>,
    first_only: bool,
    ignore_missing: bool,
}

/// A database by the name of its file, which may come later.
#[derive(Debug)]
struct DatabaseFile {
    name: String,
    opened: OnceLock<SharedGeoDatabase>,
    /// Earliest time of the next attempt to open the file.
    next_attempt: Mutex<Option<Instant>>,
}

impl DatabaseFile {
    fn new(name: String, database: Option<SharedGeoDatabase>) -> Self {
        let opened = database.map_or_else(OnceLock::new, OnceLock::from);
        Self { name, opened, next_attempt: Mutex::new(None) }
    }

    /// Returns the database where it is there.
    fn get(&self) -> Option<&SharedGeoDatabase> {
        if let Some(database) = self.opened.get() {
            return Some(database);
        }
        // One document looks for the file and loads it; others do not wait for that.
        let mut next_attempt = match self.next_attempt.try_lock() {
            Ok(next_attempt) => next_attempt,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let now = Instant::now();
        if next_attempt.is_some_and(|time| now < time) {
            return None;
        }
        *next_attempt = now.checked_add(RETRY_INTERVAL);
        let path = find(&self.name).ok().flatten()?;
        let database = match SharedGeoDatabase::open(path.clone()) {
            Ok(database) => database,
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "a database of addresses cannot be used");
                return None;
            }
        };
        Some(self.opened.get_or_init(|| database))
    }
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.path_or("target_field", &FieldPath::parse("geoip")?)?;
    let file = config.text("database_file")?.unwrap_or_else(|| DATABASE.to_owned());
    let wanted = config.texts("properties")?;
    let first_only = config.flag("first_only", true)?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let refused = |reason: String| config.refusal("database_file", &reason);
    let database = match find(&file).map_err(refused)? {
        Some(path) => Some(SharedGeoDatabase::open(path).map_err(refused)?),
        None => None,
    };
    let known = KNOWN_DATABASES.iter().find(|(name, _)| *name == file).map(|(_, kind)| *kind);
    let kind = database.as_ref().map(|database| database.current().kind()).or(known);
    let kind = kind.ok_or_else(|| {
        refused(format!(
            "database file [{file}] doesn't exist in any of {DIRECTORIES:?}: this server ships none"
        ))
    })?;
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
    let database = DatabaseFile::new(file, database);
    Ok(Box::new(GeoIp { field, target, database, properties, first_only, ignore_missing }))
}

/// Finds a database of the system by its name.
fn find(file: &str) -> Result<Option<PathBuf>, String> {
    if file.is_empty() || file.contains(['/', '\0']) || file.starts_with('.') {
        return Err(format!("[{file}] is no name of a file in one of {DIRECTORIES:?}"));
    }
    let mut paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join(file));
    Ok(paths.find(|path| path.is_file()))
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
        let Some(database) = self.database.get() else {
            let tag = format!("{UNAVAILABLE_TAG}{}", self.database.name);
            document.append(&FieldPath::parse("tags")?, vec![tag.into()], true)?;
            return Ok(Flow::Continue);
        };
        let value = match document.get(&self.field) {
            Ok(Value::Null) | Err(_) if self.ignore_missing => return Ok(Flow::Continue),
            value => value?,
        };
        let database = database.current();
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
            assert!(find(wrong).unwrap_err().contains("is no name"), "{wrong}");
        }
        assert!(find("absent-of-all.mmdb").unwrap().is_none());
    }

    #[test]
    fn documents_are_tagged_until_the_database_is_there() {
        let (field, target) = (FieldPath::parse("ip").unwrap(), FieldPath::parse("geo").unwrap());
        let database = DatabaseFile::new("absent-of-all.mmdb".to_owned(), None);
        let properties = Vec::new();
        let processor =
            GeoIp { field, target, database, properties, first_only: true, ignore_missing: false };
        let source = Map::from_iter([("tags".to_owned(), json!("a"))]);
        let mut document = IngestDocument::new(source, [], String::new());
        let (pipelines, now) = (PipelineSet::default(), chrono::DateTime::UNIX_EPOCH);
        processor.apply(&mut document, &mut PipelineRun::new(&pipelines, now)).unwrap();
        let tags = json!(["a", "_geoip_database_unavailable_absent-of-all.mmdb"]);
        assert_eq!(document.render()["_source"], json!({ "tags": tags }));
    }

    #[test]
    fn addresses_have_their_properties() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("asn.mmdb");
        let record = json!({ "autonomous_system_number": 7, "autonomous_system_organization": "A" });
        write_database(&path, "GeoLite2-ASN", &[(10, record)]);
        let apply = |first_only: bool, value: Value| {
            let (field, target) = (FieldPath::parse("ip").unwrap(), FieldPath::parse("geo").unwrap());
            let opened = SharedGeoDatabase::open(path.clone()).unwrap();
            let database = DatabaseFile::new("asn.mmdb".to_owned(), Some(opened));
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
