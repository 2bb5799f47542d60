//! The names and the identity of the node and its cluster.

use std::path::PathBuf;

use millrace_accounts::Store;

use crate::config::HttpConfig;
use crate::error::Error;

/// Name of the node and of its cluster.
pub const NAME: &str = "millrace";
/// Key of the cluster's identity in the store.
const UUID_KEY: &str = "cluster/uuid";
/// Version of the data API that is spoken.
pub const API_VERSION: &str = "7.10.2";

/// Identity that the server presents.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name of this node.
    pub node: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Identity of the cluster, kept with its data.
    pub cluster_uuid: String,
    /// Directory of the node's data.
    pub data_dir: PathBuf,
    /// `host:port` of the data API.
    pub address: String,
    /// Longest request body in bytes.
    pub max_content_length: u64,
}

impl Identity {
    /// Reads the cluster's identity, giving it one at first start.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open(
        store: &dyn Store,
        node: impl Into<String>,
        cluster: impl Into<String>,
        data_dir: PathBuf,
        address: String,
    ) -> Result<Self, Error> {
        use base64::Engine as _;
        let stored = store.secret(UUID_KEY).await?.and_then(|bytes| String::from_utf8(bytes).ok());
        let cluster_uuid = match stored {
            Some(uuid) => uuid,
            None => {
                let uuid =
                    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>());
                store.put_secret(UUID_KEY, uuid.as_bytes()).await?;
                uuid
            }
        };
        let max_content_length = HttpConfig::default().max_content_length;
        let (node, cluster) = (node.into(), cluster.into());
        Ok(Self { node, cluster, cluster_uuid, data_dir, address, max_content_length })
    }
}
