//! Filters that panic stop their own rules alone: after a panic of many filters together, each is evaluated by itself.

use millrace_query::Error as QueryError;
use millrace_query::filters::FilterMatches;
use millrace_runtime::catch_panic;

use crate::reason::reason_of;

/// Bytes of what a panic said that are kept.
const MAX_REASON: usize = 500;

type QueryResult<T> = std::result::Result<T, QueryError>;

/// Rows of a filter, by its place, or why it could not be asked.
pub(super) type Rows = (usize, Result<Vec<u32>, String>);

/// Does something that may panic, and returns what the panic said. What the work has changed by then must not be used any more.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_panic(work, MAX_REASON)
}

/// Takes rows as they are noted.
pub(super) fn rows(found: FilterMatches) -> Rows {
    (found.filter, found.rows.map(|rows| rows.iter().collect()).map_err(|error| reason_of(&error)))
}

/// Asks `count` filters together, and each apart where that panics.
///
/// # Errors
/// What fails for all of them together.
pub(super) fn asked(
    count: usize,
    together: impl FnOnce() -> QueryResult<Vec<FilterMatches>>,
    apart: impl Fn(usize) -> QueryResult<Vec<FilterMatches>>,
) -> Result<Vec<Rows>, String> {
    let text = |error: QueryError| reason_of(&error);
    if let Ok(found) = guarded(together) {
        return Ok(found.map_err(text)?.into_iter().map(rows).collect());
    }
    let mut all = Vec::new();
    for filter in 0..count {
        match guarded(|| apart(filter)) {
            Ok(Ok(found)) => all.extend(found.into_iter().map(|found| (filter, rows(found).1))),
            Ok(Err(error)) => all.push((filter, Err(text(error)))),
            Err(panic) => {
                let reason = format!("its filter has a fault of the server's and cannot be asked: {panic}");
                all.push((filter, Err(reason)));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use roaring::RoaringBitmap;

    use super::*;

    fn found(filter: usize, rows: &[u32]) -> FilterMatches {
        FilterMatches { filter, rows: Ok(rows.iter().copied().collect::<RoaringBitmap>()) }
    }

    #[test]
    fn of_filters_that_are_asked_together_the_one_that_panics_fails_alone() {
        let panics = |filter: usize| match filter {
            1 => panic!("row {filter} is not there"),
            2 => Ok(Vec::new()),
            3 => Err(QueryError::IllegalArgument("no".to_owned())),
            _ => Ok(vec![found(0, &[5, 7])]),
        };
        let rows = asked(4, || panics(1), panics).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0], (0, Ok(vec![5, 7])));
        let (filter, reason) = &rows[1];
        assert!(*filter == 1 && reason.as_ref().unwrap_err().contains("row 1 is not there"), "{reason:?}");
        assert_eq!(rows[2].0, 3);
        assert!(rows[2].1.is_err());
    }

    #[test]
    fn what_does_not_panic_is_asked_once() {
        let rows = asked(2, || Ok(vec![found(1, &[0])]), |_| panic!("nobody is asked apart"));
        assert_eq!(rows, Ok(vec![(1, Ok(vec![0]))]));
        let ended = asked(2, || Err(QueryError::TimedOut), |_| panic!("nobody is asked apart"));
        assert!(ended.is_err());
    }
}
