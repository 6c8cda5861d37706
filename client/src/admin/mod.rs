//! Managing a cluster: topics, configurations, groups, offsets.

mod configs;
mod group_offsets;
mod groups;
mod inspect;
mod log_dirs;
mod moves;
mod quorum;
mod topics;

use std::time::Duration;

pub use configs::{ConfigChange, ConfigEntry, ConfigResource, ConfigSource};
pub use groups::{GroupDescription, GroupListing, GroupMember};
pub use log_dirs::LogDir;
pub use moves::Reassignment;
pub use quorum::QuorumMember;
pub use thalweg_wire::{inspect as report, placement};
pub use topics::{NewTopic, TopicCreated};

use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::metadata::Metadata;

/// The operator's calls. Cheap to make; shares the client's connections.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

impl Client {
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

impl Admin {
    /// Brokers, the controller, and every topic.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn cluster(&self) -> Result<Metadata> {
        self.client.fetch_all_metadata().await
    }

    fn timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout().as_millis()).unwrap_or(i32::MAX)
    }

    fn timeout(&self) -> Duration {
        self.client.config().request_timeout
    }
}

/// An answer that does not name what was asked for.
fn missing(what: &'static str, subject: &str) -> ClientError {
    ClientError::Malformed { what, address: "the broker".to_owned(), detail: format!("nothing is said of {subject}") }
}
