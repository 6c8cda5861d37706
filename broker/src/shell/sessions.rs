//! The fetch sessions of this broker behind one lock; what they decide is in [`crate::machine::fetch_session`].

use std::sync::Mutex;

use thalweg_model::ErrorCode;

use crate::machine::fetch_session::{Answered, FetchPlan, FetchSessions, SessionRequest};
use crate::services::Services;

/// Shared by every connection.
#[derive(Debug)]
pub struct SharedSessions {
    sessions: Mutex<FetchSessions>,
}

impl SharedSessions {
    pub fn new(slots: usize) -> SharedSessions {
        SharedSessions { sessions: Mutex::new(FetchSessions::new(slots)) }
    }

    /// # Errors
    /// As [`FetchSessions::begin`].
    pub fn begin(&self, services: &Services, request: SessionRequest) -> Result<FetchPlan, ErrorCode> {
        let mut sessions = self.sessions.lock().expect("no code panics while it holds this lock");
        let plan = sessions.begin(services.clock.mono(), request, || rand::random_range(1..=i32::MAX));
        services.metrics.fetch_sessions.set(i64::try_from(sessions.session_count()).unwrap_or(i64::MAX));
        plan
    }

    pub fn finish(&self, plan: &FetchPlan, answers: &[Answered]) -> Vec<bool> {
        self.sessions.lock().expect("no code panics while it holds this lock").finish(plan, answers)
    }
}
