//! `function_score` meets a mapping: fields become columns, origins and scales numbers.

use millrace_dsl::json::{self, text};
use millrace_dsl::query::geo::{self, Corner, GeoPoint};
use millrace_dsl::query::{
    Decay, FieldValueFactor, Function, FunctionScoreQuery, RandomScore, double, java_hash,
};
use millrace_mapping::{ColumnKind, Field, FieldType};
use millrace_scoring::node::{Node, NodeFunction};
use millrace_scoring::row_function::{Curve, Origin, RowFunction};
use millrace_scoring::values::HashInput;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::Resolver;
use crate::table::predicate::Predicate;
use crate::table::values;

impl Resolver<'_> {
    /// Resolves the clause; `filters` are those of the functions that have one, in order.
    pub(super) fn function_score(
        &mut self,
        query: &FunctionScoreQuery,
        base: &Predicate,
        filters: &[Predicate],
    ) -> Result<Node> {
        let mut filters = filters.iter();
        let mut functions = Vec::with_capacity(query.functions.len());
        for function in &query.functions {
            let filter = match &function.filter {
                None => None,
                Some(_) => filters.next().map(|filter| self.node(filter)).transpose()?,
            };
            let weight = function.weight;
            let function = self.function(&function.function)?;
            functions.push(NodeFunction { filter, function, weight });
        }
        let base = Box::new(self.node(base)?);
        Ok(Node::FunctionScore { base, functions, combination: query.combination })
    }

    fn function(&self, function: &Function) -> Result<RowFunction> {
        match function {
            Function::One => Ok(RowFunction::One),
            Function::FieldValue(factor) => self.field_value(factor),
            Function::Decay(decay) => self.decay(decay),
            Function::Random(random) => self.random(random),
        }
    }

    fn field_value(&self, query: &FieldValueFactor) -> Result<RowFunction> {
        let column = match self.index.mapping.field(&query.field) {
            None if query.missing.is_none() => {
                return Err(Error::Exception {
                    kind: "exception",
                    status: 400,
                    reason: format!(
                        "Unable to find a field mapper for field [{}]. No 'missing' value defined.",
                        query.field
                    ),
                });
            }
            None => None,
            Some(field) => {
                has_values(field)?;
                let unit = number_unit(field).ok_or_else(|| {
                    Error::IllegalArgument(format!(
                        "field [{}] is of type [{}], but only numeric types are supported.",
                        query.field,
                        field.type_name()
                    ))
                })?;
                Some((field.column, unit))
            }
        };
        Ok(RowFunction::FieldValue {
            field: query.field.clone(),
            column,
            factor: query.factor,
            modifier: query.modifier,
            missing: query.missing,
        })
    }

    fn decay(&self, query: &Decay) -> Result<RowFunction> {
        let field = self
            .index
            .mapping
            .field(&query.field)
            .ok_or_else(|| Error::Parsing(format!("unknown field [{}]", query.field)))?;
        let params = DecayParams::read(&query.params)?;
        let (from, scale, offset) = match (&field.field_type, number_unit(field)) {
            (FieldType::GeoPoint, _) => Self::point_decay(field, &params)?,
            (FieldType::Date | FieldType::DateNanos, Some(unit)) => self.date_decay(field, unit, &params)?,
            (kind, Some(unit)) if *kind != FieldType::Boolean => number_decay(field, unit, &params)?,
            _ => {
                return Err(Error::Parsing(format!(
                    "field [{}] is of type [{}], but only numeric types are supported.",
                    query.field,
                    field.type_name()
                )));
            }
        };
        has_values(field)?;
        let refused = |what: &str| Err(Error::IllegalArgument(format!("function_score : {what}")));
        if scale.is_nan() || scale <= 0.0 {
            return refused("scale must be > 0.0.");
        }
        if !(params.decay > 0.0 && params.decay < 1.0) {
            return refused("decay must be in the range [0..1].");
        }
        if offset.is_nan() || offset < 0.0 {
            return refused("offset must be > 0.0");
        }
        let curve = Curve::new(query.shape, scale, params.decay);
        Ok(RowFunction::Decay { from, offset, curve, mode: query.mode })
    }

    fn point_decay(field: &Field, params: &DecayParams<'_>) -> Result<(Origin, f64, f64)> {
        let Some(scale) = params.scale else {
            return Err(unset("[origin] and [scale] must be set for geo fields."));
        };
        let origin = match params.origin {
            None => GeoPoint { lat: 0.0, lon: 0.0 },
            Some(origin) => GeoPoint::parse(origin, Corner::POINT)?,
        };
        let metres = |value: Option<&Value>| value.map_or(Ok(0.0), |value| geo::distance(value, 1.0));
        let from = Origin::Point { column: field.column, lat: origin.lat, lon: origin.lon };
        Ok((from, metres(Some(scale))?, metres(params.offset)?))
    }

    fn date_decay(&self, field: &Field, unit: f64, params: &DecayParams<'_>) -> Result<(Origin, f64, f64)> {
        let (mapping, now_ms) = (self.index.mapping, self.index.now_ms);
        let origin = match params.origin {
            None => now_ms as f64,
            Some(origin) => {
                let (from, _) = values::date_span(mapping, field, origin, now_ms).map_err(|error| {
                    let reason = error.reason();
                    unset(&format!("{reason}: [{reason}]"))
                })?;
                from as f64 / unit
            }
        };
        let Some(scale) = params.scale else { return Err(unset("[scale] must be set for date fields.")) };
        let millis = |name: &str, value: &Value| -> Result<f64> {
            let given = text(value).unwrap_or_default();
            let parsed = json::parse_time(&format!("DecayFunctionParser.{name}"), &given)?;
            Ok(parsed.map_or(-1.0, |millis| millis as f64))
        };
        let offset = params.offset.map_or(Ok(0.0), |offset| millis("offset", offset))?;
        let from = Origin::Number { column: field.column, unit, origin };
        Ok((from, millis("scale", scale)?, offset))
    }

    fn random(&self, query: &RandomScore) -> Result<RowFunction> {
        let meta = self.index.meta;
        let name = java_hash(&meta.name);
        let now = (self.index.now_ms ^ self.index.now_ms >> 32) as i32;
        let of = match (query.field.as_deref(), query.seed) {
            (None, None) => None,
            (None | Some("_id"), _) => Some(HashInput::Id),
            (Some("_seq_no"), _) => Some(HashInput::SeqNo),
            (Some(path), _) => match self.index.mapping.field(path) {
                Some(field) if field.field_type == FieldType::GeoPoint => {
                    return Err(Error::IllegalArgument(format!(
                        "Field [{path}] of type [{}] cannot be used as a source of random numbers, use a field of single values such as [_seq_no]",
                        field.type_name()
                    )));
                }
                Some(field) => {
                    has_values(field)?;
                    Some(HashInput::Column(field.column))
                }
                None => {
                    return Err(Error::IllegalArgument(format!(
                        "Field [{path}] is not mapped on [[{}/{}]] and cannot be used as a source of random numbers.",
                        meta.name,
                        meta.uuid_text()
                    )));
                }
            },
        };
        Ok(RowFunction::Random { seed: (query.seed.unwrap_or(now), name), of })
    }
}

