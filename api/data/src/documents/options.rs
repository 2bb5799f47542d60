//! Parameters that document requests share, and the rules between them.

use std::time::Duration;

use millrace_engine::{RefreshPolicy, VersionType};

use crate::error::Error;
use crate::http::Params;

/// Time that writes wait for room by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Options that single writes and bulks share.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) refresh: RefreshPolicy,
    pub(crate) timeout: Duration,
    pub(crate) require_alias: bool,
    pub(crate) require_data_stream: bool,
    pub(crate) routing: Option<String>,
    /// An ingest pipeline, or `_none`.
    pub(crate) pipeline: Option<String>,
}

impl WriteOptions {
    /// Takes them; `require_alias`, `require_data_stream` and `pipeline` where the request knows them.
    pub(crate) fn take(params: &mut Params, aliases: bool, pipelines: bool) -> Result<Self, Error> {
        let refresh = match params.take("refresh").as_deref() {
            None | Some("false") => RefreshPolicy::None,
            Some("" | "true") => RefreshPolicy::Immediate,
            Some("wait_for") => RefreshPolicy::WaitFor,
            Some(other) => {
                return Err(Error::illegal_argument(format!("Unknown value for refresh: [{other}].")));
            }
        };
        if let Some(count) = params.take("wait_for_active_shards")
            && count != "all"
            && count.parse::<u32>().is_err()
        {
            return Err(Error::illegal_argument(format!("cannot parse ActiveShardCount[{count}]")));
        }
        let pipeline = if pipelines { params.take("pipeline") } else { None };
        Ok(Self {
            refresh,
            timeout: params.take_time("timeout")?.unwrap_or(TIMEOUT),
            require_alias: aliases && params.take_bool("require_alias")?.unwrap_or(false),
            require_data_stream: aliases && params.take_bool("require_data_stream")?.unwrap_or(false),
            routing: params.take("routing"),
            pipeline,
        })
    }
}

/// Optimistic concurrency control of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub(crate) version: Option<i64>,
    pub(crate) version_type: Option<VersionType>,
    pub(crate) if_seq_no: Option<i64>,
    pub(crate) if_primary_term: Option<i64>,
}

/// Operations that [`Expectation::check`] knows the rules of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Index,
    Create,
    Delete,
}

impl Expectation {
    /// Takes `version`, `version_type`, `if_seq_no` and `if_primary_term`.
    pub(crate) fn take(params: &mut Params) -> Result<Self, Error> {
        Ok(Self {
            version: params.take_int("version")?,
            version_type: params.take("version_type").map(|text| version_type(&text)).transpose()?,
            if_seq_no: params.take_int("if_seq_no")?,
            if_primary_term: params.take_int("if_primary_term")?,
        })
    }

    /// Adds what breaks the rules to `problems`.
    pub(crate) fn check(&self, operation: Operation, has_id: bool, problems: &mut Vec<String>) {
        let external = self.version_type.is_some_and(|kind| kind != VersionType::Internal);
        let conditional = self.if_seq_no.is_some() || self.if_primary_term.is_some();
        if operation == Operation::Create {
            if external {
                problems
                    .push("create operations only support internal versioning. use index instead".to_owned());
                return;
            }
            if self.version.is_some() {
                problems
                    .push("create operations do not support explicit versions. use index instead".to_owned());
                return;
            }
            if conditional {
                problems
                    .push("create operations do not support compare and set. use index instead".to_owned());
                return;
            }
        }
        if !has_id && (external || self.version.is_some()) {
            problems.push("an id must be provided if version type or value are set".to_owned());
        }
        match (self.version, external) {
            (Some(version), true) if version < 0 => {
                problems.push(format!("illegal version value [{version}] for version type [EXTERNAL]"));
            }
            (None, true) => problems.push("illegal version value [-3] for version type [EXTERNAL]".to_owned()),
            (Some(_), false) => problems.push(
                "internal versioning can not be used for optimistic concurrency control. Please use `if_seq_no` \
                 and `if_primary_term` instead"
                    .to_owned(),
            ),
            _ => {}
        }
        if conditional && external {
            problems.push("compare and write operations can not use versioning".to_owned());
        }
        self.check_condition(problems);
    }

    /// Adds what breaks the rules of `if_seq_no` and `if_primary_term`.
    pub(crate) fn check_condition(&self, problems: &mut Vec<String>) {
        match (self.if_seq_no, self.if_primary_term) {
            (Some(_), None) => problems.push("ifSeqNo is set, but primary term is [0]".to_owned()),
            (None, Some(term)) => {
                problems.push(format!("ifSeqNo is unassigned, but primary term is [{term}]"))
            }
            (Some(seq_no), _) if seq_no < 0 => {
                problems.push(format!("sequence numbers must be non negative. got [{seq_no}]."));
            }
            (_, Some(term)) if term < 1 => {
                problems.push(format!("primary term must be positive. got [{term}]"));
            }
            _ => {}
        }
    }

    /// Returns the version to compare with, as the engine takes it; call after [`Self::check`].
    pub(crate) fn external(&self) -> Option<(u64, VersionType)> {
        let kind = self.version_type.filter(|kind| *kind != VersionType::Internal)?;
        Some((u64::try_from(self.version?).ok()?, kind))
    }

    pub(crate) fn seq_no(&self) -> Option<u64> {
        self.if_seq_no.and_then(|n| u64::try_from(n).ok())
    }

    pub(crate) fn primary_term(&self) -> Option<u64> {
        self.if_primary_term.and_then(|n| u64::try_from(n).ok())
    }
}

/// Parses a version type.
pub(crate) fn version_type(text: &str) -> Result<VersionType, Error> {
    VersionType::parse(text).ok_or_else(|| Error::illegal_argument(format!("No version type match [{text}]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(query: &str, operation: Operation) -> Vec<String> {
        let mut problems = Vec::new();
        Expectation::take(&mut Params::parse(query).unwrap()).unwrap().check(operation, true, &mut problems);
        problems
    }

    #[test]
    fn creates_take_no_versions() {
        assert_eq!(
            problems("version=0&version_type=external", Operation::Create),
            ["create operations only support internal versioning. use index instead"]
        );
        assert!(problems("", Operation::Create).is_empty());
        assert_eq!(problems("if_seq_no=1&if_primary_term=1", Operation::Create).len(), 1);
    }

    #[test]
    fn versions_and_conditions() {
        assert!(problems("version=0&version_type=external_gte", Operation::Index).is_empty());
        assert!(problems("if_seq_no=0&if_primary_term=1", Operation::Delete).is_empty());
        assert_eq!(problems("version=1", Operation::Delete).len(), 1);
        assert_eq!(problems("version=-1&version_type=external", Operation::Index).len(), 1);
        assert_eq!(problems("if_seq_no=0", Operation::Index), ["ifSeqNo is set, but primary term is [0]"]);
        assert!(Expectation::take(&mut Params::parse("version_type=x").unwrap()).is_err());
    }

    #[test]
    fn refresh_policies() {
        let take = |query: &str| WriteOptions::take(&mut Params::parse(query).unwrap(), true, true);
        assert_eq!(take("refresh=").unwrap().refresh, RefreshPolicy::Immediate);
        assert_eq!(take("refresh=wait_for").unwrap().refresh, RefreshPolicy::WaitFor);
        assert_eq!(take("refresh=false&pipeline=_none").unwrap().pipeline.as_deref(), Some("_none"));
        assert!(take("refresh=soon").is_err());
        assert!(take("wait_for_active_shards=some").is_err());
    }
}
