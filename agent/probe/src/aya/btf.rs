//! The structures in an object's BTF, as far as the test needs them: `aya-obj` reads BTF for itself and shows
//! neither members nor offsets, but gives its bytes.

use std::collections::BTreeMap;

/// A structure: its size and, by member, the offsets, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Structure {
    pub bytes: usize,
    pub members: BTreeMap<String, usize>,
}

/// Bytes of a type's head: name, information, size or type.
const TYPE_HEAD_BYTES: usize = 12;
/// Bytes of one member: name, type, offset in bits.
const MEMBER_BYTES: usize = 12;

const STRUCTURE: u32 = 4;

/// All named structures, by name. `None` where the bytes are no BTF.
pub fn structures(btf: &[u8]) -> Option<BTreeMap<String, Structure>> {
    let word = |at: usize| Some(u32::from_le_bytes(btf.get(at..at + 4)?.try_into().ok()?) as usize);
    // The header: magic, version and flags, its own length, then offset and length of types and strings.
    let (head, types, types_bytes, strings) = (word(4)?, word(8)?, word(12)?, word(16)?);
    let name = |offset: usize| {
        let text = btf.get(head + strings + offset..)?;
        String::from_utf8(text.split(|byte| *byte == 0).next()?.to_vec()).ok()
    };
    let mut found = BTreeMap::new();
    let (mut at, end) = (head + types, head + types + types_bytes);
    while at < end {
        let information = u32::try_from(word(at + 4)?).ok()?;
        let (kind, count) = (information >> 24 & 0x1f, (information & 0xffff) as usize);
        let behind = at + TYPE_HEAD_BYTES;
        if kind == STRUCTURE {
            let mut structure = Structure { bytes: word(at + 8)?, members: BTreeMap::new() };
            for member in (0..count).map(|index| behind + index * MEMBER_BYTES) {
                structure.members.insert(name(word(member)?)?, word(member + 8)? / 8);
            }
            found.insert(name(word(at)?)?, structure);
        }
        at = behind + bytes_behind(kind, count)?;
    }
    Some(found)
}

/// Bytes that follow the head of a type (Documentation/bpf/btf.rst).
fn bytes_behind(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, names and qualifiers, functions, floats.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerators and parameters.
        6 | 13 => count * 8,
        // Structures, unions, sections, enumerators of 64 bits.
        4 | 5 | 15 | 19 => count * MEMBER_BYTES,
        _ => return None,
    })
}
