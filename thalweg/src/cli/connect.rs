//! Which cluster a verb talks to, and what to say when nobody answers.

use std::time::{Duration, Instant};

use clap::Args;
use thalweg_client::{Client, ClientConfig, ClientError};

use super::failure::Failure;
use super::profile::Profiles;

/// Options of every verb that talks to a cluster.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Broker addresses, host:port, comma-separated; one that answers is enough. Left out: THALWEG_BROKERS, then the
    /// profile in use, then 127.0.0.1:9092
    #[arg(short = 'b', long, visible_alias = "bootstrap-server", value_name = "ADDRESSES", conflicts_with = "profile")]
    brokers: Option<String>,
    /// Use this profile, over THALWEG_BROKERS; see `thalweg profile`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// How long to wait for an answer, in seconds [default: the profile's, or 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
}

/// Where to connect, and who said so.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    brokers: String,
    timeout_s: u64,
    source: Source,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    Flag,
    Environment,
    Profile(String),
    Default,
}

impl Connection {
    /// # Errors
    /// Nobody answers; says which address was tried, for how long, and what to check.
    pub async fn open(&self) -> Result<Client, Failure> {
        let target = self.target(variable("THALWEG_BROKERS"), variable("THALWEG_PROFILE"), Profiles::read)?;
        let timeout = Duration::from_secs(target.timeout_s);
        let mut config = ClientConfig::new(&target.brokers).request_timeout(timeout);
        config.connect_timeout = config.connect_timeout.min(timeout);
        let started = Instant::now();
        match Client::connect(config).await {
            Err(ClientError::Unreachable { addresses, cause }) => {
                let tried = started.elapsed().as_secs_f64();
                Err(Failure::unreachable(
                    &addresses,
                    &cause,
                    &format!("tried for {tried:.1} s{}", target.source.said()),
                ))
            }
            result => Ok(result?),
        }
    }

    /// Whether nobody says which brokers to ask.
    pub fn is_default(&self) -> bool {
        let target = self.target(variable("THALWEG_BROKERS"), variable("THALWEG_PROFILE"), Profiles::read);
        target.is_ok_and(|target| target.source == Source::Default)
    }

    /// The order of who is heard: -b, --profile, the two variables, the profile in use, the default.
    fn target(
        &self,
        environment_brokers: Option<String>,
        environment_profile: Option<String>,
        profiles: impl FnOnce() -> Result<Profiles, Failure>,
    ) -> Result<Target, Failure> {
        let of_brokers =
            |brokers: String, source| Target { brokers, timeout_s: self.timeout.unwrap_or(TIMEOUT_S), source };
        if let Some(brokers) = &self.brokers {
            return Ok(of_brokers(brokers.clone(), Source::Flag));
        }
        if let (None, Some(brokers)) = (&self.profile, environment_brokers) {
            return Ok(of_brokers(brokers, Source::Environment));
        }
        let named = self.profile.clone().or(environment_profile);
        let profiles = profiles()?;
        match profiles.find(named.as_deref())? {
            Some((name, profile)) => Ok(Target {
                brokers: profile.brokers.clone(),
                timeout_s: self.timeout.or(profile.timeout).unwrap_or(TIMEOUT_S),
                source: Source::Profile(name.to_owned()),
            }),
            None => Ok(of_brokers(BROKERS.to_owned(), Source::Default)),
        }
    }
}

impl Source {
    fn said(&self) -> String {
        match self {
            Source::Flag => String::new(),
            Source::Environment => ", from THALWEG_BROKERS".to_owned(),
            Source::Profile(name) => format!(", from profile {name}"),
            Source::Default => ", the default".to_owned(),
        }
    }
}

/// A variable that is set to nothing counts as not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

const BROKERS: &str = "127.0.0.1:9092";
const TIMEOUT_S: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn target(flag: Option<&str>, profile: Option<&str>, variables: [Option<&str>; 2]) -> Result<Target, Failure> {
        let text =
            "current = 'home'\n[profiles.home]\nbrokers = 'h:1'\ntimeout = 5\n[profiles.work]\nbrokers = 'w:1'\n";
        let connection =
            Connection { brokers: flag.map(str::to_owned), profile: profile.map(str::to_owned), timeout: None };
        let [brokers, named] = variables.map(|value| value.map(str::to_owned));
        connection.target(brokers, named, || Profiles::parse(text))
    }

    #[test]
    fn a_flag_is_heard_before_the_environment_and_that_before_the_profile_in_use() {
        let brokers = |flag, profile, variables| target(flag, profile, variables).unwrap().brokers;
        assert_eq!(brokers(Some("f:1"), None, [Some("e:1"), Some("work")]), "f:1");
        assert_eq!(brokers(None, Some("work"), [Some("e:1"), None]), "w:1");
        assert_eq!(brokers(None, None, [Some("e:1"), Some("work")]), "e:1");
        assert_eq!(brokers(None, None, [None, Some("work")]), "w:1");
        let used = target(None, None, [None, None]).unwrap();
        assert_eq!(used, Target { brokers: "h:1".into(), timeout_s: 5, source: Source::Profile("home".into()) });
    }

    #[test]
    fn a_profile_that_does_not_exist_is_not_replaced_by_another() {
        assert_eq!(target(None, Some("wrok"), [None, None]).unwrap_err().code(), 3);
    }
}
