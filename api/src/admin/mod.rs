//! Index, alias, template and cluster administration.

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Routes a request to its handler; `None` where the path is none of these.
pub async fn route(_api: &Api, _request: &mut Request) -> Option<Result<Response, Error>> {
    None
}
