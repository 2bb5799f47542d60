//! `geoip`: places and networks of addresses, by a MaxMind database.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_ingest::geoip::{DIRECTORIES, GeoDatabase, GeoDatabaseKind, SharedGeoDatabase};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::{Map, Value};

use super::settings::texts_or;
use super::{Filter, Outcome};

/// Tag of events while there is no database, as Logstash names it.
const NO_DATABASE: &str = "_geoip_expired_database";

#[derive(Debug)]
struct GeoIp {
    source: FieldReference,
    target: FieldReference,
    /// Names of the fields, or the default of the database.
    fields: Option<Vec<GeoField>>,
    database: Option<SharedGeoDatabase>,
    ecs: bool,
    tags_on_failure: Vec<String>,
}

/// A field with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GeoField {
    name: &'static str,
    /// Path by the Elastic Common Schema, empty where that has none.
    ecs: &'static [&'static str],
}

macro_rules! geo_fields {
    ($($name:literal => [$($ecs:literal),*],)*) => {
        /// All fields, in the order in which they are set.
        const FIELDS: &[GeoField] = &[$(GeoField { name: $name, ecs: &[$($ecs),*] },)*];
    };
}

geo_fields! {
    "asn" => ["as", "number"],
    "as_org" => ["as", "organization", "name"],
    "city_name" => ["geo", "city_name"],
    "country_name" => ["geo", "country_name"],
    "continent_code" => ["geo", "continent_code"],
    "continent_name" => ["geo", "continent_name"],
    "country_code2" => ["geo", "country_iso_code"],
    "country_code3" => [],
    "domain" => ["domain"],
    "ip" => ["ip"],
    "isp" => ["mmdb", "isp"],
    "postal_code" => ["geo", "postal_code"],
    "dma_code" => ["mmdb", "dma_code"],
    "region_name" => ["geo", "region_name"],
    "region_code" => ["geo", "region_code"],
    "region_iso_code" => ["geo", "region_iso_code"],
    "timezone" => ["geo", "timezone"],
    "location" => ["geo", "location"],
    "latitude" => ["geo", "location", "lat"],
    "longitude" => ["geo", "location", "lon"],
    "organization" => ["mmdb", "organization"],
    "network" => ["ip_traits", "network"],
    "hosting_provider" => ["ip_traits", "hosting_provider"],
    "tor_exit_node" => ["ip_traits", "tor_exit_node"],
    "anonymous_vpn" => ["ip_traits", "anonymous_vpn"],
    "anonymous" => ["ip_traits", "anonymous"],
    "public_proxy" => ["ip_traits", "public_proxy"],
    "residential_proxy" => ["ip_traits", "residential_proxy"],
}

/// Former names of fields.
const FORMER_NAMES: [(&str, &str); 3] = [
    ("real_region_name", "region_name"),
    ("autonomous_system_number", "asn"),
    ("autonomous_system_organization", "as_org"),
];

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let ecs = options.ecs_compatibility().is_enabled();
    let source_text = options.required_text("source");
    let source = FieldReference::parse(&source_text);
    if let (Err(fault), false) = (&source, source_text.is_empty()) {
        options.fault_here(fault.clone());
    }
    let target = match (options.field("target"), ecs) {
        (Some(target), _) => Some(target),
        (None, false) => FieldReference::parse("geoip").ok(),
        (None, true) => match source_text.strip_suffix("[ip]").filter(|parent| !parent.is_empty()) {
            Some(parent) => FieldReference::parse(parent).ok(),
            None => {
                options.fault_here(
                    "[geoip] with ecs_compatibility needs a [target], or a [source] such as [client][ip]",
                );
                None
            }
        },
    };
    let fields = fields(&mut options);
    let kind = options.one_of("default_database_type", &["City", "ASN"]).unwrap_or("City");
    let path = options.text("database").filter(|path| !path.is_empty()).map(PathBuf::from);
    // A lookup takes less than the cache that Logstash puts before it.
    let _ = options.integer("cache_size", 0..=i64::from(i32::MAX));
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_geoip_lookup_failure"]);
    let database = match path.or_else(|| installed(kind)) {
        Some(path) => match SharedGeoDatabase::open(path) {
            Ok(database) => Some(database),
            Err(fault) => {
                options.fault_here(format!(
                    "[geoip] cannot use its database: {fault}; [database] names a MaxMind file (.mmdb)"
                ));
                None
            }
        },
        None => {
            tracing::warn!(
                "the filter geoip has no [database], and none is in {DIRECTORIES:?}: it tags events {NO_DATABASE}"
            );
            None
        }
    };
    options.finish()?;
    let (Ok(source), Some(target)) = (source, target) else { return Err(Vec::new()) };
    Ok(Arc::new(GeoIp { source, target, fields, database, ecs, tags_on_failure }))
}

