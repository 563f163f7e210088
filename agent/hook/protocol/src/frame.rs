//! Frames: a length of four bytes, least significant first, then that many bytes of JSON.

use crate::FRAME_BYTES_MAX;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// Bytes of the length in front of a frame's JSON.
const LENGTH_BYTES: usize = 4;

/// Why a frame could not be sent or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The other side closed between two frames: the ordinary end of a conversation.
    #[error("the other side closed the connection")]
    Closed,
    /// The other side closed, or was cut off, within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
    /// The length says more than [`FRAME_BYTES_MAX`], or nothing.
    #[error("a frame of {bytes} bytes; a frame has 1 to {FRAME_BYTES_MAX} bytes")]
    Length {
        /// The length that was read or would have been written.
        bytes: usize,
    },
    /// The frame's bytes are not the JSON of this message.
    #[error("not a message of this protocol: {0}")]
    Json(#[from] serde_json::Error),
    /// Reading or writing failed, time limits included.
    #[error("connection: {0}")]
    Io(io::Error),
}

/// The frame that carries `message`.
///
/// # Errors
/// [`FrameError::Length`] if it is larger than a frame may be.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)?;
    let bytes = frame.len() - LENGTH_BYTES;
    let length = u32::try_from(bytes).map_err(|_| FrameError::Length { bytes })?;
    if bytes > FRAME_BYTES_MAX {
        return Err(FrameError::Length { bytes });
    }
    for (place, byte) in frame.iter_mut().zip(length.to_le_bytes()) {
        *place = byte;
    }
    Ok(frame)
}

/// The message at the start of `bytes` and how many bytes it took; `None` while the frame is not
/// complete.
///
/// # Errors
/// [`FrameError::Length`] and [`FrameError::Json`].
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(M, usize)>, FrameError> {
    let Some((head, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = checked_length(*head)?;
    match rest.get(..length) {
        None => Ok(None),
        Some(json) => Ok(Some((serde_json::from_slice(json)?, LENGTH_BYTES + length))),
    }
}

/// Reads one message. Never holds more than [`FRAME_BYTES_MAX`] bytes, and no more than what arrived.
///
/// # Errors
/// [`FrameError::Closed`] where the stream ends before a frame's first byte, else the fitting one.
pub fn read<M: DeserializeOwned>(stream: &mut impl Read) -> Result<M, FrameError> {
    let mut head = [0; LENGTH_BYTES];
    let mut filled = 0;
    while let Some(space) = head.get_mut(filled..).filter(|space| !space.is_empty()) {
        match stream.read(space) {
            Ok(0) if filled == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::Truncated),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    let length = checked_length(head)?;
    let mut json = Vec::new();
    stream.take(length as u64).read_to_end(&mut json).map_err(FrameError::Io)?;
    if json.len() < length {
        return Err(FrameError::Truncated);
    }
    Ok(serde_json::from_slice(&json)?)
}

/// Writes one message.
///
/// # Errors
/// [`FrameError::Length`] before anything is written, else [`FrameError::Io`].
pub fn write<M: Serialize>(stream: &mut impl Write, message: &M) -> Result<(), FrameError> {
    let frame = encode(message)?;
    stream.write_all(&frame).and_then(|()| stream.flush()).map_err(FrameError::Io)
}

fn checked_length(head: [u8; LENGTH_BYTES]) -> Result<usize, FrameError> {
    let bytes = u32::from_le_bytes(head) as usize;
    if bytes == 0 || bytes > FRAME_BYTES_MAX {
        return Err(FrameError::Length { bytes });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::{PROTOCOL_VERSION, Request, Response};
    use proptest::prelude::*;

    fn hello() -> Request {
        Request::Hello { protocol_version: PROTOCOL_VERSION, agent_pid: 7, agent_id: 9 }
    }

    #[test]
    fn frames_round_trip_one_after_the_other() {
        let mut bytes = encode(&hello()).unwrap();
        bytes.extend(encode(&Request::Databases {}).unwrap());
        let (first, used): (Request, usize) = decode(&bytes).unwrap().unwrap();
        let (second, rest): (Request, usize) = decode(&bytes[used..]).unwrap().unwrap();
        assert_eq!((first, second, used + rest), (hello(), Request::Databases {}, bytes.len()));
        let mut stream = bytes.as_slice();
        assert_eq!(read::<Request>(&mut stream).unwrap(), hello());
        assert_eq!(read::<Request>(&mut stream).unwrap(), Request::Databases {});
        assert!(matches!(read::<Request>(&mut stream), Err(FrameError::Closed)));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_read() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(matches!(read::<Request>(&mut bytes.as_slice()), Err(FrameError::Length { .. })));
        assert!(matches!(decode::<Request>(&[0; 4]), Err(FrameError::Length { bytes: 0 })));
        let large =
            Response::Error { kind: crate::ErrorKind::Internal, message: "x".repeat(FRAME_BYTES_MAX) };
        assert!(matches!(encode(&large), Err(FrameError::Length { .. })));
    }

    #[test]
    fn every_cut_frame_is_incomplete_and_never_a_message() {
        let bytes = encode(&hello()).unwrap();
        for cut in 1..bytes.len() {
            let part = &bytes[..cut];
            assert!(decode::<Request>(part).unwrap().is_none());
            assert!(matches!(read::<Request>(&mut &part[..]), Err(FrameError::Truncated)));
        }
    }

    #[test]
    fn unknown_fields_and_commands_are_refused() {
        for json in [
            r#"{"command":"databases","more":1}"#,
            r#"{"command":"shutdown"}"#,
            r#"{"command":"cancel","id":1,"force":true}"#,
            r#"{}"#,
            "null",
        ] {
            let mut bytes = u32::try_from(json.len()).unwrap().to_le_bytes().to_vec();
            bytes.extend(json.bytes());
            assert!(matches!(decode::<Request>(&bytes), Err(FrameError::Json(_))), "{json}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_give_an_error_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Response>(&bytes);
            prop_assert!(read::<Request>(&mut bytes.as_slice()).is_err());
        }

        #[test]
        fn arbitrary_json_text_gives_an_error(text in "[\\[\\]{}\",:a-z0-9 ]{1,200}") {
            let mut bytes = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
            bytes.extend(text.bytes());
            prop_assert!(decode::<Request>(&bytes).is_err());
        }

        #[test]
        fn one_flipped_byte_never_panics(at in 0usize..60, byte in any::<u8>()) {
            let mut bytes = encode(&hello()).unwrap();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let _ = decode::<Request>(&bytes);
            let _ = read::<Request>(&mut bytes.as_slice());
        }
    }
}
