//! Decides whether an operation on a document may happen and which version results: a pure decision.

use crate::{DocResult, VersionType};

/// The document as it is now; `live: false` is a tombstone that still has a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) live: bool,
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
}

/// Condition of a request on the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionCondition {
    pub(crate) delete: bool,
    pub(crate) create: bool,
    pub(crate) version: Option<(u64, VersionType)>,
    pub(crate) if_seq_no: Option<u64>,
    pub(crate) if_primary_term: Option<u64>,
    /// Version that its writer has seen of the document, where rules hide documents from it.
    pub(crate) seen: Option<ObservedVersion>,
}

/// Version of a document that a writer has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObservedVersion {
    /// This state of it.
    State { seq_no: u64, primary_term: u64 },
    /// Nothing, of all operations below a sequence number: what they have left is hidden.
    Nothing { below: u64 },
}

/// Why an operation may not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConflictReason {
    /// The document is not as the operation expects it.
    Conflict(String),
    /// Rules hide the document from the writer.
    Hidden,
}

impl ObservedVersion {
    /// Checks that a live document is what was seen. Of one that is not there is nothing to hide.
    pub(crate) fn check(self, live: Option<Current>) -> Result<(), ConflictReason> {
        match (live, self) {
            (None, _) => Ok(()),
            (Some(found), Self::State { seq_no, primary_term })
                if found.seq_no == seq_no && found.primary_term == primary_term =>
            {
                Ok(())
            }
            (Some(found), Self::Nothing { below }) if found.seq_no < below => Err(ConflictReason::Hidden),
            // Versions of what may be hidden are not told.
            _ => Err(ConflictReason::Conflict(
                "another writer has changed the document at the same time".to_owned(),
            )),
        }
    }
}

/// The outcome: version and result, or why there is none.
pub(crate) fn decide(
    current: Option<Current>,
    wanted: &VersionCondition,
) -> Result<(u64, DocResult), ConflictReason> {
    if let Some(seen) = wanted.seen {
        seen.check(current.filter(|current| current.live))?;
    }
    decide_seen(current, wanted).map_err(ConflictReason::Conflict)
}

