//! DeleteTopics (key 20).
//!
//! 5 adds error messages, 6 deletes by name or id.

use thalweg_model::TopicId;

message! {
    DeleteTopicsRequest: DeleteTopics, 1..=6, flexible 4; {
        [6..] topics: Vec<DeleteTopicState>;
        [0..=5] topic_names: Vec<String>;
        [0..] timeout_ms: i32;
    }
}

structure! {
    DeleteTopicState {
        [6.., null 6..] name: Option<String> = None;
        [6..] topic_id: TopicId;
    }
}

message! {
    DeleteTopicsResponse: DeleteTopics, 1..=6, flexible 4; {
        [0..] throttle_time_ms: i32;
        [0..] responses: Vec<DeletableTopicResult>;
    }
}

structure! {
    DeletableTopicResult {
        [0.., null 6..] name: Option<String> = Some(String::new());
        [6..] topic_id: TopicId;
        [0..] error_code: i16;
        [5.., null 5..] error_message: Option<String> = None;
    }
}
