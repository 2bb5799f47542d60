//! The turn of a file: it is told apart from others, opened where its stored position says, and read a batch at a time until it is closed.

use std::fs::File;
use std::sync::Arc;

use millrace_runtime::Instant;

use super::super::position::{Inode, Position};
use super::super::reader::Reader;
use super::super::steps::{
    Complete, CompletionResult, DirectoryScan, FileIdentity, StartPosition, blocking, complete, examine,
    has_grown, identify, is_gone, named, resume,
};
use super::Watch;
use super::tracked::{OpenFile, State};
use crate::budget::Reservation;
use crate::input::{InputError, reserve_piece};

/// Batches of a file that the pipeline has and has not stored yet.
const WINDOW: usize = 16;

/// Next action on a file.
pub(super) enum NextAction {
    /// There may be more at once.
    More,
    Wait,
    Close,
    Stop,
}

impl Watch {
    /// Reads the next lines of a file.
    pub(super) async fn read_some(
        &mut self,
        inode: Inode,
        tracked: &mut OpenFile,
    ) -> Result<NextAction, InputError> {
        if tracked.again {
            if !self.read_again(tracked).await? {
                return Ok(NextAction::Close);
            }
            // What was not stored will not be at once.
            return Ok(NextAction::Wait);
        }
        if tracked.leaving && !matches!(tracked.state, State::Complete(..)) {
            return Ok(if tracked.in_flight > 0 { NextAction::Wait } else { NextAction::Close });
        }
        match std::mem::replace(&mut tracked.state, State::Gone) {
            // What it was moved to must be there.
            State::Unknown(file, start) if tracked.in_flight > 0 => {
                tracked.state = State::Unknown(file, start);
                Ok(NextAction::Wait)
            }
            State::Unknown(file, start) => self.identify(inode, tracked, file, start).await,
            State::Known(reader) => self.read(inode, tracked, *reader).await,
            State::Complete(file, position) if tracked.in_flight == 0 => {
                let of = Complete {
                    path: tracked.path.clone(),
                    inode,
                    name: tracked.name.clone(),
                    position,
                    before: tracked.was_complete,
                };
                match complete(Arc::clone(&self.settings), of).await {
                    CompletionResult::Done if self.settings.completed.delete => self.forget(tracked).await,
                    CompletionResult::Done | CompletionResult::Stays => {}
                    CompletionResult::Grown => {
                        tracked.was_complete = false;
                        tracked.state = State::Unknown(file, StartPosition::At(position.offset));
                        return Ok(NextAction::More);
                    }
                }
                Ok(NextAction::Close)
            }
            State::Complete(file, position) => {
                tracked.state = State::Complete(file, position);
                Ok(NextAction::Wait)
            }
            State::Gone => Ok(NextAction::Close),
        }
    }

    /// Finds out which file it is and goes on from its stored position.
    async fn identify(
        &mut self,
        inode: Inode,
        tracked: &mut OpenFile,
        file: File,
        start: StartPosition,
    ) -> Result<NextAction, InputError> {
        let settings = Arc::clone(&self.settings);
        let path = tracked.path.clone();
        let identified = blocking(move || identify(&settings, &path, inode, file)).await?;
        let (file, name) = match identified {
            FileIdentity::NotYet(file) => {
                let gone = is_gone(&file);
                tracked.state = State::Unknown(file, start);
                tracked.idle = true;
                let idle = tracked.changed.elapsed() >= self.settings.close_older;
                return Ok(if gone || idle { NextAction::Close } else { NextAction::Wait });
            }
            FileIdentity::Known { file, name } => (file, name),
            FileIdentity::Refused(error) => {
                tracing::error!(path = %tracked.path.display(), %error, "file is left as it is");
                return Ok(NextAction::Close);
            }
        };
        if tracked.only.as_ref().is_some_and(|only| !only.contains(&name)) {
            return Ok(NextAction::Close);
        }
        if !tracked.name.is_empty() && tracked.name != name {
            // What was truncated begins with another line now.
            self.forget(tracked).await;
        }
        // Inodes are given again: a file of another name is read from its beginning.
        let former = std::mem::take(&mut tracked.former_name);
        let start = if former.is_empty() || former == name { start } else { StartPosition::Beginning };
        let (position, inherited) = match self.settings.stored {
            true => self.claim(tracked, &name).await?,
            false => (None, false),
        };
        tracked.name = name;
        if let Some(position) = position.filter(|position| position.complete && self.settings.once) {
            let (settings, path) = (Arc::clone(&self.settings), tracked.path.clone());
            let (file, grown) = blocking(move || {
                let grown = has_grown(&settings, &path, &file, position);
                Ok((file, grown.map_err(|error| named(&path, &error))?))
            })
            .await?;
            if !grown {
                tracked.stored = position.offset;
                tracked.was_complete = true;
                if inherited
                    && !self.send(inode, tracked, Vec::new(), Some(position), Reservation::default()).await
                {
                    return Ok(NextAction::Stop);
                }
                tracked.state = State::Complete(file, position);
                return Ok(NextAction::More);
            }
            return self.resume(inode, tracked, file, Some(position), start, inherited).await;
        }
        self.resume(inode, tracked, file, position, start, inherited).await
    }

