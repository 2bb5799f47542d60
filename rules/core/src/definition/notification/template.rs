//! Webhooks of services that are known: a file of `deploy/notifications` each, compiled in.
//!
//! A file has `name`, `about`, `url` (a template of the address), `headers`, `body` (a template of JSON) and `options`: by
//! their names, whether each is `required`, whether it is a `secret`, its `default`, and `aliases`. Templates see them as `option.<name>`.

use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

/// A webhook of a service.
#[derive(Debug)]
pub struct Template {
    /// Name of the method.
    pub name: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// Template of the address.
    pub url: String,
    /// Headers, templates as well.
    pub headers: Vec<(String, String)>,
    /// Template of the body.
    pub body: String,
    /// Options that a rule can set.
    pub options: Vec<TemplateOption>,
}

/// Something that a rule can say for a template.
#[derive(Debug)]
pub struct TemplateOption {
    /// Its name, which no other template has.
    pub name: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// `true` if it has to be there.
    pub required: bool,
    /// `true` if it is a secret.
    pub secret: bool,
    /// Default value.
    pub default: Option<String>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../../deploy/notifications/", $name, ".yaml")))),*]
    };
}

static ALL: LazyLock<Vec<Template>> = LazyLock::new(|| {
    let files = files![
        "alertmanager",
        "discord",
        "googlechat",
        "mattermost",
        "ms_teams",
        "opsgenie",
        "pagerduty",
        "rocketchat",
        "slack",
        "telegram",
        "victorops",
    ];
    // A test reads each of them.
    files.iter().filter_map(|(name, text)| Template::read(name, text).ok()).collect()
});

/// Why a file is no template.
#[derive(Debug)]
struct TemplateError(String);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Template {
    /// Returns all of them, by name.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// Finds one by its name or another name of it.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter()
            .find(|template| template.name == name || template.aliases.iter().any(|alias| alias == name))
    }

    /// Lists other names of its options, each with the name of the option.
    pub(super) fn aliases_of_options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options
            .iter()
            .flat_map(|option| option.aliases.iter().map(move |alias| (alias.as_str(), option.name.as_str())))
    }

    fn read(name: &str, text: &str) -> Result<Self, TemplateError> {
        let file: Value = serde_norway::from_str(text).map_err(|error| TemplateError(error.to_string()))?;
        let text = |value: &Value, of: &str| match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(TemplateError(format!("[{name}.{of}] is no text"))),
        };
        let members = |of: &str| file[of].as_object().into_iter().flatten();
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let option = |(name, of): (&String, &Value)| TemplateOption {
            name: name.clone(),
            aliases: texts(&of["aliases"]),
            required: of["required"] == true,
            secret: of["secret"] == true,
            default: of["default"].as_str().map(str::to_owned),
        };
        if file["name"] != name {
            return Err(TemplateError(format!("[{name}] has another name in it")));
        }
        Ok(Self {
            name: name.to_owned(),
            aliases: texts(&file["aliases"]),
            url: text(&file["url"], "url")?,
            headers: members("headers")
                .map(|(header, value)| Ok((header.clone(), text(value, "headers")?)))
                .collect::<Result<_, _>>()?,
            body: text(&file["body"], "body")?,
            options: members("options").map(option).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_file_is_a_template_with_options_of_its_own() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/notifications");
        let files: BTreeSet<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned))
            .collect();
        let read: BTreeSet<String> = Template::all().iter().map(|template| template.name.clone()).collect();
        assert_eq!(read, files);
        let mut names = BTreeSet::new();
        for template in Template::all() {
            assert!(template.options.iter().any(|option| option.required), "{template:?}");
            for option in &template.options {
                for name in std::iter::once(&option.name).chain(&option.aliases) {
                    assert!(names.insert(name), "{name} is there twice");
                }
                let text = format!("{}{}{:?}", template.url, template.body, template.headers);
                assert!(text.contains(&option.name), "{} is not used", option.name);
            }
        }
    }
}
