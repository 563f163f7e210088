//! Names of users, from this host's `/etc/passwd`. Users that only a directory service knows have none.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

const PASSWD: &str = "/etc/passwd";

/// Bytes of the file that are read: some ten thousand users.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// The file as it was read last: it is read again when it has changed.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

struct Known {
    state: (u64, u64, i64, i64),
    names: HashMap<u32, String>,
}

/// The name of a user; `None` where it has none here.
pub(super) fn name_of(user_id: u32) -> Option<String> {
    let state = std::fs::metadata(PASSWD)
        .map(|data| (data.ino(), data.size(), data.mtime(), data.mtime_nsec()))
        .ok()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_none_or(|known| known.state != state) {
        let mut content = Vec::new();
        File::open(PASSWD).and_then(|file| file.take(PASSWD_BYTES_MAX).read_to_end(&mut content)).ok()?;
        *known = Some(Known { state, names: names(&String::from_utf8_lossy(&content)) });
    }
    known.as_ref()?.names.get(&user_id).cloned()
}

/// The first name of each number, as the C library takes it.
fn names(content: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in content.lines() {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with(['#', '+', '-']));
        if let (Some(name), Some(Ok(user_id))) = (name, fields.nth(1).map(str::parse)) {
            names.entry(user_id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts_and_nonsense_is_left_out() {
        let text = "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\n+nis:x:9:9\n#om:x:8:8\nhalf:x\nom:x:1001:1001:::\n:x:7:7\n";
        let names = names(text);
        assert_eq!(names.len(), 2);
        assert_eq!(
            (names.get(&0).map(String::as_str), names.get(&1001).map(String::as_str)),
            (Some("root"), Some("om"))
        );
    }
}
