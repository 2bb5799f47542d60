//! Bodies of answers from other servers, read within bounds.

use reqwest::Response;

/// Reads the body of an answer of at most so many bytes.
///
/// # Errors
/// A body that is longer, or that breaks off.
pub(crate) async fn read_body(mut response: Response, most: u64) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        if (body.len() + chunk.len()) as u64 > most {
            return Err(format!("the answer exceeds [{most}] bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
