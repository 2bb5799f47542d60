//! Types of columns, as `GetXdbcTypeInfo` asks them: by the names that SQL has for them.

use std::sync::OnceLock;

use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};
use tonic::Status;

use crate::status;

/// Returns the types.
pub(super) fn data() -> Result<&'static XdbcTypeInfoData, Status> {
    static DATA: OnceLock<Option<XdbcTypeInfoData>> = OnceLock::new();
    let data = DATA.get_or_init(|| {
        let mut builder = XdbcTypeInfoDataBuilder::new();
        all().into_iter().for_each(|info| builder.append(info));
        builder.build().ok()
    });
    data.as_ref().ok_or_else(|| status::internal(&"the types cannot be told"))
}

fn all() -> Vec<XdbcTypeInfo> {
    use XdbcDataType as D;
    let mut all: Vec<XdbcTypeInfo> = [
        ("byte", D::XdbcTinyint, 3, false),
        ("short", D::XdbcSmallint, 5, false),
        ("integer", D::XdbcInteger, 10, false),
        ("long", D::XdbcBigint, 19, false),
        ("unsigned_long", D::XdbcBigint, 20, true),
        ("float", D::XdbcReal, 7, false),
        ("double", D::XdbcDouble, 15, false),
    ]
    .into_iter()
    .map(|(name, kind, digits, unsigned)| XdbcTypeInfo {
        column_size: Some(digits),
        unsigned_attribute: Some(unsigned),
        num_prec_radix: Some(10),
        fixed_prec_scale: false,
        ..plain(name, kind)
    })
    .collect();
    all.push(plain("boolean", D::XdbcBit));
    for name in ["keyword", "text", "ip", "geo_point", "binary", "object", "nested"] {
        all.push(XdbcTypeInfo {
            literal_prefix: Some("'".to_owned()),
            literal_suffix: Some("'".to_owned()),
            case_sensitive: true,
            searchable: if matches!(name, "keyword" | "text" | "ip") {
                Searchable::Full
            } else {
                Searchable::None
            },
            ..plain(name, D::XdbcVarchar)
        });
    }
    for (name, kind, digits, subcode) in [
        // The code of a date is that of a year.
        ("date", D::XdbcDate, 10, XdbcDatetimeSubcode::XdbcSubcodeYear),
        ("time", D::XdbcTime, 15, XdbcDatetimeSubcode::XdbcSubcodeTime),
        ("timestamp", D::XdbcTimestamp, 29, XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
    ] {
        all.push(XdbcTypeInfo {
            column_size: Some(digits),
            literal_prefix: Some(format!("{name} '")),
            literal_suffix: Some("'".to_owned()),
            sql_data_type: D::XdbcDatetime,
            datetime_subcode: Some(subcode),
            ..plain(name, kind)
        });
    }
    all
}

/// Makes a type of which nothing special is to be said.
fn plain(name: &str, kind: XdbcDataType) -> XdbcTypeInfo {
    XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type: kind,
        sql_data_type: kind,
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Basic,
        auto_increment: Some(false),
        local_type_name: Some(name.to_owned()),
        ..XdbcTypeInfo::default()
    }
}
