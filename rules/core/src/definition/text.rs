//! Text of an alert: `alert_subject` and `alert_text`, with `{0}` for the values of their arguments.
//!
//! Of Python's formats `{}`, `{0}`, `{name}`, each with a specification such as `:.2f`, and doubled braces are there; conversions
//! are refused when the rule is saved. Without arguments a text is taken as it is, as ElastAlert does it. An argument is a field
//! of the event, else an option of the rule.
//!
//! With `alert_text_type: alert_text_jinja` the text, and a subject without arguments, are templates ([`template`]): fields of the
//! event and options of the rule are their values, and the event as a whole is `_data`.

use serde_json::Value;

use super::format_spec::FormatSpec;
use super::options::{MAX_NAME, MAX_PATH, MAX_TEXT, Options, short};
use crate::error::{Error, Result};
use crate::fields;
use crate::template;

/// Arguments of a text.
const MAX_ARGUMENTS: usize = 100;
/// Words of a template that are looked up among the rule's options.
const MAX_TEMPLATE_WORDS: usize = 10_000;
/// Name of the event in a template.
const TEMPLATE_ROOT: &str = "_data";
/// Bytes of a subject unless `alert_subject_max_len` says otherwise.
const SUBJECT_BYTES: u64 = 2048;

/// Texts of a rule's alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    /// `alert_subject`; the rule's name without it.
    pub subject: Option<String>,
    /// Fields whose values the subject's formats mean.
    pub subject_args: Vec<String>,
    /// Bytes of the subject.
    pub subject_max_len: Option<usize>,
    /// `alert_text`.
    pub text: Option<String>,
    /// Fields whose values its formats mean.
    pub text_args: Vec<String>,
    /// Fields with the names by which its formats mean their values.
    pub text_kw: Vec<(String, String)>,
    /// `alert_text_type`: the text behind the text.
    pub text_type: Option<TextType>,
    /// `alert_missing_value`: the text for a value that is missing.
    pub missing: Option<String>,
}

/// Components of an alert's text; without it: the text, the type's text, and the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextType {
    /// `alert_text` only.
    TextOnly,
    /// Without the fields.
    ExcludeFields,
    /// `alert_text` only, a template.
    Jinja,
}

impl TextType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TextOnly => "alert_text_only",
            Self::ExcludeFields => "exclude_fields",
            Self::Jinja => "alert_text_jinja",
        }
    }
}

