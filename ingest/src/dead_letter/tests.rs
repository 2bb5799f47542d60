use super::*;

#[test]
fn an_event_without_an_operation_is_kept_whole() {
    let mut event = Event::new(DateTime::from_timestamp(1, 0).unwrap());
    event.fields_mut().insert("message".to_owned(), Value::from("x"));
    let sender = Sender { pipeline: "main", plugin: "out" };
    let op = of_event(&event, &"r".repeat(100_000), sender, DateTime::from_timestamp(2, 0).unwrap());
    let Action::Index(source) = &op.action else { panic!("{op:?}") };
    let letter = StoredDeadLetter::from_source("id".to_owned(), source, 2_000).unwrap();
    assert_eq!(letter.payload().unwrap(), r#"{"@timestamp":"1970-01-01T00:00:01.000Z","message":"x"}"#);
    assert_eq!((letter.reason.len(), letter.time.as_str()), (MAX_REASON, "1970-01-01T00:00:02.000Z"));
    assert!(letter.operation().unwrap_err().contains("pipeline"));
}
