//! The methods, and which options each has.

use serde_json::{Map, Value, json};

use super::list;
use super::template::{Template, TemplateOption};
use crate::definition::kept::{NOT_STORED, is_secret};
use crate::definition::options::{MAX_NAME, MAX_PATH, MAX_TEXT, Options, kind, short, text};
use crate::error::{Error, Result};

/// Addresses, names, words of a command, headers.
const MAX_LIST: usize = 100;
/// Bytes of an address, a URL, or a word of a command.
const MAX_WORD: usize = 4 << 10;
/// Bytes of all options of a channel.
const MAX_BYTES: usize = 128 << 10;

/// Method by which alerts are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// By mail to addresses.
    Email,
    /// By mail to the addresses of accounts.
    User,
    /// To a URL.
    Webhook,
    /// To a program's input.
    Command,
    /// To a URL, as a template says.
    Template(&'static Template),
}

/// Kind of an option.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    /// A text; a secret may stand for it.
    TextOrSecret,
    /// A secret, and nothing else.
    Secret,
    Texts,
    Word(&'static [&'static str]),
    Integer(u64, u64),
    Flag,
    /// Names of headers with their values, or secrets in their place.
    Headers,
    /// Names with fields.
    Fields,
    /// An object with any members.
    Object,
}

/// The name of a stored secret, with what stands before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// Text before it, such as `Bearer `.
    pub prefix: String,
}

impl Secret {
    /// Reads what stands for a secret; `None` where a value is something else.
    pub fn read(value: &Value) -> Option<Self> {
        let members = value.as_object()?;
        let known = members.keys().all(|name| matches!(name.as_str(), "secret" | "prefix"));
        let name = members.get("secret")?.as_str()?.to_owned();
        let prefix = match members.get("prefix") {
            None => String::new(),
            Some(prefix) => prefix.as_str()?.to_owned(),
        };
        let fits = known && Self::is_name(&name) && prefix.len() <= MAX_NAME;
        fits.then_some(Self { name, prefix })
    }

    /// Returns whether a secret may have this name.
    pub fn is_name(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=128).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.')
    }
}

const EMAIL: &[(&str, Kind)] = &[
    ("email", Kind::Texts),
    ("cc", Kind::Texts),
    ("bcc", Kind::Texts),
    ("from_addr", Kind::Text),
    ("email_reply_to", Kind::Text),
    ("email_format", Kind::Word(&["html", "text"])),
    ("email_from_field", Kind::Text),
    ("email_add_domain", Kind::Text),
];
const USER: &[(&str, Kind)] = &[("users", Kind::Texts)];
const COMMAND: &[(&str, Kind)] = &[
    ("command", Kind::Texts),
    ("pipe_match_json", Kind::Flag),
    ("pipe_alert_text", Kind::Flag),
    ("fail_on_non_zero_exit", Kind::Flag),
];
const WEBHOOK: &[(&str, Kind)] = &[
    ("http_post_url", Kind::TextOrSecret),
    ("http_post_headers", Kind::Headers),
    ("http_post_payload", Kind::Fields),
    ("http_post_static_payload", Kind::Object),
    ("http_post_all_values", Kind::Flag),
    ("http_post_timeout", Kind::Integer(1, 60)),
    ("webhook_method", Kind::Word(&["POST", "PUT"])),
    ("webhook_body", Kind::Text),
    ("webhook_hmac", Kind::Secret),
];
/// Other names of the options of a webhook.
const ALIASES: [(&str, &str); 4] = [
    ("url", "http_post_url"),
    ("webhook_url", "http_post_url"),
    ("headers", "http_post_headers"),
    ("body", "webhook_body"),
];
/// Those that stand at the top of a rule, too.
const TOP_ALIASES: [&str; 1] = ["webhook_url"];

/// Methods of ElastAlert's that are not there.
const MISSING: [&str; 31] = [
    "alerta",
    "chatwork",
    "datadog",
    "dingtalk",
    "exotel",
    "flashduty",
    "gelf",
    "gitter",
    "hipchat",
    "hivealerter",
    "indexer",
    "iris",
    "jira",
    "lark",
    "linenotify",
    "matrixhookshot",
    "pagertree",
    "post2",
    "servicenow",
    "ses",
    "sns",
    "smseagle",
    "stomp",
    "tencent_sms",
    "thehive",
    "twilio",
    "webexwebhook",
    "workwechat",
    "yzj",
    "zabbix",
    "http_post2",
];

/// Returns whether ElastAlert has a method of the name.
pub(super) fn is_known(name: &str) -> bool {
    MISSING.contains(&name)
}

