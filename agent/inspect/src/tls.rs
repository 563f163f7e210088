//! The way from a thread pointer to the module's thread-local block.
//!
//! [`plan`] reads it off the file, [`resolve`] fills in what only the live process knows. Walking it for
//! each thread is the business of the BPF side.

use super::elf::{Symbol, TlsRelocation, TlsRelocationKind, TlsSegment};
use super::facts::TlsRecipe;
use super::memory::MemoryError;
use super::trace::{TlsBase, TlsPlace};

/// Largest module id that is believed: the dynamic linker counts loaded libraries with thread-local
/// storage from 1; processes have some dozens.
pub const MODULE_ID_MAX: u64 = 4096;

/// Farthest a static block may be from the thread pointer: the thread's stack has to hold it.
const STATIC_OFFSET_MAX: u64 = 1 << 30;

/// Why the block cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("the file has no thread-local segment")]
    NoSegment,
    #[error("the library asks the dynamic linker for no module id and no offset of its thread-local storage")]
    NoRelocation,
    #[error("the dynamic linker has not filled in the module id yet")]
    NotInitialised,
    #[error("the word at {address:#x} holds {value:#x}, which is no {what}")]
    Implausible { address: u64, value: u64, what: &'static str },
    #[error("the word at {address:#x} cannot be read: {message}")]
    Unreadable { address: u64, message: String },
}

impl TlsError {
    /// What an operator can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            TlsError::NotInitialised => "The process is just starting: try again.",
            TlsError::Unreadable { .. } => "Run sexton as root, or give it CAP_SYS_PTRACE.",
            _ => {
                "The library was built in a way that is not known here: use a RocksDB built with GCC or Clang for \
                 glibc or musl, with the default TLS model."
            }
        }
    }
}

/// How to find the block, as far as the file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPlan {
    /// An executable: the distance is known.
    Known {
        /// Added to the thread pointer.
        offset: i64,
    },
    /// A library: its module id is in the word at this address of the file's address space.
    ModuleIdAt { address: u64 },
    /// A library bound to static storage: a distance is in the word at this address.
    OffsetAt {
        address: u64,
        /// To be taken off the word's value to get the block's own distance.
        symbol_offset: i64,
    },
}

/// The distance of an executable's block from the thread pointer: `-(memory_size)`, made larger until the
/// block is aligned as the segment is.
pub fn executable_offset(segment: &TlsSegment) -> i64 {
    let mask = segment.alignment - 1;
    let padding = segment.address.wrapping_add(segment.memory_size).wrapping_neg() & mask;
    // Both are bounded by `ElfHeaders::read` far below `i64::MAX`.
    -i64::try_from(segment.memory_size + padding).unwrap_or(i64::MAX)
}

/// Reads off the file how the block of `perf_context` is found.
pub fn plan(
    segment: Option<&TlsSegment>,
    is_executable: bool,
    relocations: &[TlsRelocation],
    perf_context: (&str, Symbol),
) -> Result<TlsPlan, TlsError> {
    let segment = segment.ok_or(TlsError::NoSegment)?;
    if is_executable {
        return Ok(TlsPlan::Known { offset: executable_offset(segment) });
    }
    let (name, symbol) = perf_context;
    let find = |kind, symbol: Option<&str>| {
        relocations.iter().find(|r| r.kind == kind && r.symbol.as_deref() == symbol)
    };
    // The symbol's own relocation first: it is what the code uses. Symbol 0 is the module itself.
    let module_id = find(TlsRelocationKind::ModuleId, Some(name)).or(find(TlsRelocationKind::ModuleId, None));
    if let Some(relocation) = module_id {
        return Ok(TlsPlan::ModuleIdAt { address: relocation.address });
    }
    let value = i64::try_from(symbol.value).map_err(|_| TlsError::NoRelocation)?;
    if let Some(relocation) = find(TlsRelocationKind::ThreadOffset, Some(name)) {
        let symbol_offset = value.saturating_add(relocation.addend);
        return Ok(TlsPlan::OffsetAt { address: relocation.address, symbol_offset });
    }
    if let Some(relocation) = find(TlsRelocationKind::ThreadOffset, None) {
        return Ok(TlsPlan::OffsetAt { address: relocation.address, symbol_offset: relocation.addend });
    }
    Err(TlsError::NoRelocation)
}

