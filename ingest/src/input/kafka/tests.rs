//! The input on a cluster.
