//! Alerts that reach people: an outbox committed with the alerts, and the channels that it is sent through.