/// Where thread-local variables lie that were found in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// How to find a thread's block.
    pub recipe: TlsRecipe,
    /// Offset of `perf_context` in it.
    pub perf_context_offset: u64,
    /// Offset of `perf_level` in it.
    pub perf_level_offset: Option<u64>,
}

/// Fills in what the dynamic linker decided, for variables that only the code shows. All have to be in one
/// block, which is the file's `PT_TLS`.
/// Errors: [`TlsError`] when a word cannot be read, or leads out of the block.
pub fn place(
    segment: Option<&TlsSegment>,
    is_executable: bool,
    perf_context: TlsPlace,
    perf_level: Option<TlsPlace>,
    load_bias: u64,
    read_u64: impl Fn(u64) -> Result<u64, MemoryError>,
) -> Result<Placed, TlsError> {
    let segment = segment.ok_or(TlsError::NoSegment)?;
    let locate = |place| locate(segment, is_executable, place, load_bias, &read_u64);
    let (recipe, perf_context_offset) = locate(perf_context)?;
    // A level elsewhere is another variable: then it is not known.
    let level = perf_level.and_then(|place| locate(place).ok()).filter(|(other, _)| *other == recipe);
    Ok(Placed { recipe, perf_context_offset, perf_level_offset: level.map(|(_, offset)| offset) })
}

/// The block that a variable is in, and its offset there.
fn locate(
    segment: &TlsSegment,
    is_executable: bool,
    place: TlsPlace,
    load_bias: u64,
    read_u64: &impl Fn(u64) -> Result<u64, MemoryError>,
) -> Result<(TlsRecipe, u64), TlsError> {
    let read = |address: u64| {
        let address = load_bias.wrapping_add(address);
        read_u64(address).map_err(|error| TlsError::Unreadable { address, message: error.to_string() })
    };
    let (address, distance) = match place.base {
        TlsBase::Pair(pair) => {
            let recipe = resolve(TlsPlan::ModuleIdAt { address: pair }, load_bias, read_u64)?;
            let address = pair.wrapping_add(8);
            let offset = read(address)?.wrapping_add_signed(place.offset);
            return inside(segment, address, offset).map(|offset| (recipe, offset));
        }
        TlsBase::ThreadOffset(distance) => (0, distance),
        TlsBase::OffsetWord(word) => (word, read(word)?.cast_signed()),
    };
    let distance = distance.wrapping_add(place.offset);
    if is_executable {
        let block = executable_offset(segment);
        let offset = inside(segment, address, distance.wrapping_sub(block).cast_unsigned())?;
        return Ok((TlsRecipe::Static { offset: block }, offset));
    }
    // Where in static storage a library's own block begins does not show.
    Err(TlsError::NoRelocation)
}

/// The offset, if it is in the block.
fn inside(segment: &TlsSegment, address: u64, offset: u64) -> Result<u64, TlsError> {
    if offset < segment.memory_size {
        return Ok(offset);
    }
    Err(TlsError::Implausible { address, value: offset, what: "offset in the thread-local block" })
}