impl Method {
    /// Finds a method by its name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "email" => Self::Email,
            "user" => Self::User,
            "webhook" | "post" | "http_post" => Self::Webhook,
            "command" => Self::Command,
            _ => Self::Template(Template::named(name)?),
        })
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::User => "user",
            Self::Webhook => "webhook",
            Self::Command => "command",
            Self::Template(template) => &template.name,
        }
    }

    /// Lists the methods.
    pub fn names() -> Vec<&'static str> {
        let own = ["none", "index", "email", "user", "webhook", "command"];
        own.into_iter().chain(Template::all().iter().map(|template| template.name.as_str())).collect()
    }

    fn table(self) -> &'static [(&'static str, Kind)] {
        match self {
            Self::Email => EMAIL,
            Self::User => USER,
            Self::Webhook => WEBHOOK,
            Self::Command => COMMAND,
            Self::Template(_) => &[],
        }
    }

    /// Returns the names of its options at the top of a rule.
    pub(super) fn option_names(self) -> Vec<&'static str> {
        let own = self.table().iter().map(|(name, _)| *name).filter(|name| *name != "email");
        match self {
            Self::Template(template) => {
                let own = |option: &'static TemplateOption| {
                    std::iter::once(&option.name).chain(&option.aliases).map(String::as_str)
                };
                template.options.iter().flat_map(own).collect()
            }
            Self::Webhook => own.chain(TOP_ALIASES).collect(),
            _ => own.collect(),
        }
    }

    /// Gives options that have several names the one under which they are kept.
    pub(super) fn canonical(self, mut given: Map<String, Value>) -> Result<Map<String, Value>> {
        let aliases: Vec<(&str, &str)> = match self {
            Self::Webhook => ALIASES.to_vec(),
            Self::Template(template) => template.aliases_of_options().collect(),
            Self::Email | Self::User | Self::Command => Vec::new(),
        };
        for (alias, name) in aliases {
            if let Some(value) = given.shift_remove(alias)
                && given.insert(name.to_owned(), value).is_some()
            {
                return Err(Error::invalid(name, format!("is there twice, also as [{alias}]")));
            }
        }
        Ok(given)
    }

    /// Makes options of each channel of such in which addresses, channels and the like are lists: one for each combination of their
    /// entries, at most so many.
    pub(super) fn of_lists(self, given: Map<String, Value>, most: usize) -> Result<Vec<Map<String, Value>>> {
        let is_single = |name: &str| match self {
            Self::Webhook => name == "http_post_url",
            Self::Template(_) => true,
            Self::Email | Self::User | Self::Command => false,
        };
        let mut all = vec![given.clone()];
        for (name, value) in given {
            let Value::Array(list) = value else { continue };
            if !is_single(&name) {
                continue;
            }
            if list.is_empty() {
                all.iter_mut().for_each(|one| drop(one.shift_remove(&name)));
                continue;
            }
            let size = all.len().saturating_mul(list.len());
            if size > most {
                return Err(Error::TooLarge { field: short(&name), size, unit: "channels", bound: most });
            }
            let with = |entry: &Value, one: &Map<String, Value>| {
                let mut one = one.clone();
                one.insert(name.clone(), entry.clone());
                one
            };
            all = list.iter().flat_map(|entry| all.iter().map(move |one| with(entry, one))).collect();
        }
        Ok(all)
    }

    /// Reads its options, and refuses unknown ones.
    pub(super) fn read(self, given: Map<String, Value>) -> Result<Map<String, Value>> {
        let size = Value::Object(given.clone()).to_string().len();
        if size > MAX_BYTES {
            let field = self.name().to_owned();
            return Err(Error::TooLarge { field, size, unit: "bytes", bound: MAX_BYTES });
        }
        let mut given = Options(given);
        let mut read = Map::new();
        if let Self::Template(template) = self {
            for option in &template.options {
                let kind = if option.secret { Kind::Secret } else { Kind::TextOrSecret };
                match given.take(&option.name) {
                    Some(value) => drop(read.insert(option.name.clone(), one(&option.name, value, kind)?)),
                    None if option.required => return Err(missing(self, &option.name)),
                    None => {}
                }
            }
        } else {
            if self == Self::Command
                && matches!(given.0.get("command"), Some(Value::String(text)) if text.contains(' '))
            {
                let reason = "is a text of several words: write a list, a word each; no shell takes it apart";
                return Err(Error::invalid("command", reason));
            }
            for (name, kind) in self.table() {
                if let Some(value) = given.take(name) {
                    read.insert((*name).to_owned(), one(name, value, *kind)?);
                }
            }
            self.check(&read)?;
        }
        match given.0.keys().next() {
            Some(name) => {
                let known = self.option_names().join(", ");
                Err(Error::invalid(
                    short(name),
                    format!("is no option of [{}]; there are {known}", self.name()),
                ))
            }
            None => Ok(read),
        }
    }

    /// Checks what options mean together.
    fn check(self, options: &Map<String, Value>) -> Result<()> {
        let has = |name: &str| options.contains_key(name);
        match self {
            Self::Email if !has("email") && !has("email_from_field") => Err(missing(self, "email")),
            Self::User if !has("users") => Err(missing(self, "users")),
            Self::Command if !has("command") => Err(missing(self, "command")),
            Self::Webhook if !has("http_post_url") => Err(missing(self, "http_post_url")),
            Self::Webhook
                if has("webhook_body") && (has("http_post_payload") || has("http_post_static_payload")) =>
            {
                Err(Error::invalid("webhook_body", "stands beside a payload: give one of them"))
            }
            Self::Email => addresses(options),
            _ => Ok(()),
        }
    }
}

