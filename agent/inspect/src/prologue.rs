//! Choosing the instruction a probe goes on, from a function's first bytes.
//!
//! Two demands: the instruction should be one that the kernel emulates instead of single-stepping (a
//! tenth of the price), and everything a probe reads must still be what it was at the entry: the stack
//! pointer, because a return probe replaces the return address it finds there, and the arguments. So some
//! harmless instructions may be stepped over to a `push`. Also reads field offsets from small accessors.

use super::facts::SiteKind;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Bytes of a function that are looked at: the stepped-over instructions and the probed one, of up to 15
/// bytes each.
pub const PROLOGUE_BYTES: usize = 80;

/// Instructions that are stepped over at most. GCC puts one or two loads of addresses in front of the
/// first `push`; farther in, a function has begun its work.
const STEPPED_OVER_MAX: usize = 4;

/// Bytes of an accessor that are looked at: the load of the field is among its first few instructions.
pub const ACCESSOR_BYTES: usize = 96;

/// Where to probe a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Distance from the function's first byte; all before it leaves stack pointer and arguments alone.
    pub bytes_into_function: u8,
    pub kind: SiteKind,
}

/// Why a function cannot be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("its first bytes are not a whole x86-64 instruction")]
    NotAnInstruction,
    #[error("it begins with `ret`: there is nothing to measure")]
    ReturnsAtOnce,
    #[error(
        "it begins with a 5-byte `nop`, which Linux 6.18 to 7.1 patch in a way that corrupts the red zone"
    )]
    FiveByteNop,
    #[error("it begins with an instruction that traps: it is a stub, or another tracer's breakpoint")]
    Traps,
}

/// Chooses the site from a function's first bytes: the first emulated instruction that is reached with
/// stack pointer and arguments untouched, else the first instruction (behind `endbr64`).
/// Errors: a [`Refusal`] when the first instruction says that no safe site exists.
pub fn choose(code: &[u8]) -> Result<Choice, Refusal> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.code() == Code::Endbr64 {
        instruction = decoder.decode();
    }
    check(&instruction)?;
    let first = Choice { bytes_into_function: at(&instruction), kind: SiteKind::SingleStepped };
    for _ in 0..=STEPPED_OVER_MAX {
        if is_emulated(&instruction, code) {
            return Ok(Choice { bytes_into_function: at(&instruction), kind: SiteKind::Emulated });
        }
        if !leaves_arguments_alone(&instruction) {
            break;
        }
        instruction = decoder.decode();
    }
    Ok(first)
}

/// Distance from the function's first byte: at most [`PROLOGUE_BYTES`], the decoder began at 0.
fn at(instruction: &Instruction) -> u8 {
    u8::try_from(instruction.ip()).unwrap_or(0)
}

/// Refuses functions that cannot be probed at their first instruction.
fn check(instruction: &Instruction) -> Result<(), Refusal> {
    if instruction.is_invalid() {
        return Err(Refusal::NotAnInstruction);
    }
    if instruction.mnemonic() == Mnemonic::Nop && instruction.len() == 5 {
        return Err(Refusal::FiveByteNop);
    }
    match instruction.flow_control() {
        FlowControl::Return => Err(Refusal::ReturnsAtOnce),
        FlowControl::Interrupt | FlowControl::Exception => Err(Refusal::Traps),
        _ if instruction.mnemonic() == Mnemonic::Hlt => Err(Refusal::Traps),
        _ => Ok(()),
    }
}

/// Whether an instruction can be stepped over: it goes on to the next one, writes no memory, and leaves
/// the stack pointer and the six registers of arguments as they are.
fn leaves_arguments_alone(instruction: &Instruction) -> bool {
    const KEPT: [Register; 7] = [
        Register::RSP,
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
    ];
    if instruction.is_invalid()
        || instruction.flow_control() != FlowControl::Next
        || instruction.is_stack_instruction()
    {
        return false;
    }
    let reads_only = |access| {
        matches!(access, OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead)
    };
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let registers = info.used_registers().iter();
    registers
        .filter(|used| KEPT.contains(&used.register().full_register()))
        .all(|used| reads_only(used.access()))
        && info.used_memory().iter().all(|used| reads_only(used.access()))
}

/// The prefix that makes `push` take `r8` to `r15`: REX.B and no other bit.
const REX_B: u8 = 0x41;

/// `push` of a 64-bit register in its plain encoding (1 byte, or 2 with REX.B), or the 1-byte `nop`: what
/// the kernel's `push_setup_xol_ops` and `branch_setup_xol_ops` take on every version. They compare the
/// prefix as a byte: with another bit set in it, though it means the same, the instruction is stepped.
fn is_emulated(instruction: &Instruction, code: &[u8]) -> bool {
    match instruction.code() {
        Code::Push_r64 => match instruction.len() {
            1 => true,
            2 => code.get(usize::from(at(instruction))) == Some(&REX_B),
            _ => false,
        },
        Code::Nopd | Code::Nopw | Code::Nopq => instruction.len() == 1,
        _ => false,
    }
}

