//! Events behind the filters, as outputs get them.

use std::ops::Deref;
use std::sync::Arc;

use millrace_ingest::Event;

/// Event that outputs get. One for sinks is shared from the start; one for indices alone is shared only where it is refused.
#[derive(Debug)]
pub(crate) enum OutputEvent {
    Own(Event),
    Shared(Arc<Event>),
}

impl OutputEvent {
    /// Makes one, which is shared if `for_sinks`.
    pub(crate) fn new(event: Event, for_sinks: bool) -> Self {
        if for_sinks { Self::Shared(Arc::new(event)) } else { Self::Own(event) }
    }

    /// Returns the event for somebody who keeps it: a copy, where it is not shared.
    pub(crate) fn to_shared(&self) -> Arc<Event> {
        match self {
            Self::Own(event) => Arc::new(event.clone()),
            Self::Shared(event) => Arc::clone(event),
        }
    }
}

impl Deref for OutputEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        match self {
            Self::Own(event) => event,
            Self::Shared(event) => event,
        }
    }
}
