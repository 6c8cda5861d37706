//! Brokers that are gone: who refuses connections is reported to the coordinator, which then need not wait for a lease to run
//! out (REPLICATION B5). Fencing early is always safe.

use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_model::NodeId;
use thalweg_proto::v1;
use thalweg_proto::v1::registry_client::RegistryClient;
use tokio::net::TcpStream;
use tracing::{debug, info};

use super::endpoints;
use crate::api::in_time;
use crate::machine::suspects::Suspects;
use crate::services::Services;

/// `leader` refuses connections: clients are not sent there until one stands again, for a short while at most. A connection that
/// only ended is no reason: that happens in planned moves too, and another stands at once.
pub fn suspect(services: &Services, leader: NodeId) {
    if let Some(broker) = services.image().brokers.get(&leader) {
        lock(&services.suspects).refused(services.clock.mono(), leader, broker.epoch);
    }
}

/// A connection to `leader` stands.
pub fn trust(services: &Services, leader: NodeId) {
    lock(&services.suspects).answers(leader);
}

/// Whether clients should not be sent to `leader` at the moment.
pub fn is_suspect(services: &Services, leader: NodeId) -> bool {
    let image = services.image();
    let now = services.clock.mono();
    image.brokers.get(&leader).is_some_and(|broker| lock(&services.suspects).holds(now, leader, broker.epoch))
}

fn lock(suspects: &Mutex<Suspects>) -> MutexGuard<'_, Suspects> {
    suspects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports that `suspect` refused a connection. Whether there is nothing more to report: it is fenced, or unknown.
pub async fn report(services: &Services, suspect: NodeId) -> bool {
    let request = {
        let image = services.image();
        let node = services.node_id();
        let (Some(own), Some(other)) = (image.brokers.get(&node), image.brokers.get(&suspect)) else { return true };
        if other.fenced {
            return true;
        }
        v1::ReportUnreachableRequest {
            broker_id: node.0,
            broker_epoch: own.epoch.0,
            suspect_id: suspect.0,
            suspect_epoch: other.epoch.0,
        }
    };
    let answered = services.coordinators.call(PATIENCE, |channel| {
        in_time(PATIENCE, async move { RegistryClient::new(channel).report_unreachable(request).await })
    });
    match answered.await {
        Ok(response) => {
            if response.fenced {
                info!(%suspect, "a broker that refuses connections is fenced");
            }
            response.fenced
        }
        Err(error) => {
            debug!(%error, %suspect, "an unreachable broker cannot be reported");
            false
        }
    }
}

/// Looks whether `suspect`, whose connection to us has ended, still listens; reports it as long as it does not, for a while.
pub async fn look_after(services: &Services, suspect: NodeId) {
    for _ in 0..LOOKS_MAX {
        let endpoint = {
            let image = services.image();
            let broker = image.brokers.get(&suspect).filter(|broker| !broker.fenced);
            broker.and_then(|broker| endpoints::between(services, broker))
        };
        let Some(endpoint) = endpoint else { return };
        let tried = tokio::time::timeout(PATIENCE, TcpStream::connect((endpoint.host.as_str(), endpoint.port))).await;
        match tried {
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                if report(services, suspect).await {
                    return;
                }
            }
            // It lives, or it is not ours to say that it does not.
            Ok(Ok(_) | Err(_)) | Err(_) => return,
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
/// The coordinator may believe it only when heartbeats are overdue, too.
const LOOKS_MAX: usize = 40;
const LOOK_PAUSE: Duration = Duration::from_millis(200);
