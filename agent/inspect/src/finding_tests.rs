#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::super::facts::{FoundBy, SiteKind};
use super::super::module::tests::facts;
use super::*;

/// Of the file that [`facts`] describe.
const FILE_BYTES: u64 = 0x8e_8ea5;

fn believed(change: impl FnOnce(&mut ModuleFacts)) -> Result<Finding, &'static str> {
    let mut facts = facts(false);
    change(&mut facts);
    Finding::RocksDb(Box::new(facts)).believed(FILE_BYTES)
}

fn site(symbol: &str, file_offset: u64) -> Option<ProbeSite> {
    let (kind, found_by) = (SiteKind::Emulated, FoundBy::SymbolTable);
    Some(ProbeSite { symbol: symbol.into(), file_offset, bytes_into_function: 4, kind, found_by })
}

#[test]
fn what_can_be_is_believed() {
    let finding = believed(|facts| {
        facts.sites.seek = site(SEEK, 0x25_4000);
        facts.build_id = Some("0123abcdef".into());
        facts.tls = Some(TlsSegment { address: 0, image_size: 8, memory_size: 16, alignment: 8 });
    });
    let Ok(Finding::RocksDb(facts)) = finding else { panic!("{finding:?}") };
    // And it comes over the socket as it is.
    let text = serde_json::to_string(&Finding::RocksDb(facts.clone())).unwrap();
    assert_eq!(serde_json::from_str::<Finding>(&text).unwrap(), Finding::RocksDb(facts));
}

type Change = fn(&mut ModuleFacts);

#[test]
fn what_cannot_be_is_not_believed() {
    let cases: [(&str, Change); 12] = [
        ("the load segments", |facts| facts.load[1].file_size += 1),
        ("the load segments", |facts| facts.load[1].file_offset = u64::MAX),
        ("the load segments", |facts| facts.load = vec![facts.load[0]; LOAD_SEGMENTS_MAX + 1]),
        ("the thread-local segment", |facts| {
            facts.tls = Some(TlsSegment { address: 0, image_size: 8, memory_size: 16, alignment: 0 });
        }),
        ("the thread-local segment", |facts| {
            facts.tls = Some(TlsSegment { address: 0, image_size: 17, memory_size: 16, alignment: 1 });
        }),
        ("the build id", |facts| facts.build_id = Some("../../etc/passwd".into())),
        ("the build id", |facts| facts.build_id = Some("ab".repeat(65))),
        ("the build tag", |facts| facts.build_tag = Some(vec![0; BUILD_TAG_BYTES_MAX + 1])),
        ("the places of probes", |facts| facts.sites.seek = site(SEEK, FILE_BYTES)),
        ("the places of probes", |facts| facts.sites.seek = site(SEEK_TO_LAST, 0x25_4000)),
        ("the places of probes", |facts| {
            facts.sites.seek = site(SEEK, 0x25_4000);
            facts.sites.seek.as_mut().unwrap().bytes_into_function = 255;
        }),
        ("the gaps", |facts| {
            let words = String::new;
            let gap = Gap { what: words(), reason: words(), remedy: words() };
            facts.gaps = vec![gap; GAPS_MAX + 1];
        }),
    ];
    for (what, change) in cases {
        assert_eq!(believed(change), Err(what));
    }
    let symbol = super::super::elf::Symbol { value: 1, size: 1, thread_local: false, dynamic: false };
    assert!(believed_symbols([(SEEK.to_owned(), symbol)].into()).is_ok());
    assert!(believed_symbols([("main".to_owned(), symbol)].into()).is_err());
    let wanted = Finding::DebugFileWanted { build_id: "/etc".into() };
    assert_eq!(wanted.believed(0), Err("the build id"));
}
