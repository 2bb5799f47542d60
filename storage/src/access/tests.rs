//! What principals see of a store.
