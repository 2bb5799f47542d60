//! Bodies of answers from other servers, read within bounds.

use reqwest::Response;

use crate::budget::{AnswerAllowance, AnswerReservation};

/// Reads the body of an answer of at most so many bytes.
///
/// # Errors
/// A body that is longer, or that breaks off.
pub(crate) async fn read_body(response: Response, most: u64) -> Result<Vec<u8>, String> {
    read_reserved_body(response, most, &mut AnswerAllowance::default().answer()).await
}

/// Reads the body of an answer as [`read_body`] does, and reserves its bytes.
///
/// # Errors
/// As [`read_body`], and where there is no memory for it.
pub(crate) async fn read_reserved_body(
    mut response: Response,
    most: u64,
    reservation: &mut AnswerReservation<'_>,
) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        if (body.len() + chunk.len()) as u64 > most {
            return Err(format!("the answer exceeds [{most}] bytes"));
        }
        reservation.grow(chunk.len() as u64).map_err(|error| error.to_string())?;
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
