//! Leaves whose values have a structure of their own: geo_point and flat_object.

use jiter::{Jiter, Peek};

use super::ChunkBuilder;
use super::failure::{Failure, ParseResult};
use super::leaf::{number_text, scopes_of};
use crate::mapping::{Cause, Token, values};
use crate::term::check_term;

/// Deepest flat_object whatever its `depth_limit` says: it is walked by recursion.
const MAX_FLAT_DEPTH: usize = 100;

/// Parts of a point given as an object; the first thing wrong with it.
#[derive(Default)]
struct PointParts {
    lat: Option<f64>,
    lon: Option<f64>,
    hash: Option<[f64; 2]>,
    coordinates: Vec<f64>,
    wrong: Option<Cause>,
}

impl ChunkBuilder {
    /// Parses the value of a geo_point: a point in any of its forms, or an array of them.
    pub(super) fn points(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        if json.peek()? != Peek::Array {
            let peek = json.peek()?;
            return self.point(json, leaf, peek);
        }
        self.depth += 1;
        let start = json.current_index();
        match json.known_array()? {
            Some(first) if first.is_num() => {
                self.coordinates(json, leaf, first, start)?;
            }
            Some(first) => {
                let mut next = Some(first);
                while let Some(peek) = next {
                    if peek == Peek::Array {
                        let start = json.current_index();
                        match json.known_array()? {
                            Some(first) if first.is_num() => self.coordinates(json, leaf, first, start)?,
                            Some(_) => return Err(self.misfit(leaf, String::new(), expected())),
                            None => {}
                        }
                    } else {
                        self.point(json, leaf, peek)?;
                    }
                    next = json.array_step()?;
                }
            }
            None => {}
        }
        self.depth -= 1;
        Ok(())
    }

    /// Parses `lon, lat[, z]]`, the array being open.
    fn coordinates(&mut self, json: &mut Jiter<'_>, leaf: u32, first: Peek, start: usize) -> ParseResult<()> {
        let (numbers, wrong) = self.numbers(json, first)?;
        let preview = || super::failure::preview(json.slice_to_current(start));
        match (wrong, numbers.as_slice()) {
            (false, [lon, lat] | [lon, lat, _]) => {
                let point = [*lat, *lon];
                match values::check_point(point, &self.mapping.leaf(leaf).field.path) {
                    Ok(()) => self.put_point(leaf, point),
                    Err(cause) => self.refuse(leaf, preview(), cause),
                }
            }
            (true, _) => {
                let preview = preview();
                self.refuse(leaf, preview, Cause::new("parse_exception", "numeric value expected"))
            }
            (false, other) => {
                let reason = format!("geo_point has {} coordinates, expected 2 or 3", other.len());
                let preview = preview();
                self.refuse(leaf, preview, Cause::new("parse_exception", reason))
            }
        }
    }

    /// Parses a point that is no array.
    pub(super) fn point(&mut self, json: &mut Jiter<'_>, leaf: u32, peek: Peek) -> ParseResult<()> {
        match peek {
            Peek::Object => {
                let start = json.current_index();
                self.depth += 1;
                let parts = self.point_object(json)?;
                self.depth -= 1;
                let point =
                    match (parts.wrong, parts.hash, parts.lat, parts.lon, parts.coordinates.as_slice()) {
                        (Some(cause), ..) => Err(cause),
                        (None, Some(hash), None, None, []) => Ok(hash),
                        (None, None, Some(lat), Some(lon), []) => Ok([lat, lon]),
                        (None, None, None, None, [lon, lat] | [lon, lat, _]) => Ok([*lat, *lon]),
                        (None, None, None, Some(_), []) => {
                            Err(Cause::new("parse_exception", "field [lat] missing"))
                        }
                        (None, None, Some(_), None, []) => {
                            Err(Cause::new("parse_exception", "field [lon] missing"))
                        }
                        _ => Err(Cause::new("parse_exception", "field must be either lat/lon or geohash")),
                    };
                let path = &self.mapping.leaf(leaf).field.path;
                match point.and_then(|point| values::check_point(point, path).map(|()| point)) {
                    Ok(point) => self.put_point(leaf, point),
                    Err(cause) => {
                        let preview = super::failure::preview(json.slice_to_current(start));
                        self.refuse(leaf, preview, cause)
                    }
                }
            }
            _ => self.scalar(json, leaf, peek),
        }
    }

