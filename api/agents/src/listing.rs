//! Lists of agents: paging, statuses, search and order, by the parameters of Wazuh's API.

use std::cmp::Ordering;

use millrace_gateway::http::Params;
use serde_json::{Value, json};

use crate::agent::{Agent, AgentStatus};
use crate::answer;
use crate::error::AgentError;
use crate::registry::AgentRegistry;

/// Agents of a page where the request names no number.
const DEFAULT_LIMIT: usize = 500;
/// Most agents of a page.
const MAX_LIMIT: usize = 10_000;
/// Longest text that is searched for, in bytes.
const MAX_SEARCH_BYTES: usize = 255;
/// Most fields that an order names.
const MAX_SORT_FIELDS: usize = 8;
/// Most ids and statuses that a request selects.
const MAX_IDS: usize = 1_000;

/// A request for a page of agents.
#[derive(Debug)]
pub(crate) struct AgentQuery {
    offset: usize,
    limit: usize,
    /// Any where empty.
    statuses: Vec<AgentStatus>,
    /// Any where empty.
    ids: Vec<String>,
    search: Option<TextSearch>,
    order: Vec<(SortField, bool)>,
}

/// A text that fields of an agent contain, in lower case.
#[derive(Debug)]
struct TextSearch {
    text: String,
    /// `true` if agents with the text are left out.
    is_negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortField {
    Id,
    Host,
    Name,
    Ip,
    Version,
    Status,
    Registered,
    LastKeepalive,
}

impl SortField {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "id" | "agent_id" => Self::Id,
            "host" => Self::Host,
            "name" => Self::Name,
            "ip" => Self::Ip,
            "version" => Self::Version,
            "status" => Self::Status,
            "dateAdd" | "registered" => Self::Registered,
            "lastKeepAlive" | "last_keepalive" => Self::LastKeepalive,
            _ => return None,
        })
    }

    fn compare(self, (one, one_status): &Row, (other, other_status): &Row) -> Ordering {
        match self {
            Self::Id => one.agent_id.cmp(&other.agent_id),
            Self::Host => one.facts.host.cmp(&other.facts.host),
            Self::Name => one.facts.name.cmp(&other.facts.name),
            Self::Ip => one.facts.ip.cmp(&other.facts.ip),
            Self::Version => one.facts.version.cmp(&other.facts.version),
            Self::Status => one_status.name().cmp(other_status.name()),
            Self::Registered => one.registered.cmp(&other.registered),
            Self::LastKeepalive => one.last_keepalive.cmp(&other.last_keepalive),
        }
    }
}

type Row = (Agent, AgentStatus);

impl AgentQuery {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    /// [`AgentError::Invalid`] that names the parameter.
    pub(crate) fn parse(query: &str) -> Result<Self, AgentError> {
        let mut params = Params::parse(query)?;
        params.take_bool("pretty")?;
        let offset = count(&mut params, "offset", 0, usize::MAX)?;
        let limit = count(&mut params, "limit", DEFAULT_LIMIT, MAX_LIMIT)?;
        let statuses = list(&mut params, "status", MAX_IDS)?.into_iter().map(|name| {
            AgentStatus::parse(&name).ok_or_else(|| {
                let names = AgentStatus::ALL.map(AgentStatus::name).join(", ");
                AgentError::Invalid(format!("status [{}] is none of {names}", shorten(&name)))
            })
        });
        let statuses = statuses.collect::<Result<Vec<_>, _>>()?;
        let mut ids = list(&mut params, "agents_list", MAX_IDS)?;
        ids.sort_unstable();
        ids.dedup();
        let search = params.take("search").map(TextSearch::parse).transpose()?;
        let order = list(&mut params, "sort", MAX_SORT_FIELDS)?.into_iter().map(|field| {
            let is_descending = field.starts_with('-');
            // A plus of a query that is not escaped stands for a space.
            let name = field.trim_start_matches(['-', '+', ' ']);
            let field = SortField::parse(name).ok_or_else(|| {
                AgentError::Invalid(format!(
                    "sort [{}] is none of id, host, name, ip, version, status, dateAdd, lastKeepAlive",
                    shorten(name)
                ))
            })?;
            Ok((field, is_descending))
        });
        let order = order.collect::<Result<Vec<_>, AgentError>>()?;
        params.refuse_rest("/agents")?;
        Ok(Self { offset, limit, statuses, ids, search, order })
    }

