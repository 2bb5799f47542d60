//! Entry point of a fuzzer.

use crate::{Converter, DocumentMapping, Encoding, RequestError, read};

/// Reads a request in both encodings and makes its documents, which are JSON.
pub fn request(data: &[u8]) {
    for encoding in [Encoding::Protobuf, Encoding::Json] {
        for mapping in [DocumentMapping::Otel, DocumentMapping::Ecs] {
            let mut converter = Converter::new(mapping, None);
            let read: Result<(), RequestError> = read(encoding, data, |context, record| {
                let mut document = Vec::new();
                if let Ok(record) = record
                    && converter.convert(context, &record, 1, &mut document).is_ok()
                {
                    let object: Result<serde_json::Map<_, _>, _> = serde_json::from_slice(&document);
                    assert!(object.is_ok(), "a document is no JSON: {object:?}");
                }
                Ok(())
            });
            // A refusal is an answer.
            drop(read);
        }
    }
}
