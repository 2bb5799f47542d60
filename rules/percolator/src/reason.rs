//! Reasons of filters that cannot be compiled or asked, for the people who wrote them.

/// Bytes of a reason: queries, which may be in it, have a megabyte.
const MAX_REASON: usize = 1_000;

/// Says why a filter cannot be compiled or asked: the reason itself first, and then the part of the query in which it was found.
pub fn reason_of(error: &millrace_query::Error) -> String {
    use millrace_query::Error as QueryError;
    let (mut innermost, mut around) = (error, None);
    while let QueryError::Content { cause: Some(cause), .. } = innermost {
        (innermost, around) = (cause, Some(innermost));
    }
    let mut said = innermost.to_string();
    if let QueryError::QueryShard { caused_by: Some((_, cause)), .. } = innermost
        && !said.contains(cause.as_str())
    {
        said = format!("{cause}: {said}");
    }
    if let Some(around) = around {
        said.push_str(&format!(" ({around})"));
    }
    match said.len() > MAX_REASON {
        true => format!("{}…", millrace_rules::cut(&said, MAX_REASON)),
        false => said,
    }
}
