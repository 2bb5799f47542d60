//! MaxMind databases: the fields of a kind, and the content of a record. The filter and the processor `geoip` share them.

#[doc(hidden)]
pub mod testing;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use maxminddb::Reader;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::refresh::{RefreshedFile, read_bytes};

/// Largest database, in bytes.
const MAX_BYTES: u64 = 2 << 30;
/// Directories in which `geoipupdate` and distributions put databases.
pub const DIRECTORIES: [&str; 3] = ["/var/lib/GeoIP", "/usr/share/GeoIP", "/usr/local/share/GeoIP"];
/// Interval at which a database that changed is noticed.
const REFRESH: Duration = Duration::from_secs(30);

/// Databases in use, so that several filters share one.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<RefreshedFile<GeoDatabase>>>>> =
    LazyLock::new(Mutex::default);

/// A database that filters share, loaded again once its file has changed.
#[derive(Clone, Debug)]
pub struct SharedGeoDatabase(Arc<RefreshedFile<GeoDatabase>>);

/// Contents of a database, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeoDatabaseKind {
    /// Places of addresses.
    City,
    /// Countries of addresses.
    Country,
    /// Autonomous systems.
    Asn,
    /// Providers.
    Isp,
    /// Domains of the second level.
    Domain,
    /// Places, with what is known of their owners.
    Enterprise,
    /// Networks that hide their users.
    AnonymousIp,
}

/// A database in memory.
pub struct GeoDatabase {
    reader: Reader<Vec<u8>>,
    kind: GeoDatabaseKind,
}

/// A record, the address that it was found for, and their network.
#[derive(Debug)]
pub struct GeoRecord {
    address: IpAddr,
    network: String,
    value: Value,
}

impl std::fmt::Debug for GeoDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GeoDatabase").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl SharedGeoDatabase {
    /// Opens a database, or joins those who have it open.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        let mut open = OPEN.lock();
        open.retain(|_, database| database.strong_count() > 0);
        if let Some(database) = open.get(&path).and_then(Weak::upgrade) {
            return Ok(Self(database));
        }
        let database = Arc::new(RefreshedFile::open(path.clone(), REFRESH, GeoDatabase::load)?);
        open.insert(path, Arc::downgrade(&database));
        Ok(Self(database))
    }

    /// Returns the content of now.
    pub fn current(&self) -> Arc<GeoDatabase> {
        self.0.current()
    }
}

impl GeoDatabaseKind {
    /// The kind of a type such as `GeoLite2-City` or `DBIP-ASN-Lite`.
    fn named(database_type: &str) -> Option<Self> {
        const KINDS: [(&str, GeoDatabaseKind); 7] = [
            ("Enterprise", GeoDatabaseKind::Enterprise),
            ("City", GeoDatabaseKind::City),
            ("Country", GeoDatabaseKind::Country),
            ("ASN", GeoDatabaseKind::Asn),
            ("ISP", GeoDatabaseKind::Isp),
            ("Domain", GeoDatabaseKind::Domain),
            ("Anonymous-IP", GeoDatabaseKind::AnonymousIp),
        ];
        KINDS.iter().find(|(name, _)| database_type.contains(name)).map(|(_, kind)| *kind)
    }

    /// Names of the fields where no one names some.
    pub fn default_fields(self, ecs: bool) -> &'static [&'static str] {
        const CITY: &[&str] = &[
            "city_name",
            "country_name",
            "continent_code",
            "country_code2",
            "country_code3",
            "ip",
            "postal_code",
            "dma_code",
            "region_name",
            "region_code",
            "timezone",
            "location",
            "latitude",
            "longitude",
        ];
        const CITY_ECS: &[&str] = &[
            "city_name",
            "country_name",
            "continent_code",
            "country_code2",
            "country_code3",
            "ip",
            "postal_code",
            "dma_code",
            "region_name",
            "region_iso_code",
            "timezone",
            "location",
            "latitude",
            "longitude",
        ];
        match self {
            Self::City if ecs => CITY_ECS,
            Self::City => CITY,
            Self::Country => &["ip", "country_code2", "country_name", "continent_name"],
            Self::Domain => &["domain"],
            Self::Asn => &["ip", "asn", "as_org"],
            Self::Isp => &["ip", "asn", "as_org", "isp", "organization"],
            Self::AnonymousIp => &[
                "hosting_provider",
                "tor_exit_node",
                "anonymous_vpn",
                "anonymous",
                "public_proxy",
                "residential_proxy",
            ],
            Self::Enterprise => &[
                "ip",
                "country_code2",
                "country_name",
                "continent_name",
                "region_iso_code",
                "region_name",
                "city_name",
                "location",
            ],
        }
    }
}

