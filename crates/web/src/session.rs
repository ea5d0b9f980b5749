//! Sessions of visitors, and the one-time token that begins the first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bandsaw::Result;
use bandsaw::sync::Mutex;
use tokio::sync::Semaphore;

use crate::key_ring::KeyRing;
use crate::options::Limits;
use crate::token::Token;

/// Sessions at a time; another one ends the one that was unused for longest.
const MAX_SESSIONS: usize = 64;
/// Notes that wait for the next page of a session.
const MAX_NOTES: usize = 8;

/// The session of one visitor.
#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    cookie: Token,
    csrf: Token,
    began: Instant,
    used: Mutex<Instant>,
    requests: Arc<Semaphore>,
    keys: KeyRing,
    notes: Mutex<VecDeque<String>>,
}

impl Session {
    /// Returns a number that no other session of the server has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the value of the cookie.
    pub(crate) fn cookie(&self) -> &str {
        self.cookie.reveal()
    }

    /// Returns the token that each change has to bring.
    pub(crate) fn csrf(&self) -> &Token {
        &self.csrf
    }

    /// Returns the permits for requests at the same time.
    pub(crate) fn requests(&self) -> &Arc<Semaphore> {
        &self.requests
    }

    /// Returns the passphrases.
    pub(crate) fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Counts as use of the session.
    pub(crate) fn touch(&self, now: Instant) {
        *self.used.lock() = now;
    }

    /// Adds a note for the next page.
    pub(crate) fn add_note(&self, text: String) {
        let mut notes = self.notes.lock();
        if notes.len() >= MAX_NOTES {
            notes.pop_front();
        }
        notes.push_back(text);
    }

    /// Returns the notes since the last page.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        self.notes.lock().drain(..).collect()
    }
}

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    state: Mutex<SessionTable>,
    idle_time: Duration,
    session_time: Duration,
    session_requests: usize,
}

#[derive(Debug)]
struct SessionTable {
    /// The one-time token, and its end.
    invitation: Option<(Token, Instant)>,
    open: Vec<Arc<Session>>,
    count: u64,
}

impl Sessions {
    /// Returns a table without sessions, and the one-time token.
    pub(crate) fn new(limits: &Limits, now: Instant) -> Result<(Self, String)> {
        let token = Token::new()?;
        let address = token.reveal().to_owned();
        let state = SessionTable {
            invitation: Some((token, now + limits.invitation_time)),
            open: Vec::new(),
            count: 0,
        };
        let sessions = Self {
            state: Mutex::new(state),
            idle_time: limits.idle_time,
            session_time: limits.session_time,
            session_requests: limits.session_requests,
        };
        Ok((sessions, address))
    }

    /// Exchanges the one-time token for a session. `None` if it is wrong, used or expired.
    pub(crate) fn redeem(&self, token: &[u8], now: Instant) -> Result<Option<Arc<Session>>> {
        let mut state = self.state.lock();
        let is_valid = state
            .invitation
            .as_ref()
            .is_some_and(|(expected, end)| now < *end && expected.is(token));
        if !is_valid {
            return Ok(None);
        }
        let session = self.open(&mut state, now)?;
        state.invitation = None;
        Ok(Some(session))
    }

    /// Begins a session of a visitor who gave the password.
    pub(crate) fn begin(&self, now: Instant) -> Result<Arc<Session>> {
        self.open(&mut self.state.lock(), now)
    }

    fn open(&self, state: &mut SessionTable, now: Instant) -> Result<Arc<Session>> {
        state.count += 1;
        let session = Arc::new(Session {
            number: state.count,
            cookie: Token::new()?,
            csrf: Token::new()?,
            began: now,
            used: Mutex::new(now),
            requests: Arc::new(Semaphore::new(self.session_requests)),
            keys: KeyRing::default(),
            notes: Mutex::default(),
        });
        let unused = |(_, session): &(usize, &Arc<Session>)| *session.used.lock();
        if state.open.len() >= MAX_SESSIONS
            && let Some((oldest, _)) = state.open.iter().enumerate().min_by_key(unused)
        {
            state.open.swap_remove(oldest).keys.clear();
        }
        state.open.push(session.clone());
        Ok(session)
    }