/// Fills in what the dynamic linker decided, read from the live process.
/// Errors: [`TlsError`] when the word cannot be read or holds nothing plausible.
pub fn resolve(
    plan: TlsPlan,
    load_bias: u64,
    read_u64: impl Fn(u64) -> Result<u64, MemoryError>,
) -> Result<TlsRecipe, TlsError> {
    let read = |address: u64| {
        let address = load_bias.wrapping_add(address);
        let value = read_u64(address)
            .map_err(|error| TlsError::Unreadable { address, message: error.to_string() })?;
        Ok((address, value))
    };
    match plan {
        TlsPlan::Known { offset } => Ok(TlsRecipe::Static { offset }),
        TlsPlan::ModuleIdAt { address } => match read(address)? {
            (_, 0) => Err(TlsError::NotInitialised),
            (_, module_id) if module_id <= MODULE_ID_MAX => Ok(TlsRecipe::DynamicThreadVector { module_id }),
            (address, value) => Err(TlsError::Implausible { address, value, what: "module id" }),
        },
        TlsPlan::OffsetAt { address, symbol_offset } => {
            let (address, value) = read(address)?;
            if value == 0 {
                return Err(TlsError::NotInitialised);
            }
            let offset = value.cast_signed().saturating_sub(symbol_offset);
            // On x86-64 static blocks lie below the thread pointer.
            if offset >= 0 || offset.unsigned_abs() > STATIC_OFFSET_MAX {
                return Err(TlsError::Implausible { address, value, what: "offset from the thread pointer" });
            }
            Ok(TlsRecipe::Static { offset })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::elf::ElfHeaders;
    use crate::source::{Allowance, Source};

    const NAME: &str = "_ZN7rocksdb12perf_contextE";

    const SEGMENT: Option<&TlsSegment> =
        Some(&TlsSegment { address: 0xab1be0, image_size: 0x10, memory_size: 0x490, alignment: 0x10 });

    fn perf_context() -> (&'static str, Symbol) {
        (NAME, Symbol { value: 0xc8, size: 784, thread_local: true, dynamic: true })
    }

    fn relocation(kind: TlsRelocationKind, address: u64, symbol: Option<&str>) -> TlsRelocation {
        TlsRelocation { kind, address, symbol: symbol.map(str::to_string), addend: 0 }
    }

    #[test]
    fn an_executable_counts_back_from_the_thread_pointer() {
        let segment = TlsSegment { address: 0x1000, image_size: 0x10, memory_size: 0x491, alignment: 0x40 };
        assert_eq!(executable_offset(&segment), -0x4c0);
        let aligned = TlsSegment { address: 0x1000, image_size: 0x10, memory_size: 0x480, alignment: 0x40 };
        assert_eq!(executable_offset(&aligned), -0x480);
        let plan = plan(SEGMENT, true, &[], perf_context()).unwrap();
        assert_eq!(plan, TlsPlan::Known { offset: -0x490 });
    }

    #[test]
    fn our_own_block_is_where_the_formula_says() {
        thread_local!(static MARK: u64 = const { 0x7e57_7e57_7e57_7e57 });
        let file = std::fs::read("/proc/self/exe").unwrap();
        let allowance = Allowance::default();
        let headers = ElfHeaders::read(&Source::of_bytes(&file, &allowance)).unwrap();
        let segment = headers.tls.unwrap();
        let thread_pointer: u64;
        // SAFETY: glibc keeps the thread pointer itself in the first word that fs points to.
        unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread_pointer) };
        let mark = MARK.with(|mark| std::ptr::from_ref(mark) as usize as u64);
        let block = thread_pointer.wrapping_add_signed(executable_offset(&segment));
        assert!((block..block + segment.memory_size).contains(&mark), "{mark:#x} not in block at {block:#x}");
        assert_eq!(block % segment.alignment, segment.address % segment.alignment);
    }

    #[test]
    fn the_symbols_own_relocation_goes_before_the_modules() {
        let own = relocation(TlsRelocationKind::ModuleId, 0xad6800, Some(NAME));
        let module = relocation(TlsRelocationKind::ModuleId, 0xad2c50, None);
        let other = relocation(TlsRelocationKind::ModuleId, 0xad5318, Some("_ZSt11__once_call"));
        let both = [other.clone(), module.clone(), own];
        let at = |address| Ok(TlsPlan::ModuleIdAt { address });
        assert_eq!(plan(SEGMENT, false, &both, perf_context()), at(0xad6800));
        assert_eq!(plan(SEGMENT, false, &[other.clone(), module], perf_context()), at(0xad2c50));
        assert_eq!(plan(SEGMENT, false, &[other], perf_context()), Err(TlsError::NoRelocation));
    }

    #[test]
    fn the_module_id_is_read_at_the_bias_and_checked() {
        let plan = TlsPlan::ModuleIdAt { address: 0x6800 };
        let read = |value| {
            move |address| {
                assert_eq!(address, 0x7f00_0000_6800);
                Ok(value)
            }
        };
        let bias = 0x7f00_0000_0000;
        assert_eq!(resolve(plan, bias, read(3)), Ok(TlsRecipe::DynamicThreadVector { module_id: 3 }));
        assert_eq!(resolve(plan, bias, read(0)), Err(TlsError::NotInitialised));
        assert!(matches!(resolve(plan, bias, read(4097)), Err(TlsError::Implausible { value: 4097, .. })));
        let gone = resolve(plan, bias, |_| Err(MemoryError::NoSuchProcess { pid: 7 }));
        assert!(matches!(gone, Err(TlsError::Unreadable { .. })));
    }

    #[test]
    fn a_library_with_static_storage_gives_its_offset() {
        let relocations = [relocation(TlsRelocationKind::ThreadOffset, 0x10, Some(NAME))];
        let plan = plan(SEGMENT, false, &relocations, perf_context()).unwrap();
        assert_eq!(plan, TlsPlan::OffsetAt { address: 0x10, symbol_offset: 0xc8 });
        let recipe = resolve(plan, 0, |_| Ok((-0x500_i64 + 0xc8).cast_unsigned()));
        assert_eq!(recipe, Ok(TlsRecipe::Static { offset: -0x500 }));
        assert!(matches!(resolve(plan, 0, |_| Ok(0x1000)), Err(TlsError::Implausible { .. })));
    }

    fn code(base: TlsBase, offset: i64) -> TlsPlace {
        TlsPlace { base, offset }
    }

    #[test]
    fn variables_of_an_executable_that_only_code_shows() {
        let read = |address| Ok(if address == 0x7010 { (-0x490_i64 + 0x8).cast_unsigned() } else { 0 });
        let context = code(TlsBase::ThreadOffset(-0x490), 0xc8);
        let level = code(TlsBase::OffsetWord(0x10), 0);
        let placed = place(SEGMENT, true, context, Some(level), 0x7000, read).unwrap();
        assert_eq!(placed.recipe, TlsRecipe::Static { offset: -0x490 });
        assert_eq!((placed.perf_context_offset, placed.perf_level_offset), (0xc8, Some(8)));
        // Out of the block.
        let wrong = code(TlsBase::ThreadOffset(-0x500), 0);
        assert!(matches!(place(SEGMENT, true, wrong, None, 0, read), Err(TlsError::Implausible { .. })));
        let placed = place(SEGMENT, true, context, Some(wrong), 0, read).unwrap();
        assert_eq!(placed.perf_level_offset, None);
    }

    #[test]
    fn variables_of_a_library_that_only_code_shows() {
        let pair = code(TlsBase::Pair(0x20), 0);
        let read = |module_id, offset| move |address| Ok(if address == 0x7020 { module_id } else { offset });
        let placed = place(SEGMENT, false, pair, None, 0x7000, read(3, 0xc8)).unwrap();
        assert_eq!(placed.recipe, TlsRecipe::DynamicThreadVector { module_id: 3 });
        assert_eq!(placed.perf_context_offset, 0xc8);
        assert_eq!(place(SEGMENT, false, pair, None, 0x7000, read(0, 0xc8)), Err(TlsError::NotInitialised));
        assert!(place(SEGMENT, false, pair, None, 0x7000, read(3, 0x490)).is_err());
    }
}
