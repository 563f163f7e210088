//! Reading another process's memory, and writing single bytes of it.
//!
//! Written is only where a policy asks for it, and only through [`super::program_memory`]. Everything that
//! comes from there is untrusted: it may change under the read and may be no string at all, so lengths are
//! bounded and strings are checked before they are believed.

use sexton_rocksdb_layout::std_string;
use std::io;

/// Bytes that one call reads at most: more than any name or counter block needs.
pub const READ_BYTES_MAX: usize = 1024 * 1024;

/// First address that user space cannot have on x86-64 with four-level page tables.
const USER_ADDRESS_END: u64 = 1 << 47;

/// Why memory of a target could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    #[error("process {pid} is gone")]
    NoSuchProcess { pid: u32 },
    #[error("may not read memory of process {pid}: run as root, or with CAP_SYS_PTRACE")]
    PermissionDenied { pid: u32 },
    #[error("process {pid} has no readable memory at {address:#x} ({length} bytes)")]
    Unmapped { pid: u32, address: u64, length: usize },
    #[error("{length} bytes at {address:#x} of process {pid} are more than the limit of {limit}")]
    TooLong { pid: u32, address: u64, length: u64, limit: usize },
    #[error("what is at {address:#x} of process {pid} is no std::string of libstdc++")]
    NotAString { pid: u32, address: u64 },
    #[error("cannot read memory of process {pid}")]
    Io {
        pid: u32,
        #[source]
        source: io::Error,
    },
}

/// Reads `length` bytes at `address` of a process.
/// Errors: [`MemoryError`]; a read that would be partial is [`MemoryError::Unmapped`].
pub fn read(pid: u32, address: u64, length: usize) -> Result<Vec<u8>, MemoryError> {
    if length > READ_BYTES_MAX {
        return Err(MemoryError::TooLong { pid, address, length: length as u64, limit: READ_BYTES_MAX });
    }
    let mut bytes = vec![0u8; length];
    read_into(pid, address, &mut bytes)?;
    Ok(bytes)
}

/// Reads the `u64` at `address` of a process.
pub fn read_u64(pid: u32, address: u64) -> Result<u64, MemoryError> {
    let mut bytes = [0u8; 8];
    read_into(pid, address, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads the byte at `address` of a process.
pub(super) fn read_u8(pid: u32, address: u64) -> Result<u8, MemoryError> {
    let mut byte = [0u8; 1];
    read_into(pid, address, &mut byte)?;
    Ok(u8::from_le_bytes(byte))
}

/// Writes the byte at `address` of a process: all of it or nothing.
/// Errors: as [`read`]; [`MemoryError::Unmapped`] for what may not be written.
pub(super) fn write_u8(pid: u32, address: u64, value: u8) -> Result<(), MemoryError> {
    let unmapped = || MemoryError::Unmapped { pid, address, length: 1 };
    let process = libc::pid_t::try_from(pid).map_err(|_| MemoryError::NoSuchProcess { pid })?;
    let place = usize::try_from(address).map_err(|_| unmapped())?;
    let mut byte = value;
    let local = libc::iovec { iov_base: std::ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(place), iov_len: 1 };
    // SAFETY: `local` is one byte of our own, which the call only reads; `remote` is only a number to the
    // kernel, which checks it against the other process's mappings. One element each.
    let written = unsafe { libc::process_vm_writev(process, &local, 1, &remote, 1, 0) };
    match written {
        1 => Ok(()),
        0 => Err(unmapped()),
        _ => Err(at_unmapped(refusal(pid, io::Error::last_os_error()), unmapped())),
    }
}

/// A place that is not there is said to be so.
fn at_unmapped(error: MemoryError, unmapped: MemoryError) -> MemoryError {
    match error {
        MemoryError::Io { source, .. } if source.raw_os_error() == Some(libc::EFAULT) => unmapped,
        other => other,
    }
}

/// Why the kernel opened or moved nothing.
pub(super) fn refusal(pid: u32, error: io::Error) -> MemoryError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => MemoryError::NoSuchProcess { pid },
        Some(libc::ESRCH) => MemoryError::NoSuchProcess { pid },
        Some(libc::EPERM | libc::EACCES) => MemoryError::PermissionDenied { pid },
        _ => MemoryError::Io { pid, source: error },
    }
}

