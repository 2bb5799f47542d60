//! Moments that are written and read by a format.

use super::super::Definition;
use super::super::row::{Context, Val};
use super::super::{str_to_date, time};
use super::{Answer, at_or_today, taken};
use crate::types::SqlType::Keyword;
use crate::types::TIMESTAMP;

/// Longest format in bytes.
const MAX_FORMAT: usize = 1_024;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "date_format" | "time_format" => {
            Definition::new(|types| taken(types, 2, 2..=2, Keyword), date_format)
        }
        "str_to_date" => Definition::new(
            |types| taken(types, 2, 2..=2, TIMESTAMP),
            |args, _| {
                let [text, format] = args else { return Ok(Val::Null) };
                let parsed = str_to_date::parsed(text.text(), format.text());
                Ok(parsed.map_or(Val::Null, |at| Val::Timestamp(time::nanos_of(at))))
            },
        ),
        "get_format" => Definition::new(|types| taken(types, 2, 2..=2, Keyword), get_format),
        _ => return None,
    })
}

fn date_format<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [value, format] = args else { return Ok(Val::Null) };
    if format.text().len() > MAX_FORMAT {
        return Err(format!("a date format is longer than {MAX_FORMAT} bytes"));
    }
    Ok(Val::str(time::formatted(time::civil(at_or_today(value, context)?), format.text())))
}

fn get_format<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [kind, place] = args else { return Ok(Val::Null) };
    let kind = kind.text().to_ascii_lowercase();
    let format = match (kind.as_str(), place.text().to_ascii_lowercase().as_str()) {
        ("date", "usa") => "%m.%d.%Y",
        ("date", "jis" | "iso") => "%Y-%m-%d",
        ("date", "eur") => "%d.%m.%Y",
        ("date", "internal") => "%Y%m%d",
        ("datetime" | "timestamp", "usa" | "eur") => "%Y-%m-%d %H.%i.%s",
        ("datetime" | "timestamp", "jis" | "iso") => "%Y-%m-%d %H:%i:%s",
        ("datetime" | "timestamp", "internal") => "%Y%m%d%H%i%s",
        ("time", "usa") => "%h:%i:%s %p",
        ("time", "jis" | "iso") => "%H:%i:%s",
        ("time", "eur") => "%H.%i.%s",
        ("time", "internal") => "%H%i%s",
        _ => return Ok(Val::Null),
    };
    Ok(Val::str(format))
}
