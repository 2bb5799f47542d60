//! `_validate/query`: whether a query can be run, and what it becomes.

use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_dsl::body::SearchBody;
use millrace_dsl::query::Query;
use millrace_engine::Session;
use millrace_matching::table::{TableIndex, TableSnapshot};
use millrace_search::explain::Explainer;
use millrace_target::lookup;
use millrace_work::answer::AnswerBuffer;
use millrace_work::error::{Error, Result, ShardFailure};
use serde_json::{Map, Value, json};

use super::{Outcome, SearchService};

impl SearchService {
    /// Answers `_validate/query`.
    ///
    /// # Errors
    /// Bad parameters and missing indices; what is wrong with the query is part of the answer.
    pub fn validate_query<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let mut opened = self.open(expression, "_validate/query", params, body)?;
            let params = &mut opened.params;
            let explain = params.boolean("explain")?.unwrap_or(false);
            let all_shards = params.boolean("all_shards")?.unwrap_or(false);
            // What a query becomes does not depend on what the segments hold.
            params.boolean("rewrite")?;
            let from_uri = params.uri_query();
            let scope = params.strict_scope()?;
            opened.params.finish()?;
            let from_body = opened.body.as_ref().map(SearchBody::parse_query_only).transpose();
            let mut query = match (from_uri, from_body) {
                (Err(error), _) | (_, Err(error)) => return Ok(unparsed(&error, explain)),
                (Ok(uri), Ok(body)) => uri.or(body.flatten()).unwrap_or_else(Query::match_all),
            };
            let searcher = self.searcher()?;
            let (work, _ends) = searcher.begin();
            let snapshot = self.pin(session, expression, &scope).await?;
            lookup::read(session, &snapshot, &mut query, &searcher.compute, &work).await?;
            // The text of the query comes once for each index or shard.
            let mut explanations = AnswerBuffer::new(&work);
            explanations.push(b'[');
            let (mut asked, mut valid) = (0, true);
            for place in 0..snapshot.indices.len() {
                let alone = Arc::new(only_index(&snapshot, place));
                let index = &snapshot.indices[place];
                let explainer = Explainer::new(&query, &alone, false, opened.now_ms);
                let shards = if all_shards {
                    index.shards.as_slice()
                } else {
                    &index.shards[..index.shards.len().min(1)]
                };
                asked += shards.len();
                valid &= shards.is_empty() || explainer.is_ok();
                for shard in shards.iter().filter(|_| explain) {
                    explanations.item();
                    explanations.push(b'{');
                    explanations.member("index", &*index.meta.name);
                    if all_shards {
                        explanations.member("shard", shard);
                    }
                    explanations.member("valid", &explainer.is_ok());
                    match &explainer {
                        Ok(explainer) => explanations.member("explanation", &explainer.describe(0)),
                        Err(error) => explanations.member("error", &refusal(error, index)),
                    }
                    explanations.push(b'}');
                    explanations.check()?;
                }
            }
            explanations.push(b']');
            let mut answer = AnswerBuffer::new(&work);
            answer.push(b'{');
            answer.member("_shards", &json!({"total": asked, "successful": asked, "failed": 0}));
            answer.member("valid", &valid);
            if explain {
                answer.key("explanations");
                answer.extend(&explanations.finish()?);
            }
            answer.push(b'}');
            Ok(Outcome::raw(answer.finish()?))
        })
    }
}

/// Cuts a snapshot to one index; none of its rows are asked for.
fn only_index(snapshot: &TableSnapshot, place: usize) -> TableSnapshot {
    let index = snapshot.indices[place].clone();
    let shards = index.shards.len() as u32;
    TableSnapshot { indices: vec![index], shards, ..TableSnapshot::default() }
}

/// Answers for a query that is none.
fn unparsed(error: &Error, explain: bool) -> Outcome {
    let mut answer = Map::new();
    answer.insert("valid".into(), json!(false));
    if explain {
        let mut text = format!("{}[{}]", exception(&error.error_type()), error.reason());
        if let Error::UnknownQuery { name, .. } = error {
            let cause = format!("unknown field [{name}]");
            text.push_str(&format!("; nested: NamedObjectNotFoundException[{cause}];; {cause}"));
        }
        answer.insert("error".into(), json!(text));
    }
    Outcome::json(200, Value::Object(answer))
}

/// Writes why an index refuses a query.
fn refusal(error: &Error, index: &TableIndex) -> String {
    let Error::OneShard(failure) = error else { return error.to_string() };
    let ShardFailure { error_type, reason, caused_by, .. } = failure.as_ref();
    let mut text =
        format!("[{}/{}] {}[{reason}]", index.meta.name, index.meta.uuid_text(), exception(error_type));
    if let Some((kind, reason)) = caused_by {
        text.push_str(&format!("; nested: {}[{reason}];; {reason}", exception(kind)));
    }
    text
}

/// Turns `parsing_exception` into the name of a class, `ParsingException`.
fn exception(error_type: &str) -> String {
    error_type
        .split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_names_of_classes() {
        assert_eq!(exception("parsing_exception"), "ParsingException");
        assert_eq!(exception("number_format_exception"), "NumberFormatException");
    }
}
