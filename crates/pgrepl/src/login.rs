//! Connecting with the log-in of another library: the same hosts, addresses, kinds of encryption and
//! `target_session_attrs`, whoever logs in.

use std::future::Future;

use crate::Error;
use crate::config::{Config, TargetSession};
use crate::transport::{Transport, first_that_works, open};

/// What a server is to the session that has logged in, from the parameters it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRole {
    /// `in_hot_standby` is on.
    pub standby: bool,
    /// `default_transaction_read_only` is on.
    pub read_only: bool,
}

impl ServerRole {
    /// From the parameters that the server reported during the log-in.
    pub fn from_parameters<'a>(parameter: impl Fn(&str) -> Option<&'a str>) -> Self {
        let on = |name: &str| parameter(name) == Some("on");
        Self { standby: on("in_hot_standby"), read_only: on("default_transaction_read_only") }
    }

    pub(crate) fn check(self, target: TargetSession) -> Result<(), Error> {
        let read_only = self.standby || self.read_only;
        let (fits, wanted) = match target {
            TargetSession::Any | TargetSession::PreferStandby => (true, ""),
            TargetSession::ReadWrite => (!read_only, "read-write"),
            TargetSession::ReadOnly => (read_only, "read-only"),
            TargetSession::Primary => (!self.standby, "primary"),
            TargetSession::Standby => (self.standby, "standby"),
        };
        if fits { Ok(()) } else { Err(Error::WrongServer { wanted }) }
    }
}

impl Config {
    /// Connects to the first host that works for `log_in`, which speaks the protocol over the transport it gets, and is
    /// what `target_session_attrs` asks for.
    ///
    /// # Errors
    ///
    /// As [`ReplicationClient::connect`](crate::ReplicationClient::connect), and those of `log_in`: a refusal by the
    /// server has to come as [`Error::Server`], or the kind of encryption that would be let in is not tried.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes whatever was opened.
    pub async fn connect_with<T, LogIn, Answer>(&self, log_in: LogIn) -> Result<T, Error>
    where
        LogIn: Fn(Transport) -> Answer,
        Answer: Future<Output = Result<(T, ServerRole), Error>>,
    {
        let log_in = &log_in;
        first_that_works(self, |place, encryption| async move {
            let target = place.target;
            let (session, role) = log_in(open(self, place, encryption).await?).await?;
            role.check(target)?;
            Ok(session)
        })
        .await
    }
}
