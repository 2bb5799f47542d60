//! Errors of libraries, and how they are answered.

use super::*;

#[test]
fn all_shards_failed_lists_each_cause_once() {
    let failure = |shard| {
        Error::NumberFormat("For input string: \"abc\"".into())
            .failed_to_create_query()
            .into_shard_failure("logs", "u", shard)
    };
    let error = Error::SearchPhase { failures: vec![failure(0), failure(1)] };
    let body = error.to_body().unwrap();
    assert_eq!(body["status"], 400);
    assert_eq!(body["error"]["root_cause"].as_array().unwrap().len(), 1);
    assert_eq!(body["error"]["root_cause"][0]["reason"], "failed to create query: For input string: \"abc\"");
    assert_eq!(body["error"]["root_cause"][0]["caused_by"]["type"], "number_format_exception");
}

#[test]
fn exhausted_memory_breaks_the_circuit() {
    let error = Error::from(DataFusionError::ResourcesExhausted("8 MB".into()));
    assert_eq!((error.status(), error.error_type().as_str()), (429, "circuit_breaking_exception"));
}

#[test]
fn exhausted_memory_is_recognised_whatever_it_is_wrapped_in() {
    let exhausted = || DataFusionError::ResourcesExhausted("8 MB".into());
    let own = || DataFusionError::from(Error::CircuitBreaking("8 MB".into()));
    for make in [&exhausted as &dyn Fn() -> DataFusionError, &own] {
        let context = |error: DataFusionError| error.context("while spilling");
        let shared = |error: DataFusionError| DataFusionError::Shared(Arc::new(error));
        let arrow = |error| DataFusionError::from(ArrowError::ExternalError(Box::new(error)));
        let external = |error| DataFusionError::External(Box::new(error));
        let collected = |error| DataFusionError::Collection(vec![error]);
        let wraps: [&dyn Fn(DataFusionError) -> DataFusionError; 5] =
            [&context, &shared, &arrow, &external, &collected];
        for (outer, inner) in wraps.iter().flat_map(|outer| wraps.iter().map(move |inner| (outer, inner))) {
            let error = outer(inner(make()));
            assert_eq!(Error::from(error).status(), 429);
            // Several wait for one.
            let one = Arc::new(outer(inner(make())));
            let several = [DataFusionError::Shared(Arc::clone(&one)), DataFusionError::Shared(one)];
            assert!(several.into_iter().map(Error::from).all(|error| error.status() == 429));
        }
    }
}

#[test]
fn long_reasons_of_many_shards_are_cut_short() {
    let failure = |shard: u32| {
        let reason = format!("{}{shard}", "é".repeat(150_000));
        Error::IllegalArgument(reason).into_shard_failure(&format!("index-{shard}"), "u", shard)
    };
    let one = Error::SearchPhase { failures: vec![failure(0)] }.to_body().unwrap();
    let reason = one["error"]["root_cause"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("éé") && reason.ends_with("bytes more]"), "{reason}");
    let many = Error::SearchPhase { failures: (0..5_000).map(failure).collect() };
    assert!(many.to_body().unwrap().to_string().len() < 10 << 20);
}