    /// Goes on with a file from its position, where it has one.
    async fn resume(
        &mut self,
        inode: Inode,
        tracked: &mut OpenFile,
        file: File,
        position: Option<Position>,
        start: StartPosition,
        inherited: bool,
    ) -> Result<NextAction, InputError> {
        let (settings, path) = (Arc::clone(&self.settings), tracked.path.clone());
        let most = self.context.budget.most();
        let opened = blocking(move || {
            let reader = resume(&settings, &path, file, position, start, most);
            reader.map_err(|error| named(&path, &error))
        });
        let (reader, skipped) = opened.await?;
        tracked.stored = reader.safe();
        tracked.changed = Instant::now();
        if (skipped || inherited) && self.settings.stored {
            // Where reading begins is kept: what follows is not lost if this ends before.
            let at = reader.position(false).map_err(|error| named(&tracked.path, &error))?;
            if !self.send(inode, tracked, Vec::new(), Some(at), Reservation::default()).await {
                return Ok(NextAction::Stop);
            }
        }
        tracked.state = State::Known(Box::new(reader));
        Ok(NextAction::More)
    }

    /// Reads a batch and hands it on.
    async fn read(
        &mut self,
        inode: Inode,
        tracked: &mut OpenFile,
        mut reader: Reader,
    ) -> Result<NextAction, InputError> {
        if tracked.in_flight >= WINDOW {
            tracked.state = State::Known(Box::new(reader));
            return Ok(NextAction::Wait);
        }
        let Some(mut held) = reserve_piece(&self.context).await else { return Ok(NextAction::Stop) };
        let (settings, size) = (Arc::clone(&self.settings), self.context.batch_size.get());
        let bytes = held.bytes();
        let idle = tracked.changed.elapsed();
        let looked = blocking(move || {
            let looked = examine(&settings, &mut reader, size, bytes, idle);
            Ok((reader, looked))
        });
        let (reader, looked) = looked.await?;
        let looked = match looked {
            Ok(looked) => looked,
            Err(error) => {
                // Another try may do; the archive may also be damaged for good.
                tracing::warn!(path = %tracked.path.display(), %error, "cannot read a file, it is tried again");
                tracked.changed = Instant::now();
                tracked.again = true;
                return Ok(NextAction::Wait);
            }
        };
        let DirectoryScan { chunk, position, grew, replaced, complete, gone } = looked;
        if replaced {
            if tracked.in_flight > 0 {
                tracked.state = State::Known(Box::new(reader));
                return Ok(NextAction::Wait);
            }
            return self.begin_anew(inode, tracked, reader).await;
        }
        let some = !chunk.events.is_empty();
        let holds = reader.holds() && self.settings.codec.flush_after().is_some();
        tracked.idle = chunk.at_end && !some && !holds && reader.read_length().is_some();
        if grew {
            tracked.changed = Instant::now();
        }
        held.set(chunk.events.bytes());
        if (some || complete) && !self.send(inode, tracked, chunk.events.into_vec(), position, held).await {
            return Ok(NextAction::Stop);
        }
        if complete {
            let file = reader.file().try_clone().map_err(|error| named(&tracked.path, &error))?;
            let end = reader.position(true).map_err(|error| named(&tracked.path, &error))?;
            tracked.state = State::Complete(file, end);
            return Ok(NextAction::More);
        }
        tracked.state = State::Known(Box::new(reader));
        if chunk.at_end && !some && tracked.in_flight == 0 {
            let closes = gone || tracked.changed.elapsed() >= self.settings.close_older;
            if closes {
                return Ok(NextAction::Close);
            }
        }
        Ok(if chunk.at_end { NextAction::Wait } else { NextAction::More })
    }

    /// Goes on with a file that was truncated.
    async fn begin_anew(
        &mut self,
        inode: Inode,
        tracked: &mut OpenFile,
        reader: Reader,
    ) -> Result<NextAction, InputError> {
        tracing::info!(path = %tracked.path.display(), "file was truncated, it is read from its beginning");
        let file = reader.file().try_clone().map_err(|error| named(&tracked.path, &error))?;
        let beginning = Position::beginning(reader.truncations() + 1);
        drop(reader);
        tracked.changed = Instant::now();
        tracked.state = State::Unknown(file, StartPosition::Beginning);
        // Its next lines may be the same again: by then, the position must be at its beginning.
        let moved = !self.settings.stored
            || self.send(inode, tracked, Vec::new(), Some(beginning), Reservation::default()).await;
        Ok(if moved { NextAction::Wait } else { NextAction::Stop })
    }

    /// Goes back to the stored position; `false` where the file cannot be read any more.
    async fn read_again(&mut self, tracked: &mut OpenFile) -> Result<bool, InputError> {
        let file = match std::mem::replace(&mut tracked.state, State::Gone) {
            State::Unknown(file, _) | State::Complete(file, _) => Ok(file),
            State::Known(reader) => reader.file().try_clone(),
            State::Gone => return Ok(false),
        };
        let file = file.map_err(|error| named(&tracked.path, &error))?;
        tracked.generation = self.generation();
        (tracked.in_flight, tracked.again) = (0, false);
        // Where positions are not stored, what was stored last is known here only.
        tracked.state = State::Unknown(file, StartPosition::At(tracked.stored));
        Ok(true)
    }
}
