//! Users of this host, from its `/etc/passwd` and `/etc/group`. Users that only a directory service knows
//! have no name here.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// Bytes of each file that are read: some ten thousand users.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A user as a process becomes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub user_id: u32,
    pub group_id: u32,
    /// Groups that list the user.
    pub further_groups: Vec<u32>,
    pub home: String,
}

impl Account {
    /// The user of this name; `None` where there is none.
    /// Errors: what reading the files gives.
    pub fn named(name: &str) -> io::Result<Option<Account>> {
        let (passwd, group) = (read(PASSWD)?, read(GROUP)?);
        Ok(account(&passwd, &group, name))
    }
}

fn read(path: &str) -> io::Result<String> {
    let mut content = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn account(passwd: &str, group: &str, name: &str) -> Option<Account> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let of_user = |fields: Vec<&str>| match fields.as_slice() {
        [found, _, user_id, group_id, _, home, ..] if *found == name => {
            Some((user_id.parse().ok()?, group_id.parse().ok()?, (*home).to_owned()))
        }
        _ => None,
    };
    let (user_id, group_id, home) = fields.filter_map(of_user).next()?;
    let lists_it = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members, ..] = fields.as_slice() else { return None };
        members.split(',').any(|member| member == name).then_some(number.parse().ok()?)
    };
    let further_groups = group.lines().filter_map(lists_it).collect();
    Some(Account { name: name.to_owned(), user_id, group_id, further_groups, home })
}

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
        *known = Some(Known { state, names: names(&read(PASSWD).ok()?) });
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
    fn a_user_has_the_groups_that_list_it() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nom:x:no:1:::\nom:x:1001:1002:Ozone:/var/lib/om:/bin/false\n";
        let group = "root:x:0:\nmysql:x:112:mysql,om\nother:x:7:omm\nhalf:x\nssl:x:113:om\nbad:x:y:om\n";
        let om = account(passwd, group, "om");
        let expected = Account {
            name: "om".into(),
            user_id: 1001,
            group_id: 1002,
            further_groups: vec![112, 113],
            home: "/var/lib/om".into(),
        };
        assert_eq!(om, Some(expected));
        assert_eq!(account(passwd, group, "nobody-knows"), None);
        assert_eq!(Account::named("root").ok().flatten().map(|root| root.user_id), Some(0));
    }

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
