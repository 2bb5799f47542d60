//! Options that all plugins of a kind have: additions to and removals from events, and the name of a plugin.

use chrono::DateTime;
use millrace_ingest::event::SharedMembers;
use millrace_ingest::{Event, FieldReference, Options, Setting, Template};
use serde_json::Value;

/// Common changes of events beside the plugin's own work.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decoration {
    kind: Option<String>,
    add_field: Vec<(Template, Vec<Template>)>,
    remove_field: Vec<DecoratedField>,
    add_tag: Vec<Template>,
    remove_tag: Vec<Template>,
}

/// Changes of the events of an input.
#[derive(Debug, Default)]
pub(crate) struct InputDecoration {
    changes: Decoration,
    /// The same changes of events that have none of the fields, where all events get the same values.
    shared: Option<SharedMembers>,
}

impl InputDecoration {
    /// Takes the options that inputs have.
    pub(crate) fn take(options: &mut Options) -> Self {
        let changes = Decoration {
            kind: options.text("type"),
            add_field: add_field(options),
            add_tag: templates(options, "tags"),
            ..Decoration::default()
        };
        let shared = changes.shared_members();
        Self { changes, shared }
    }

    /// Decorates events, in the order in which Logstash does it.
    pub(crate) fn apply(&self, events: &mut [Event]) {
        match &self.shared {
            _ if self.changes == Decoration::default() => {}
            Some(shared) => shared.add_to(events, |event| self.changes.apply(event)),
            None => events.iter_mut().for_each(|event| self.changes.apply(event)),
        }
    }
}

/// Target field.
#[derive(Clone, Debug, PartialEq)]
enum DecoratedField {
    /// The same one in all events.
    Fixed(FieldReference),
    /// The one that an event names.
    Of(Template),
}

impl DecoratedField {
    fn parse(text: &str) -> Self {
        let template = Template::parse(text);
        match FieldReference::parse(text) {
            Ok(reference) if template.is_constant() => Self::Fixed(reference),
            _ => Self::Of(template),
        }
    }
}

/// Name and label of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PluginLabel {
    pub(crate) id: Option<String>,
    pub(crate) shown: bool,
}

impl PluginLabel {
    pub(crate) fn take(options: &mut Options) -> Self {
        let id = options.read("id", "a text that is not empty", |setting| {
            setting.as_text().filter(|id| !id.trim().is_empty())
        });
        Self { id, shown: options.boolean("enable_metric").unwrap_or(true) }
    }
}

impl Decoration {
    /// Returns the members that events without these fields get, where they are the same for all events.
    fn shared_members(&self) -> Option<SharedMembers> {
        let names = self.add_field.iter().map(|(name, _)| name);
        let values = self.add_field.iter().flat_map(|(_, values)| values);
        if !names.chain(values).chain(&self.add_tag).all(Template::is_constant) {
            return None;
        }
        let mut event = Event::new(DateTime::UNIX_EPOCH);
        self.apply(&mut event);
        // Nor may the time or metadata change.
        let is_fields = event.timestamp() == DateTime::UNIX_EPOCH && event.metadata().is_empty();
        is_fields.then(|| SharedMembers::from(event.fields()))
    }

    /// Takes the options that filters have.
    pub(crate) fn of_filter(options: &mut Options) -> Self {
        // Filters here need no flushing by the clock: accepted for the sake of existing files.
        options.boolean("periodic_flush");
        Self {
            kind: None,
            add_field: add_field(options),
            remove_field: options
                .texts("remove_field")
                .iter()
                .map(|text| DecoratedField::parse(text))
                .collect(),
            add_tag: templates(options, "add_tag"),
            remove_tag: templates(options, "remove_tag"),
        }
    }

    /// Decorates an event, in the order in which Logstash does it.
    pub(crate) fn apply(&self, event: &mut Event) {
        if let Some(kind) = &self.kind {
            event.set_missing("type", kind);
        }
        for (name, values) in &self.add_field {
            let Ok(reference) = FieldReference::parse(&name.render(event)) else { continue };
            for value in values {
                let value = Value::String(value.render(event));
                add(event, &reference, value);
            }
        }
        for place in &self.remove_field {
            match place {
                DecoratedField::Fixed(reference) => event.discard(reference),
                DecoratedField::Of(name) => {
                    if let Ok(reference) = FieldReference::parse(&name.render(event)) {
                        event.discard(&reference);
                    }
                }
            }
        }
        for tag in &self.add_tag {
            let tag = tag.render(event);
            event.tag(&tag);
        }
        for tag in &self.remove_tag {
            let tag = tag.render(event);
            event.untag(&tag);
        }
    }
}

/// Sets a field, or appends to it where it is there.
fn add(event: &mut Event, reference: &FieldReference, value: Value) {
    let value = match event.get(reference).map(std::borrow::Cow::into_owned) {
        // The time of an event is one.
        Some(_) if reference.path() == [millrace_ingest::event::TIMESTAMP] => value,
        None | Some(Value::Null) => value,
        Some(Value::Array(mut elements)) => {
            elements.push(value);
            Value::Array(elements)
        }
        Some(single) => Value::Array(vec![single, value]),
    };
    if let Err(problem) = event.set(reference, value) {
        tracing::debug!(problem, "a field could not be added");
    }
}

fn templates(options: &mut Options, name: &'static str) -> Vec<Template> {
    options.texts(name).iter().map(|text| Template::parse(text)).collect()
}

fn add_field(options: &mut Options) -> Vec<(Template, Vec<Template>)> {
    let at = options.at();
    let mut fields = Vec::new();
    for (name, setting) in options.hash("add_field") {
        let name_template = Template::parse(&name);
        if name_template.is_constant()
            && let Err(problem) = FieldReference::parse(&name)
        {
            options.fault(at, format!("option [add_field]: {problem}"));
        }
        let texts: Option<Vec<String>> = match &setting {
            Setting::Array(elements) => elements.iter().map(Setting::as_text).collect(),
            single => single.as_text().map(|text| vec![text]),
        };
        match texts {
            Some(texts) => {
                fields.push((name_template, texts.iter().map(|text| Template::parse(text)).collect()))
            }
            None => options.fault(at, format!("option [add_field] must give texts, [{name}] is none")),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(given: &[(&str, Setting)]) -> Options {
        let at = millrace_ingest::Location::default();
        Options::new("tcp", at, given.iter().map(|(name, value)| ((*name).to_owned(), at, value.clone())))
    }

    #[test]
    fn constant_decorations_are_shared() {
        let text = |text: &str| Setting::Text(text.to_owned());
        let field =
            |name: &str, value: &str| ("add_field", Setting::Hash(vec![(name.to_owned(), text(value))]));
        let tags = ("tags", Setting::Array(vec![text("a"), text("b"), text("a")]));
        for (given, expected) in [
            (vec![("type", text("web")), tags.clone()], true),
            (vec![field("[nested][name]", "value"), tags.clone()], true),
            (vec![field("name", "%{other}")], false),
            (vec![field("[@metadata][name]", "value")], false),
            (vec![field("@timestamp", "2026-01-01T00:00:00Z")], false),
        ] {
            let decoration = InputDecoration::take(&mut options(&given));
            assert_eq!(decoration.shared.is_some(), expected, "{given:?}");
            let mut events = [Event::new(DateTime::UNIX_EPOCH), Event::new(DateTime::UNIX_EPOCH)];
            events[1].set_text("type", "own");
            let mut each = events.clone();
            each.iter_mut().for_each(|event| decoration.changes.apply(event));
            decoration.apply(&mut events);
            assert_eq!(events, each, "{given:?}");
        }
    }
}
