#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
use super::super::source::Allowance;
use super::*;
use std::fs::File;
use std::io::Write;

fn file_with(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

fn find(file: &File, offset: u64, size: u64, text: &[u8]) -> Result<Option<u64>, ElfError> {
    let allowance = Allowance::default();
    scan::find(&Source::of_file(file, &allowance)?, offset, size, text)
}

#[test]
fn a_name_across_two_chunks_is_found() {
    let mut content = vec![b'.'; 3 * scan::CHUNK_BYTES];
    let at = scan::CHUNK_BYTES - 10;
    content[at..at + SEEK.len()].copy_from_slice(SEEK.as_bytes());
    let file = file_with(&content);
    let size = content.len() as u64;
    assert_eq!(find(&file, 0, size, SEEK.as_bytes()).unwrap(), Some(at as u64));
    assert_eq!(find(&file, 5, size - 5, SEEK.as_bytes()).unwrap(), Some(at as u64));
    assert_eq!(find(&file, 0, (at + 20) as u64, SEEK.as_bytes()).unwrap(), None);
    assert_eq!(find(&file, 0, size, b"not there").unwrap(), None);
    assert!(find(&file, size, 100, b"cut").is_err());
}

#[test]
fn every_length_of_a_small_file_is_searched_whole() {
    for before in 0..40 {
        let content = [vec![b'_'; before], SEEK.as_bytes().to_vec()].concat();
        let file = file_with(&content);
        let found = find(&file, 0, content.len() as u64, SEEK.as_bytes()).unwrap();
        assert_eq!(found, Some(before as u64));
    }
}

pub(in super::super) fn facts(fixed_address: bool) -> ModuleFacts {
    let segment = |file_offset, file_size, address, executable| LoadSegment {
        file_offset,
        file_size,
        address,
        executable,
    };
    ModuleFacts {
        fixed_address,
        says_pie: false,
        load: vec![segment(0, 0x25_36d8, 0, false), segment(0x25_4000, 0x69_4ea5, 0x25_4000, true)],
        tls: None,
        build_id: None,
        build_tag: None,
        found_by: FoundBy::SymbolTable,
        sites: ProbeSites::default(),
        db_iter_offset: None,
        current_key_offset: None,
        keys_skipped_offset: None,
        skip_count_offset: None,
        perf_context: None,
        perf_level: None,
        counting_code: None,
        exports_perf_context_api: false,
        exports_compact_range: false,
        library_answer: OnceLock::new(),
        tls_relocations: Vec::new(),
        gaps: Vec::new(),
    }
}

#[test]
fn the_bias_is_the_distance_of_the_mapping_from_the_segment() {
    assert_eq!(facts(false).load_bias(0x7f00_0025_4000, 0x25_4000), Some(0x7f00_0000_0000));
    // The mapping was split: its second half gives the same bias.
    assert_eq!(facts(false).load_bias(0x7f00_0030_0000, 0x30_0000), Some(0x7f00_0000_0000));
    assert_eq!(facts(false).load_bias(0x7f00_0000_0000, 0), None);
    assert_eq!(facts(true).load_bias(0x40_0000, 0), Some(0));
}

#[test]
fn a_segment_that_begins_inside_a_page() {
    let mut facts = facts(false);
    facts.load =
        vec![LoadSegment { file_offset: 0x1be0, file_size: 0x5000, address: 0x2be0, executable: true }];
    assert_eq!(facts.load_bias(0x7f00_0000_2000, 0x1000), Some(0x7f00_0000_0000));
}
