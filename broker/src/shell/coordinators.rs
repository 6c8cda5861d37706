//! Calls to the coordinators: whoever leads them is found by asking.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use thalweg_model::ErrorCode;
use thiserror::Error;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// The coordinators of this broker's cluster. One per broker; calls of any number of tasks share its connections.
#[derive(Debug)]
pub struct Coordinators {
    seeds: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    channels: HashMap<String, Channel>,
    /// `host:port` of the leader, as last heard.
    leader: Option<String>,
    /// Which seed to ask when no leader is known.
    next_seed: usize,
    /// Others that are part of the cluster now, asked as the seeds are.
    others: Vec<String>,
}

/// Why a call to the coordinators has no answer.
#[derive(Clone, Debug, Error)]
pub enum CoordinatorError {
    /// Nobody answered as the leader in time; the call had no effect.
    #[error("no coordinator leads: {reason}")]
    Unavailable { reason: String },
    /// The answer was lost; whether the call had an effect is not known.
    #[error("the coordinator's answer was lost: {reason}")]
    Unknown { reason: String },
    /// The coordinator refused the call as such: an error of the program, or versions that do not fit.
    #[error("the coordinator refused the call: {reason}")]
    Refused { reason: String },
    /// This broker and these coordinators do not belong together, whatever is tried; the way out is in the reason.
    #[error("{reason}")]
    Foreign { reason: String },
}

impl CoordinatorError {
    /// What a client that asked for an admin operation is told.
    pub fn admin_code(&self) -> ErrorCode {
        match self {
            CoordinatorError::Unavailable { .. } => ErrorCode::NotController,
            CoordinatorError::Unknown { .. } => ErrorCode::RequestTimedOut,
            CoordinatorError::Refused { .. } | CoordinatorError::Foreign { .. } => ErrorCode::UnknownServerError,
        }
    }

    /// What a member of a group is told.
    pub fn group_code(&self) -> ErrorCode {
        match self {
            CoordinatorError::Unavailable { .. } | CoordinatorError::Unknown { .. } => {
                ErrorCode::CoordinatorNotAvailable
            }
            CoordinatorError::Refused { .. } | CoordinatorError::Foreign { .. } => ErrorCode::UnknownServerError,
        }
    }
}

impl Coordinators {
    /// `seeds` as `host:port`; at least one.
    pub fn new(seeds: Vec<String>) -> Coordinators {
        Coordinators { seeds, state: Mutex::default() }
    }

