//! Messages of one stream to changes with identities and positions.
//!
//! Pure: no I/O, no clock. One [`Assembler`] lives as long as one START_REPLICATION.
//!
//! Changes leave while their transaction is still being read, except for the latest one, which is held until the next
//! message: so the last change of a transaction carries the position *behind* the transaction, and a position
//! never needs a record of its own.

use std::sync::Arc;

use bytes::Bytes;
use crabka_connect::ConnectError;
use crabka_pgoutput::{Begin, Commit, LogicalMessage as WireMessage, OldTuple, OldTupleKind, unix_us};
use crabka_pgrepl::Lsn;

use crate::event::{
    Body, ChangeEvent, ChangePart, LogicalMessage, OldRow, Operation, Origin, SourceInfo, Transaction,
};
use crate::position::{OpenTransaction, Position};
use crate::relation::Relation;

/// A change, and the position behind it.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) event: ChangeEvent,
    pub(crate) position: Position,
}

/// A batch of items on its way to the source.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    /// Bytes of the server's messages that the items hold on to.
    pub(crate) bytes: usize,
}

impl Batch {
    /// Position behind its last change, and the commit time of its first change that has one.
    pub(crate) fn extent(&self) -> Option<(Position, Option<i64>)> {
        let commit_time = |item: &Item| Some(item.event.transaction.as_ref()?.commit_time_us);
        Some((self.items.last()?.position, self.items.iter().find_map(commit_time)))
    }
}

/// The transaction being read.
#[derive(Debug)]
struct Open {
    xid: u32,
    commit_lsn: Lsn,
    commit_time_us: i64,
    origin: Option<Origin>,
    /// Made with the first change, when an Origin message can no longer come.
    transaction: Option<Arc<Transaction>>,
    /// Ordinal of the next change: its index among all that the server sent of the transaction, captured or not, so
    /// that it does not depend on what is captured today.
    next: u64,
    /// Changes before this ordinal were delivered by an earlier run.
    delivered: u64,
    held: Option<ChangeEvent>,
}

#[derive(Debug)]
pub(crate) struct Assembler {
    source: Arc<SourceInfo>,
    /// Behind everything read so far.
    position: Position,
    /// Behind the last item that left.
    emitted: Position,
    resume: Option<OpenTransaction>,
    open: Option<Open>,
    batch: Batch,
}

impl Assembler {
    /// Continues at `position`.
    pub(crate) fn new(source: Arc<SourceInfo>, position: Position) -> Self {
        Self {
            source,
            position: Position { open: None, ..position },
            emitted: position,
            resume: position.open,
            open: None,
            batch: Batch::default(),
        }
    }

    /// The transaction being read.
    pub(crate) fn xid(&self) -> Option<u32> {
        self.open.as_ref().map(|open| open.xid)
    }

    /// What has left the assembler's hold and was not taken yet.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Takes it.
    pub(crate) fn take_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// Behind the last item that left.
    pub(crate) fn emitted(&self) -> Position {
        self.emitted
    }

    pub(crate) fn begin(&mut self, begin: &Begin) -> Result<(), ConnectError> {
        if self.open.is_some() {
            return Err(broken("Begin inside a transaction", begin.final_lsn));
        }
        let commit_lsn = Lsn::new(begin.final_lsn);
        let delivered = match self.resume.take() {
            Some(resume) if resume.commit_lsn == commit_lsn => resume.delivered,
            Some(resume) => {
                tracing::warn!(
                    expected = %resume.commit_lsn, found = %commit_lsn,
                    "the partly delivered transaction did not come again"
                );
                0
            }
            None => 0,
        };
        self.open = Some(Open {
            xid: begin.xid,
            commit_lsn,
            commit_time_us: unix_us(begin.commit_time_us),
            origin: None,
            transaction: None,
            next: 0,
            delivered,
            held: None,
        });
        Ok(())
    }

    pub(crate) fn origin(&mut self, lsn: u64, name: &str) {
        if let Some(open) = &mut self.open {
            open.origin = Some(Origin { name: name.to_owned(), lsn: Lsn::new(lsn) });
        }
    }

    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<(), ConnectError> {
        let open =
            self.open.take().ok_or_else(|| broken("Commit outside a transaction", commit.commit_lsn))?;
        if open.commit_lsn.as_u64() != commit.commit_lsn {
            return Err(broken("Commit of another transaction than Begin", commit.commit_lsn));
        }
        if open.next < open.delivered {
            return Err(ConnectError::offset(format!(
                "the transaction that was partly delivered came again with fewer changes: commit {}, delivered {}, now {}",
                open.commit_lsn, open.delivered, open.next
            ))
            .with_fix(
                "its publication publishes less than before: to read the whole transaction again, remove \
                 transaction_commit_lsn and transaction_changes_delivered from the stored offset",
            ));
        }
        let end_lsn = Lsn::new(commit.end_lsn);
        self.position = Position {
            resume_lsn: self.position.resume_lsn.max(end_lsn),
            last_commit_end_lsn: Some(end_lsn),
            open: None,
        };
        if let Some(event) = open.held {
            self.emit(event, self.position);
        }
        Ok(())
    }

