//! Answers to requests: how many records were refused, and why.

use prost::Message;
use serde_json::json;

use crate::request::Encoding;

/// Longest reason in bytes.
const MAX_REASON: usize = 1_024;

/// Answer to a request whose records were taken, all of them or some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportAnswer {
    /// Number of refused records; the client does not send these again.
    pub rejected: u64,
    /// Why the first of them was refused.
    pub reason: String,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_log_records: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

impl ExportAnswer {
    /// Takes note of a refused record.
    pub fn reject(&mut self, reason: &str) {
        self.rejected += 1;
        if self.reason.is_empty() {
            let end = reason.floor_char_boundary(MAX_REASON);
            self.reason = reason.get(..end).unwrap_or_default().to_owned();
        }
    }

    /// Encodes the answer.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        match encoding {
            Encoding::Protobuf => {
                let partial_success = (self.rejected > 0).then(|| PartialSuccess {
                    rejected_log_records: i64::try_from(self.rejected).unwrap_or(i64::MAX),
                    error_message: self.reason.clone(),
                });
                Response { partial_success }.encode_to_vec()
            }
            // Whole numbers of 64 bits are texts in the JSON of protobuf.
            Encoding::Json if self.rejected > 0 => {
                let (rejected, reason) = (self.rejected.to_string(), &self.reason);
                let partial = json!({ "rejectedLogRecords": rejected, "errorMessage": reason });
                json!({ "partialSuccess": partial }).to_string().into_bytes()
            }
            Encoding::Json => b"{}".to_vec(),
        }
    }
}
