//! `_plugins/_sql`, `_plugins/_ppl` and `_sql`: the statement goes to the query service, which renders answers and refusals itself.

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::search::response;

/// Action that a request wants on statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementAction {
    /// The answer, or the next page of it.
    Rows,
    /// The plan.
    Explanation,
    /// That a cursor is closed.
    Close,
    /// The answer to a pipeline.
    PipelineRows,
    /// The plan of a pipeline.
    PipelineExplanation,
    /// The answer to a statement in the dialect of Elasticsearch, or the next page of it.
    ElasticsearchRows,
    /// The search that such a statement is.
    Translation,
    /// That a cursor of such a statement is closed.
    ElasticsearchClose,
}

/// Returns the numbers of pipelines since the start.
pub(crate) fn pipeline_stats(api: &Api) -> Response {
    response(api.search.ppl_stats())
}

/// Makes the refusal of the tables from which clients of OpenSearch make a parser of PPL.
pub(crate) fn no_grammar() -> Error {
    let reason = "the grammar of PPL is not served: its parser has no ANTLR tables";
    Error::new(400, "unsupported_operation_exception", reason)
}

/// Runs a statement, and returns its answer.
pub(crate) async fn run(api: &Api, request: &mut Request, asked: StatementAction) -> Result<Response, Error> {
    let params = request.params.take_all();
    let body = request.json()?;
    let (service, session) = (&api.search, &api.session);
    let outcome = match asked {
        StatementAction::Rows => service.sql(session, params, body).await,
        StatementAction::Explanation => service.explain_sql(session, params, body).await,
        StatementAction::PipelineRows => service.ppl(session, params, body).await,
        StatementAction::PipelineExplanation => service.explain_ppl(session, params, body).await,
        StatementAction::Close => service.close_sql(session, params, body.as_ref()),
        StatementAction::ElasticsearchRows => service.elasticsearch_sql(session, params, body).await?,
        StatementAction::Translation => service.translate_sql(session, params, body).await?,
        StatementAction::ElasticsearchClose => {
            service.close_elasticsearch_sql(session, params, body.as_ref())?
        }
    };
    Ok(response(outcome))
}
