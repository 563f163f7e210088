//! What can be wrong between the agent and a MyRocks server, and what to do about it.

/// Kinds of trouble, by what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlTrouble {
    /// The client program is not there.
    NoClient,
    /// The password's file is not there, or not its owner's alone.
    PasswordFile,
    Unreachable,
    /// The server does not let the user in.
    AccessDenied,
    /// The user may not do that.
    Privilege,
    /// The server has no MyRocks.
    NoMyRocks,
    /// Another process answers than the target.
    OtherServer,
    /// MyRocks has no such column family.
    NoColumnFamily,
    /// A manual compaction runs in the server already.
    Busy,
    /// The compaction takes longer than it may be waited for, and goes on.
    GoesOn,
    /// Anything else that the server says.
    Refused,
}

impl SqlTrouble {
    /// What an error of the client program, `ERROR 1045 (28000): ...`, is about.
    pub fn of_client(message: &str) -> SqlTrouble {
        let code = message.split("ERROR ").nth(1).unwrap_or_default();
        let digits = code.split(|character: char| !character.is_ascii_digit()).next().unwrap_or_default();
        match digits.parse().unwrap_or(0u32) {
            // Client: no socket, no host, the connection broke.
            2002 | 2003 | 2005 | 2006 | 2013 | 2026 => SqlTrouble::Unreachable,
            // Wrong password, user only by socket, host not allowed, unknown authentication plugin.
            1045 | 1698 | 1130 | 1524 => SqlTrouble::AccessDenied,
            // ER_SPECIFIC_ACCESS_DENIED_ERROR.
            1227 => SqlTrouble::Privilege,
            // Unknown system variable, unknown table.
            1193 | 1109 => SqlTrouble::NoMyRocks,
            _ => SqlTrouble::Refused,
        }
    }

    pub fn remedy(self) -> &'static str {
        match self {
            SqlTrouble::NoClient => {
                "install MariaDB's client (Debian: mariadb-client-core) where the agent runs"
            }
            SqlTrouble::PasswordFile => {
                "make it a file of the agent's user with mode 600, and name it in sql.password_file"
            }
            SqlTrouble::Unreachable => {
                "see that the server runs, and that sql.socket or sql.address of the policy lead to it"
            }
            SqlTrouble::AccessDenied => {
                "correct sql.user, and the password in the file that sql.password_file names"
            }
            SqlTrouble::Privilege => "GRANT SUPER, PROCESS ON *.* to the user that sql.user names",
            SqlTrouble::NoMyRocks => {
                "let sql.socket or sql.address lead to the server with the MyRocks engine"
            }
            SqlTrouble::OtherServer => {
                "let sql.socket or sql.address lead to the target itself; give each server a target of its own"
            }
            SqlTrouble::NoColumnFamily => "it was dropped: wait for the next window",
            SqlTrouble::Busy => {
                "wait until it has ended: SHOW GLOBAL STATUS LIKE 'rocksdb_manual_compactions%'"
            }
            SqlTrouble::GoesOn => "nothing stops it but the server's end; raise sql.timeout for the next one",
            SqlTrouble::Refused => "try the statement by hand: the plan's command shows it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_by_their_numbers() {
        let cases = [
            (
                "ERROR 1045 (28000): Access denied for user 'a'@'localhost' (using password: YES)",
                SqlTrouble::AccessDenied,
            ),
            ("ERROR 1698 (28000): Access denied for user 'root'@'localhost'", SqlTrouble::AccessDenied),
            ("ERROR 2002 (HY000): Can't connect to local server through socket", SqlTrouble::Unreachable),
            ("ERROR 1227 (42000) at line 1: Access denied; you need", SqlTrouble::Privilege),
            (
                "ERROR 1193 (HY000) at line 1: Unknown system variable 'rocksdb_compact_cf'",
                SqlTrouble::NoMyRocks,
            ),
            ("WARNING: x ERROR 1109 (42S02) at line 1: Unknown table", SqlTrouble::NoMyRocks),
            ("ERROR 99999999999", SqlTrouble::Refused),
            ("", SqlTrouble::Refused),
        ];
        for (message, trouble) in cases {
            assert_eq!(SqlTrouble::of_client(message), trouble, "{message}");
            assert!(!trouble.remedy().is_empty());
        }
    }
}