    /// A row change of a captured table. `payload` is the message the tuples are part of.
    pub(crate) fn row(
        &mut self,
        relation: &Arc<Relation>,
        operation: Operation,
        lsn: Lsn,
        payload: &Bytes,
        old: Option<OldTuple<'_>>,
        new: Option<crabka_pgoutput::Tuple<'_>>,
    ) -> Result<(), ConnectError> {
        let body = Body::Row {
            relation: Arc::clone(relation),
            old: old.map(|old| OldRow {
                tuple: payload.slice_ref(old.tuple.as_bytes()),
                full: old.kind == OldTupleKind::Full,
            }),
            new: new.map(|new| payload.slice_ref(new.as_bytes())),
        };
        self.change(operation, lsn, body, payload.len())
    }

    /// A change of the open transaction that gives no record.
    pub(crate) fn uncaptured(&mut self, lsn: Lsn) -> Result<(), ConnectError> {
        let open = self.open.as_mut().ok_or_else(|| broken("change outside a transaction", lsn.as_u64()))?;
        open.next = open.next.saturating_add(1);
        Ok(())
    }

    /// A truncated table that is captured.
    pub(crate) fn truncate(
        &mut self,
        relation: &Arc<Relation>,
        lsn: Lsn,
        cascade: bool,
        restart_identity: bool,
    ) -> Result<(), ConnectError> {
        let body = Body::Truncate { relation: Arc::clone(relation), cascade, restart_identity };
        self.change(Operation::Truncate, lsn, body, 0)
    }

    pub(crate) fn message(&mut self, message: &WireMessage<'_>, payload: &Bytes) -> Result<(), ConnectError> {
        let lsn = Lsn::new(message.lsn);
        let body = Body::Message(Box::new(LogicalMessage {
            transactional: message.transactional,
            prefix: message.prefix.to_owned(),
            content: payload.slice_ref(message.content),
        }));
        if message.transactional {
            return self.change(Operation::Message, lsn, body, payload.len());
        }
        if self.open.is_some() {
            return Err(broken("non-transactional message inside a transaction", message.lsn));
        }
        // Its LSN is the end of its WAL record and so a resume point of its own.
        self.position.resume_lsn = self.position.resume_lsn.max(lsn);
        let event = self.event(Operation::Message, lsn, body);
        self.batch.bytes = self.batch.bytes.saturating_add(payload.len());
        self.emit(event, self.position);
        Ok(())
    }

    /// The transaction being read: its id, the changes read so far, its commit time.
    pub(crate) fn reading(&self) -> Option<(u32, u64, i64)> {
        self.open.as_ref().map(|open| (open.xid, open.next, open.commit_time_us))
    }

    /// A keepalive: everything that committed before `wal_end` has been read, unless a transaction is open.
    pub(crate) fn keepalive(&mut self, wal_end: Lsn) {
        if self.open.is_none() && self.resume.is_none() {
            self.position.resume_lsn = self.position.resume_lsn.max(wal_end);
        }
    }

    /// Whether the stream has moved behind the last item: an idle position that a heartbeat can carry.
    pub(crate) fn has_idle_progress(&self) -> bool {
        self.open.is_none() && self.resume.is_none() && self.position.resume_lsn > self.emitted.resume_lsn
    }

    /// Emits a heartbeat with the idle position.
    pub(crate) fn heartbeat(&mut self) {
        let event = self.event(Operation::Heartbeat, self.position.resume_lsn, Body::Heartbeat);
        self.emit(event, self.position);
    }

    fn change(
        &mut self,
        operation: Operation,
        lsn: Lsn,
        body: Body,
        bytes: usize,
    ) -> Result<(), ConnectError> {
        let open = self.open.as_mut().ok_or_else(|| broken("change outside a transaction", lsn.as_u64()))?;
        let ordinal = open.next;
        open.next = open.next.saturating_add(1);
        if ordinal < open.delivered {
            return Ok(());
        }
        let transaction = open.transaction.get_or_insert_with(|| {
            Arc::new(Transaction {
                xid: open.xid,
                commit_lsn: open.commit_lsn,
                commit_time_us: open.commit_time_us,
                origin: open.origin.take(),
                previous_end_lsn: self.position.last_commit_end_lsn,
            })
        });
        let event = ChangeEvent {
            operation,
            part: ChangePart::Whole,
            lsn,
            ordinal,
            transaction: Some(Arc::clone(transaction)),
            source: Arc::clone(&self.source),
            body,
        };
        let partly = OpenTransaction { commit_lsn: open.commit_lsn, delivered: ordinal };
        self.batch.bytes = self.batch.bytes.saturating_add(bytes);
        if let Some(held) = open.held.replace(event) {
            let position = Position { open: Some(partly), ..self.position };
            self.emit(held, position);
        }
        Ok(())
    }

    fn event(&self, operation: Operation, lsn: Lsn, body: Body) -> ChangeEvent {
        ChangeEvent {
            operation,
            part: ChangePart::Whole,
            lsn,
            ordinal: 0,
            transaction: None,
            source: Arc::clone(&self.source),
            body,
        }
    }

    fn emit(&mut self, event: ChangeEvent, position: Position) {
        self.emitted = position;
        self.batch.items.push(Item { event, position });
    }
}

fn broken(what: &str, lsn: u64) -> ConnectError {
    ConnectError::bug(format!("the stream broke its order: {what} at {}", Lsn::new(lsn)))
}

#[cfg(test)]
mod tests;