/// The displacement of the first 8-byte load from `[rdi + displacement]`, displacement > 0: the offset of
/// the member that an accessor of an object reads first. `None` when `rdi` is changed, or the straight
/// line ends, before one was seen.
pub fn first_member_load(code: &[u8]) -> Option<u32> {
    let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    for instruction in decoder {
        if instruction.is_invalid() {
            return None;
        }
        let loads = instruction.code() == Code::Mov_r64_rm64
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RDI
            && instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None;
        if loads {
            let displacement = instruction.memory_displacement64();
            return u32::try_from(displacement).ok().filter(|&offset| offset > 0 && offset % 8 == 0);
        }
        let writes_rdi = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RDI
            && !matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test);
        if writes_rdi || instruction.flow_control() != FlowControl::Next {
            return None;
        }
    }
    None
}

/// The offset of two members next to each other, both loaded from `[rdi + offset]`, 8 bytes each: the
/// pointer and the length that an accessor returns as a `Slice`. `None` where there is no such pair, or
/// more than one. Branches are looked behind: an accessor's ways differ in checks, not in members.
pub fn member_pair_load(code: &[u8]) -> Option<u32> {
    let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut loaded = std::collections::BTreeSet::new();
    for instruction in decoder.into_iter().take_while(|instruction| !instruction.is_invalid()) {
        if instruction.code() == Code::Mov_r64_rm64
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RDI
            && instruction.memory_index() == Register::None
            && let Ok(offset) = u32::try_from(instruction.memory_displacement64())
        {
            loaded.insert(offset);
        }
    }
    let mut pairs = loaded.iter().filter(|&&offset| offset > 0 && loaded.contains(&(offset + 8)));
    let first = pairs.next()?;
    pairs.next().is_none().then_some(*first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn emulated(bytes_into_function: u8) -> Result<Choice, Refusal> {
        Ok(Choice { bytes_into_function, kind: SiteKind::Emulated })
    }

    fn single_stepped(bytes_into_function: u8) -> Result<Choice, Refusal> {
        Ok(Choice { bytes_into_function, kind: SiteKind::SingleStepped })
    }

    #[test]
    fn a_push_with_another_bit_in_its_prefix_is_stepped() {
        assert_eq!(choose(&[0x45, 0x50]), single_stepped(0)); // push r8, REX.R as well
        assert_eq!(choose(&[0x48, 0x50]), single_stepped(0)); // push rax, REX.W
    }

    #[test]
    fn a_push_is_emulated() {
        assert_eq!(choose(&[0x55, 0x48, 0x89, 0xe5]), emulated(0)); // push rbp
        assert_eq!(choose(&[0x41, 0x57, 0x90]), emulated(0)); // push r15
        assert_eq!(choose(&[0x90, 0xc3]), emulated(0)); // nop
    }

    #[test]
    fn a_push_in_an_odd_encoding_is_single_stepped() {
        assert_eq!(choose(&[0x48, 0x55, 0xc3]), single_stepped(0)); // rex.w push rbp
        assert_eq!(choose(&[0xff, 0xf5, 0xc3]), single_stepped(0)); // push rbp by ModRM
        assert_eq!(choose(&[0x66, 0x90, 0xc3]), single_stepped(0)); // 2-byte nop
        assert_eq!(choose(&[0x6a, 0x01, 0xc3]), single_stepped(0)); // push 1
    }

    #[test]
    fn behind_endbr64_the_next_instruction_decides() {
        assert_eq!(choose(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55]), emulated(4));
        assert_eq!(choose(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x18]), single_stepped(4));
        assert_eq!(choose(&[0xf3, 0x0f, 0x1e, 0xfa, 0xc3]), Err(Refusal::ReturnsAtOnce));
        assert_eq!(choose(&[0xf3, 0x0f, 0x1e, 0xfa]), Err(Refusal::NotAnInstruction));
    }

    #[test]
    fn what_moves_the_stack_pointer_is_never_stepped_over() {
        // sub rsp, 0x18; push rbp
        assert_eq!(choose(&[0x48, 0x83, 0xec, 0x18, 0x55]), single_stepped(0));
    }

    #[test]
    fn harmless_instructions_are_stepped_over_to_a_push() {
        // lea 0x70e3d9(%rip),%rax; push %rbx: ArenaWrappedDBIter's destructor in RocksDB 11.12
        assert_eq!(choose(&[0x48, 0x8d, 0x05, 0xd9, 0xe3, 0x70, 0x00, 0x53]), emulated(7));
        // endbr64; mov %fs:0x28,%rax; push %rbp
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0x55];
        assert_eq!(choose(&code), emulated(13));
        // mov %rdi,%rax; push %rbp
        assert_eq!(choose(&[0x48, 0x89, 0xf8, 0x55]), emulated(3));
    }

    #[test]
    fn what_changes_an_argument_or_memory_or_jumps_is_not_stepped_over() {
        assert_eq!(choose(&[0x48, 0x89, 0xfe, 0x55]), single_stepped(0)); // mov %rdi,%rsi; push %rbp
        assert_eq!(choose(&[0x31, 0xd2, 0x55]), single_stepped(0)); // xor %edx,%edx; push %rbp
        assert_eq!(choose(&[0x48, 0x89, 0x07, 0x55]), single_stepped(0)); // mov %rax,(%rdi); push %rbp
        assert_eq!(choose(&[0x74, 0x10, 0x55]), single_stepped(0)); // je; push %rbp
        assert_eq!(choose(&[0xe8, 0, 0, 0, 0, 0x55]), single_stepped(0)); // call; push %rbp
        // sub $0x8,%rsp; push %rbp
        assert_eq!(choose(&[0x48, 0x83, 0xec, 0x08, 0x55]), single_stepped(0));
        // mov (%rdi),%rax six times; push %rbp: too far in
        let far = [[0x48, 0x8b, 0x07].repeat(6), vec![0x55]].concat();
        assert_eq!(choose(&far), single_stepped(0));
        // lea (%rip),%rax, and the bytes end
        assert_eq!(choose(&[0x48, 0x8d, 0x05, 0, 0, 0, 0]), single_stepped(0));
    }

    #[test]
    fn unsafe_sites_are_refused() {
        assert_eq!(choose(&[0xc3]), Err(Refusal::ReturnsAtOnce));
        assert_eq!(choose(&[0xf3, 0xc3]), Err(Refusal::ReturnsAtOnce));
        assert_eq!(choose(&[0x0f, 0x1f, 0x44, 0x00, 0x00, 0x55]), Err(Refusal::FiveByteNop));
        assert_eq!(choose(&[0xcc, 0x55]), Err(Refusal::Traps));
        assert_eq!(choose(&[0x0f, 0x0b]), Err(Refusal::Traps));
        assert_eq!(choose(&[]), Err(Refusal::NotAnInstruction));
        assert_eq!(choose(&[0x48, 0x83]), Err(Refusal::NotAnInstruction));
    }

    #[test]
    fn the_member_an_accessor_reads_first() {
        // mov 0x28(%rdi),%rdi; jmp
        assert_eq!(first_member_load(&[0x48, 0x8b, 0x7f, 0x28, 0xe9, 0, 0, 0, 0]), Some(0x28));
        // push %rbp; mov 0x28(%rdi),%rax; cmpb $0x0,0x241(%rax)
        let key = [0x55, 0x48, 0x8b, 0x47, 0x28, 0x80, 0xb8, 0x41, 0x02, 0x00, 0x00, 0x00];
        assert_eq!(first_member_load(&key), Some(0x28));
        // endbr64 in front
        assert_eq!(first_member_load(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x47, 0x30, 0xc3]), Some(0x30));
    }

    #[test]
    fn no_member_is_made_up() {
        // mov (%rdi),%rax: the vtable pointer, then a jump through it
        assert_eq!(first_member_load(&[0x48, 0x8b, 0x07, 0xff, 0x60, 0x10]), None);
        // mov %rsi,%rdi; mov 0x28(%rdi),%rax
        assert_eq!(first_member_load(&[0x48, 0x89, 0xf7, 0x48, 0x8b, 0x47, 0x28, 0xc3]), None);
        // mov -0x8(%rdi),%rax
        assert_eq!(first_member_load(&[0x48, 0x8b, 0x47, 0xf8, 0xc3]), None);
        // ret; mov 0x28(%rdi),%rax
        assert_eq!(first_member_load(&[0xc3, 0x48, 0x8b, 0x47, 0x28]), None);
        // mov 0x28(%rdi),%eax: four bytes
        assert_eq!(first_member_load(&[0x8b, 0x47, 0x28, 0xc3]), None);
        assert_eq!(first_member_load(&[]), None);
    }

    #[test]
    fn the_pair_that_a_slice_is_made_of() {
        // cmpq $0,0x2f8(%rdi); mov 0xd8(%rdi),%rdx; mov 0xd0(%rdi),%rax; ret
        let key = [
            0x48, 0x83, 0xbf, 0xf8, 0x02, 0, 0, 0, 0x48, 0x8b, 0x97, 0xd8, 0, 0, 0, 0x48, 0x8b, 0x87, 0xd0,
            0, 0, 0, 0xc3,
        ];
        assert_eq!(member_pair_load(&key), Some(0xd0));
        // Only the length.
        assert_eq!(member_pair_load(key.get(..15).unwrap()), None);
        assert_eq!(member_pair_load(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(code in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(choice) = choose(&code) {
                let site = &code[usize::from(choice.bytes_into_function)..];
                prop_assert!(!site.is_empty());
                if choice.kind == SiteKind::Emulated {
                    prop_assert!(matches!(site, [0x50..=0x57 | 0x90, ..] | [0x41, 0x50..=0x57, ..]));
                }
            }
            if let Some(offset) = first_member_load(&code) {
                prop_assert!(offset > 0);
            }
        }
    }
}