/// Decides about a document that the writer may see.
fn decide_seen(current: Option<Current>, wanted: &VersionCondition) -> Result<(u64, DocResult), String> {
    let live = current.filter(|c| c.live);
    if wanted.create
        && let Some(found) = live
        && wanted.version.is_none()
    {
        return Err(format!("document already exists (current version [{}])", found.version));
    }
    if let Some(seq_no) = wanted.if_seq_no {
        let term = wanted.if_primary_term.unwrap_or(0);
        let required = format!("required seqNo [{seq_no}], primary term [{term}]");
        match live {
            None => return Err(format!("{required}. but no document was found")),
            Some(found) if found.seq_no != seq_no || found.primary_term != term => {
                return Err(format!(
                    "{required}. current document has seqNo [{}] and primary term [{}]",
                    found.seq_no, found.primary_term
                ));
            }
            Some(_) => {}
        }
    }
    let version = match (wanted.version, current) {
        (Some((given, VersionType::External)), Some(found)) if found.version >= given => {
            return Err(format!(
                "current version [{}] is higher or equal to the one provided [{given}]",
                found.version
            ));
        }
        (Some((given, VersionType::ExternalGte)), Some(found)) if found.version > given => {
            return Err(format!(
                "current version [{}] is higher than the one provided [{given}]",
                found.version
            ));
        }
        (Some((given, VersionType::External | VersionType::ExternalGte)), _) => given,
        (Some((given, VersionType::Internal)), found) => {
            let found_version = found.filter(|c| c.live).map_or(0, |c| c.version);
            if found_version != given {
                let current = if found_version == 0 { "-1".to_owned() } else { found_version.to_string() };
                return Err(format!(
                    "current version [{current}] is different than the one provided [{given}]"
                ));
            }
            given + 1
        }
        (None, Some(found)) => found.version.saturating_add(1),
        (None, None) => 1,
    };
    let result = match (wanted.delete, live.is_some()) {
        (true, true) => DocResult::Deleted,
        (true, false) => DocResult::NotFound,
        (false, true) => DocResult::Updated,
        (false, false) => DocResult::Created,
    };
    Ok((version, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: VersionCondition = VersionCondition {
        delete: false,
        create: false,
        version: None,
        if_seq_no: None,
        if_primary_term: None,
        seen: None,
    };
    const LIVE: Current = Current { live: true, version: 3, seq_no: 7, primary_term: 2 };
    const GONE: Current = Current { live: false, ..LIVE };

    fn conflict(current: Current, wanted: &VersionCondition) -> String {
        match decide(Some(current), wanted) {
            Err(ConflictReason::Conflict(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_not_seen_is_not_changed_whatever_else_is_expected() {
        let seen = |seq_no| Some(ObservedVersion::State { seq_no, primary_term: 2 });
        let external = Some((10, VersionType::External));
        for version in [None, external] {
            let as_seen = VersionCondition { seen: seen(7), version, ..NOTHING };
            assert!(decide(Some(LIVE), &as_seen).is_ok());
            assert!(decide(Some(GONE), &as_seen).is_ok());
            assert!(
                conflict(LIVE, &VersionCondition { seen: seen(6), ..as_seen }).contains("another writer")
            );
            let unseen =
                |below| VersionCondition { seen: Some(ObservedVersion::Nothing { below }), ..as_seen };
            assert_eq!(decide(Some(LIVE), &unseen(8)), Err(ConflictReason::Hidden));
            assert!(conflict(LIVE, &unseen(7)).contains("another writer"));
            assert!(decide(Some(GONE), &unseen(8)).is_ok() && decide(None, &unseen(8)).is_ok());
        }
        // An expectation of the client's stands beside it.
        let expecting =
            VersionCondition { if_seq_no: Some(6), if_primary_term: Some(2), seen: seen(7), ..NOTHING };
        assert!(conflict(LIVE, &expecting).contains("current document has seqNo [7]"));
        let unseen = VersionCondition { seen: Some(ObservedVersion::Nothing { below: 9 }), ..expecting };
        assert_eq!(decide(Some(LIVE), &unseen), Err(ConflictReason::Hidden));
    }

    #[test]
    fn versions_follow_one_another_also_over_a_tombstone() {
        assert_eq!(decide(None, &NOTHING), Ok((1, DocResult::Created)));
        assert_eq!(decide(Some(LIVE), &NOTHING), Ok((4, DocResult::Updated)));
        assert_eq!(decide(Some(GONE), &NOTHING), Ok((4, DocResult::Created)));
        let delete = VersionCondition { delete: true, ..NOTHING };
        assert_eq!(decide(Some(LIVE), &delete), Ok((4, DocResult::Deleted)));
        assert_eq!(decide(None, &delete), Ok((1, DocResult::NotFound)));
    }

    #[test]
    fn create_refuses_a_live_document_only() {
        let create = VersionCondition { create: true, ..NOTHING };
        assert_eq!(decide(Some(GONE), &create), Ok((4, DocResult::Created)));
        assert!(conflict(LIVE, &create).contains("already exists (current version [3])"));
    }

    #[test]
    fn compare_and_set_names_both_sides() {
        let cas = |seq_no, term| VersionCondition {
            if_seq_no: Some(seq_no),
            if_primary_term: Some(term),
            ..NOTHING
        };
        assert_eq!(decide(Some(LIVE), &cas(7, 2)), Ok((4, DocResult::Updated)));
        assert!(conflict(LIVE, &cas(6, 2)).contains("current document has seqNo [7]"));
        assert!(decide(Some(LIVE), &cas(7, 1)).is_err());
        assert!(conflict(GONE, &cas(7, 2)).contains("but no document was found"));
    }

    #[test]
    fn external_versions_are_kept_and_compared() {
        let external = |v, t| VersionCondition { version: Some((v, t)), ..NOTHING };
        assert_eq!(decide(Some(LIVE), &external(10, VersionType::External)), Ok((10, DocResult::Updated)));
        assert!(decide(Some(LIVE), &external(3, VersionType::External)).is_err());
        assert_eq!(decide(Some(LIVE), &external(3, VersionType::ExternalGte)), Ok((3, DocResult::Updated)));
        assert!(decide(Some(GONE), &external(2, VersionType::ExternalGte)).is_err());
        assert_eq!(decide(None, &external(0, VersionType::External)), Ok((0, DocResult::Created)));
    }
}
