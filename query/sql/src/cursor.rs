//! Cursors: the state of a statement between the pages of its answer.
//!
//! A token names a context of the registry and the page that it is for. The page that was made last is kept
//! and answered again to who sends its token again; earlier ones are gone. A cursor ends with its last page,
//! when it is closed or not asked for within its keep-alive, and with any of its indices.

use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::access::Action;
use millrace_catalog::metadata::{IndexMeta, Metadata};
use millrace_matching::pinned::PinnedSnapshot;
use millrace_matching::table::access_snapshot::AccessSnapshot;
use millrace_session::SearchSession;
use millrace_target::access_checkpoint::roles_changed;
use millrace_work::compute::StopOnDrop;
use millrace_work::error::Error;
use tokio::sync::Mutex;

use super::bind::OutColumn;
use super::error::{Result, SqlError};
use super::format::PageFormat;
use super::rows::Rows;

/// Prefix of tokens.
const PREFIX: &str = "n";

/// Token by which a cursor is read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The context.
    pub id: String,
    /// Number of the page; that of the statement itself is 1.
    pub page: u64,
}

impl Token {
    /// Reads a token.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(SqlError::Cursor("Not able to parse invalid cursor".to_owned()));
        };
        if kind != PREFIX {
            return Err(SqlError::Cursor(format!("Unsupported cursor type [{kind}]")));
        }
        rest.split_once(':')
            .and_then(|(id, page)| Some(Self { id: id.to_owned(), page: page.parse().ok()? }))
            .ok_or_else(|| SqlError::Cursor("Not able to parse invalid cursor".to_owned()))
    }

    /// Writes the token of a page.
    pub fn text(id: &str, page: u64) -> String {
        format!("{PREFIX}:{id}:{page}")
    }
}

/// A statement between two pages.
#[derive(Debug)]
pub struct Cursor {
    /// Columns of the rows.
    pub columns: Arc<[OutColumn]>,
    /// Format of its pages.
    pub format: PageFormat,
    /// Rows of a page.
    pub size: usize,
    /// The indices that the statement reads, as they were.
    pub indices: Vec<(Arc<IndexMeta>, AccessSnapshot)>,
    /// Progress of the statement. Held while a page is made: requests for the same page get the same one.
    pub progress: Mutex<Progress>,
    /// Snapshots that its rows are read from.
    pub _pinned: Vec<PinnedSnapshot>,
    /// Stops the scans with the cursor.
    pub _stop: StopOnDrop,
}

/// Rest of a statement.
#[derive(Debug)]
pub struct Progress {
    /// The rows.
    pub rows: Rows,
    /// Number of the page that was made last.
    pub page: u64,
    /// That page, unless it is the first.
    pub last: Option<Bytes>,
}

impl Cursor {
    /// Returns whether the indices are still there, open, and the same.
    pub fn alive(&self, metadata: &Metadata) -> bool {
        self.indices.iter().all(|(index, _)| {
            metadata.index(&index.name).is_some_and(|now| now.open && now.uuid == index.uuid)
        })
    }
}

impl Cursor {
    /// Checks that whoever opened it may still read what it is over as it did.
    ///
    /// # Errors
    /// 403 that names the index.
    pub fn check_seen(&self, session: &dyn SearchSession) -> Result<(), Error> {
        let lost =
            self.indices.iter().find(|(meta, seen)| !seen.holds(&session.access(&meta.name), Action::Sql));
        match lost {
            None => Ok(()),
            Some((meta, _)) => Err(roles_changed(session, &meta.name, Action::Sql).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_written() {
        let token = Token { id: "ab12".to_owned(), page: 7 };
        assert_eq!(Token::parse(&Token::text(&token.id, token.page)).unwrap(), token);
        for text in
            ["", "x", "n:", "n:ab", "n:ab:x", "n:ab:-1", "n:ab:1:2", "d:eyJ", "n:ab:99999999999999999999"]
        {
            assert!(matches!(Token::parse(text), Err(SqlError::Cursor(_))), "{text}");
        }
    }
}
