//! Points on the earth as strings: `lat,lon`, WKT `POINT (lon lat)`, and geohashes.

use super::coerce::Cause;

const GEOHASH_ALPHABET: &[u8] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Characters of a geohash beyond which a double has no room.
const MAX_GEOHASH: usize = 24;

/// Parses a point from a string; a third coordinate is left out.
pub(crate) fn parse(text: &str) -> Result<[f64; 2], Cause> {
    let trimmed = text.trim();
    if trimmed.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("POINT")) {
        return wkt(trimmed);
    }
    if trimmed.contains(',') {
        let mut numbers = trimmed.split(',');
        let (Some(lat), Some(lon)) = (numbers.next(), numbers.next()) else {
            return Err(unparsable(text));
        };
        let coordinate = |name: &str, part: &str| {
            part.trim()
                .parse::<f64>()
                .map_err(|_| Cause::new("parse_exception", format!("{name} must be a number")))
        };
        let point = [coordinate("latitude", lat)?, coordinate("longitude", lon)?];
        if let Some(z) = numbers.next() {
            coordinate("[z]", z)?;
        }
        let beyond = numbers.count();
        if beyond > 0 {
            return Err(Cause::new(
                "parse_exception",
                format!("failed to parse [{text}], expected 2 or 3 coordinates but found: [{}]", beyond + 3),
            ));
        }
        return Ok(point);
    }
    geohash(trimmed)
}

fn unparsable(text: &str) -> Cause {
    Cause::new("parse_exception", format!("failed to parse geo_point [{text}]"))
}

fn wkt(text: &str) -> Result<[f64; 2], Cause> {
    let body = text[5..].trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let mut numbers = body.ok_or_else(|| unparsable(text))?.split_ascii_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(lon)), Some(Ok(lat))) => match (numbers.next(), numbers.next()) {
            (None | Some(Ok(_)), None) => Ok([lat, lon]),
            _ => Err(unparsable(text)),
        },
        _ => Err(unparsable(text)),
    }
}

/// Parses a geohash to the corner of its cell that is least in both coordinates.
pub(crate) fn geohash(hash: &str) -> Result<[f64; 2], Cause> {
    let [lat, lon] = geohash_cell(hash)?;
    Ok([lat[0], lon[0]])
}

/// Least and greatest latitude, and longitude, of a geohash's cell.
fn geohash_cell(hash: &str) -> Result<[[f64; 2]; 2], Cause> {
    if hash.is_empty() || hash.len() > MAX_GEOHASH {
        return Err(unparsable(hash));
    }
    let (mut lat, mut lon) = ([-90.0f64, 90.0f64], [-180.0f64, 180.0f64]);
    let mut even = true;
    for c in hash.chars() {
        let symbol = u8::try_from(c).ok().map(|b| b.to_ascii_lowercase());
        let index = symbol.and_then(|b| GEOHASH_ALPHABET.iter().position(|a| *a == b)).ok_or_else(|| {
            Cause::new("parse_exception", format!("unsupported symbol [{c}] in geohash [{hash}]"))
        })?;
        for bit in (0..5).rev() {
            let range = if even { &mut lon } else { &mut lat };
            let middle = (range[0] + range[1]) / 2.0;
            range[usize::from(index >> bit & 1 == 0)] = middle;
            even = !even;
        }
    }
    Ok([lat, lon])
}

/// Writes a point, given as latitude and longitude, as the geohash of so many characters.
pub fn to_geohash([lat, lon]: [f64; 2], characters: usize) -> String {
    let (mut lats, mut lons) = ([-90.0f64, 90.0], [-180.0f64, 180.0]);
    let mut even = true;
    let mut hash = String::with_capacity(characters);
    for _ in 0..characters.min(MAX_GEOHASH) {
        let mut index = 0;
        for _ in 0..5 {
            let (range, at) = if even { (&mut lons, lon) } else { (&mut lats, lat) };
            let middle = (range[0] + range[1]) / 2.0;
            let upper = at >= middle;
            range[usize::from(!upper)] = middle;
            index = index << 1 | usize::from(upper);
            even = !even;
        }
        hash.push(GEOHASH_ALPHABET.get(index).map_or('0', |byte| char::from(*byte)));
    }
    hash
}

/// Parses a point of a query from text: least and greatest latitude, and longitude. They differ for a
/// geohash, which stands for its cell.
///
/// # Errors
/// The reason why the text is no point, as OpenSearch words it.
pub fn parse_point(text: &str) -> Result<[[f64; 2]; 2], String> {
    let trimmed = text.trim();
    let is_geohash =
        !trimmed.contains(',') && !trimmed.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("POINT"));
    let cell = match is_geohash {
        true => geohash_cell(trimmed),
        false => parse(text).map(|[lat, lon]| [[lat, lat], [lon, lon]]),
    };
    cell.map_err(|cause| cause.reason)
}

/// Refuses coordinates that are not on the earth.
pub(crate) fn check([lat, lon]: [f64; 2], path: &str) -> Result<(), Cause> {
    if !(-90.0..=90.0).contains(&lat) {
        return Err(Cause::argument(format!("illegal latitude value [{lat:?}] for {path}")));
    }
    if !(-180.0..=180.0).contains(&lon) {
        return Err(Cause::argument(format!("illegal longitude value [{lon:?}] for {path}")));
    }
    Ok(())
}
