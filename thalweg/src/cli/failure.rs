//! Why a verb did not do it, and the number that says so to scripts.

use std::io::{self, Write};

use thalweg_client::ClientError;
use thalweg_model::ErrorCode;

/// A message for people and an exit code for scripts.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// Empty for an end that needs no words.
    message: String,
}

impl Failure {
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into() }
    }

    /// Whoever typed the command is at fault.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure { code: 3, message: message.into() }
    }

    /// Says where it happened.
    #[must_use]
    pub fn at(self, place: &str) -> Failure {
        Failure { message: format!("{place}: {}", self.message), ..self }
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    /// One line on stderr.
    pub fn complain(&self) {
        if !self.message.is_empty() {
            // Without a stderr there is nobody to tell.
            let _ = writeln!(io::stderr(), "thalweg: {}", self.message);
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match &error {
            ClientError::Unreachable { addresses, cause } => {
                let message = if cause.contains("nothing listens") {
                    format!("nothing listens at {addresses}; start a node with `thalweg dev`, or name another with -b")
                } else {
                    format!("no broker answers at {addresses}: {cause}")
                };
                Failure { code: 4, message }
            }
            ClientError::UnknownTopic { topic } => Failure::not_found(format!(
                "topic {topic} does not exist; create it with `thalweg topic create {topic}`, or see `thalweg topic list`"
            )),
            ClientError::UnknownPartition { .. } => Failure::not_found(error.to_string()),
            ClientError::Broker { code: ErrorCode::GroupIdNotFound, subject, .. } => {
                Failure::not_found(format!("{subject} does not exist; see `thalweg group list`"))
            }
            ClientError::Broker { code: ErrorCode::InvalidTopicException, .. } => Failure::usage(error.to_string()),
            _ => Failure::failed(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            // The reader of our output has seen enough.
            io::ErrorKind::BrokenPipe => Failure { code: 0, message: String::new() },
            _ => Failure::failed(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::from(io::Error::from(error))
    }
}
