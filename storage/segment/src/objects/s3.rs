//! S3 and what speaks its protocol.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use millrace_runtime::{Error, Result};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::steady::{ReadHealth, Steady};

use super::ObjectStoreConfig;

/// Time that a small request may take.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Retries of one request before its caller gets the error.
const RETRY: RetryConfig = RetryConfig {
    backoff: object_store::BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    },
    max_retries: 8,
    retry_timeout: Duration::from_secs(30),
};

/// Connects to the bucket and asks it for one listing page, so that wrong credentials, a missing
/// bucket or an unreachable service are known at start.
pub(super) async fn open(
    config: &ObjectStoreConfig,
    reads: &Arc<ReadHealth>,
) -> Result<Arc<dyn ObjectStore>> {
    let ObjectStoreConfig::S3 {
        bucket,
        prefix,
        endpoint,
        region,
        access_key_id,
        secret_access_key,
        allow_http,
    } = config
    else {
        return Err(Error::Internal("not an S3 configuration".to_owned()));
    };
    // Without keys of its own, the machine's: environment, container or instance role.
    let mut builder = match (access_key_id, secret_access_key) {
        (Some(id), Some(secret)) => {
            AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret)
        }
        (None, None) => AmazonS3Builder::from_env(),
        _ => {
            let reason = "object_store needs both access_key_id and secret_access_key, or neither";
            return Err(Error::IllegalArgument(reason.to_owned()));
        }
    };
    builder = builder.with_bucket_name(bucket).with_allow_http(*allow_http).with_retry(RETRY);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    builder = builder.with_region(region.as_deref().unwrap_or("us-east-1"));
    // What may take long has limits of its own.
    let unlimited = ClientOptions::new().with_allow_http(*allow_http).with_timeout_disabled();
    let large = Arc::new(builder.clone().with_client_options(unlimited).build()?);
    let small = ClientOptions::new().with_allow_http(*allow_http).with_timeout(REQUEST_TIME);
    let small = Arc::new(builder.with_client_options(small).build()?);
    let service: Arc<dyn ObjectStore> = Arc::new(Steady::new(small, large, Arc::clone(reads)));
    let prefix = Path::parse(prefix)
        .map_err(|error| Error::IllegalArgument(format!("object_store prefix [{prefix}]: {error}")))?;
    let store: Arc<dyn ObjectStore> =
        if prefix.is_root() { service } else { Arc::new(PrefixStore::new(service, prefix)) };
    store.list(None).try_next().await?;
    Ok(store)
}
