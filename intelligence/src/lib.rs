//! AI rules at work: kept as documents, run by schedule over aggregates, their predictions written as documents.
