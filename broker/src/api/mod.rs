//! Kafka's APIs: one file each, named as Kafka names it.
//!
//! A handler is `async fn handle(&Services, &RequestContext, XRequest) -> XResponse`; a line in the table below makes it
//! served and advertised. Produce and Fetch stand apart: one answers in two phases, the other with files.

pub mod api_versions;
pub mod context;
pub mod metadata;

use bytes::Bytes;
use thalweg_wire::{ApiKey, messages};

pub use context::{CloseReason, ConnectionInfo, Reply, RequestContext};

use crate::services::Services;

macro_rules! handlers {
    ($($key:ident => $module:ident($request:ident);)+) => {
        /// Answers any request but Produce and Fetch. Dropping the future cancels the request.
        ///
        /// # Errors
        /// The connection must end; see [`CloseReason`].
        pub async fn answer(services: &Services, cx: &RequestContext, body: &Bytes) -> Result<Reply, CloseReason> {
            match cx.header.api_key {
                $(ApiKey::$key => {
                    let request = cx.decode::<messages::$request>(body)?;
                    // Boxed, so that a connection does not carry the largest of all handlers' states.
                    let response = Box::pin($module::handle(services, cx, request)).await;
                    cx.encode(&response)
                })+
                api => Err(CloseReason::NotServed { api }),
            }
        }

        /// Whether there is a handler; only then ApiVersions lists the API.
        pub fn is_served(key: ApiKey) -> bool {
            matches!(key, ApiKey::Produce | ApiKey::Fetch $(| ApiKey::$key)+)
        }
    };
}

handlers! {
    Metadata => metadata(MetadataRequest);
    ApiVersions => api_versions(ApiVersionsRequest);
}

/// Whether a request waits for others for so long that it must not outlive its client: end of input cancels it.
pub fn ends_with_input(key: ApiKey) -> bool {
    matches!(key, ApiKey::JoinGroup | ApiKey::SyncGroup)
}
