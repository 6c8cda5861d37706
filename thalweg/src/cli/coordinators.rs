//! Which coordinators a verb talks to, over their own gRPC, and how it finds the one that leads.

use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::iter::successors;
use std::time::Duration;

use clap::Args;
use thalweg_client::ClientError;
use thalweg_proto::v1::KafkaError;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use super::connect::Connection;
use super::failure::Failure;

/// Options of every verb that talks to the coordinators.
#[derive(Debug, Args)]
pub struct Connect {
    /// Coordinators to ask, host:port with commas between. Left out: those that the brokers name
    #[arg(long, env = "THALWEG_COORDINATORS", value_delimiter = ',', value_name = "ADDRESSES")]
    coordinators: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Whom to ask first, and who said so.
#[derive(Debug)]
pub struct Coordinators {
    addresses: Vec<String>,
    source: Source,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    Named,
    /// The brokers, asked at these addresses.
    Brokers(String),
    /// No broker answers where one is unless somebody says otherwise: this is what was tried.
    Default(String),
}

impl Connect {
    /// Those that are named, or else those that a broker names; the one that leads first.
    ///
    /// # Errors
    /// No broker answers, or it knows of no coordinators.
    pub async fn find(&self) -> Result<Coordinators, Failure> {
        if !self.coordinators.is_empty() {
            return Ok(Coordinators { addresses: self.coordinators.clone(), source: Source::Named });
        }
        let client = match self.connection.open().await {
            Ok(client) => client,
            // A node that is no broker serves here.
            Err(failure) if self.connection.is_default() => {
                let source = Source::Default(failure.message().to_owned());
                return Ok(Coordinators { addresses: vec![DEFAULT.to_owned()], source });
            }
            Err(failure) => return Err(failure),
        };
        let metadata = client.metadata();
        let brokers: Vec<String> =
            metadata.brokers.values().map(|broker| format!("{}:{}", broker.host, broker.port)).collect();
        let brokers = brokers.join(",");
        let cause = match client.admin().quorum().await {
            Ok(members) if members.is_empty() => "it tells no addresses".to_owned(),
            Ok(members) => {
                let addresses = members.into_iter().map(|member| member.address).collect();
                return Ok(Coordinators { addresses, source: Source::Brokers(brokers) });
            }
            Err(ClientError::UnsupportedApi { .. }) => "it is of a version that cannot be asked".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Failure::no_cluster(format!(
            "a broker of {brokers} answers, but does not name the coordinators: {cause}; wait for an election, or name them with \
             --coordinators HOST:PORT"
        )))
    }
}

impl Coordinators {
    /// Asks the coordinators in turn, and whom they name as their leader, until one has an answer.
    ///
    /// # Errors
    /// Nobody who leads answers; says whom it tried, what each said, and what to check. The leader is of a version that does not
    /// know the call.
    pub async fn call<T, Fut>(&self, call: impl Fn(Channel) -> Fut) -> Result<T, Failure>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut left: VecDeque<String> = self.addresses.iter().cloned().collect();
        let (mut asked, mut answers, mut older) = (Vec::new(), Vec::new(), None);
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
            answers.push(format!("{address}: {}", said(&status)));
        }
        if let Some(older) = older {
            let message = format!(
                "the coordinator at {older} is of an earlier version, which cannot be asked this, and nobody else who leads \
                 answers; start the newer version there, or hand the lead to a coordinator that has it: thalweg coordinator \
                 transfer"
            );
            return Err(Failure::failed(message));
        }
        Err(Failure::no_cluster(self.nobody(&answers.join("; "))))
    }

    fn nobody(&self, answers: &str) -> String {
        match &self.source {
            Source::Named => format!(
                "no coordinator that leads answers ({answers}); name others with --coordinators, leave it out to be told by a \
                 broker (-b), or wait for an election"
            ),
            Source::Brokers(brokers) => format!(
                "no coordinator that leads answers ({answers}); these are the addresses that the brokers at {brokers} name: \
                 check that they can be reached from this machine, name others with --coordinators, or wait for an election"
            ),
            Source::Default(brokers) => format!(
                "{brokers}; nor does a coordinator that leads ({answers}): name a broker with -b, or coordinators with \
                 --coordinators"
            ),
        }
    }
}

/// The innermost cause, which is what the machine said.
fn said(status: &Status) -> String {
    let innermost = successors(status.source(), |cause: &&(dyn Error + 'static)| (*cause).source()).last();
    innermost.map_or_else(|| status.message().to_owned(), ToString::to_string)
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

const DEFAULT: &str = "127.0.0.1:9093";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A node that is to be added may have much to catch up with.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
