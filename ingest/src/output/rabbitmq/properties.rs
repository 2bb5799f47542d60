//! Properties of messages: constants, and formats that events fill in.

use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::rabbitmq_server::{MAX_NAME, field_table};
use crate::{Event, Options, Setting, Template};

/// Delivery modes of messages that survive the broker, and that do not.
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

/// Sets a property to a text.
type SetText = fn(BasicProperties, ShortString) -> BasicProperties;

/// Properties that are texts.
const TEXTS: [(&str, SetText); 10] = [
    ("app_id", BasicProperties::with_app_id),
    ("cluster_id", BasicProperties::with_cluster_id),
    ("content_encoding", BasicProperties::with_content_encoding),
    ("content_type", BasicProperties::with_content_type),
    ("correlation_id", BasicProperties::with_correlation_id),
    ("expiration", BasicProperties::with_expiration),
    ("message_id", BasicProperties::with_message_id),
    ("reply_to", BasicProperties::with_reply_to),
    ("type", BasicProperties::with_type),
    ("user_id", BasicProperties::with_user_id),
];

/// Properties of the messages of an output.
#[derive(Clone, Debug)]
pub(super) struct MessageProperties {
    /// Those that are the same for all events.
    constant: BasicProperties,
    /// Those that events fill in.
    variable: Vec<(Property, Template)>,
}

/// One property.
#[derive(Clone, Copy, Debug)]
enum Property {
    Text(&'static str, SetText),
    Priority,
}

impl Property {
    /// Finds a property by its name, in which dashes stand for underscores, too.
    fn from_name(name: &str) -> Option<Self> {
        let name = name.replace('-', "_");
        if name == "priority" {
            return Some(Self::Priority);
        }
        TEXTS.iter().find(|(known, _)| *known == name).map(|(known, set)| Self::Text(known, *set))
    }

    /// Sets the property.
    ///
    /// # Errors
    /// The value is none of the property.
    fn set(self, properties: BasicProperties, value: &str) -> Result<BasicProperties, String> {
        match self {
            Self::Priority => match value.parse::<u8>() {
                Ok(priority) => Ok(properties.with_priority(priority)),
                Err(_) => Err(format!("the property [priority] is [{value}], not a number from 0 to 255")),
            },
            // The broker would close the channel.
            Self::Text("expiration", _) if value.parse::<u32>().is_err() => {
                Err(format!("the property [expiration] is [{value}], not a number of milliseconds"))
            }
            Self::Text(name, set) => match ShortString::try_new(value) {
                Ok(value) => Ok(set(properties, value)),
                Err(_) => {
                    Err(format!("the property [{name}] has {} bytes, more than {MAX_NAME}", value.len()))
                }
            },
        }
    }
}

impl MessageProperties {
    /// Takes the options `persistent` and `message_properties`.
    pub(super) fn take(options: &mut Options) -> Self {
        let mode = if options.boolean("persistent").unwrap_or(true) { PERSISTENT } else { TRANSIENT };
        let mut all =
            Self { constant: BasicProperties::default().with_delivery_mode(mode), variable: Vec::new() };
        for (name, setting) in options.hash("message_properties") {
            if let Err(fault) = all.add(&name, &setting) {
                options.fault_here(format!("[message_properties] of [rabbitmq]: {fault}"));
            }
        }
        all
    }

    fn add(&mut self, name: &str, setting: &Setting) -> Result<(), String> {
        let constant = std::mem::take(&mut self.constant);
        self.constant = match (name, setting) {
            ("headers", Setting::Hash(members)) => {
                constant.with_headers(field_table(members).map_err(|fault| format!("[headers] {fault}"))?)
            }
            _ => {
                let property =
                    Property::from_name(name).ok_or_else(|| format!("there is no property [{name}]"))?;
                let text = setting.as_text().ok_or_else(|| format!("[{name}] must be a text or a number"))?;
                let template = Template::parse(&text);
                if template.is_constant() {
                    property.set(constant, &text)?
                } else {
                    self.variable.push((property, template));
                    constant
                }
            }
        };
        Ok(())
    }

    /// Makes the properties of the message of an event.
    ///
    /// # Errors
    /// A property is too long or no number.
    pub(super) fn render(&self, event: &Event) -> Result<BasicProperties, String> {
        self.variable.iter().try_fold(self.constant.clone(), |properties, (property, template)| {
            property.set(properties, &template.render(event))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::testing::{OptionValue, options};

    fn properties(given: &[(&str, OptionValue)]) -> Result<MessageProperties, String> {
        let mut options = options("rabbitmq", given);
        let properties = MessageProperties::take(&mut options);
        let faults = options.finish().err().unwrap_or_default();
        if faults.is_empty() { Ok(properties) } else { Err(faults[0].message.clone()) }
    }

    #[test]
    fn events_fill_in_formats() {
        let hash = [("content-type", "text/plain"), ("priority", "%{level}"), ("app_id", "shop-%{name}")];
        let given = [("message_properties", hash.into()), ("persistent", "false".into())];
        let properties = properties(&given).unwrap();
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        event.fields_mut().insert("level".to_owned(), json!(4));
        event.fields_mut().insert("name".to_owned(), json!("web"));
        let rendered = properties.render(&event).unwrap();
        assert_eq!((rendered.priority(), rendered.delivery_mode()), (&Some(4), &Some(1)));
        assert_eq!(rendered.content_type().as_ref().map(ShortString::as_str), Some("text/plain"));
        assert_eq!(rendered.app_id().as_ref().map(ShortString::as_str), Some("shop-web"));
        event.fields_mut().insert("level".to_owned(), json!("high"));
        assert!(properties.render(&event).unwrap_err().contains("[priority] is [high]"));
        event.fields_mut().insert("level".to_owned(), json!(1));
        event.fields_mut().insert("name".to_owned(), json!("w".repeat(300)));
        assert!(properties.render(&event).unwrap_err().contains("[app_id] has 305 bytes"));
    }

    #[test]
    fn constants_are_checked_once() {
        for (name, value, fault) in
            [("colour", "red", "no property [colour]"), ("priority", "300", "[priority] is [300]")]
        {
            let told = properties(&[("message_properties", [(name, value)].into())]).unwrap_err();
            assert!(told.contains(fault), "{told}");
        }
    }
}
