//! The configuration of the object store.

use serde::{Deserialize, Serialize};

/// The object store of segment files.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ObjectStoreConfig {
    /// `segments` under the data directory.
    Local,
    /// An S3-compatible service.
    S3 {
        /// Bucket name.
        bucket: String,
        /// Key prefix within the bucket.
        #[serde(default)]
        prefix: String,
        /// Endpoint URL; the region's own when absent.
        #[serde(default)]
        endpoint: Option<String>,
        /// Region; `us-east-1` when absent.
        #[serde(default)]
        region: Option<String>,
        /// Access key id; the environment's credentials when absent.
        #[serde(default)]
        access_key_id: Option<String>,
        /// Secret access key.
        #[serde(default)]
        secret_access_key: Option<String>,
        /// `true` if plain HTTP is allowed.
        #[serde(default)]
        allow_http: bool,
    },
}
