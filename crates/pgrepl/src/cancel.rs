//! Cancelling what a connection is doing, over a second one.
//!
//! <https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS>

use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Error;
use crate::config::Config;
use crate::protocol::backend::BackendKey;

/// CancelRequest's place in the version field.
const CANCEL_REQUEST_CODE: i32 = 80_877_102;

/// Cancels the running command of one connection; usable from any task.
#[derive(Clone)]
pub struct CancelHandle {
    config: Config,
    key: BackendKey,
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle").field("pid", &self.key.pid).finish_non_exhaustive()
    }
}

impl CancelHandle {
    pub(crate) fn new(config: Config, key: BackendKey) -> Self {
        Self { config, key }
    }

    /// Asks the server to cancel, and returns when it has taken the request. A command that was running ends with
    /// SQLSTATE 57014; if none was, nothing happens.
    ///
    /// # Errors
    ///
    /// Transient: the server could not be reached.
    ///
    /// # Cancel safety
    ///
    /// The request may or may not have been sent when the future is dropped.
    pub async fn cancel(&self) -> Result<(), Error> {
        let mut transport = self.config.connect_transport().await?;
        let mut request = BytesMut::new();
        let length = self.key.secret.len().saturating_add(12);
        request.put_i32(i32::try_from(length).map_err(|_| Error::protocol("the cancel key is too long"))?);
        request.put_i32(CANCEL_REQUEST_CODE);
        request.put_i32(self.key.pid);
        request.put_slice(&self.key.secret);
        let failed = |source| Error::io("cannot send the cancel request", source);
        transport.write_all(&request).await.map_err(failed)?;
        transport.flush().await.map_err(failed)?;
        // The server answers by closing.
        let mut rest = [0; 16];
        while matches!(transport.read(&mut rest).await, Ok(count) if count > 0) {}
        Ok(())
    }
}
