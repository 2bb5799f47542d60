use crate::input::stream::tests::RunningInput;

#[tokio::test]
async fn messages_come_over_datagrams_and_in_chunks() {
    let mut running = RunningInput::start("gelf", &[]).await;
    running.send_datagram(br#"{"short_message":"one","_a":1}"#).await;
    running.store(1).await;
    let message = br#"{"short_message":"in chunks"}"#;
    for (number, part) in message.chunks(10).enumerate() {
        let head = [0x1e, 0x0f, 1, 2, 3, 4, 5, 6, 7, 8, u8::try_from(number).unwrap(), 3];
        running.send_datagram(&[&head[..], part].concat()).await;
    }
    running.store(2).await;
    let pipeline = running.stop().await;
    assert_eq!(pipeline.messages(), ["one", "in chunks"]);
    assert_eq!(pipeline.events[0].fields()["source_host"], "127.0.0.1");
    assert_eq!(pipeline.events[0].fields()["a"], 1);
}

#[tokio::test]
async fn messages_of_a_stream_end_with_a_null_byte() {
    let given = [("use_udp", "false".into()), ("use_tcp", "true".into())];
    let mut running = RunningInput::start("gelf", &given).await;
    running.send(b"{\"short_message\":\"a\"}\0\0{\"short_message\":\"b\"}").await;
    running.store(2).await;
    assert_eq!(running.pipeline.messages(), ["a", "b"]);
}
