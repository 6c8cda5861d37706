//! DeleteTopics (key 20, versions 1-6): by name, or by id from version 6 on.
//!
//! A topic named with both name and id, or twice, is error 42; an unknown one 3 (100 by id). The answer comes when this broker
//! has taken the topics out of sight.

use std::collections::HashMap;
use std::time::Duration;

use thalweg_model::{ErrorCode, TopicId};
use thalweg_proto::v1;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use thalweg_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let asked: Vec<DeleteTopicState> = if cx.version() >= ID_VERSION_MIN {
        request.topics
    } else {
        let by_name = |name| DeleteTopicState { name: Some(name), topic_id: TopicId::ZERO };
        request.topic_names.into_iter().map(by_name).collect()
    };
    let mut mentions: HashMap<(Option<&str>, TopicId), usize> = HashMap::new();
    for topic in &asked {
        *mentions.entry((topic.name.as_deref(), topic.topic_id)).or_default() += 1;
    }
    let is_valid = |topic: &&DeleteTopicState| {
        let names_one = topic.name.is_some() == topic.topic_id.is_zero();
        names_one && mentions.get(&(topic.name.as_deref(), topic.topic_id)) == Some(&1)
    };
    let (valid, invalid): (Vec<&DeleteTopicState>, Vec<&DeleteTopicState>) = asked.iter().partition(is_valid);
    let mut responses = delete(services, &valid, super::patience(request.timeout_ms)).await;
    responses.extend(invalid.into_iter().map(|topic| {
        let message = "a topic must be named once, by its name or by its id".to_owned();
        failed(topic.name.clone(), topic.topic_id, ErrorCode::InvalidRequest, message)
    }));
    DeleteTopicsResponse { responses, ..Default::default() }
}

async fn delete(services: &Services, topics: &[&DeleteTopicState], patience: Duration) -> Vec<DeletableTopicResult> {
    if topics.is_empty() {
        return Vec::new();
    }
    let reference = |topic: &&DeleteTopicState| v1::TopicRef {
        name: topic.name.clone().unwrap_or_default(),
        topic_id: if topic.topic_id.is_zero() { Vec::new() } else { topic.topic_id.0.to_vec() }.into(),
    };
    let request = v1::DeleteTopicsRequest { topics: topics.iter().map(reference).collect() };
    let call = services.coordinators.call(patience, |channel| {
        let request = request.clone();
        async move { super::in_time(patience, AdminClient::new(channel).delete_topics(request)).await }
    });
    match call.await {
        Ok(response) => {
            services.applied(response.index).await;
            response.topics.into_iter().map(result).collect()
        }
        Err(error) => {
            let each = topics
                .iter()
                .map(|topic| failed(topic.name.clone(), topic.topic_id, error.admin_code(), error.to_string()));
            each.collect()
        }
    }
}

fn result(topic: v1::DeletedTopic) -> DeletableTopicResult {
    let code = kafka_code(topic.error.as_ref());
    let message = topic.error.map(|error| error.message).filter(|message| code.is_error() && !message.is_empty());
    DeletableTopicResult {
        name: (!topic.name.is_empty()).then_some(topic.name),
        topic_id: <[u8; 16]>::try_from(&topic.topic_id[..]).map_or(TopicId::ZERO, TopicId),
        error_code: code.code(),
        error_message: message,
    }
}

fn failed(name: Option<String>, topic_id: TopicId, code: ErrorCode, message: String) -> DeletableTopicResult {
    DeletableTopicResult { name, topic_id, error_code: code.code(), error_message: Some(message) }
}

const ID_VERSION_MIN: i16 = 6;