/// Returns the database of a kind that a directory of the system has.
fn installed(kind: &str) -> Option<PathBuf> {
    let candidates = DIRECTORIES.iter().flat_map(|directory| {
        ["GeoIP2", "GeoLite2"].map(|edition| Path::new(directory).join(format!("{edition}-{kind}.mmdb")))
    });
    candidates.into_iter().find(|path| path.is_file())
}

fn fields(options: &mut Options) -> Option<Vec<GeoField>> {
    let names = options.texts("fields");
    if names.is_empty() {
        return None;
    }
    let mut fields = Vec::new();
    for name in names {
        let lower = name.to_lowercase();
        let known =
            FORMER_NAMES.iter().find(|(former, _)| *former == lower).map_or(lower.as_str(), |(_, name)| name);
        match FIELDS.iter().find(|field| field.name == known) {
            Some(field) => fields.push(*field),
            None => {
                let all: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
                options.fault_here(format!("[geoip] has no field [{name}], but [{}]", all.join(", ")));
            }
        }
    }
    Some(fields)
}

impl GeoIp {
    /// Looks an address up; the fields that there are, `None` where the database has none.
    fn lookup(&self, database: &GeoDatabase, address: IpAddr) -> Option<Vec<(GeoField, Value)>> {
        let record = database.lookup(address)?;
        // Without a place nothing else is in a record of a city.
        if database.kind() == GeoDatabaseKind::City && record.number("location", "latitude").is_none() {
            return None;
        }
        let defaults = database.kind().default_fields(self.ecs);
        let is_wanted = |field: &GeoField| match &self.fields {
            Some(fields) => fields.contains(field),
            None => defaults.contains(&field.name),
        };
        let fields = FIELDS.iter().filter(|field| is_wanted(field));
        let value = |field: &GeoField| match field.name {
            "ip" => Some(Value::String(address_text(address))),
            name => record.field(name),
        };
        let found: Vec<_> = fields.filter_map(|field| Some((*field, value(field)?))).collect();
        (!found.is_empty()).then_some(found)
    }

    fn set(&self, event: &mut Event, found: Vec<(GeoField, Value)>) -> Result<(), String> {
        let mut members = match event.get(&self.target).map(|value| value.into_owned()) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        for (field, value) in found {
            if !self.ecs {
                members.insert(field.name.to_owned(), value);
                continue;
            }
            let Some((last, way)) = field.ecs.split_last() else { continue };
            let mut place = &mut members;
            for name in way {
                let member = place.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                if !member.is_object() {
                    *member = Value::Object(Map::new());
                }
                let Value::Object(inner) = member else { return Err(format!("[{name}] is in the way")) };
                place = inner;
            }
            place.insert((*last).to_owned(), value);
        }
        event.set(&self.target, Value::Object(members))
    }

    fn fail(&self, event: &mut Event) -> Outcome {
        self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
        Outcome::Unmatched
    }
}

/// Writes an address as Logstash does: one of IPv6 with all of its groups.
fn address_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:x}")).join(":"),
    }
}

impl Filter for GeoIp {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let Some(database) = &self.database else {
            event.tag(NO_DATABASE);
            return Outcome::Unmatched;
        };
        let text = match event.get(&self.source).as_deref() {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(elements)) => match elements.first() {
                Some(Value::String(text)) => text.clone(),
                _ => return self.fail(event),
            },
            _ => return self.fail(event),
        };
        if text.trim().is_empty() {
            return self.fail(event);
        }
        let address: Option<IpAddr> = text.trim().parse().ok();
        let found = address.and_then(|address| self.lookup(&database.current(), address));
        match found {
            Some(found) => match self.set(event, found) {
                Ok(()) => Outcome::Matched,
                Err(_) => self.fail(event),
            },
            None => {
                if event.get(&self.target).is_none_or(|value| value.is_null()) {
                    // As in Logstash, the target is there.
                    let _ = event.set(&self.target, Value::Object(Map::new()));
                }
                self.fail(event)
            }
        }
    }
}

#[cfg(test)]
mod tests;
