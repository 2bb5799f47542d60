//! Templates that outputs bring along.

use millrace_catalog::metadata::TemplateKind;

use super::*;

#[derive(Debug)]
struct TemplateOutput(IndexTemplate);

impl Local for TemplateOutput {
    fn operation(&self, event: &Event, id: Option<String>) -> Result<LocalWrite, String> {
        IndexOutput("docs").operation(event, id)
    }

    fn template(&self) -> Option<&IndexTemplate> {
        Some(&self.0)
    }

    fn names(&self) -> String {
        "docs".to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_the_template_of_their_output() {
    let store = Arc::new(Memory::default());
    store.refuses_templates.store(true, Ordering::Relaxed);
    let template = IndexTemplate {
        kind: TemplateKind::Index,
        name: "mine".to_owned(),
        body: json!({"index_patterns": ["docs"]}),
        overwrites: false,
    };
    let unawaited = |n: u64| Batch { ack: Ack::none(), ..batch(vec![json!({ "n": n })]).0 };
    let inputs = ManualBatch::from_batches(vec![unawaited(1), unawaited(2)]);
    let outputs = vec![output("docs", Output::Local(Arc::new(TemplateOutput(template))))];
    let pipeline = start(graph(vec![inputs], vec![], outputs), settings(1), &store);
    pipeline.ended().await;
    // The first try is on another thread.
    let trouble = loop {
        match pipeline.trouble() {
            Some((trouble, _)) => break trouble,
            None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    };
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(store.state.lock().docs.is_empty());
    assert!(trouble.contains("the template of an output: the mapping is none"), "{trouble}");
    store.refuses_templates.store(false, Ordering::Relaxed);
    while store.state.lock().docs.len() < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(*store.templates.lock(), ["mine"]);
}