    /// Puts a point that is on the earth.
    pub(super) fn put_point(&mut self, leaf: u32, point: [f64; 2]) -> ParseResult<()> {
        let mapped = self.mapping.leaf(leaf);
        Ok(self.columns.push_point(scopes_of(&self.mapping, mapped), mapped.field.column, point)?)
    }

    /// Parses the value of a flat_object: an object, or an array of them.
    pub(super) fn flat_objects(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        self.flatten(json, |builder, json, peek| builder.flat_object(json, leaf, peek))
    }

    pub(super) fn flat_object(&mut self, json: &mut Jiter<'_>, leaf: u32, peek: Peek) -> ParseResult<()> {
        match peek {
            Peek::Object => {
                self.flat_path.clear();
                self.flat_members(json, leaf, 1)
            }
            Peek::Null => Ok(json.known_null()?),
            _ => {
                let token = match peek {
                    Peek::String => "VALUE_STRING",
                    Peek::True | Peek::False => "VALUE_BOOLEAN",
                    _ => "VALUE_NUMBER",
                };
                let start = json.current_index();
                self.skip(json)?;
                let reason = format!(
                    "[{}] unexpected token [{token}] in flat_object field value",
                    self.mapping.leaf(leaf).field.path
                );
                let preview = super::failure::preview(json.slice_to_current(start));
                self.refuse(leaf, preview, Cause::new("parsing_exception", reason))
            }
        }
    }

    fn flat_members(&mut self, json: &mut Jiter<'_>, leaf: u32, depth: usize) -> ParseResult<()> {
        let limit = self.mapping.leaf(leaf).rules.depth_limit.min(MAX_FLAT_DEPTH);
        if depth > limit {
            return Err(Failure::rule(format!(
                "the depth of field [{}] exceeds its limit of [{limit}]",
                self.mapping.leaf(leaf).field.path
            )));
        }
        self.depth += 1;
        let above = self.flat_path.len();
        let names = self.keys.open_unmapped();
        let mut key = json.known_object()?;
        while let Some(name) = key {
            if name.is_empty() {
                return Err(Failure::rule("field name cannot be an empty string"));
            }
            self.keys.add(name);
            if above > 0 {
                self.flat_path.push('.');
            }
            self.flat_path.push_str(name);
            self.flatten(json, |builder, json, peek| builder.flat_value(json, leaf, peek, depth))?;
            self.flat_path.truncate(above);
            key = json.next_key()?;
        }
        self.end_names(json, names)?;
        self.depth -= 1;
        Ok(())
    }

    fn flat_value(&mut self, json: &mut Jiter<'_>, leaf: u32, peek: Peek, depth: usize) -> ParseResult<()> {
        let token = match peek {
            Peek::Object => return self.flat_members(json, leaf, depth + 1),
            Peek::Null => return Ok(json.known_null()?),
            Peek::String => Token::Str(json.known_str()?),
            Peek::True | Peek::False => Token::Bool(json.known_bool(peek)?),
            _ => Token::Number(number_text(json, peek)?),
        };
        let text = token.text();
        let mapped = self.mapping.leaf(leaf);
        if mapped.field.ignores(text) {
            let path = mapped.field.path.clone();
            self.ignore(path);
            return Ok(());
        }
        let scopes = scopes_of(&self.mapping, mapped);
        if scopes.is_empty() {
            return Ok(());
        }
        let column = mapped.field.column;
        self.flat_leaf.clear();
        self.flat_leaf.push_str(&self.flat_path);
        let any_place = self.flat_leaf.len();
        self.flat_leaf.push('=');
        self.flat_leaf.push_str(text);
        check_term(&self.flat_path, self.flat_leaf.as_bytes())?;
        self.columns.push_str(scopes, column, self.flat_leaf.as_bytes())?;
        self.columns.push_str(scopes, column, &self.flat_leaf.as_bytes()[any_place..])?;
        Ok(())
    }
}

