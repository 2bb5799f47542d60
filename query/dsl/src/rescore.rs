//! `rescore`: second scores for the best hits of each shard.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::json;
use super::query::{self, Query};

/// Hits of a shard that are scored again where the request does not say.
const DEFAULT_WINDOW: usize = 10;
/// Most rescorers of one request.
const MAX_RESCORES: usize = 100;

/// One rescorer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rescore {
    /// Best hits of each shard that are scored again.
    pub window: usize,
    /// Query of the second score.
    pub query: Query,
    /// Factor of the first score.
    pub query_weight: f32,
    /// Factor of the second score.
    pub rescore_query_weight: f32,
    /// Mode that combines the scores of hits that match the query.
    pub mode: ScoreMode,
}

/// Mode that combines two scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ScoreMode {
    Avg,
    Max,
    Min,
    #[default]
    Total,
    Multiply,
}

impl ScoreMode {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "avg" => Self::Avg,
            "max" => Self::Max,
            "min" => Self::Min,
            "total" => Self::Total,
            "multiply" => Self::Multiply,
            _ => return Err(Error::IllegalArgument(format!("illegal score_mode [{text}]"))),
        })
    }

    /// Combines the weighted scores.
    pub fn combine(self, first: f32, second: f32) -> f32 {
        match self {
            Self::Avg => (first + second) / 2.0,
            Self::Max => first.max(second),
            Self::Min => first.min(second),
            Self::Total => first + second,
            Self::Multiply => first * second,
        }
    }

    /// Names the combination as explanations do.
    pub fn description(self) -> &'static str {
        match self {
            Self::Avg => "avg of:",
            Self::Max => "max of:",
            Self::Min => "min of:",
            Self::Total => "sum of:",
            Self::Multiply => "product of:",
        }
    }
}

/// Parses the value of `rescore`: one rescorer or a list of them.
pub(crate) fn parse(value: &Value) -> Result<Vec<Rescore>> {
    let Value::Array(items) = value else { return Ok(vec![Rescore::parse(value)?]) };
    if items.len() > MAX_RESCORES {
        return Err(Error::IllegalArgument(format!(
            "too many rescorers: {} given, at most {MAX_RESCORES} allowed",
            items.len()
        )));
    }
    items.iter().map(Rescore::parse).collect()
}

impl Rescore {
    fn parse(value: &Value) -> Result<Self> {
        let Value::Object(fields) = value else {
            return Err(Error::Parsing(format!("unexpected token [{}] after [rescore]", json::token(value))));
        };
        let (mut window, mut rescorer) = (DEFAULT_WINDOW, None);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("window_size", Value::Number(_) | Value::String(_)) => window = window_size(value)?,
                ("query", Value::Object(fields)) => rescorer = Some(fields),
                (_, Value::Object(_)) => {
                    return Err(Error::NamedObjectNotFound(format!("unknown field [{key}]")));
                }
                (_, Value::Array(_)) => {
                    return Err(Error::Parsing(format!(
                        "unexpected token [{}] after [{key}]",
                        json::token(value)
                    )));
                }
                _ => return Err(Error::Parsing(format!("rescore doesn't support [{key}]"))),
            }
        }
        let fields = rescorer.ok_or_else(|| Error::Parsing("missing rescore type".to_owned()))?;
        let (mut query, mut query_weight, mut rescore_query_weight) = (None, 1.0, 1.0);
        let mut mode = ScoreMode::default();
        for (key, value) in fields {
            match key.as_str() {
                "rescore_query" => query = Some(query::parse(value)?),
                "query_weight" => query_weight = json::float(value)?,
                "rescore_query_weight" => rescore_query_weight = json::float(value)?,
                "score_mode" => {
                    mode = ScoreMode::parse(&json::text(value).unwrap_or_default())
                        .map_err(|error| Error::unread_member("query", key, error))?;
                }
                _ => return Err(Error::unknown_member("query", key)),
            }
        }
        let query = query.ok_or_else(|| Error::IllegalArgument("rescore_query cannot be null".to_owned()))?;
        Ok(Self { window, query, query_weight, rescore_query_weight, mode })
    }
}

fn window_size(value: &Value) -> Result<usize> {
    let size = json::integer(value)?;
    usize::try_from(size)
        .map_err(|_| Error::IllegalArgument(format!("[window_size] cannot be negative, found [{size}]")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rescorers_come_alone_or_in_a_list() {
        let one =
            json!({"window_size": 5, "query": {"rescore_query": {"match_all": {}}, "score_mode": "Max"}});
        let parsed = parse(&one).unwrap();
        assert_eq!((parsed[0].window, parsed[0].mode, parsed[0].query_weight), (5, ScoreMode::Max, 1.0));
        assert_eq!(parse(&json!([one, one])).unwrap().len(), 2);
        let refused = |value: Value| parse(&value).unwrap_err().to_string();
        let texts = [
            refused(json!({"window_size": 10})),
            refused(json!({"window_size": -1, "query": {"rescore_query": {"match_all": {}}}})),
            refused(json!({"query": {}})),
            refused(json!({"query": {"foo": 1}})),
            refused(json!({"foo": {}})),
            refused(json!({"foo": 1})),
            refused(json!({"query": {"score_mode": "foo"}})),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r"
        missing rescore type
        [window_size] cannot be negative, found [-1]
        rescore_query cannot be null
        [query] unknown field [foo]
        unknown field [foo]
        rescore doesn't support [foo]
        [query] failed to parse field [score_mode]
        ");
    }

    #[test]
    fn scores_combine() {
        let modes = [ScoreMode::Avg, ScoreMode::Max, ScoreMode::Min, ScoreMode::Total, ScoreMode::Multiply];
        assert_eq!(modes.map(|mode| mode.combine(4.0, 2.0)), [3.0, 4.0, 2.0, 6.0, 8.0]);
    }
}
