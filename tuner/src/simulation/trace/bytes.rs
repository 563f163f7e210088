//! RocksDB's encodings of numbers and strings, read from the front.

/// What is left to read.
#[derive(Clone, Debug)]
pub(super) struct Bytes<'t>(&'t [u8]);

impl<'t> Bytes<'t> {
    pub(super) fn new(bytes: &'t [u8]) -> Bytes<'t> {
        Bytes(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn rest(&self) -> &'t [u8] {
        self.0
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'t [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn fixed32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn fixed64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn varint32(&mut self) -> Option<u32> {
        let mut value = 0u64;
        for shift in (0..=28).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).ok();
            }
        }
        None
    }

    /// A string behind its length.
    pub(super) fn prefixed(&mut self) -> Option<&'t [u8]> {
        let length = self.varint32()?;
        self.take(usize::try_from(length).ok()?)
    }
}