/// The parameters of a decay function as they are given.
struct DecayParams<'a> {
    origin: Option<&'a Value>,
    scale: Option<&'a Value>,
    offset: Option<&'a Value>,
    decay: f64,
}

impl<'a> DecayParams<'a> {
    fn read(given: &'a Map<String, Value>) -> Result<Self> {
        let mut params = Self { origin: None, scale: None, offset: None, decay: 0.5 };
        for (key, value) in given {
            match key.as_str() {
                "origin" => params.origin = Some(value),
                "scale" => params.scale = Some(value),
                "offset" => params.offset = Some(value),
                "decay" => params.decay = double(value)?,
                _ => return Err(unset(&format!("parameter [{key}] not supported!"))),
            }
        }
        Ok(params)
    }
}

fn number_decay(field: &Field, unit: f64, params: &DecayParams<'_>) -> Result<(Origin, f64, f64)> {
    let (Some(origin), Some(scale)) = (params.origin, params.scale) else {
        return Err(unset("both [scale] and [origin] must be set for numeric fields."));
    };
    let (scale, origin) = (double(scale)?, double(origin)?);
    let offset = params.offset.map_or(Ok(0.0), double)?;
    Ok((Origin::Number { column: field.column, unit, origin }, scale, offset))
}

fn unset(reason: &str) -> Error {
    Error::Exception { kind: "parse_exception", status: 400, reason: reason.to_owned() }
}

/// Returns the divisor of the values of a numeric column: dates count in milliseconds.
fn number_unit(field: &Field) -> Option<f64> {
    match field.column_kind() {
        ColumnKind::Int(_)
        | ColumnKind::U64
        | ColumnKind::F32
        | ColumnKind::F64
        | ColumnKind::Bool
        | ColumnKind::DateMs => Some(1.0),
        ColumnKind::DateNanos => Some(1e6),
        _ => None,
    }
}

/// Refuses fields whose values are not held in a column.
fn has_values(field: &Field) -> Result<()> {
    if field.field_type.is_text() {
        return Err(Error::IllegalArgument(format!(
            "Text fields are not optimised for operations that require per-document field data like aggregations and sorting, so these operations are disabled by default. Please use a keyword field instead. Alternatively, set fielddata=true on [{}] in order to load field data by uninverting the inverted index. Note that this can use significant memory.",
            field.path
        )));
    }
    if !field.doc_values {
        return Err(Error::IllegalArgument(format!(
            "Can't load fielddata on [{}] because fielddata is unsupported on fields of type [{}]. Use doc values instead.",
            field.path,
            field.type_name()
        )));
    }
    Ok(())
}