/// Reads a `std::string` of libstdc++: the object that C++11's ABI has (pointer, size, buffer or
/// capacity), or the older one (one pointer to counted characters), which RocksJava's library is built
/// with. The terminating NUL, the capacity and the addresses must fit, else it is refused.
/// Errors: [`MemoryError::NotAString`] when neither form fits, [`MemoryError::TooLong`] for more than
/// `length_max` bytes, else as [`read`].
pub fn read_std_string(pid: u32, address: u64, length_max: usize) -> Result<Vec<u8>, MemoryError> {
    // The words behind an old string are members of its owner, and pointers may pass for a size and a
    // capacity: whatever the first form fails of, the second is tried.
    read_cxx11_string(pid, address, length_max)
        .or_else(|first| read_counted_string(pid, address, length_max).map_err(|_| first))
}

/// `{ char* data; size_t size; union { char local[16]; size_t capacity; } }`.
fn read_cxx11_string(pid: u32, address: u64, length_max: usize) -> Result<Vec<u8>, MemoryError> {
    let not_a_string = MemoryError::NotAString { pid, address };
    let object = read(pid, address, 32)?;
    let (Some(data), Some(size), Some(capacity)) = (word(&object, 0), word(&object, 8), word(&object, 16))
    else {
        return Err(not_a_string);
    };
    let is_local = address.checked_add(std_string::ROOM) == Some(data);
    let fits = if is_local {
        size <= std_string::ROOM_BYTES_MAX
    } else {
        capacity > std_string::ROOM_BYTES_MAX && size <= capacity && capacity < USER_ADDRESS_END
    };
    if !fits || !is_user_address(data) {
        return Err(not_a_string);
    }
    read_characters(pid, data, size, length_max, not_a_string)
}

/// `char* data`, with `{ size_t length; size_t capacity; int references; }` in front of the characters.
fn read_counted_string(pid: u32, address: u64, length_max: usize) -> Result<Vec<u8>, MemoryError> {
    let not_a_string = || MemoryError::NotAString { pid, address };
    let data = read_u64(pid, address)?;
    let head_address = data
        .checked_sub(std_string::COUNTS_BYTES)
        .filter(|_| is_user_address(data))
        .ok_or_else(not_a_string)?;
    let head = read(pid, head_address, 24).map_err(|error| match error {
        MemoryError::Unmapped { .. } => not_a_string(),
        other => other,
    })?;
    let (Some(length), Some(capacity), Some(references)) = (word(&head, 0), word(&head, 8), word(&head, 16))
    else {
        return Err(not_a_string());
    };
    // An `int` and padding: -1 marks a string that may not be shared, else it is the other owners' number.
    let references = references as u32 as i32;
    if length > capacity || capacity >= USER_ADDRESS_END || !(-1..1 << 30).contains(&references) {
        return Err(not_a_string());
    }
    read_characters(pid, data, length, length_max, not_a_string())
}

fn read_characters(
    pid: u32,
    data: u64,
    size: u64,
    length_max: usize,
    not_a_string: MemoryError,
) -> Result<Vec<u8>, MemoryError> {
    let limit = length_max.min(READ_BYTES_MAX - 1);
    let Some(length) = usize::try_from(size).ok().filter(|&length| length <= limit) else {
        return Err(MemoryError::TooLong { pid, address: data, length: size, limit });
    };
    let mut bytes = match read(pid, data, length + 1) {
        Err(MemoryError::Unmapped { .. }) => return Err(not_a_string),
        other => other?,
    };
    if bytes.pop() == Some(0) { Ok(bytes) } else { Err(not_a_string) }
}

fn is_user_address(address: u64) -> bool {
    (4096..USER_ADDRESS_END).contains(&address)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk))
}

