//! The part of a target's policy about a MyRocks server that is acted on by SQL.

use super::{TimeSpan, present};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the server of a target is reached. MyRocks compacts whole column families and nothing smaller: an
/// action costs all of the column family, which holds all tables and indexes that were put into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlPolicy {
    /// Path of the server's socket, as the agent sees it. Either this or `address`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// `host:port`, with the host `127.0.0.1`, `[::1]` or `localhost`: the server is on this node. Either
    /// this or `socket`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// User that has the privileges SUPER and PROCESS. Default: root, whom MariaDB knows by the socket.
    #[serde(default = "default_user")]
    pub user: String,
    /// MariaDB option file with the password: `password=` in its section `[client]`. The agent never reads
    /// it, it only tells the client program where it is; nobody but its owner may read it. Default: no
    /// password.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// How long a compaction is waited for; one that takes longer goes on in the server. Default: 10m.
    #[serde(default = "default_timeout")]
    pub timeout: TimeSpan,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlEndpoint<'p> {
    /// A socket's path.
    Socket(&'p str),
    /// A loopback address, and a port.
    Address(&'p str, u16),
}

impl SqlPolicy {
    /// Where the server listens; `None` unless exactly one way is given, and well formed.
    pub fn endpoint(&self) -> Option<SqlEndpoint<'_>> {
        match (&self.socket, &self.address) {
            (Some(socket), None) => Some(SqlEndpoint::Socket(socket)).filter(|_| is_path(socket)),
            (None, Some(address)) => {
                let (host, port) = address.rsplit_once(':')?;
                let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                let host = bracketed.unwrap_or(host);
                let port = port.parse().ok().filter(|port| *port > 0)?;
                is_loopback(host).then_some(SqlEndpoint::Address(host, port))
            }
            _ => None,
        }
    }

    /// Whether the password file, if there is one, is named by a whole path.
    pub fn has_sound_password_file(&self) -> bool {
        self.password_file.as_deref().is_none_or(is_path)
    }

    /// Whether the user's name can be one.
    pub fn has_sound_user(&self) -> bool {
        !self.user.is_empty() && !self.user.contains(char::is_control)
    }
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(char::is_control)
}

/// A target's server runs on the agent's own node: elsewhere could only be another one.
fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "::1"].contains(&host)
}

fn default_user() -> String {
    "root".to_owned()
}

fn default_timeout() -> TimeSpan {
    TimeSpan::from_seconds(600)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(socket: Option<&str>, address: Option<&str>) -> SqlPolicy {
        SqlPolicy {
            socket: socket.map(str::to_owned),
            address: address.map(str::to_owned),
            user: default_user(),
            password_file: None,
            timeout: default_timeout(),
        }
    }

    #[test]
    fn exactly_one_way_to_the_server() {
        let socket = policy(Some("/run/mysqld/mysqld.sock"), None);
        assert_eq!(socket.endpoint(), Some(SqlEndpoint::Socket("/run/mysqld/mysqld.sock")));
        let address = policy(None, Some("127.0.0.1:3306"));
        assert_eq!(address.endpoint(), Some(SqlEndpoint::Address("127.0.0.1", 3306)));
        assert_eq!(policy(None, Some("[::1]:3307")).endpoint(), Some(SqlEndpoint::Address("::1", 3307)));
        assert_eq!(policy(None, None).endpoint(), None);
        assert_eq!(policy(Some("/run/socket"), Some("localhost:3306")).endpoint(), None);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for socket in ["", "mysqld.sock", "/run/\nsocket"] {
            assert_eq!(policy(Some(socket), None).endpoint(), None, "{socket:?}");
        }
        for address in
            ["", "localhost", ":3306", "localhost:", "localhost:0", "localhost:65536", "10.0.0.5:3306"]
        {
            assert_eq!(policy(None, Some(address)).endpoint(), None, "{address:?}");
        }
    }
}