impl GeoDatabase {
    fn load(path: &Path) -> Result<Self, String> {
        let wrong = |error: String| format!("[{}] is not a MaxMind database: {error}", path.display());
        let reader =
            Reader::from_source(read_bytes(path, MAX_BYTES)?).map_err(|error| wrong(error.to_string()))?;
        let database_type = &reader.metadata().database_type;
        let kind = GeoDatabaseKind::named(database_type).ok_or_else(|| {
            format!(
                "[{}] has the type [{database_type}], which is none of City, Country, ASN, ISP, Domain, Enterprise, Anonymous-IP",
                path.display()
            )
        })?;
        Ok(Self { reader, kind })
    }

    /// Returns the kind.
    pub fn kind(&self) -> GeoDatabaseKind {
        self.kind
    }

    /// Looks an address up. A damaged record counts as none, and the log has the reason.
    pub fn lookup(&self, address: IpAddr) -> Option<GeoRecord> {
        let decoded = self.reader.lookup(address).and_then(|found| {
            let value: Option<Value> = found.decode()?;
            value.map(|value| Ok((value, found.network()?.to_string()))).transpose()
        });
        match decoded {
            Ok(Some((value, _))) if self.kind != GeoDatabaseKind::Domain && has_wrong_flag(&value) => {
                tracing::debug!(%address, "a record of a MaxMind database has a flag that is no boolean");
                None
            }
            Ok(found) => found.map(|(value, network)| GeoRecord { address, network, value }),
            // An address of IPv6 in a database of IPv4 is one that it does not have.
            Err(maxminddb::MaxMindDbError::InvalidInput { .. }) => None,
            Err(error) => {
                tracing::warn!(%address, %error, "a record of a MaxMind database cannot be read");
                None
            }
        }
    }
}

/// Returns whether a flag of a record is no boolean, as only customized records have it. As in Logstash, the record counts as none.
fn has_wrong_flag(record: &Value) -> bool {
    let Value::Object(members) = record else { return false };
    members.iter().any(|(name, value)| match value {
        Value::Object(_) => has_wrong_flag(value),
        value => name.starts_with("is_") && !value.is_boolean(),
    })
}

impl GeoRecord {
    fn path(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.value, |value, name| value.get(name))
    }

    fn english(&self, part: &str) -> Option<Value> {
        self.path(&[part, "names", "en"]).cloned()
    }

    fn subdivision(&self) -> Option<&Value> {
        self.value.get("subdivisions")?.as_array()?.last()
    }

    /// Returns a number of a part of the record.
    pub fn number(&self, part: &str, name: &str) -> Option<f64> {
        self.path(&[part, name])?.as_f64()
    }

    /// Returns a trait, which other databases have at the top.
    fn trait_of(&self, name: &str) -> Option<Value> {
        self.path(&["traits", name]).or_else(|| self.path(&[name])).cloned()
    }

    fn flag(&self, name: &str) -> Option<Value> {
        Some(self.trait_of(name).unwrap_or(Value::Bool(false)))
    }

    /// Returns the value of a field, by its name without a schema.
    pub fn field(&self, name: &str) -> Option<Value> {
        match name {
            "asn" => self.trait_of("autonomous_system_number"),
            "as_org" => self.trait_of("autonomous_system_organization"),
            "city_name" => self.english("city"),
            "country_name" => self.english("country"),
            "continent_code" => self.path(&["continent", "code"]).cloned(),
            "continent_name" => self.english("continent"),
            // Logstash has the code of two letters for both.
            "country_code2" | "country_code3" => self.path(&["country", "iso_code"]).cloned(),
            "domain" => self.trait_of("domain"),
            "ip" => Some(Value::String(self.address.to_string())),
            "isp" => self.trait_of("isp"),
            "postal_code" => self.path(&["postal", "code"]).cloned(),
            "dma_code" => self.path(&["location", "metro_code"]).cloned(),
            "region_name" => self.subdivision()?.get("names")?.get("en").cloned(),
            "region_code" => self.subdivision()?.get("iso_code").cloned(),
            "region_iso_code" => {
                let country = self.path(&["country", "iso_code"])?.as_str()?;
                let region = self.subdivision()?.get("iso_code")?.as_str()?;
                Some(Value::String(format!("{country}-{region}")))
            }
            "timezone" => self.path(&["location", "time_zone"]).cloned(),
            "location" => {
                let (lat, lon) =
                    (self.number("location", "latitude")?, self.number("location", "longitude")?);
                Some(json!({"lon": lon, "lat": lat}))
            }
            "latitude" => self.number("location", "latitude").map(Value::from),
            "longitude" => self.number("location", "longitude").map(Value::from),
            "organization" => self.trait_of("organization"),
            "network" => Some(Value::String(self.network.clone())),
            "hosting_provider" => self.flag("is_hosting_provider"),
            "tor_exit_node" => self.flag("is_tor_exit_node"),
            "anonymous_vpn" => self.flag("is_anonymous_vpn"),
            "anonymous" => self.flag("is_anonymous"),
            "public_proxy" => self.flag("is_public_proxy"),
            "residential_proxy" => self.flag("is_residential_proxy"),
            _ => None,
        }
    }
}