    /// Answers the page.
    pub(crate) fn answer(&self, registry: &AgentRegistry) -> Value {
        let now_ms = registry.now_ms();
        let matching = registry.filter(|agent| self.matches(agent, registry.status(agent, now_ms)));
        let with_status = |agent: Agent| {
            let status = registry.status(&agent, now_ms);
            (agent, status)
        };
        let mut rows: Vec<Row> = matching.into_iter().map(with_status).collect();
        if !self.order.is_empty() {
            rows.sort_by(|one, other| self.compare(one, other));
        }
        let total = rows.len();
        let page = rows.iter().skip(self.offset).take(self.limit);
        let items: Vec<Value> = page.map(|(agent, status)| answer::item(agent, *status)).collect();
        let failed: Vec<Value> = self
            .ids
            .iter()
            .filter(|id| registry.get(id).is_none())
            .map(|id| json!({ "error": { "code": 1701, "message": "Agent does not exist" }, "id": [id] }))
            .collect();
        let message = match (failed.is_empty(), total) {
            (true, _) => "All selected agents information was returned",
            (false, 0) => "No agent information was returned",
            (false, _) => "Some agents information was not returned",
        };
        let error = match (failed.is_empty(), total) {
            (true, _) => 0,
            (false, 0) => 1,
            (false, _) => 2,
        };
        let mut answer = answer::envelope(
            message,
            json!({
                "affected_items": items,
                "total_affected_items": total,
                "total_failed_items": failed.len(),
                "failed_items": failed,
            }),
        );
        answer["error"] = json!(error);
        answer
    }

    fn matches(&self, agent: &Agent, status: AgentStatus) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && (self.ids.is_empty() || self.ids.binary_search(&agent.agent_id).is_ok())
            && self.search.as_ref().is_none_or(|search| search.matches(agent))
    }

    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let mut fields = self.order.iter().map(|(field, is_descending)| {
            let ordering = field.compare(one, other);
            if *is_descending { ordering.reverse() } else { ordering }
        });
        fields.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl TextSearch {
    fn parse(text: String) -> Result<Self, AgentError> {
        if text.len() > MAX_SEARCH_BYTES {
            return Err(AgentError::Invalid(format!("search has more than {MAX_SEARCH_BYTES} bytes")));
        }
        let is_negated = text.starts_with('-');
        Ok(Self { text: text.strip_prefix('-').unwrap_or(&text).to_lowercase(), is_negated })
    }

    fn matches(&self, agent: &Agent) -> bool {
        let facts = &agent.facts;
        let optional = [&facts.ip, &facts.os, &facts.version].into_iter().flatten();
        let mut fields = [&agent.agent_id, &facts.host, &facts.name].into_iter().chain(optional);
        fields.any(|field| field.to_lowercase().contains(&self.text)) != self.is_negated
    }
}

fn count(params: &mut Params, name: &str, default: usize, most: usize) -> Result<usize, AgentError> {
    let Some(value) = params.take_int(name)? else { return Ok(default) };
    match usize::try_from(value) {
        Ok(count) if count <= most => Ok(count),
        _ if most == usize::MAX => Err(AgentError::Invalid(format!("{name} [{value}] is negative"))),
        _ => Err(AgentError::Invalid(format!("{name} [{value}] is not between 0 and {most}"))),
    }
}

fn list(params: &mut Params, name: &str, most: usize) -> Result<Vec<String>, AgentError> {
    let elements = params.take_list(name).unwrap_or_default();
    match elements.len() <= most {
        true => Ok(elements),
        false => Err(AgentError::Invalid(format!("{name} has more than {most} elements"))),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}
