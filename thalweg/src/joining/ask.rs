//! Asking the coordinators of a cluster to be let in.

use std::collections::VecDeque;
use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use thalweg_coordinator::{CoordinatorPeer, JoinToken};
use thalweg_model::ErrorCode;
use thalweg_proto::v1::nodes_client::NodesClient;
use thalweg_proto::v1::{JoinClusterRequest, JoinClusterResponse, Levels};
use tokio::time::{Instant, sleep};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tracing::warn;

use crate::config::{NodeConfig, Role};

/// Asks until somebody who leads has an answer.
pub async fn ask(config: &NodeConfig, address: &str, token: &JoinToken) -> Result<JoinClusterResponse> {
    let request = JoinClusterRequest {
        token: token.to_string(),
        broker: config.has_role(Role::Broker),
        coordinator: config.has_role(Role::Coordinator),
        levels: Some(Levels::ours()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let deadline = Instant::now() + PATIENCE;
    let mut backoff = BACKOFF_FIRST;
    let mut is_told = false;
    loop {
        let cause = match ask_once(address, &request).await? {
            Ok(answer) => return judged(answer),
            Err(cause) => cause,
        };
        if Instant::now() + backoff >= deadline {
            bail!(
                "no coordinator that leads answers at {address}, for {} s: {cause}; --join takes a coordinator's address (port \
                 9093 unless that says otherwise), which listens beyond its own machine only with --coordinator-listen",
                PATIENCE.as_secs()
            );
        }
        if !std::mem::replace(&mut is_told, true) {
            warn!(address, cause, "no coordinator answers yet, asking again");
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

fn judged(answer: JoinClusterResponse) -> Result<JoinClusterResponse> {
    let error = answer.error.clone().unwrap_or_default();
    if error.code != i32::from(ErrorCode::None.code()) {
        bail!("the cluster does not let this node in: {}", error.message);
    }
    if let Some(wrong) = answer.coordinators.iter().find(|peer| peer.parse::<CoordinatorPeer>().is_err()) {
        bail!("the cluster names a coordinator '{wrong}', which is no id@host:port; are both of one version?");
    }
    Ok(answer)
}

/// The address and whom it names as the leader, each once. The inner error is worth another round.
async fn ask_once(address: &str, request: &JoinClusterRequest) -> Result<Result<JoinClusterResponse, String>> {
    let mut left = VecDeque::from([address.to_owned()]);
    let mut asked = Vec::new();
    let mut cause = String::new();
    while let Some(address) = left.pop_front() {
        if asked.contains(&address) {
            continue;
        }
        asked.push(address.clone());
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| anyhow!("--join: '{address}' is not HOST[:PORT]"))?;
        let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy();
        let mut call = tonic::Request::new(request.clone());
        call.set_timeout(CALL_TIMEOUT);
        let status = match NodesClient::new(channel).join(call).await {
            Ok(answer) => return Ok(Ok(answer.into_inner())),
            Err(status) => status,
        };
        if status.code() == Code::Unimplemented {
            bail!(
                "the coordinator at {address} is of a version before there were tokens; start the newer version there, and \
                 raise the cluster's level: thalweg cluster upgrade status"
            );
        }
        let leader = status.metadata().get(LEADER).and_then(|leader| leader.to_str().ok());
        if let Some((_, leader)) = leader.and_then(|leader| leader.split_once('@')) {
            left.push_back(leader.to_owned());
        }
        cause = format!("{address}: {}", told(&status));
    }
    Ok(Err(cause))
}

/// The innermost cause, which is what the machine said.
fn told(status: &Status) -> String {
    let innermost = successors(status.source(), |cause: &&(dyn Error + 'static)| (*cause).source()).last();
    innermost.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

const LEADER: &str = "thalweg-leader";
const PATIENCE: Duration = Duration::from_secs(60);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
