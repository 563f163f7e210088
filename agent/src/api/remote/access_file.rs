//! Who may ask over TLS, and for what: one line a caller, `NAME SCOPES PROOF`.
//!
//! The proof is a token's SHA-256 (`sha256:` and 64 hexadecimal digits), so that whoever sees the file cannot
//! use it, or a DNS name in a client certificate (`certificate:` and the name). A token is compared with all
//! lines, each in the same time whatever it is: how long an answer takes says nothing about any of them.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// The longest file: more lines than [`CALLERS_MAX`] do not fit.
pub const FILE_BYTES_MAX: u64 = 64 << 10;
/// Callers: a node is asked by a few programs and people. All lines are compared with each token.
const CALLERS_MAX: usize = 256;
/// Longest name of a caller, for the log.
const NAME_BYTES_MAX: usize = 64;

/// What a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Ask for what changes nothing.
    pub read: bool,
    /// Ask for changes.
    pub act: bool,
    /// See whole keys, where the policy shows them.
    pub keys: bool,
}

/// Somebody who may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub name: Arc<str>,
    pub scopes: Scopes,
}

#[derive(Debug)]
enum Proof {
    Token([u8; 32]),
    Certificate(String),
}

/// The file's lines.
#[derive(Debug, Default)]
pub struct AccessFile {
    callers: Vec<(Caller, Proof)>,
}

impl AccessFile {
    /// Reads the lines; empty ones and those that begin with `#` are left out.
    /// Errors: which line is wrong, and what with it.
    pub fn parse(text: &str) -> Result<AccessFile, String> {
        let mut callers: Vec<(Caller, Proof)> = Vec::new();
        let mut names = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| format!("line {}: {what}", number + 1);
            let (caller, proof) = parse_line(line).map_err(wrong)?;
            if !names.insert(Arc::clone(&caller.name)) {
                return Err(wrong(format!("{:?} has a line already", caller.name)));
            }
            callers.push((caller, proof));
            if callers.len() > CALLERS_MAX {
                return Err(wrong(format!("more than {CALLERS_MAX} callers")));
            }
        }
        match callers.is_empty() {
            true => Err("nobody may ask: it has no line NAME SCOPES PROOF".to_owned()),
            false => Ok(AccessFile { callers }),
        }
    }

    /// Whose token it is; where a name is given with it, it must be that one's.
    pub fn by_token(&self, token: &[u8], name: Option<&str>) -> Option<&Caller> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (caller, proof) in &self.callers {
            let Proof::Token(known) = proof else { continue };
            let is_same: Choice = known.as_slice().ct_eq(digest.as_slice());
            if bool::from(is_same) && name.is_none_or(|name| name == &*caller.name) {
                found = Some(caller);
            }
        }
        found
    }

    /// Who has shown a certificate with these names.
    pub fn by_certificate(&self, names: &[String]) -> Option<&Caller> {
        let is_shown = |proof: &Proof| match proof {
            Proof::Certificate(wanted) => names.iter().any(|name| name.eq_ignore_ascii_case(wanted)),
            Proof::Token(_) => false,
        };
        self.callers.iter().find(|(_, proof)| is_shown(proof)).map(|(caller, _)| caller)
    }

    /// Whether somebody is told by a certificate.
    pub fn wants_certificates(&self) -> bool {
        self.callers.iter().any(|(_, proof)| matches!(proof, Proof::Certificate(_)))
    }
}

fn parse_line(line: &str) -> Result<(Caller, Proof), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, scopes, proof] = words.as_slice() else {
        return Err("a line is NAME SCOPES PROOF, such as `grafana read sha256:...`".to_owned());
    };
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_sound) {
        return Err(format!("a name has at most {NAME_BYTES_MAX} letters, digits and -_.@"));
    }
    let caller = Caller { name: Arc::from(*name), scopes: parse_scopes(scopes)? };
    Ok((caller, parse_proof(proof)?))
}

fn parse_scopes(text: &str) -> Result<Scopes, String> {
    let mut scopes = Scopes::default();
    for word in text.split(',') {
        match word {
            "read" => scopes.read = true,
            "act" => scopes.act = true,
            "keys" => scopes.keys = true,
            _ => return Err("scopes are read, act and keys, with commas between them".to_owned()),
        }
    }
    match scopes.keys && !scopes.read {
        true => Err("keys are shown to those only who may read".to_owned()),
        false => Ok(scopes),
    }
}

/// Not a word of what stands there: it may be a token that was written down by mistake.
fn parse_proof(text: &str) -> Result<Proof, String> {
    let help = "a proof is sha256: and the 64 hexadecimal digits of a token's SHA-256, or certificate: and a DNS name";
    match text.split_once(':') {
        Some(("sha256", digits)) => digest(digits).map(Proof::Token),
        Some(("certificate", name)) if name.contains('.') => Some(Proof::Certificate(name.to_owned())),
        _ => None,
    }
    .ok_or_else(|| help.to_owned())
}

fn digest(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    /// SHA-256 of `token`.
    const HASH: &str = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0";

    #[test]
    fn a_token_and_a_certificate_tell_who_asks() {
        let text = format!(
            "# who may ask\n\ngrafana read sha256:{HASH}\n\
             ops.team read,act,keys certificate:ops.example.org\n"
        );
        let file = AccessFile::parse(&text).unwrap();
        let caller = file.by_token(b"token", None).unwrap();
        assert_eq!((&*caller.name, caller.scopes), ("grafana", Scopes { read: true, ..Scopes::default() }));
        assert!(file.by_token(b"token", Some("grafana")).is_some());
        assert!(file.by_token(b"token", Some("ops.team")).is_none());
        for token in [&b""[..], b"Token", b"token ", HASH.as_bytes()] {
            assert!(file.by_token(token, None).is_none(), "{token:?}");
        }
        let names = |name: &str| vec!["a.example.org".to_owned(), name.to_owned()];
        let caller = file.by_certificate(&names("OPS.example.org")).unwrap();
        assert!(caller.scopes == Scopes { read: true, act: true, keys: true } && file.wants_certificates());
        assert!(file.by_certificate(&names("xops.example.org")).is_none());
        assert!(file.by_certificate(&[]).is_none());
    }

    #[test]
    fn a_wrong_line_is_named_and_never_repeated() {
        let wrong = [
            "",
            "# nobody",
            "a read",
            "a read sha256:12 more",
            "a reads certificate:x.org",
            "a keys certificate:x.org",
            "a read, certificate:x.org",
            "a/b read certificate:x.org",
            "a read secret-token-itself",
            "a read sha256:3c469e9d",
            "a read certificate:",
            "a read certificate:x.org\na act certificate:y.org",
        ];
        for text in wrong {
            let error = AccessFile::parse(text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
            assert!(error.len() > 10 && (text.len() < 9 || error.starts_with("line ")), "{text:?}: {error}");
        }
        let many: String = (0..=CALLERS_MAX).map(|at| format!("c{at} read certificate:x.org\n")).collect();
        assert!(AccessFile::parse(&many).unwrap_err().contains("more than"));
    }

    proptest! {
        #[test]
        fn no_text_ends_the_agent(text in "(sha256:|certificate:|read|act|,|#| |\n|[ -~é]){0,40}") {
            let _ = AccessFile::parse(&text);
        }
    }
}
