//! Rules at work: they are kept as documents, follow the change feed, and their alerts are committed once each.
