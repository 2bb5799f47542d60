//! Texts of policies with placeholders such as `{{ctx.index}}`, as OpenSearch's mustache templates have them.

use crate::error::Result;
use crate::policy::parse::invalid;

/// Placeholders of a text.
const PLACEHOLDERS: [&str; 7] = [
    "ctx.index",
    "ctx.index_uuid",
    "ctx.policy_id",
    "ctx.state.name",
    "ctx.action.name",
    "ctx.info.message",
    "ctx.info.cause",
];

/// Values of the placeholders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateContext<'a> {
    pub(crate) index: &'a str,
    pub(crate) index_uuid: &'a str,
    pub(crate) policy_id: &'a str,
    pub(crate) state: &'a str,
    pub(crate) action: &'a str,
    /// Message about the last step.
    pub(crate) message: &'a str,
    /// Cause of the last step's failure; empty after a success.
    pub(crate) cause: &'a str,
}

impl<'a> TemplateContext<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        Some(match name {
            "ctx.index" => self.index,
            "ctx.index_uuid" => self.index_uuid,
            "ctx.policy_id" => self.policy_id,
            "ctx.state.name" => self.state,
            "ctx.action.name" => self.action,
            "ctx.info.message" => self.message,
            "ctx.info.cause" => self.cause,
            _ => return None,
        })
    }

    /// Replaces the placeholders of a text; what a value has is not looked through again.
    pub(crate) fn render(&self, text: &str) -> String {
        let mut rendered = String::with_capacity(text.len());
        for token in tokens(text) {
            match token {
                TemplateToken::Text(text) => rendered.push_str(text),
                TemplateToken::Placeholder(name) => rendered.push_str(self.value(name).unwrap_or_default()),
            }
        }
        rendered
    }
}

enum TemplateToken<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Cuts a text at its placeholders. A brace that is not closed is text.
fn tokens(text: &str) -> impl Iterator<Item = TemplateToken<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (begin, opening, closing) = match (rest.find("{{{"), rest.find("{{")) {
            (Some(triple), Some(double)) if triple == double => (triple, 3, "}}}"),
            (_, Some(double)) => (double, 2, "}}"),
            (_, None) => return Some(TemplateToken::Text(std::mem::take(&mut rest))),
        };
        if begin > 0 {
            let (text, behind) = rest.split_at(begin);
            rest = behind;
            return Some(TemplateToken::Text(text));
        }
        match rest[opening..].find(closing) {
            Some(end) => {
                let name = rest[opening..opening + end].trim();
                rest = &rest[opening + end + closing.len()..];
                Some(TemplateToken::Placeholder(name))
            }
            None => Some(TemplateToken::Text(std::mem::take(&mut rest))),
        }
    })
}

/// Refuses a text with a placeholder that is not known.
///
/// # Errors
/// [`crate::Error::Invalid`] with the placeholder.
pub(crate) fn check_template(field: &str, text: &str) -> Result<()> {
    for token in tokens(text) {
        if let TemplateToken::Placeholder(name) = token
            && !PLACEHOLDERS.contains(&name)
        {
            let known = PLACEHOLDERS.join(", ");
            return invalid(format!("[{field}] has the placeholder [{name}], known ones are [{known}]"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_once_and_known_by_name() {
        let context = TemplateContext {
            index: "{{ctx.policy_id}}",
            index_uuid: "u",
            policy_id: "p",
            state: "hot",
            action: "shrink",
            message: "m",
            cause: "c",
        };
        for (text, rendered) in [
            ("{{ctx.index}} of {{{ ctx.policy_id }}}!", "{{ctx.policy_id}} of p!"),
            ("{{ctx.state.name}}/{{ctx.action.name}}/{{ctx.index_uuid}}", "hot/shrink/u"),
            ("{\"text\": \"{{ctx.policy_id}}\"}", "{\"text\": \"p\"}"),
            ("{{ctx.info.message}}: {{ctx.info.cause}}", "m: c"),
            ("open {{ctx.index", "open {{ctx.index"),
            ("", ""),
        ] {
            assert_eq!(context.render(text), rendered);
            check_template("source", text).unwrap();
        }
        let refused = check_template("source", "{{ctx.secret}}").unwrap_err().to_string();
        assert!(refused.contains("[ctx.secret]"), "{refused}");
    }
}