fn expected() -> Cause {
    Cause::new("parse_exception", "geo_point expected")
}

impl ChunkBuilder {
    /// Reads the rest of an array, keeping its numbers; says whether anything else is in it.
    fn numbers(&mut self, json: &mut Jiter<'_>, first: Peek) -> ParseResult<(Vec<f64>, bool)> {
        let mut numbers = Vec::with_capacity(3);
        let mut wrong = false;
        let mut next = Some(first);
        while let Some(peek) = next {
            if peek.is_num() {
                match number_text(json, peek)?.parse() {
                    Ok(number) if numbers.len() < 4 => numbers.push(number),
                    Ok(_) => {}
                    Err(_) => wrong = true,
                }
            } else {
                self.skip(json)?;
                wrong = true;
            }
            next = json.array_step()?;
        }
        Ok((numbers, wrong))
    }

    /// Reads a point given as an object to its end, whatever is wrong with it.
    fn point_object(&mut self, json: &mut Jiter<'_>) -> ParseResult<PointParts> {
        let mut parts = PointParts::default();
        let mut key = json.known_object()?;
        while let Some(name) = key {
            enum CompletionMember {
                Lat,
                Lon,
                Z,
                Hash,
                Type,
                Coordinates,
            }
            let part = match name {
                "lat" => CompletionMember::Lat,
                "lon" => CompletionMember::Lon,
                "z" => CompletionMember::Z,
                "geohash" => CompletionMember::Hash,
                "type" => CompletionMember::Type,
                "coordinates" => CompletionMember::Coordinates,
                other => {
                    parts.wrong.get_or_insert(Cause::new(
                        "parse_exception",
                        format!("field must be either [lat], [lon] or [geohash], got [{other}]"),
                    ));
                    CompletionMember::Z
                }
            };
            let peek = json.peek()?;
            match (&part, peek) {
                (CompletionMember::Lat | CompletionMember::Lon, peek)
                    if peek.is_num() || peek == Peek::String =>
                {
                    let is_lat = matches!(part, CompletionMember::Lat);
                    let text =
                        if peek == Peek::String { json.known_str()? } else { number_text(json, peek)? };
                    let number = text.trim().parse::<f64>().ok();
                    if number.is_none() {
                        let which = if is_lat { "latitude" } else { "longitude" };
                        parts.wrong.get_or_insert(Cause::new(
                            "parse_exception",
                            format!("[{which}] must be a valid double value"),
                        ));
                    }
                    if is_lat { parts.lat = number } else { parts.lon = number }
                }
                (CompletionMember::Hash, Peek::String) => match values::geohash(json.known_str()?) {
                    Ok(point) => parts.hash = Some(point),
                    Err(cause) => {
                        parts.wrong.get_or_insert(cause);
                    }
                },
                (CompletionMember::Type, Peek::String) => {
                    if !json.known_str()?.eq_ignore_ascii_case("point") {
                        parts.wrong.get_or_insert(Cause::new("parse_exception", "type must be Point"));
                    }
                }
                (CompletionMember::Coordinates, Peek::Array) => {
                    if let Some(first) = json.known_array()? {
                        let (numbers, wrong) = self.numbers(json, first)?;
                        parts.coordinates = numbers;
                        if wrong {
                            parts
                                .wrong
                                .get_or_insert(Cause::new("parse_exception", "numeric value expected"));
                        }
                    }
                }
                (CompletionMember::Z, _) => self.skip(json)?,
                (_, _) => {
                    self.skip(json)?;
                    parts.wrong.get_or_insert(expected());
                }
            }
            key = json.next_key()?;
        }
        Ok(parts)
    }
}
