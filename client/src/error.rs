//! What can go wrong, told so that the reader knows the next step.

use std::time::Duration;

use thalweg_model::{ErrorCode, Offset};

/// Cheap to clone: every record of a batch gets the error of its batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No bootstrap address answers.
    #[error("no broker answers at {addresses}: {cause}")]
    Unreachable { addresses: String, cause: String },
    /// The connection broke, or could not be made. The request may or may not have been carried out.
    #[error("connection to {address} failed: {cause}")]
    Disconnected { address: String, cause: String },
    /// No answer within the time. The request may or may not have been carried out.
    #[error("{what} to {address} got no answer within {} ms (request_timeout)", after.as_millis())]
    TimedOut { what: &'static str, address: String, after: Duration },
    /// The broker does not offer a version of the API that this client speaks.
    #[error(
        "{api} is spoken here in versions {ours_min} to {ours_max}, the broker at {address} offers {theirs}; upgrade the older side"
    )]
    UnsupportedApi { api: &'static str, ours_min: i16, ours_max: i16, theirs: String, address: String },
    /// The broker's bytes make no sense: its fault, or another program answers at that address.
    #[error("answer from {address} to {what} is malformed: {detail}; is it a Kafka listener?")]
    Malformed { what: &'static str, address: String, detail: String },
    /// The broker said no.
    #[error("{subject}: {} ({}){}", code.message(), code.name(), detail_of(detail))]
    Broker { code: ErrorCode, subject: String, detail: Option<String> },
    /// An error code that this version does not know.
    #[error("{subject}: the broker answered with unknown error {code}{}", detail_of(detail))]
    UnknownCode { code: i16, subject: String, detail: Option<String> },
    #[error("topic {topic} does not exist; create it first, or let the broker: auto.create.topics.enable=true")]
    UnknownTopic { topic: String },
    #[error("topic {topic} has partitions 0 to {}, not {partition}", partition_count - 1)]
    UnknownPartition { topic: String, partition: i32, partition_count: i32 },
    #[error("partition {topic}-{partition} has no leader at the moment")]
    NoLeader { topic: String, partition: i32 },
    /// A record that can never be sent with these settings.
    #[error("a record of {size} bytes for topic {topic} is over {limit_name}={limit}; {remedy}")]
    RecordTooLarge { topic: String, size: usize, limit: usize, limit_name: &'static str, remedy: &'static str },
    /// The producer's memory is full and stayed full.
    #[error(
        "{topic}: no room in the producer's buffer_bytes={limit} within {} ms; the brokers are slower than the sender, or gone",
        waited.as_millis()
    )]
    BufferFull { topic: String, limit: usize, waited: Duration },
    /// A record was not acknowledged in time.
    #[error(
        "{topic}-{partition}: not acknowledged within {} ms (delivery_timeout){}{}",
        after.as_millis(),
        if *unknown { "; it may have been written" } else { "; it was not written" },
        detail_of(last)
    )]
    DeliveryTimedOut { topic: String, partition: i32, after: Duration, unknown: bool, last: Option<String> },
    /// A try whose answer was lost may have written the record; another try was refused.
    #[error("{topic}-{partition}: may have been written by a try whose answer was lost; then: {cause}")]
    UnknownOutcome { topic: String, partition: i32, cause: String },
    /// Asked for no reset, and there is no valid position.
    #[error(
        "{topic}-{partition}: offset {offset} is not in the log ({start} to {end}) and auto_offset_reset is none; seek to a valid one"
    )]
    OffsetOutOfRange { topic: String, partition: i32, offset: Offset, start: Offset, end: Offset },
    #[error(
        "{topic}-{partition}: no committed offset and auto_offset_reset is none; seek first, or choose earliest or latest"
    )]
    NoOffset { topic: String, partition: i32 },
    /// Stored or received data fails its checks.
    #[error("{topic}-{partition}: batch at offset {offset} is corrupt: {detail}")]
    CorruptBatch { topic: String, partition: i32, offset: Offset, detail: String },
    #[error("{what}; {remedy}")]
    InvalidUse { what: String, remedy: String },
    #[error("this member of group {group} was fenced: another one uses group_instance_id {instance}")]
    FencedInstance { group: String, instance: String },
    #[error("the client is closed")]
    Closed,
}

impl ClientError {
    /// An error for a code that is not `NONE`.
    pub(crate) fn from_code(code: i16, subject: impl Into<String>, detail: Option<String>) -> ClientError {
        let detail = detail.filter(|text| !text.is_empty());
        match ErrorCode::from_code(code) {
            Some(code) => ClientError::Broker { code, subject: subject.into(), detail },
            None => ClientError::UnknownCode { code, subject: subject.into(), detail },
        }
    }

    /// `Ok` for code 0.
    pub(crate) fn check(code: i16, subject: impl FnOnce() -> String, detail: Option<String>) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(ClientError::from_code(code, subject(), detail)) }
    }

    /// The broker's code, if that is what this is.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Broker { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anyone changing anything.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Disconnected { .. }
            | ClientError::TimedOut { .. }
            | ClientError::NoLeader { .. }
            | ClientError::Unreachable { .. } => true,
            ClientError::Broker { code, .. } => code.is_retriable(),
            _ => false,
        }
    }

    /// Whether the broker may have carried out the request although it failed here.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            ClientError::Disconnected { .. }
            | ClientError::TimedOut { .. }
            | ClientError::Malformed { .. }
            | ClientError::UnknownOutcome { .. } => true,
            ClientError::DeliveryTimedOut { unknown, .. } => *unknown,
            ClientError::Broker { code, .. } => {
                matches!(code, ErrorCode::RequestTimedOut | ErrorCode::NotEnoughReplicasAfterAppend)
            }
            _ => false,
        }
    }
}

/// What every call of this crate gives.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

fn detail_of(detail: &Option<String>) -> String {
    detail.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_error_names_the_subject_the_code_and_the_brokers_words() {
        let error = ClientError::from_code(10, "demo-3", Some("limit is 100".into()));
        let text = error.to_string();
        for part in ["demo-3", "MESSAGE_TOO_LARGE", "limit is 100"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!error.is_retriable());
    }

    #[test]
    fn an_unknown_code_is_kept_and_not_retried() {
        let error = ClientError::from_code(9999, "demo", None);
        assert!(error.to_string().contains("9999"));
        assert!(!error.is_retriable());
    }
}