    /// Returns the session with this cookie, and counts that as use. Each is compared in constant
    /// time, and all of them are.
    pub(crate) fn find(&self, cookie: &[u8], now: Instant) -> Option<Arc<Session>> {
        let state = self.state.lock();
        let mut found = None;
        for session in &state.open {
            if session.cookie.is(cookie) {
                found = Some(session.clone());
            }
        }
        drop(state);
        let session = found.filter(|session| !self.is_over(session, now))?;
        *session.used.lock() = now;
        Some(session)
    }

    /// Ends a session.
    pub(crate) fn end(&self, session: &Session) {
        let mut state = self.state.lock();
        state.open.retain(|open| open.number != session.number);
        session.keys.clear();
    }

    /// Ends the sessions whose time is over, and returns their numbers.
    pub(crate) fn expire(&self, now: Instant) -> Vec<u64> {
        let mut state = self.state.lock();
        if state
            .invitation
            .as_ref()
            .is_some_and(|(_, end)| now >= *end)
        {
            state.invitation = None;
        }
        let (over, open): (Vec<_>, Vec<_>) = std::mem::take(&mut state.open)
            .into_iter()
            .partition(|session| self.is_over(session, now));
        state.open = open;
        drop(state);
        for session in &over {
            session.keys.clear();
        }
        over.iter().map(|session| session.number).collect()
    }

    /// Returns true if there is no session, and the one-time token begins none.
    pub(crate) fn is_over_for_all(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let is_invited = |(_, end): &(Token, Instant)| now < *end;
        !state.invitation.as_ref().is_some_and(is_invited)
            && state.open.iter().all(|session| self.is_over(session, now))
    }

    /// Returns the open sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.state.lock().open.clone()
    }

    fn is_over(&self, session: &Session, now: Instant) -> bool {
        let since = |time: Instant| now.saturating_duration_since(time);
        since(*session.used.lock()) >= self.idle_time || since(session.began) >= self.session_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> (Sessions, String, Instant, Limits) {
        let (limits, now) = (Limits::default(), Instant::now());
        let (sessions, token) = Sessions::new(&limits, now).unwrap();
        (sessions, token, now, limits)
    }

    #[test]
    fn the_token_is_valid_once_and_for_a_time() {
        let (sessions, token, now, limits) = sessions();
        assert!(sessions.redeem(b"wrong", now).unwrap().is_none());
        assert!(!sessions.is_over_for_all(now));
        assert!(sessions.is_over_for_all(now + limits.invitation_time));
        assert!(sessions.redeem(token.as_bytes(), now).unwrap().is_some());
        assert!(sessions.redeem(token.as_bytes(), now).unwrap().is_none());
        let (sessions, token) = Sessions::new(&limits, now).unwrap();
        let late = now + limits.invitation_time;
        assert!(sessions.redeem(token.as_bytes(), late).unwrap().is_none());
    }

    #[test]
    fn sessions_end_when_idle_and_after_their_time() {
        let (sessions, _, now, limits) = sessions();
        let session = sessions.begin(now).unwrap();
        let cookie = session.cookie().as_bytes();
        assert!(sessions.find(cookie, now + limits.idle_time / 2).is_some());
        assert!(sessions.find(cookie, now + limits.idle_time).is_some());
        assert!(sessions.find(cookie, now + 2 * limits.idle_time).is_none());
        let session = sessions.begin(now).unwrap();
        let cookie = session.cookie().as_bytes();
        let mut at = now;
        while at < now + limits.session_time {
            assert!(sessions.find(cookie, at).is_some());
            at += limits.idle_time / 2;
        }
        assert!(sessions.find(cookie, at).is_none());
        assert_eq!(sessions.expire(at).len(), 2);
        assert!(sessions.all().is_empty());
    }

    #[test]
    fn an_ended_session_is_unknown_and_their_number_is_bounded() {
        let (sessions, _, now, _) = sessions();
        let session = sessions.begin(now).unwrap();
        sessions.end(&session);
        assert!(sessions.find(session.cookie().as_bytes(), now).is_none());
        for at in 0..1000 {
            sessions.begin(now + Duration::from_millis(at)).unwrap();
        }
        assert_eq!(sessions.all().len(), MAX_SESSIONS);
    }
}