/// `process_vm_readv` until the buffer is full.
fn read_into(pid: u32, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
    let length = buffer.len();
    let unmapped = || MemoryError::Unmapped { pid, address, length };
    let process = libc::pid_t::try_from(pid).map_err(|_| MemoryError::NoSuchProcess { pid })?;
    let start = usize::try_from(address).map_err(|_| unmapped())?;
    start.checked_add(length).ok_or_else(unmapped)?;
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(start + done), iov_len: rest.len() };
        // SAFETY: `local` is the exclusively borrowed `rest`, of just that length; `remote` is only a number
        // to the kernel, which checks it against the other process's mappings. One element each.
        let read = unsafe { libc::process_vm_readv(process, &local, 1, &remote, 1, 0) };
        match usize::try_from(read) {
            Ok(0) => return Err(unmapped()),
            Ok(count) => done += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(at_unmapped(refusal(pid, error), unmapped()));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "tests"
    )]
    use super::*;

    fn us() -> u32 {
        std::process::id()
    }

    fn address_of<T: ?Sized>(value: &T) -> u64 {
        std::ptr::from_ref(value).cast::<u8>() as usize as u64
    }

    #[test]
    fn our_own_memory_is_read() {
        let value = 0x0123_4567_89ab_cdef_u64;
        assert_eq!(read_u64(us(), address_of(&value)).unwrap(), value);
        assert_eq!(read(us(), address_of(&value), 3).unwrap(), [0xef, 0xcd, 0xab]);
        assert!(read(us(), address_of(&value), 0).unwrap().is_empty());
    }

    #[test]
    fn a_byte_is_written_and_its_neighbours_stay() {
        let bytes: Vec<std::sync::atomic::AtomicU8> = (1..=3).map(Into::into).collect();
        let now =
            || bytes.iter().map(|byte| byte.load(std::sync::atomic::Ordering::SeqCst)).collect::<Vec<_>>();
        write_u8(us(), address_of(&bytes[1]), 9).unwrap();
        assert_eq!(now(), [1, 9, 3]);
        assert_eq!(read_u8(us(), address_of(&bytes[1])).unwrap(), 9);
        // What may not be written is not.
        static CONSTANT: u8 = 7;
        assert!(write_u8(us(), address_of(&CONSTANT), 8).is_err());
        assert!(matches!(write_u8(us(), 8, 1), Err(MemoryError::Unmapped { address: 8, length: 1, .. })));
        assert!(matches!(write_u8(i32::MAX as u32, 8, 1), Err(MemoryError::NoSuchProcess { .. })));
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        assert!(matches!(read_u64(us(), 8), Err(MemoryError::Unmapped { address: 8, .. })));
        assert!(matches!(read_u64(us(), u64::MAX), Err(MemoryError::Unmapped { .. })));
        assert!(matches!(read_u64(us(), u64::MAX - 20), Err(MemoryError::Unmapped { .. })));
        assert!(matches!(read(us(), 8, READ_BYTES_MAX + 1), Err(MemoryError::TooLong { .. })));
        assert!(matches!(read_u64(i32::MAX as u32, 8), Err(MemoryError::NoSuchProcess { .. })));
    }

    /// A long string of C++11's ABI, laid out as libstdc++ does.
    #[test]
    fn a_long_string_of_the_new_abi() {
        let characters = b"/var/lib/ozone/om.db\0".to_vec();
        let object = [address_of(&characters[..]), 20, 30, 0];
        assert_eq!(read_std_string(us(), address_of(&object), 4096).unwrap(), b"/var/lib/ozone/om.db");
        assert!(matches!(
            read_std_string(us(), address_of(&object), 19),
            Err(MemoryError::TooLong { length: 20, limit: 19, .. })
        ));
    }

    #[test]
    fn a_short_string_of_the_new_abi_is_inside_the_object() {
        let mut object = [0u64, 7, u64::from_le_bytes(*b"default\0"), 0];
        object[0] = address_of(&object) + 16;
        let boxed = Box::new(object);
        let mut boxed = boxed;
        boxed[0] = address_of(&*boxed) + 16;
        assert_eq!(read_std_string(us(), address_of(&*boxed), 64).unwrap(), b"default");
    }

    #[test]
    fn a_string_of_the_old_abi() {
        let mut counted = Vec::new();
        for word in [8u64, 8, 0] {
            counted.extend(word.to_le_bytes());
        }
        counted.extend(b"keyTable\0");
        // What follows in the owner: small numbers, or pointers that pass for a size and a capacity.
        for following in [[0x1_0000, 3, 9], [0x7f0b_9821_09f8, 0x7f0b_9821_58a8, 0]] {
            let object = [address_of(&counted[24..]), following[0], following[1], following[2]];
            assert_eq!(read_std_string(us(), address_of(&object), 64).unwrap(), b"keyTable");
        }
    }

    #[test]
    fn what_is_no_string_is_refused() {
        let zeros = [0u64; 8];
        assert!(matches!(read_std_string(us(), address_of(&zeros), 64), Err(MemoryError::NotAString { .. })));
        // Characters without the NUL behind them, and without the counts that the old ABI has before them.
        let room = [vec![0xff; 24], b"abcdefghijklmnopqrstuvwxyz".to_vec()].concat();
        let characters = &room[24..];
        let object = [address_of(characters), 20, 30, 0];
        assert!(read_std_string(us(), address_of(&object), 64).is_err());
        // A size over the capacity.
        let object = [address_of(characters), 31, 30, 0];
        assert!(read_std_string(us(), address_of(&object), 64).is_err());
    }
}
