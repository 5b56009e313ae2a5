//! What each message of the stream does.

use bytes::Bytes;
use crabka_connect::ConnectError;
use crabka_pgoutput::{Message, OldTuple, Truncate, Tuple};
use crabka_pgrepl::{Lsn, ServerMessage};

use super::relations::WireRelation;
use super::{End, PUBLICATION_FIX, Session, ended_by_feedback};
use crate::event::Operation;

impl Session {
    pub(super) async fn message(&mut self, start: Lsn, payload: Bytes) -> Result<(), ConnectError> {
        let message = self.decoder.decode(&payload).map_err(|error| {
            let behind = self.assembler.emitted().resume_lsn;
            ConnectError::bug(format!("undecodable message behind {behind}, at {start}: {error}"))
        })?;
        let at = At { start, payload: &payload };
        self.meter.payload(payload.len());
        match message {
            Message::Insert(insert) => {
                self.row(insert.relation, Operation::Insert, at, None, Some(insert.new))
            }
            Message::Update(update) => {
                self.row(update.relation, Operation::Update, at, update.old, Some(update.new))
            }
            Message::Delete(delete) => {
                self.row(delete.relation, Operation::Delete, at, Some(delete.old), None)
            }
            Message::Begin(begin) => {
                self.meter.begin();
                self.assembler.begin(&begin)
            }
            Message::Commit(commit) => {
                self.meter.commit();
                self.assembler.commit(&commit)
            }
            Message::Origin(origin) => {
                self.assembler.origin(origin.lsn, origin.name);
                Ok(())
            }
            Message::Relation(relation) => {
                let relation = WireRelation::from(&relation);
                self.relation(relation).await
            }
            Message::Truncate(truncate) => self.truncate(&truncate, start),
            Message::LogicalMessage(message) => {
                self.meter.tally.messages += 1;
                self.assembler.message(&message, &payload)
            }
            // A Type message names a type that the catalogue is asked about anyway. 18 may send a Stream Abort that
            // nobody asked for; it carries nothing outside streaming.
            Message::Type(_) | Message::StreamAbort(_) => Ok(()),
            _ => Err(ConnectError::bug(format!(
                "a message of streamed or two-phase transactions at {start}, which were not asked for"
            ))),
        }
    }

    fn row(
        &mut self,
        oid: u32,
        operation: Operation,
        at: At<'_>,
        old: Option<OldTuple<'_>>,
        new: Option<Tuple<'_>>,
    ) -> Result<(), ConnectError> {
        match self.relations.captured(oid, at.start, self.assembler.xid())? {
            Some((relation, figures)) => {
                figures.count(operation);
                self.assembler.row(relation, operation, at.start, at.payload, old, new)
            }
            None => {
                self.meter.tally.uncaptured += 1;
                self.assembler.uncaptured(at.start)
            }
        }
    }

    fn truncate(&mut self, truncate: &Truncate<'_>, start: Lsn) -> Result<(), ConnectError> {
        for oid in truncate.relations.iter() {
            match self.relations.captured(oid, start, self.assembler.xid())? {
                Some((relation, figures)) if self.options.truncate_events => {
                    figures.count(Operation::Truncate);
                    self.assembler.truncate(relation, start, truncate.cascade, truncate.restart_identity)?;
                }
                Some(_) => {
                    self.meter.tally.truncates_skipped += 1;
                    self.assembler.uncaptured(start)?;
                }
                None => {
                    self.meter.tally.uncaptured += 1;
                    self.assembler.uncaptured(start)?;
                }
            }
        }
        Ok(())
    }

    /// A notice never ends the stream, with one exception: 18 tells of a missing publication only by a warning, and
    /// skips its changes. Told apart by code and severity: the text may be in the server's language.
    pub(super) fn notice(&self, notice: &ServerMessage) -> Result<(), ConnectError> {
        if notice.sqlstate() == "55000" && notice.severity() == "WARNING" {
            return Err(ConnectError::configuration(format!(
                "the publication does not exist at the slot's position, and the server skips its changes: {}",
                notice.message()
            ))
            .with_sqlstate(notice.sqlstate())
            .with_fix(PUBLICATION_FIX));
        }
        tracing::info!(
            severity = notice.severity(),
            sqlstate = notice.sqlstate(),
            "notice: {}",
            notice.message()
        );
        Ok(())
    }

    async fn relation(&mut self, relation: WireRelation) -> Result<(), ConnectError> {
        // The catalogue may be slow; the server must hear from us meanwhile, and we from the host.
        let known = tokio::select! {
            biased;
            _ = &mut self.stop => {
                self.ending = Some(End::Stopped);
                return Ok(());
            }
            ended = self.stream.keep_alive() => return Err(ended_by_feedback(ended)),
            known = self.relations.learn(relation) => known?,
            // The socket is unread meanwhile: the same bound as for a full queue.
            () = tokio::time::sleep(self.options.unread_limit) => {
                return Err(ConnectError::transient("the catalogue did not answer in time"));
            }
        };
        if self.options.binary && known.captured && !known.binary_is_known {
            tracing::info!(table = %known.name, "a column has no known binary form: switching the stream to text");
            self.ending = Some(End::TextNeeded);
        }
        Ok(())
    }
}

/// Where a change stands: its LSN, and the message that its tuples are part of.
#[derive(Clone, Copy)]
struct At<'a> {
    start: Lsn,
    payload: &'a Bytes,
}
