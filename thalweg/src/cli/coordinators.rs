//! Which coordinators a verb talks to, over their own gRPC, and how it finds the one that leads.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use clap::Args;
use thalweg_proto::v1::KafkaError;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use super::failure::Failure;

/// Options of every verb that talks to the coordinators.
#[derive(Debug, Args)]
pub struct Connect {
    /// Coordinators to ask first, host:port with commas between
    #[arg(long, env = "THALWEG_COORDINATORS", value_delimiter = ',', default_value = "127.0.0.1:9093")]
    coordinators: Vec<String>,
}

impl Connect {
    /// Asks the coordinators named in turn, and whom they name as their leader, until one has an answer.
    ///
    /// # Errors
    /// Nobody who leads answers; says whom it tried. The leader is of a version that does not know the call.
    pub async fn call<T, Fut>(&self, call: impl Fn(Channel) -> Fut) -> Result<T, Failure>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut left: VecDeque<String> = self.coordinators.iter().cloned().collect();
        let (mut asked, mut last, mut older) = (Vec::new(), String::new(), None);
        while let Some(address) = left.pop_front() {
            if asked.contains(&address) {
                continue;
            }
            asked.push(address.clone());
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .map_err(|_| Failure::usage(format!("'{address}' is not host:port")))?;
            let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy();
            let status = match call(channel).await {
                Ok(answer) => return Ok(answer.into_inner()),
                // It may not lead: only whoever knows the call says who does.
                Err(status) if status.code() == Code::Unimplemented => {
                    older = Some(address);
                    continue;
                }
                Err(status) => status,
            };
            let leader = status.metadata().get("thalweg-leader").and_then(|leader| leader.to_str().ok());
            if let Some((_, leader)) = leader.and_then(|leader| leader.split_once('@')) {
                left.push_front(leader.to_owned());
            }
            last = status.message().to_owned();
        }
        if let Some(older) = older {
            let message = format!(
                "the coordinator at {older} is of an earlier version, which cannot be asked this, and nobody else who leads \
                 answers; start the newer version there, or hand the lead to a coordinator that has it: thalweg coordinator \
                 transfer"
            );
            return Err(Failure::failed(message));
        }
        let named = self.coordinators.join(",");
        let message = format!(
            "no coordinator that leads answers at {named}: {last}; name others with --coordinators, or wait for an election"
        );
        Err(Failure::no_cluster(message))
    }
}

/// # Errors
/// What the coordinators refuse, in their words.
pub fn told(error: Option<KafkaError>) -> Result<(), Failure> {
    match error {
        Some(error) if error.code != 0 => Err(Failure::failed(error.message)),
        Some(_) | None => Ok(()),
    }
}

/// A request that is not waited for without end.
pub fn in_time<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A node that is to be added may have much to catch up with.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
