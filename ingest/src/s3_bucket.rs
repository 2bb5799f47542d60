//! A bucket of S3, or of what speaks its protocol. The input and the output `s3` share this.

use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ClientOptions, Result, RetryConfig};
use tokio::time::timeout;

use crate::{Options, Secret};

/// Region where none is given.
const REGION: &str = "us-east-1";
/// Time that the next bytes of an answer may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that an upload, or a copy within the service, may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// Waits for the next bytes of an answer.
///
/// # Errors
/// Those of the service; nothing came in time.
pub(crate) async fn with_read_timeout<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    with_timeout(STEP_TIMEOUT, request).await
}

/// Waits for the end of an upload or a copy.
///
/// # Errors
/// Those of the service; it took too long.
pub(crate) async fn with_write_timeout<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    with_timeout(WRITE_TIMEOUT, request).await
}

async fn with_timeout<T>(time: Duration, request: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(time, request).await.unwrap_or_else(|_| {
        let source = format!("no answer within {} seconds", time.as_secs()).into();
        Err(object_store::Error::Generic { store: "S3", source })
    })
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    /// Address of its service, where it is not that of AWS.
    pub(crate) endpoint: Option<String>,
    pub(crate) store: AmazonS3,
}

/// Takes the options of a bucket and makes its client. Nothing is asked of the service yet.
pub(crate) fn take(options: &mut Options) -> Option<Bucket> {
    let name = options.required_text("bucket");
    let region = options.text("region").unwrap_or_else(|| REGION.to_owned());
    let id = options.text("access_key_id").filter(|id| !id.is_empty());
    let secret = options.secret("secret_access_key");
    let token = options.secret("session_token");
    let endpoint = options.text("endpoint").filter(|endpoint| !endpoint.is_empty());
    let proxy = options.secret("proxy_uri").filter(|proxy| !proxy.expose().is_empty());
    let mut is_path_style = endpoint.is_some();
    for (setting, value) in options.hash("additional_settings") {
        let flag = value.as_text().and_then(|text| text.parse::<bool>().ok());
        match (setting.as_str(), flag) {
            ("force_path_style", Some(flag)) => is_path_style = flag,
            ("follow_redirects", Some(_)) => {}
            _ => options
                .fault_here(format!("[additional_settings] has no [{setting}], but [force_path_style]")),
        }
    }
    for (option, instead) in [
        (
            "aws_credentials_file",
            "give [access_key_id] and [secret_access_key], or the environment of the server",
        ),
        ("role_arn", "give the server the role of its machine or container"),
        ("role_session_name", "give the server the role of its machine or container"),
    ] {
        if let Some((at, _)) = options.take(option) {
            options.fault(at, format!("option [{option}] is not supported: {instead}"));
        }
    }
    let _ = (options.text("temporary_directory"), options.boolean("use_aws_bundled_ca"));
    if id.is_some() != secret.is_some() {
        options.fault_here("options [access_key_id] and [secret_access_key] need each other");
        return None;
    }
    let allow_http = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    // A bound on whole requests would be one on the size of objects: each step has its own.
    let mut client = ClientOptions::new().with_allow_http(allow_http).with_timeout_disabled();
    if let Some(proxy) = &proxy {
        client = client.with_proxy_url(proxy.expose());
    }
    millrace_runtime::install_crypto_provider();
    // Without keys of its own, the machine's: environment, container or instance role.
    let mut builder = match (&id, secret.as_ref().map(Secret::expose)) {
        (Some(id), Some(secret)) => {
            AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret)
        }
        _ => AmazonS3Builder::from_env(),
    };
    if let Some(token) = &token {
        builder = builder.with_token(token.expose());
    }
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let built = builder
        .with_bucket_name(&name)
        .with_region(region)
        .with_virtual_hosted_style_request(!is_path_style)
        .with_client_options(client)
        .with_retry(RetryConfig {
            max_retries: 3,
            retry_timeout: Duration::from_secs(30),
            ..RetryConfig::default()
        })
        .build();
    match built {
        Ok(store) => Some(Bucket { name, endpoint, store }),
        Err(error) => {
            options.fault_here(format!("bucket [{name}]: {error}"));
            None
        }
    }
}
