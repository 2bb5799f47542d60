//! Ids of topics: a topic that is deleted and made again has another.
//!
//! The one request that tells them has no safe form in the binding to librdkafka.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as native;
use rdkafka::client::{Client, ClientContext};

/// Ids of topics by name. Brokers before Kafka 2.8 have none, and those that do not answer in time tell none.
pub(super) fn ids<C: ClientContext>(
    client: &Client<C>,
    names: &[&str],
    patience: Duration,
) -> HashMap<String, String> {
    let names: Vec<CString> = names.iter().filter_map(|name| CString::new(*name).ok()).collect();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let patience = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX);
    let mut ids = HashMap::new();
    if pointers.is_empty() {
        return ids;
    }
    // SAFETY: the client lives as long as its borrow, and the names until the end of this function; they are
    // copied into the collection. Collection, options, queue and event are ours: each is destroyed once, after
    // its last use, and what was read from the event is copied before. The queue is ours alone, and an answer
    // that comes after it was let go is dropped by librdkafka. None of the calls gives up the thread's stack.
    unsafe {
        let client = client.native_ptr();
        let topics = native::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let options = native::rd_kafka_AdminOptions_new(
            client,
            native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
        );
        native::rd_kafka_AdminOptions_set_request_timeout(options, patience, ptr::null_mut(), 0);
        let queue = native::rd_kafka_queue_new(client);
        native::rd_kafka_DescribeTopics(client, topics, options, queue);
        let event = native::rd_kafka_queue_poll(queue, patience);
        if !event.is_null() {
            let result = native::rd_kafka_event_DescribeTopics_result(event);
            if !result.is_null() {
                let mut count = 0;
                let described = native::rd_kafka_DescribeTopics_result_topics(result, &mut count);
                for at in 0..count {
                    ids.extend(id(*described.add(at)));
                }
            }
            native::rd_kafka_event_destroy(event);
        }
        native::rd_kafka_queue_destroy(queue);
        native::rd_kafka_AdminOptions_destroy(options);
        native::rd_kafka_TopicCollection_destroy(topics);
    }
    ids
}

/// Name and id of a topic, `None` where it has none.
///
/// # Safety
/// `topic` is valid, or null.
unsafe fn id(topic: *const native::rd_kafka_TopicDescription_t) -> Option<(String, String)> {
    if topic.is_null() {
        return None;
    }
    // SAFETY: the description is valid, and so are its name, which ends with a zero, and its id, where they are
    // not null.
    unsafe {
        let (name, id) = (
            native::rd_kafka_TopicDescription_name(topic),
            native::rd_kafka_TopicDescription_topic_id(topic),
        );
        if name.is_null() || id.is_null() {
            return None;
        }
        let high = native::rd_kafka_Uuid_most_significant_bits(id);
        let low = native::rd_kafka_Uuid_least_significant_bits(id);
        let name = CStr::from_ptr(name).to_str().ok()?.to_owned();
        ((high, low) != (0, 0)).then(|| (name, format!("{high:016x}{low:016x}")))
    }
}
