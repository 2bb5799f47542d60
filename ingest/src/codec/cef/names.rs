//! Names of CEF: keys of the wire, long names, and fields of the Elastic Common Schema.

use std::collections::{HashMap, HashSet};

/// All names; the properties are `time`, `alias=<older name>`, and `first` where several names have one field.
const NAMES: &str = include_str!("names.txt");

/// The device that reports: it observes events, or is the host on which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceRole {
    Observer,
    Host,
}

/// The way between names of CEF and fields of events.
#[derive(Debug)]
pub(super) struct NameMapping {
    /// Fields by key and by long name.
    decoded: HashMap<String, String>,
    /// Names to write, by field and by long name.
    encoded: HashMap<String, String>,
    /// Fields that are times.
    times: HashSet<String>,
}

impl NameMapping {
    /// Makes the mapping. `is_ecs` names fields by the schema; `writes_keys` writes keys in place of long names.
    pub(super) fn new(is_ecs: bool, device: DeviceRole, writes_keys: bool) -> Self {
        let (mut decoded, mut encoded, mut times) = (HashMap::new(), HashMap::new(), HashSet::new());
        let is_first = |line: &&str| line.split(' ').any(|word| word == "first");
        let (first, others): (Vec<&str>, Vec<&str>) =
            NAMES.lines().filter(|line| !line.starts_with('#')).partition(is_first);
        // Later names replace earlier ones of the same field.
        for line in others.into_iter().chain(first) {
            let mut words = line.split(' ');
            let (Some(name), Some(key), Some(ecs)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let field = if is_ecs { ecs_field(ecs, device) } else { name.to_owned() };
            let written = if writes_keys { key } else { name };
            decoded.insert(key.to_owned(), field.clone());
            decoded.insert(name.to_owned(), field.clone());
            encoded.insert(field.clone(), written.to_owned());
            encoded.insert(name.to_owned(), written.to_owned());
            for property in words {
                if property == "time" && is_ecs {
                    times.insert(field.clone());
                }
                if let Some(alias) = property.strip_prefix("alias=") {
                    let aliased = if is_ecs { field.clone() } else { alias.to_owned() };
                    decoded.insert(alias.to_owned(), aliased);
                    let written = if writes_keys { key } else { alias };
                    encoded.insert(alias.to_owned(), written.to_owned());
                }
            }
        }
        Self { decoded, encoded, times }
    }

    /// Returns the field of a key or name; other names are fields by themselves.
    pub(super) fn field<'a>(&'a self, name: &'a str) -> &'a str {
        self.decoded.get(name).map_or(name, String::as_str)
    }

    /// Returns the name to write a field by.
    pub(super) fn written<'a>(&'a self, field: &'a str) -> &'a str {
        self.encoded.get(field).map_or(field, String::as_str)
    }

    /// Returns whether a field is a time by the schema.
    pub(super) fn is_time(&self, field: &str) -> bool {
        self.times.contains(field)
    }
}

/// Returns the field of the schema; some have one for each role of the device.
fn ecs_field(field: &str, device: DeviceRole) -> String {
    let (observer, host) = field.split_once('|').unwrap_or((field, field));
    match device {
        DeviceRole::Observer => observer.replace("[DEVICE]", "[observer]"),
        DeviceRole::Host => host.replace("[DEVICE]", "[host]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_meaning_in_each_direction() {
        let own = NameMapping::new(false, DeviceRole::Observer, true);
        assert_eq!((own.field("src"), own.field("sourceAddress")), ("sourceAddress", "sourceAddress"));
        assert_eq!((own.written("sourceAddress"), own.written("mine")), ("src", "mine"));
        assert_eq!(
            (own.field("dlat"), own.field("destinationLatitude")),
            ("destinationGeoLatitude", "destinationLatitude")
        );
        let ecs = NameMapping::new(true, DeviceRole::Host, false);
        assert_eq!((ecs.field("dvc"), ecs.field("dvchost")), ("[host][ip]", "[host][name]"));
        assert_eq!(ecs.written("[source][registered_domain]"), "sourceDnsDomain");
        assert!(ecs.is_time("@timestamp") && !own.is_time("deviceReceiptTime"));
    }
}
