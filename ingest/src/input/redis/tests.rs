//! The input, against a server of one list or one channel.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use parking_lot::Mutex;

use super::*;
use crate::budget::Budget;
use crate::input::testing::{Pipeline, options, refuse};

/// Reads a command of the protocol; `None` at the end of the stream.
fn command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let line = |reader: &mut dyn BufRead| {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let count = line(reader)?;
    let words = (0..count).map(|_| {
        let length = line(reader)?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(length);
        String::from_utf8(word).ok()
    });
    words.collect()
}

/// A server of one list. Returns its port.
fn serve(list: Arc<Mutex<VecDeque<String>>>) -> u16 {
    serve_scripts(list, &["-NOPERM no scripts"])
}

/// A server of one list that runs the script of the input, once it has refused it with these errors. Returns its port.
fn serve_scripts(list: Arc<Mutex<VecDeque<String>>>, refusals: &[&'static str]) -> u16 {
    let refusals = Arc::new(Mutex::new(VecDeque::from(refusals.to_vec())));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (list, refusals) = (Arc::clone(&list), Arc::clone(&refusals));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(words) = command(&mut reader) {
                    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
                    let answer = match words[0].to_uppercase().as_str() {
                        "BLPOP" => match list.lock().pop_front() {
                            Some(element) => format!("*2\r\n{}{}", bulk(&words[1]), bulk(&element)),
                            None => "*-1\r\n".to_owned(),
                        },
                        "EVAL" if let Some(refusal) = refusals.lock().pop_front() => format!("{refusal}\r\n"),
                        "EVAL" => {
                            assert_eq!((words[1].as_str(), words[2].as_str()), (POP_SCRIPT, "1"));
                            let (mut all, mut bytes) = (Vec::new(), 0);
                            let mut list = list.lock();
                            while all.len() < words[4].parse().unwrap() && bytes < words[5].parse().unwrap() {
                                let Some(element) = list.pop_front() else { break };
                                bytes += element.len();
                                all.push(bulk(&element));
                            }
                            format!("*{}\r\n{}", all.len(), all.concat())
                        }
                        "LPOP" => {
                            list.lock().pop_front().map_or("$-1\r\n".to_owned(), |element| bulk(&element))
                        }
                        "LPUSH" => {
                            words[2..].iter().for_each(|element| list.lock().push_front(element.clone()));
                            ":1\r\n".to_owned()
                        }
                        _ => "+OK\r\n".to_owned(),
                    };
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn elements_that_are_not_stored_are_put_back() {
    let list: Arc<Mutex<VecDeque<String>>> = Arc::default();
    list.lock().extend((0..5).map(|number| format!("{{\"message\":\"{number}\"}}")));
    let port = serve(Arc::clone(&list)).to_string();
    let given = [
        ("port", port.into()),
        ("key", "logs".into()),
        ("data_type", "list".into()),
        ("batch_count", "3".into()),
    ];
    let redis = Redis::new(options("redis", &given)).unwrap();
    let mut pipeline = Pipeline::new(1);
    let context = pipeline.context();
    let refused = async { refuse(pipeline.next().await.unwrap(), NotStored::Ended) };
    let (outcome, ()) = tokio::join!(redis.run(context.clone()), refused);
    assert!(outcome.unwrap_err().to_string().contains("are put back"));
    assert_eq!(list.lock().front().map(String::as_str), Some("{\"message\":\"0\"}"));
    let running = tokio::spawn(async move { redis.run(context).await });
    while pipeline.events.len() < 5 {
        pipeline.take().await.unwrap().unwrap();
    }
    pipeline.stop.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(pipeline.messages(), ["0", "1", "2", "3", "4"]);
    assert!(list.lock().is_empty());
}

#[tokio::test]
async fn elements_are_put_back_at_a_stop_and_over_a_new_connection() {
    let list: Arc<Mutex<VecDeque<String>>> = Arc::default();
    list.lock().extend((0..3).map(|number| format!("{{\"message\":\"{number}\"}}")));
    let port = serve(Arc::clone(&list)).to_string();
    let given = [("port", port.into()), ("key", "logs".into()), ("data_type", "list".into())];
    let redis = Redis::new(options("redis", &given)).unwrap();
    let mut pipeline = Pipeline::new(1);
    let context = pipeline.context();
    let stuck = async {
        // The output never answers.
        let held = pipeline.next().await.unwrap();
        pipeline.stop.send_replace(true);
        held
    };
    let (outcome, held) = tokio::join!(redis.run(context), stuck);
    assert!(outcome.unwrap_err().to_string().contains("are put back"));
    assert_eq!(list.lock().len(), 3);
    drop(held);
    let elements = Arc::new(vec![b"stored".to_vec(), b"first".to_vec(), b"second".to_vec()]);
    // Nobody answers on the other end of this connection.
    let broken = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = redis::Client::open(("127.0.0.1", broken.local_addr().unwrap().port())).unwrap();
    let answering = std::thread::spawn(move || {
        let (stream, _) = broken.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        // The setup of the connection is answered, the next command is not.
        while let Some(words) = command(&mut reader) {
            if words[0].eq_ignore_ascii_case("LPUSH") {
                return;
            }
            (&stream).write_all(b"+OK\r\n").unwrap();
        }
    });
    let connection = tokio::task::spawn_blocking(move || client.get_connection()).await.unwrap().unwrap();
    redis.put_back(connection, elements, 1).await;
    answering.join().unwrap();
    assert_eq!(list.lock().iter().take(2).collect::<Vec<_>>(), ["first", "second"]);
}

/// Runs an input until the pipeline has stored so many events; returns the most memory that was in use.
async fn run(redis: Redis, pipeline: &mut Pipeline, count: usize) -> u64 {
    let context = pipeline.context();
    let running = tokio::spawn(async move { redis.run(context).await });
    let mut most = 0;
    while pipeline.events.len() < count {
        let batch = pipeline.next().await.unwrap();
        most = most.max(pipeline.budget.used());
        pipeline.store(batch).unwrap();
    }
    pipeline.stop.send_replace(true);
    running.await.unwrap().unwrap();
    most
}

#[tokio::test]
async fn large_elements_take_no_more_memory_than_is_reserved() {
    for refusals in [&[][..], &["-NOPERM no scripts"]] {
        let list: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let element = |number: usize| match number {
            // Elements become many times their size.
            7 => format!("[{}{{\"message\":\"7\"}}]", "{},".repeat(500)),
            _ => format!("{{\"message\":\"{number}\",\"text\":\"{}\"}}", "x".repeat(50_000)),
        };
        list.lock().extend((0..20).map(element));
        let port = serve_scripts(Arc::clone(&list), refusals).to_string();
        let given = [("port", port.into()), ("key", "logs".into()), ("data_type", "list".into())];
        let redis = Redis::new(options("redis", &given)).unwrap();
        let mut pipeline = Pipeline::new(1);
        // A read has 128 KiB.
        pipeline.budget = Budget::new(4 << 20);
        let most = run(redis, &mut pipeline, 520).await;
        let messages = pipeline.events.iter().filter_map(|event| event.fields().get("message"));
        let messages: Vec<&str> = messages.filter_map(serde_json::Value::as_str).collect();
        assert_eq!(messages, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(most < 1 << 20, "{most}");
    }
}

#[test]
fn scripts_run_again_once_the_server_is_not_busy() {
    let list: Arc<Mutex<VecDeque<String>>> = Arc::default();
    list.lock().extend((0..9).map(|number| number.to_string()));
    let port = serve_scripts(Arc::clone(&list), &["-BUSY a script runs", "-LOADING the dataset"]);
    let given = [("port", port.to_string().into()), ("key", "logs".into()), ("data_type", "list".into())];
    let redis = Redis::new(options("redis", &given)).unwrap();
    let mut connection = redis::Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap();
    let taken: Vec<_> = (0..3).map(|_| redis.settings.pop(&mut connection, 1 << 20).unwrap().len()).collect();
    assert_eq!(taken, [1, 1, 7]);
}

/// Sends messages to the first client that subscribes. Returns the port.
fn publish(messages: Vec<String>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        while let Some(words) = command(&mut reader) {
            let pattern = words[0].eq_ignore_ascii_case("PSUBSCRIBE");
            if !pattern && !words[0].eq_ignore_ascii_case("SUBSCRIBE") {
                stream.write_all(b"+OK\r\n").unwrap();
                continue;
            }
            let kind = words[0].to_lowercase();
            stream.write_all(format!("*3\r\n{}{}:1\r\n", bulk(&kind), bulk(&words[1])).as_bytes()).unwrap();
            for message in &messages {
                let head = match pattern {
                    true => format!("*4\r\n{}{}{}", bulk("pmessage"), bulk(&words[1]), bulk("logs.web")),
                    false => format!("*3\r\n{}{}", bulk("message"), bulk(&words[1])),
                };
                let sent = stream.write_all(format!("{head}{}", bulk(message)).as_bytes());
                if sent.is_err() {
                    return;
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn messages_of_channels_become_events() {
    for (data_type, key) in [("channel", "logs"), ("pattern_channel", "logs.*")] {
        let message =
            |number: usize| format!("{{\"message\":\"{number}\",\"text\":\"{}\"}}", "x".repeat(20_000));
        // More than may wait to be decoded.
        let count = 2 * MAX_MESSAGE_BYTES / 20_000;
        let port = publish((0..count).map(message).collect()).to_string();
        let given = [("port", port.into()), ("key", key.into()), ("data_type", data_type.into())];
        let redis = Redis::new(options("redis", &given)).unwrap();
        let mut pipeline = Pipeline::new(1);
        pipeline.budget = Budget::new(4 << 20);
        let most = run(redis, &mut pipeline, count).await;
        let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        assert_eq!(pipeline.messages(), expected, "{data_type}");
        assert!(most < 1 << 20, "{most}");
    }
}

#[test]
fn options_are_checked() {
    let given = [("ssl", "true".into()), ("path", "/run/redis.sock".into())];
    let faults = Redis::new(options("redis", &given)).unwrap_err();
    let all = faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n");
    for part in ["option [key]", "option [data_type]", "a socket of this machine has no TLS"] {
        assert!(all.contains(part), "{part}: {all}");
    }
}
