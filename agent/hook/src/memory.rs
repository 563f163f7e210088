//! Reading this process' own memory without trusting an address: an unmapped one gives an error, not a
//! fault.

use sexton_rocksdb_layout::std_string;
use std::ffi::c_void;

/// Addresses of user space on x86-64 and arm64 with four-level page tables end below this.
const USER_ADDRESS_END: u64 = 1 << 47;

/// Fills `buffer` from `address`. `false` if any of it cannot be read.
pub fn read(address: u64, buffer: &mut [u8]) -> bool {
    let length = buffer.len();
    let in_user_space =
        address != 0 && address.checked_add(length as u64).is_some_and(|end| end <= USER_ADDRESS_END);
    if !in_user_space {
        return false;
    }
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: length };
    // SAFETY: `local` describes `buffer`, valid for writing; the remote side is only an address to the
    // kernel, which answers with an error where it is not readable.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(read).is_ok_and(|read| read == length) || read_through_proc(address, buffer)
}

/// The same through `/proc/self/mem`, for sandboxes that forbid `process_vm_readv`.
fn read_through_proc(address: u64, buffer: &mut [u8]) -> bool {
    use std::os::unix::fs::FileExt;
    std::fs::File::open("/proc/self/mem").is_ok_and(|memory| memory.read_exact_at(buffer, address).is_ok())
}

/// Reads `COUNT` words of eight bytes from `address`.
pub fn words<const COUNT: usize>(address: u64) -> Option<[u64; COUNT]> {
    let mut bytes = [[0u8; 8]; COUNT];
    read(address, bytes.as_flattened_mut()).then(|| bytes.map(u64::from_le_bytes))
}

/// Reads the `std::string` at `address`, in either of libstdc++'s layouts; `None` if it is neither or
/// longer than `bytes_max`. The JNI libraries have the older one, most distributions the newer.
pub fn cpp_string(address: u64, bytes_max: usize) -> Option<Vec<u8>> {
    cxx11_string(address, bytes_max).or_else(|| copy_on_write_string(address, bytes_max))
}

/// Since GCC 5: pointer, length, and sixteen bytes that hold short strings.
fn cxx11_string(address: u64, bytes_max: usize) -> Option<Vec<u8>> {
    let [data, length] = words::<2>(address)?;
    let is_inline = data == address.checked_add(std_string::ROOM)?;
    if is_inline && length > std_string::ROOM_BYTES_MAX {
        return None;
    }
    characters(data, length, bytes_max)
}

/// `_GLIBCXX_USE_CXX11_ABI=0`: a pointer to the characters, with length, capacity and a count of
/// references in front of them.
fn copy_on_write_string(address: u64, bytes_max: usize) -> Option<Vec<u8>> {
    /// More owners than any string has; the shared empty string counts none.
    const OWNERS_MAX: u64 = 1 << 20;
    let [data] = words::<1>(address)?;
    let [length, capacity, owners] = words::<3>(data.checked_sub(std_string::COUNTS_BYTES)?)?;
    let owners = owners & u64::from(u32::MAX);
    let is_own_buffer = Some(data) == address.checked_add(std_string::ROOM);
    if is_own_buffer || length > capacity || (owners > OWNERS_MAX && owners != u64::from(u32::MAX)) {
        return None;
    }
    characters(data, length, bytes_max)
}

/// `length` bytes, which a NUL byte must follow.
fn characters(data: u64, length: u64, bytes_max: usize) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes_max)?;
    let mut bytes = vec![0; length + 1];
    (read(data, &mut bytes) && bytes.pop() == Some(0)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_is_there_and_refuses_what_is_not() {
        let words_here = [7u64, 9];
        assert_eq!(words::<2>(words_here.as_ptr() as u64), Some(words_here));
        for address in [0, 8, 1 << 47, u64::MAX - 7, 0xdead_beef_0000] {
            assert_eq!(words::<2>(address), None, "{address:x}");
        }
    }

    #[test]
    fn a_string_must_look_like_one() {
        let heap = b"a name longer than fifteen bytes\0";
        let long = [heap.as_ptr() as u64, heap.len() as u64 - 1, 0, 0];
        assert_eq!(cpp_string(long.as_ptr() as u64, 64).unwrap(), &heap[..heap.len() - 1]);
        assert_eq!(cpp_string(long.as_ptr() as u64, 8), None);
        let mut short = Box::new([0u64, 3, u64::from_le_bytes(*b"key\0\0\0\0\0"), 0]);
        short[0] = short.as_ptr() as u64 + 16;
        assert_eq!(cpp_string(short.as_ptr() as u64, 64).unwrap(), b"key");
        short[1] = 2;
        assert_eq!(cpp_string(short.as_ptr() as u64, 64), None, "no NUL behind its end");
        short[1] = 40;
        assert_eq!(cpp_string(short.as_ptr() as u64, 64), None, "too long to be inline");
    }

    #[test]
    fn a_copy_on_write_string_is_read_too() {
        let mut body = Box::new([8u64, 8, 0, u64::from_le_bytes(*b"keyTable"), 0]);
        let field = [body.as_ptr() as u64 + 24, 0x7000_0000_0000];
        assert_eq!(cpp_string(field.as_ptr() as u64, 64).unwrap(), b"keyTable");
        assert_eq!(cpp_string(field.as_ptr() as u64, 7), None);
        body[1] = 7;
        assert_eq!(cpp_string(field.as_ptr() as u64, 64), None, "longer than its capacity");
        assert_eq!(body[0], 8);
    }

    proptest! {
        #[test]
        fn arbitrary_addresses_never_fault(address in any::<u64>()) {
            let _ = words::<4>(address);
            let _ = cpp_string(address, 1024);
        }
    }
}
