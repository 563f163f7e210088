//! Whatever a hook inside a foreign process sends, reading it does no harm.

use sexton_fuzz::fuzz;
use sexton_hook_protocol::{
    CompactionState, Finished, Hello, KeyBytes, PROTOCOL_VERSION, Response, SstFile, decode, encode, read,
};

fn originals() -> Vec<Vec<u8>> {
    let hello = Hello {
        protocol_version: PROTOCOL_VERSION,
        hook_version: "0.1.0".into(),
        pid: 4711,
        library: Some("/tmp/librocksdbjni1.so".into()),
        functions_found: vec!["rocksdb_compact_range_cf_opt".into()],
        functions_missing: Vec::new(),
        unguarded: Some("no symbols".into()),
    };
    let file = SstFile {
        number: 123,
        column_family: "keyTable".into(),
        level: 6,
        size_bytes: 1 << 20,
        entries: 10_000,
        deletions: 9_999,
        smallest: KeyBytes::floor(b"/vol/a/"),
        largest: KeyBytes::ceiling(b"/vol/b/\xff"),
        smallest_sequence: Some(1),
        largest_sequence: Some(u64::MAX),
    };
    let property = Response::Property { value: Some("0 \u{1}\"ü\\".into()), truncated: false };
    let responses = [
        Response::Hello(hello),
        Response::SstFiles { files: vec![file.clone(), file], last: true },
        property,
        Response::Started { id: u64::MAX },
        Response::Compaction {
            id: 1,
            state: CompactionState::Finished(Finished {
                ok: false,
                cancelled: false,
                closed_by_owner: false,
                busy: true,
                error: Some("Operation aborted: busy".into()),
                duration_ns: 5,
            }),
        },
        Response::Done {},
    ];
    responses.iter().filter_map(|response| encode(response).ok()).collect()
}

#[test]
fn messages_of_the_hook() {
    fuzz("hook protocol, responses", &originals(), |mut bytes| {
        let decoded = decode::<Response>(bytes);
        let read = read::<Response>(&mut bytes);
        // The two ways of reading a frame agree on what they accept.
        let message = decoded.ok().flatten().map(|(message, _)| message);
        assert_eq!(message, read.ok());
        message.is_some()
    });
}
