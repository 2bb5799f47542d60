//! The store through its public interface.

mod documents;