fn missing(method: Method, option: &str) -> Error {
    Error::invalid(option, format!("is missing: method [{}] needs it", method.name()))
}

/// Refuses what can be no address of mail: a line break would begin a header.
fn addresses(options: &Map<String, Value>) -> Result<()> {
    let domain = options.contains_key("email_add_domain");
    for name in ["email", "cc", "bcc", "from_addr", "email_reply_to"] {
        let list = match options.get(name) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(one)) => vec![one.as_str()],
            _ => Vec::new(),
        };
        for address in list {
            let whole = address.contains('@') || (domain && name == "email");
            if !whole || address.chars().any(char::is_control) {
                return Err(Error::invalid(name, format!("[{}] is no address of mail", short(address))));
            }
        }
    }
    Ok(())
}

/// Reads an option.
fn one(name: &str, value: Value, of: Kind) -> Result<Value> {
    let mut options = Options::default();
    match of {
        Kind::Text => text(name, value, MAX_TEXT).map(Value::from),
        Kind::TextOrSecret | Kind::Secret => text_or_secret(name, value, matches!(of, Kind::Secret)),
        Kind::Texts => list(name, value, MAX_LIST, MAX_WORD),
        Kind::Word(words) => {
            let written = text(name, value, MAX_NAME)?;
            match words.iter().find(|word| word.eq_ignore_ascii_case(&written)) {
                Some(word) => Ok(json!(word)),
                None => Err(Error::invalid(
                    name,
                    format!("[{}] is none of {}", short(&written), words.join(", ")),
                )),
            }
        }
        Kind::Integer(least, most) => {
            options.0.insert(name.to_owned(), value);
            options.integer(name, least, most).map(|number| json!(number))
        }
        Kind::Flag => {
            options.0.insert(name.to_owned(), value);
            options.flag(name).map(|flag| json!(flag))
        }
        Kind::Headers => members(name, value, header),
        Kind::Fields => members(name, value, |_, field| text(name, field, MAX_PATH).map(Value::from)),
        Kind::Object => match value {
            Value::Object(_) => Ok(value),
            other => Err(Error::invalid(name, format!("is {}, an object is expected", kind(&other)))),
        },
    }
}

fn members(name: &str, value: Value, read: impl Fn(&str, Value) -> Result<Value>) -> Result<Value> {
    let Value::Object(members) = value else {
        return Err(Error::invalid(name, format!("is {}, an object is expected", kind(&value))));
    };
    if members.len() > MAX_LIST {
        let (field, size) = (name.to_owned(), members.len());
        return Err(Error::TooLarge { field, size, unit: "entries", bound: MAX_LIST });
    }
    let read = |(name, value): (String, Value)| Ok((name.clone(), read(&name, value)?));
    members.into_iter().map(read).collect::<Result<Map<_, _>>>().map(Value::Object)
}

/// Reads the value of a header.
fn header(name: &str, value: Value) -> Result<Value> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(token) {
        return Err(Error::invalid("http_post_headers", format!("[{}] is no name of a header", short(name))));
    }
    let lower = name.to_ascii_lowercase();
    if matches!(
        lower.as_str(),
        "host" | "content-length" | "transfer-encoding" | "connection" | "idempotency-key"
    ) {
        return Err(Error::invalid("http_post_headers", format!("[{name}] is the server's own")));
    }
    let secret = lower == "cookie" || lower.contains("key") || is_secret(&lower);
    text_or_secret(name, value, secret)
}

fn text_or_secret(name: &str, value: Value, must: bool) -> Result<Value> {
    match &value {
        Value::Object(_) if Secret::read(&value).is_some() => return Ok(value),
        Value::Object(_) => {
            let reason =
                "is an object: {\"secret\": \"name\"} is expected, the name of letters, digits, -, _ and .";
            return Err(Error::invalid(name, reason));
        }
        _ => {}
    }
    let written = text(name, value, MAX_TEXT)?;
    if written == NOT_STORED {
        let reason = "was not stored: rules keep no secrets; store it with PUT /api/alert/secret/<name>, and write {\"secret\": \"<name>\"} here";
        return Err(Error::invalid(name, reason));
    }
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if written.chars().any(control) {
        return Err(Error::invalid(name, "has control characters in it"));
    }
    if must {
        let reason = "is a secret, and rules keep none: store it with PUT /api/alert/secret/<name>, and write {\"secret\": \"<name>\"} here";
        return Err(Error::invalid(name, reason));
    }
    Ok(Value::from(written))
}

/// Names of options that are secrets, of the methods of a rule as ElastAlert writes it.
pub(in crate::definition) fn secret_options(method: &str) -> Vec<&'static str> {
    match Method::named(method) {
        Some(Method::Template(template)) => template
            .options
            .iter()
            .filter(|option| option.secret)
            .flat_map(|option| std::iter::once(&option.name).chain(&option.aliases))
            .map(String::as_str)
            .collect(),
        _ => Vec::new(),
    }
}
