//! The zone of timestamps in the answers of a client: UTC, or none.
//!
//! Arrow's driver of JDBC reads a timestamp without a zone as `java.sql.Timestamp`; `getObject` refuses one with a zone. A schema alone
//! names the zone, values are instants of UTC either way. So [`TimestampZone`] changes schemas, and never rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::status;

/// Header by which a client chooses: `utc` or `none`. Drivers of JDBC send properties that they do not know as headers.
pub(crate) const HEADER: &str = "x-timestamp-zone";
/// Word in the `user-agent` of every client in Java. Drivers of JDBC up to 18.3 say no more of themselves.
const JAVA_CLIENT: &str = "grpc-java";

/// The zone that schemas name for timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampZone {
    /// UTC.
    Utc,
    /// No zone; values are those of UTC.
    Absent,
}

impl TimestampZone {
    /// Reads the choice of a request: that of its header, else the one of its client.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another value of the header.
    pub(crate) fn from_metadata(metadata: &MetadataMap) -> Result<Self, Status> {
        let text = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
        match (metadata.get(HEADER), text(HEADER), text("user-agent")) {
            (Some(_), Some("utc"), _) => Ok(Self::Utc),
            (Some(_), Some("none"), _) => Ok(Self::Absent),
            (Some(_), other, _) => {
                let shown: String = other.unwrap_or_default().chars().take(32).collect();
                let message = format!("the header [{HEADER}] is [utc] or [none], and not [{shown}]");
                Err(status::new(Code::InvalidArgument, &message))
            }
            (None, _, Some(agent)) if agent.contains(JAVA_CLIENT) => Ok(Self::Absent),
            (None, ..) => Ok(Self::Utc),
        }
    }

    /// Returns a schema with this zone; the given one names UTC.
    pub(crate) fn apply(self, schema: SchemaRef) -> SchemaRef {
        let has_zone = |field: &Arc<Field>| without_zone(field.data_type()).is_some();
        if self == Self::Utc || !schema.fields().iter().any(has_zone) {
            return schema;
        }
        let fields: Vec<Arc<Field>> = schema.fields().iter().map(field).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

fn field(field: &Arc<Field>) -> Arc<Field> {
    match without_zone(field.data_type()) {
        Some(kind) => Arc::new(field.as_ref().clone().with_data_type(kind)),
        None => Arc::clone(field),
    }
}

/// Returns a type without its zone; `None` for one that has none. Columns nest in lists alone, one deep.
fn without_zone(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Timestamp(unit, Some(_)) => Some(DataType::Timestamp(*unit, None)),
        DataType::List(item) => match item.data_type() {
            DataType::Timestamp(_, Some(_)) => Some(DataType::List(field(item))),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::TimeUnit;

    use super::*;

    fn zone(headers: &[(&'static str, &str)]) -> Result<TimestampZone, Status> {
        let mut metadata = MetadataMap::new();
        for (name, value) in headers {
            metadata.insert(*name, value.parse().unwrap());
        }
        TimestampZone::from_metadata(&metadata)
    }

    #[test]
    fn the_header_wins_over_the_client() {
        let jdbc = ("user-agent", "JDBC Flight SQL Driver 19.0.0 grpc-java-netty/1.71.0");
        assert_eq!(zone(&[]).unwrap(), TimestampZone::Utc);
        assert_eq!(zone(&[("user-agent", "grpc-go/1.81.0")]).unwrap(), TimestampZone::Utc);
        assert_eq!(zone(&[("user-agent", "grpc-java-netty/1.71.0")]).unwrap(), TimestampZone::Absent);
        assert_eq!(zone(&[jdbc]).unwrap(), TimestampZone::Absent);
        assert_eq!(zone(&[jdbc, (HEADER, "utc")]).unwrap(), TimestampZone::Utc);
        assert_eq!(zone(&[(HEADER, "none")]).unwrap(), TimestampZone::Absent);
        let error = zone(&[jdbc, (HEADER, "CET")]).unwrap_err();
        assert!(error.code() == Code::InvalidArgument && error.message().contains("CET"), "{error}");
    }

    #[test]
    fn columns_and_lists_lose_their_zone_and_nothing_else() {
        let stamp = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
        let schema = |zone| {
            let list = DataType::List(Arc::new(Field::new_list_field(stamp(zone), true)));
            let named = Field::new("at", stamp(zone), true).with_metadata([("k".into(), "v".into())].into());
            Arc::new(Schema::new(vec![
                named,
                Field::new("times", list, true),
                Field::new("n", DataType::Int64, true),
            ]))
        };
        assert_eq!(TimestampZone::Absent.apply(schema(Some("UTC"))), schema(None));
        assert_eq!(TimestampZone::Utc.apply(schema(Some("UTC"))), schema(Some("UTC")));
    }
}
