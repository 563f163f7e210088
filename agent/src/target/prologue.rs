//! Choosing the instruction a probe goes on, from a function's first bytes.
//!
//! Two demands: the instruction should be one that the kernel emulates instead of single-stepping (a
//! tenth of the price), and the stack pointer must still be what it was at the entry, because a return
//! probe replaces the return address it finds there. Also reads field offsets from small accessors.

use super::facts::SiteKind;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Bytes of a function that are looked at: two instructions of the greatest length (15) and `endbr64`.
pub const PROLOGUE_BYTES: usize = 40;

/// Bytes of an accessor that are looked at: the load of the field is among its first few instructions.
pub const ACCESSOR_BYTES: usize = 64;

/// Where to probe a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Distance from the function's first byte: 0, or 4 behind `endbr64`.
    pub bytes_into_function: u8,
    /// What a hit costs.
    pub kind: SiteKind,
}

/// Why a function cannot be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are no instruction, or end in the middle of one.
    #[error("its first bytes are not a whole x86-64 instruction")]
    NotAnInstruction,
    /// The function returns at once.
    #[error("it begins with `ret`: there is nothing to measure")]
    ReturnsAtOnce,
    /// A `nop` of five bytes.
    #[error(
        "it begins with a 5-byte `nop`, which Linux 6.18 to 7.1 patch in a way that corrupts the red zone"
    )]
    FiveByteNop,
    /// `ud2`, `int3`, `hlt` and the like.
    #[error("it begins with an instruction that traps: it is a stub, or another tracer's breakpoint")]
    Traps,
}

/// Chooses the site from a function's first bytes.
///
/// # Errors
/// A [`Refusal`] when no safe site exists.
pub fn choose(code: &[u8]) -> Result<Choice, Refusal> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    let mut bytes_into_function = 0;
    if instruction.code() == Code::Endbr64 {
        // Nothing but this one is stepped over: it leaves the stack pointer alone.
        bytes_into_function = 4;
        instruction = decoder.decode();
    }
    if instruction.is_invalid() {
        return Err(Refusal::NotAnInstruction);
    }
    if instruction.mnemonic() == Mnemonic::Nop && instruction.len() == 5 {
        return Err(Refusal::FiveByteNop);
    }
    match instruction.flow_control() {
        FlowControl::Return => return Err(Refusal::ReturnsAtOnce),
        FlowControl::Interrupt | FlowControl::Exception => return Err(Refusal::Traps),
        _ if instruction.mnemonic() == Mnemonic::Hlt => return Err(Refusal::Traps),
        _ => {}
    }
    let kind = if is_emulated(&instruction) { SiteKind::Emulated } else { SiteKind::SingleStepped };
    Ok(Choice { bytes_into_function, kind })
}

/// `push` of a 64-bit register in its plain encoding (1 byte, or 2 with REX.B), or the 1-byte `nop`: what
/// the kernel's `push_setup_xol_ops` and `branch_setup_xol_ops` take on every version.
fn is_emulated(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Push_r64 => {
            let extended = (Register::R8..=Register::R15).contains(&instruction.op0_register());
            instruction.len() == if extended { 2 } else { 1 }
        }
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

    proptest! {
        #[test]
        fn any_bytes_are_survived(code in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(choice) = choose(&code) {
                prop_assert!(choice.bytes_into_function == 0 || code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]));
                prop_assert!(usize::from(choice.bytes_into_function) < code.len());
            }
            if let Some(offset) = first_member_load(&code) {
                prop_assert!(offset > 0);
            }
        }
    }
}