    /// Runs a call against the leader, following redirections and waiting out elections for as long as `patience`.
    ///
    /// The call itself gets no deadline here (a join lasts minutes): give it one inside `call` where it should have one.
    /// It is repeated only where it certainly had no effect. Dropping the future cancels the call.
    ///
    /// # Errors
    /// See [`CoordinatorError`].
    pub async fn call<T, F, Fut>(&self, patience: Duration, mut call: F) -> Result<T, CoordinatorError>
    where
        F: FnMut(Channel) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let deadline = tokio::time::Instant::now() + patience;
        let mut backoff = BACKOFF_FIRST;
        loop {
            let (address, channel) = self.pick()?;
            let status = match call(channel).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            let verdict = verdict(&status);
            self.learn(&address, &verdict);
            match verdict {
                Verdict::Redirect { .. } | Verdict::NotSent => {}
                Verdict::Lost => return Err(CoordinatorError::Unknown { reason: reason(&status) }),
                Verdict::Refused => return Err(CoordinatorError::Refused { reason: reason(&status) }),
                Verdict::Foreign => return Err(CoordinatorError::Foreign { reason: status.message().to_owned() }),
            }
            if tokio::time::Instant::now() + backoff >= deadline {
                return Err(CoordinatorError::Unavailable { reason: reason(&status) });
            }
            // A redirection to a known leader is followed at once, but never in a tight circle.
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Who coordinates now, `host:port`, beside those whom configuration names.
    pub fn know(&self, addresses: Vec<String>) {
        let mut state = self.state.lock().expect("no code panics while it holds this lock");
        state.others = addresses.into_iter().filter(|address| !self.seeds.contains(address)).collect();
    }

    fn pick(&self) -> Result<(String, Channel), CoordinatorError> {
        let mut state = self.state.lock().expect("no code panics while it holds this lock");
        let address = self
            .address(&state)
            .ok_or_else(|| CoordinatorError::Refused { reason: "no coordinator is configured".to_owned() })?
            .to_owned();
        if let Some(channel) = state.channels.get(&address) {
            return Ok((address, channel.clone()));
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| CoordinatorError::Refused { reason: format!("bad coordinator address: {error}") })?;
        let channel = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .connect_lazy();
        state.channels.insert(address.clone(), channel.clone());
        Ok((address, channel))
    }

    /// Whom to ask next.
    fn address<'a>(&'a self, state: &'a State) -> Option<&'a str> {
        let count = self.seeds.len() + state.others.len();
        let seed = || self.seeds.iter().chain(&state.others).nth(state.next_seed % count.max(1));
        state.leader.as_ref().or_else(seed).map(String::as_str)
    }

    /// Many calls are under way at a time. Only one to whom the next would be sent has news: else 1. the leader falls
    /// silent; 2. a call learns who leads now; 3. calls to the silent one end late, and each would undo that again.
    fn learn(&self, asked: &str, verdict: &Verdict) {
        let mut state = self.state.lock().expect("no code panics while it holds this lock");
        if self.address(&state) != Some(asked) {
            return;
        }
        match verdict {
            Verdict::Redirect { leader: Some(leader) } if leader != asked => state.leader = Some(leader.clone()),
            Verdict::Redirect { .. } | Verdict::NotSent | Verdict::Lost => {
                state.leader = None;
                // A node's own address may stand there twice.
                for _ in 0..self.seeds.len() + state.others.len() {
                    state.next_seed = state.next_seed.wrapping_add(1);
                    if self.address(&state) != Some(asked) {
                        break;
                    }
                }
            }
            Verdict::Refused | Verdict::Foreign => {}
        }
    }
}

enum Verdict {
    /// This node does not lead; the leader's address if it knows one.
    Redirect {
        leader: Option<String>,
    },
    /// The connection could not be made.
    NotSent,
    Lost,
    Refused,
    Foreign,
}

fn verdict(status: &Status) -> Verdict {
    if let Some(leader) = status.metadata().get(LEADER_KEY) {
        // "id@host:port", empty if unknown.
        let address = leader.to_str().ok().and_then(|text| text.split_once('@')).map(|(_, address)| address.to_owned());
        return Verdict::Redirect { leader: address.filter(|address| !address.is_empty()) };
    }
    match status.code() {
        Code::FailedPrecondition => Verdict::Foreign,
        Code::Unavailable if never_connected(status) => Verdict::NotSent,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted => Verdict::Lost,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => Verdict::Refused,
    }
}

/// Whether the cause is that no connection came about, so that nothing was sent.
fn never_connected(status: &Status) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind::{
                AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut,
            };
            return matches!(
                io.kind(),
                ConnectionRefused | TimedOut | HostUnreachable | NetworkUnreachable | AddrNotAvailable
            );
        }
        cause = error.source();
    }
    false
}

fn reason(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

const LEADER_KEY: &str = "thalweg-leader";
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const KEEP_ALIVE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinators() -> Coordinators {
        Coordinators::new(["a", "a", "b", "c"].map(str::to_owned).to_vec())
    }

    fn next(coordinators: &Coordinators) -> String {
        coordinators.address(&coordinators.state.lock().unwrap()).unwrap().to_owned()
    }

    fn redirect(leader: &str) -> Verdict {
        Verdict::Redirect { leader: Some(leader.to_owned()) }
    }

    #[test]
    fn whoever_falls_silent_is_not_asked_again_before_the_others() {
        let coordinators = coordinators();
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(next(&coordinators));
            coordinators.learn(asked.last().unwrap(), &Verdict::Lost);
        }
        assert_eq!(asked, ["a", "b", "c", "a"]);
    }

    #[test]
    fn coordinators_that_came_later_are_asked_when_those_of_the_configuration_are_gone() {
        let coordinators = Coordinators::new(vec!["a".to_owned()]);
        coordinators.know(vec!["a".to_owned(), "d".to_owned()]);
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(next(&coordinators));
            coordinators.learn(asked.last().unwrap(), &Verdict::Lost);
        }
        assert_eq!(asked, ["a", "d", "a"]);
    }

    /// Goal: calls that end late do not undo what was learnt since. Method: many calls to a leader that fell silent end
    /// after one of them found the new one.
    #[test]
    fn late_failures_of_the_silent_leader_do_not_forget_the_new_one() {
        let coordinators = coordinators();
        coordinators.learn("a", &redirect("b"));
        assert_eq!(next(&coordinators), "b");
        coordinators.learn("b", &Verdict::Lost);
        assert_eq!(next(&coordinators), "a");
        coordinators.learn("a", &redirect("c"));
        for _ in 0..5 {
            coordinators.learn("b", &Verdict::Lost);
            coordinators.learn("b", &redirect("b"));
            coordinators.learn("a", &redirect("b"));
            assert_eq!(next(&coordinators), "c");
        }
        coordinators.learn("c", &redirect("a"));
        assert_eq!(next(&coordinators), "a");
    }
}
