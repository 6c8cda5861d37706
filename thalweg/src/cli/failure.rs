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

    /// Nobody answers who could do it.
    pub fn no_cluster(message: impl Into<String>) -> Failure {
        Failure { code: 4, message: message.into() }
    }

    /// Nobody answers at `addresses`. `tried` says for how long, and who named them.
    pub fn unreachable(addresses: &str, cause: &str, tried: &str) -> Failure {
        let remedy = if cause.contains("nothing listens") {
            "start a node with `thalweg dev`, or name another with -b"
        } else if cause.contains("lookup") {
            "check the name's spelling, or give the address as a number"
        } else if cause.contains("got no answer") {
            "check that the machine is up and that no firewall drops what is sent to this port"
        } else {
            "check that it is a Kafka listener: not one for HTTP or gRPC, and without TLS"
        };
        Failure { code: 4, message: format!("no broker answers at {addresses} ({tried}): {cause}; {remedy}") }
    }

    /// The user stopped it before its end; the code is the shell's for SIGINT.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { code: 130, message: message.into() }
    }

    /// Says where it happened.
    #[must_use]
    pub fn at(self, place: &str) -> Failure {
        Failure { message: format!("{place}: {}", self.message), ..self }
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
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
            ClientError::Unreachable { addresses, cause } => Failure::unreachable(addresses, cause, "tried once"),
            ClientError::UnknownTopic { topic } => Failure::not_found(format!(
                "topic {topic} does not exist; create it with `thalweg topic create {topic}`, or see `thalweg topic list`"
            )),
            ClientError::UnsupportedApi { api: "Inspect", address, .. } => Failure::failed(format!(
                "the broker at {address} is not Thalweg, or an older one: it does not keep what this verb shows"
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