/// A piece of a format.
enum FormatItem<'a> {
    Literal(&'a str),
    Argument(usize, Option<FormatSpec>),
    Named(&'a str, Option<FormatSpec>),
}

impl Text {
    pub(super) fn take(options: &mut Options) -> Result<Self> {
        let text_type = match options.text("alert_text_type", MAX_NAME)?.as_deref() {
            None => None,
            Some("alert_text_only") => Some(TextType::TextOnly),
            Some("exclude_fields") => Some(TextType::ExcludeFields),
            Some("alert_text_jinja") => Some(TextType::Jinja),
            Some(other) => {
                let reason = format!(
                    "[{}] is not there; there are alert_text_only, exclude_fields and alert_text_jinja",
                    short(other)
                );
                return Err(Error::invalid("alert_text_type", reason));
            }
        };
        let text_kw = match options.take("alert_text_kw") {
            None => Vec::new(),
            Some(Value::Object(members)) if members.len() <= MAX_ARGUMENTS => {
                let name = |value: Value| super::options::text("alert_text_kw", value, MAX_NAME);
                members.into_iter().map(|(field, value)| Ok((field, name(value)?))).collect::<Result<_>>()?
            }
            Some(_) => {
                let reason = format!("an object of fields and names is expected, at most {MAX_ARGUMENTS}");
                return Err(Error::invalid("alert_text_kw", reason));
            }
        };
        let text = Self {
            subject: options.text("alert_subject", MAX_TEXT)?,
            subject_args: options.texts("alert_subject_args", MAX_ARGUMENTS, MAX_PATH)?.unwrap_or_default(),
            subject_max_len: options
                .integer("alert_subject_max_len", 1, MAX_TEXT as u64)?
                .map(|bytes| bytes as usize),
            text: options.text("alert_text", MAX_TEXT)?,
            text_args: options.texts("alert_text_args", MAX_ARGUMENTS, MAX_PATH)?.unwrap_or_default(),
            text_kw,
            text_type,
            missing: options.text("alert_missing_value", MAX_NAME)?,
        };
        text.check()?;
        Ok(text)
    }

    fn check(&self) -> Result<()> {
        let names: Vec<&str> = self.text_kw.iter().map(|(_, name)| name.as_str()).collect();
        let kw: &[&str] = if self.text_args.is_empty() { &names } else { &[] };
        for (name, text, args, kw) in [
            ("alert_subject", &self.subject, &self.subject_args, &[][..]),
            ("alert_text", &self.text, &self.text_args, kw),
        ] {
            let Some(text) = text else { continue };
            if self.is_template(name == "alert_subject") {
                template::check(text).map_err(|reason| Error::invalid(name, reason))?;
                continue;
            }
            if args.is_empty() && kw.is_empty() {
                continue;
            }
            for piece in pieces(text).map_err(|reason| Error::invalid(name, reason))? {
                match piece {
                    FormatItem::Argument(at, _) if at >= args.len() => {
                        let reason = format!("{{{at}}} has no argument: [{name}_args] has {}", args.len());
                        return Err(Error::invalid(name, reason));
                    }
                    FormatItem::Named(named, _) if !kw.contains(&named) => {
                        let reason = format!("{{{}}} is no name of [alert_text_kw]", short(named));
                        return Err(Error::invalid(name, reason));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns true if the subject, or else the text, is a template.
    fn is_template(&self, subject: bool) -> bool {
        self.text_type == Some(TextType::Jinja) && (!subject || self.subject_args.is_empty())
    }

    /// Writes the subject of an alert that shows `body`; `option` tells options of the rule.
    pub(crate) fn subject(
        &self,
        name: &str,
        body: &Value,
        option: &dyn Fn(&str) -> Option<String>,
    ) -> String {
        let subject = match &self.subject {
            None => name.to_owned(),
            Some(subject) if self.is_template(true) => rendered(subject, name, body, option),
            Some(subject) => self.fill(subject, &self.subject_args, &[], body, option),
        };
        fields::cut(&subject, self.subject_max_len.unwrap_or(SUBJECT_BYTES as usize)).to_owned()
    }

    /// Writes the text; `said` is what the type says.
    pub(crate) fn text(
        &self,
        name: &str,
        said: &str,
        body: &Value,
        option: &dyn Fn(&str) -> Option<String>,
    ) -> String {
        let mut text = match &self.text {
            None => name.to_owned(),
            Some(text) if self.is_template(false) => rendered(text, name, body, option),
            Some(text) => self.fill(text, &self.text_args, &self.text_kw, body, option),
        };
        if matches!(self.text_type, Some(TextType::TextOnly | TextType::Jinja)) {
            return fields::cut(&text, MAX_TEXT).to_owned();
        }
        if !said.is_empty() {
            text.push_str("\n\n");
            text.push_str(said);
        }
        if self.text_type.is_none()
            && let Value::Object(members) = body
        {
            text.push_str("\n\n");
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.as_str());
            for (name, value) in members {
                if text.len() > MAX_TEXT {
                    break;
                }
                text.push_str(&format!("{name}: {}\n", fields::text(value)));
            }
        }
        fields::cut(&text, MAX_TEXT).to_owned()
    }

    fn fill(
        &self,
        format: &str,
        args: &[String],
        kw: &[(String, String)],
        body: &Value,
        option: &dyn Fn(&str) -> Option<String>,
    ) -> String {
        if args.is_empty() && kw.is_empty() {
            return format.to_owned();
        }
        let value = |field: &str| {
            let values = fields::values(body, field);
            let shown = match values.as_slice() {
                [] => option(field)
                    .unwrap_or_else(|| self.missing.clone().unwrap_or_else(|| "<MISSING VALUE>".to_owned())),
                [one] => fields::text(one).into_owned(),
                several => several.iter().map(|value| fields::text(value)).collect::<Vec<_>>().join(", "),
            };
            fields::cut(&shown, MAX_TEXT).to_owned()
        };
        let mut filled = String::new();
        // It was checked when the rule was saved.
        for piece in pieces(format).unwrap_or_default() {
            if filled.len() > MAX_TEXT {
                break;
            }
            match piece {
                FormatItem::Literal(text) => filled.push_str(text),
                FormatItem::Argument(at, spec) => {
                    let shown = args.get(at).map(|field| value(field)).unwrap_or_default();
                    filled.push_str(&spec.map_or_else(|| shown.clone(), |spec| spec.apply(&shown)));
                }
                FormatItem::Named(named, spec) => {
                    let field = kw.iter().find(|(_, name)| name == named);
                    let shown = field.map(|(field, _)| value(field)).unwrap_or_default();
                    filled.push_str(&spec.map_or_else(|| shown.clone(), |spec| spec.apply(&shown)));
                }
            }
        }
        filled
    }
}

/// Renders a template; one that fails at an event is shown with the reason.
fn rendered(text: &str, name: &str, body: &Value, option: &dyn Fn(&str) -> Option<String>) -> String {
    let mut values = serde_json::Map::new();
    // Options of the rule that the template may mean; fields of the event come before them.
    let words =
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    for word in words.take(MAX_TEMPLATE_WORDS) {
        if !values.contains_key(word)
            && let Some(value) = option(word)
        {
            values.insert(word.to_owned(), Value::String(value));
        }
    }
    values.insert("name".to_owned(), Value::String(name.to_owned()));
    if let Value::Object(members) = body {
        values.extend(members.clone());
    }
    values.insert(TEMPLATE_ROOT.to_owned(), body.clone());
    let context = minijinja::Value::from_serialize(Value::Object(values));
    template::render(text, &context, MAX_TEXT).unwrap_or_else(|reason| format!("{text}\n\n({reason})"))
}

fn pieces(format: &str) -> Result<Vec<FormatItem<'_>>, String> {
    let mut pieces = Vec::new();
    let (mut rest, mut next) = (format, 0);
    while let Some(at) = rest.find(['{', '}']) {
        pieces.push(FormatItem::Literal(&rest[..at]));
        let (brace, behind) = rest[at..].split_at(1);
        if behind.starts_with(brace) {
            pieces.push(FormatItem::Literal(brace));
            rest = &behind[1..];
            continue;
        }
        let Some(end) = behind.find('}').filter(|_| brace == "{") else {
            return Err("has a single brace; write {{ or }} for a brace".to_owned());
        };
        let inner = &behind[..end];
        let unknown =
            || format!("has the format {{{}}}; there are {{}}, {{0}}, {{name}} and {{0:.2f}}", short(inner));
        let (inner_name, spec) = match inner.split_once(':') {
            None => (inner, None),
            Some((name, spec)) => (name, Some(FormatSpec::parse(spec).ok_or_else(unknown)?)),
        };
        if inner_name.is_empty() {
            pieces.push(FormatItem::Argument(next, spec));
            next += 1;
        } else if inner_name.bytes().all(|byte| byte.is_ascii_digit()) {
            pieces.push(FormatItem::Argument(inner_name.parse().unwrap_or(usize::MAX), spec));
        } else if inner_name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            pieces.push(FormatItem::Named(inner_name, spec));
        } else {
            return Err(unknown());
        }
        rest = &behind[end + 1..];
    }
    pieces.push(FormatItem::Literal(rest));
    Ok(pieces)
}
