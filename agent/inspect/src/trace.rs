//! Following values through a function's code: members of its object, and thread-local variables.
//!
//! A small data-flow analysis over the instructions that can be reached from an address. It knows a value
//! only where every way to it agrees, forgets what it does not understand, and is bounded in instructions
//! and in passes, so that it ends on any bytes. What follows from the accesses is the business of `learn`.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Instructions that are followed from one entry: some times the largest method of `DBIter`, which has
/// about 1,500.
pub const INSTRUCTIONS_MAX: usize = 8192;

/// Steps of one analysis. Each register of an instruction loses its value at most once, so that a few
/// passes are enough for real code.
const STEPS_MAX: usize = 16 * INSTRUCTIONS_MAX;

/// Largest offset of a member: `DBIter` has some 2 KiB.
const MEMBER_OFFSET_MAX: i64 = 64 * 1024;

/// Bytes from the entry within which a small function ends.
pub const EXTENT_BYTES_MAX: u64 = 256;

/// Bytes of the longest instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// Where a thread-local variable lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TlsBase {
    /// At this distance from the thread pointer, which the code itself has (local exec).
    ThreadOffset(i64),
    /// At the distance from the thread pointer that is in the word at this address (initial exec).
    OffsetWord(u64),
    /// Where `__tls_get_addr` finds it, by the pair of words at this address: module id, offset (general
    /// dynamic).
    Pair(u64),
}

/// A place in thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TlsPlace {
    pub base: TlsBase,
    /// How far, bytes.
    pub offset: i64,
}

/// One access that tells something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// The 8-byte member at this offset of the object was set to zero.
    MemberZeroed(u32),
    /// The member at `to` was set to its sum with the member at `added`, give or take a constant.
    MemberAdded { to: u32, added: u32 },
    /// An 8-byte thread-local variable was incremented by one.
    TlsIncremented(TlsPlace),
    /// A byte of thread-local storage was compared with one, or with two as clang does: RocksDB's question
    /// whether to count.
    TlsByteComparedWithOne(TlsPlace),
    /// The address of something in the file was taken.
    AddressTaken(u64),
}

/// What was seen of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub accesses: BTreeSet<Access>,
    /// Functions that it calls directly.
    pub calls: BTreeSet<u64>,
    /// Those of them that get the object as their first argument.
    pub calls_on_object: BTreeSet<u64>,
    /// Where it jumps without a condition; functions that it ends with are among them.
    pub jumps: BTreeSet<u64>,
    /// Steps that following it took.
    pub steps: u64,
    /// Bytes from its entry to the end of the last instruction that was reached, of those within
    /// [`EXTENT_BYTES_MAX`]: the size of a small function whose symbol is gone.
    pub extent: u64,
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unknown,
    Constant(i64),
    /// The function's first argument and so many bytes.
    Object(i64),
    /// The member at this offset.
    Member(u32),
    /// The sum of two members, in no order.
    Sum(u32, u32),
    /// An address in the file.
    Address(u64),
    /// The word at this address of the file.
    Word(u64),
    /// An address in thread-local storage.
    Tls(TlsPlace),
    /// What is at this place, and whether one was added to it.
    TlsWord(TlsPlace, bool),
}

/// Places on the stack that are remembered: a function that counts has two or three addresses there.
const SPILLS_MAX: usize = 6;

/// What is known before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Registers by number, `rax` to `r15`.
    registers: [Value; 16],
    /// Addresses in thread-local storage that lie on the stack, by their distance from its pointer.
    spilled: [Option<(i64, TlsPlace)>; SPILLS_MAX],
}

impl State {
    const NOTHING: State = State { registers: [Value::Unknown; 16], spilled: [None; SPILLS_MAX] };

    fn spilled_at(&self, distance: i64) -> Option<TlsPlace> {
        self.spilled.iter().flatten().find(|(at, _)| *at == distance).map(|(_, place)| *place)
    }

    /// Something was written to the stack there: an address, if it is one that is followed.
    fn write_stack(&mut self, distance: i64, bytes: i64, place: Option<TlsPlace>) {
        for spilled in &mut self.spilled {
            let is_touched = |(at, _): &(i64, TlsPlace)| {
                at.saturating_add(8) > distance && *at < distance.saturating_add(bytes)
            };
            if spilled.as_ref().is_some_and(is_touched) {
                *spilled = None;
            }
        }
        if let (Some(place), Some(free)) = (place, self.spilled.iter_mut().find(|spilled| spilled.is_none()))
        {
            *free = Some((distance, place));
        }
    }
}

/// Follows the code from `entry`. `bytes_at` gives bytes at an address, at least
/// [`INSTRUCTION_BYTES_MAX`] where there are so many, and nothing where there is no code.
pub fn trace<'data>(entry: u64, bytes_at: impl Fn(u64) -> Option<&'data [u8]>) -> Trace {
    let mut state = State::NOTHING;
    set(&mut state, Register::RDI, Value::Object(0));
    let mut walk = Walk { reached: BTreeMap::new(), open: Vec::new() };
    let mut factory = InstructionInfoFactory::new();
    walk.arrive(entry, &state, &bytes_at);
    let mut steps = 0;
    for _ in 0..STEPS_MAX {
        let Some(address) = walk.open.pop() else { break };
        steps += 1;
        let Some((instruction, state)) = walk.reached.get(&address).copied() else { continue };
        let after = step(&instruction, state, &mut factory, &mut |_| {});
        for next in successors(&instruction) {
            walk.arrive(next, &after, &bytes_at);
        }
    }
    // Looking at what is known in the end is a step for each instruction, too.
    let mut seen = Trace { steps: steps + walk.reached.len() as u64, ..Trace::default() };
    if !walk.open.is_empty() {
        // What is known so far would not hold on every way.
        return seen;
    }
    for (instruction, state) in walk.reached.values() {
        step(instruction, *state, &mut factory, &mut |access| {
            seen.accesses.insert(access);
        });
        let end = instruction.next_ip().wrapping_sub(entry);
        if end <= EXTENT_BYTES_MAX {
            seen.extent = seen.extent.max(end);
        }
        if instruction.is_call_near() {
            seen.calls.insert(instruction.near_branch_target());
            if get(state, Register::RDI) == Value::Object(0) {
                seen.calls_on_object.insert(instruction.near_branch_target());
            }
        } else if instruction.is_jmp_short_or_near() {
            seen.jumps.insert(instruction.near_branch_target());
        }
    }
    seen
}

/// The instructions that were reached, with what is known before each, and those to look at again.
struct Walk {
    reached: BTreeMap<u64, (Instruction, State)>,
    open: Vec<u64>,
}

impl Walk {
    /// Comes to an instruction with some knowledge; what contradicts earlier knowledge is forgotten.
    fn arrive<'data>(&mut self, address: u64, state: &State, bytes_at: &impl Fn(u64) -> Option<&'data [u8]>) {
        let count = self.reached.len();
        match self.reached.get_mut(&address) {
            Some((_, known)) => {
                let joined = join(known, state);
                if joined == *known {
                    return;
                }
                *known = joined;
            }
            None => {
                let Some(instruction) = decode(address, bytes_at).filter(|_| count < INSTRUCTIONS_MAX) else {
                    return;
                };
                self.reached.insert(address, (instruction, *state));
            }
        }
        self.open.push(address);
    }
}

fn decode<'data>(address: u64, bytes_at: &impl Fn(u64) -> Option<&'data [u8]>) -> Option<Instruction> {
    let bytes = bytes_at(address)?;
    let bytes = bytes.get(..INSTRUCTION_BYTES_MAX).unwrap_or(bytes);
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Where the code may go on. What is behind a jump through a table is only seen where another way leads
/// there as well.
fn successors(instruction: &Instruction) -> impl Iterator<Item = u64> {
    let next = Some(instruction.next_ip());
    let target =
        Some(instruction.near_branch_target()).filter(|_| instruction.op0_kind() == OpKind::NearBranch64);
    let (first, second) = match instruction.flow_control() {
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (next, None),
        FlowControl::ConditionalBranch => (next, target),
        FlowControl::UnconditionalBranch => (target, None),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

fn join(one: &State, other: &State) -> State {
    let mut joined = *one;
    for (value, other) in joined.registers.iter_mut().zip(other.registers) {
        if *value != other {
            *value = Value::Unknown;
        }
    }
    for spilled in &mut joined.spilled {
        *spilled = spilled.filter(|(at, place)| other.spilled_at(*at) == Some(*place));
    }
    joined
}

fn index(register: Register) -> Option<usize> {
    let full = register.full_register();
    (Register::RAX..=Register::R15).contains(&full).then(|| full as usize - Register::RAX as usize)
}

fn get(state: &State, register: Register) -> Value {
    index(register).and_then(|index| state.registers.get(index).copied()).unwrap_or(Value::Unknown)
}

fn set(state: &mut State, register: Register, value: Value) {
    if let Some(slot) = index(register).and_then(|index| state.registers.get_mut(index)) {
        *slot = value;
    }
}

/// What an instruction's memory operand is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Unknown,
    Member(u32),
    File(u64),
    /// The word that the thread pointer points to, which is the thread pointer itself.
    ThreadPointer,
    Tls(TlsPlace),
    /// A place on the stack that has this address in it.
    Spilled(TlsPlace),
}

fn place(instruction: &Instruction, state: &State) -> Place {
    let displacement = instruction.memory_displacement64();
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let is_thread = instruction.segment_prefix() == Register::FS;
    if base == Register::RIP && !is_thread {
        return Place::File(displacement);
    }
    let offset = displacement.cast_signed();
    match (is_thread, base, index) {
        (true, Register::None, Register::None) if offset == 0 => Place::ThreadPointer,
        (true, Register::None, Register::None) => Place::Tls(moved(THREAD_POINTER, offset)),
        (true, register, Register::None) => match get(state, register) {
            Value::Word(at) => Place::Tls(TlsPlace { base: TlsBase::OffsetWord(at), offset }),
            Value::Constant(at) => Place::Tls(moved(moved(THREAD_POINTER, at), offset)),
            _ => Place::Unknown,
        },
        (false, Register::RSP, Register::None) => {
            state.spilled_at(offset).map_or(Place::Unknown, Place::Spilled)
        }
        (false, register, Register::None) => match get(state, register) {
            Value::Object(at) => member(at.wrapping_add(offset)).map_or(Place::Unknown, Place::Member),
            Value::Tls(at) => Place::Tls(moved(at, offset)),
            Value::Address(at) => Place::File(at.wrapping_add(displacement)),
            _ => Place::Unknown,
        },
        _ => Place::Unknown,
    }
}

fn member(offset: i64) -> Option<u32> {
    (0..MEMBER_OFFSET_MAX).contains(&offset).then(|| u32::try_from(offset).ok())?
}

const THREAD_POINTER: TlsPlace = TlsPlace { base: TlsBase::ThreadOffset(0), offset: 0 };

/// The first constant added to the thread pointer is a variable's distance, the others lead into it.
fn moved(place: TlsPlace, by: i64) -> TlsPlace {
    if place == THREAD_POINTER {
        return TlsPlace { base: TlsBase::ThreadOffset(by), offset: 0 };
    }
    TlsPlace { offset: place.offset.wrapping_add(by), ..place }
}

/// What an instruction does to the registers, and what it tells.
fn step(
    instruction: &Instruction,
    mut state: State,
    factory: &mut InstructionInfoFactory,
    tell: &mut impl FnMut(Access),
) -> State {
    if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        return after_call(instruction, state);
    }
    tell_of_memory(instruction, &state, tell);
    let result = result(instruction, &state, tell);
    forget_written(instruction, &mut state, factory);
    if let Some((register, value)) = result {
        set(&mut state, register, value);
    }
    write_stack(instruction, &mut state);
    state
}

/// What an instruction that writes to memory by the stack pointer puts there.
fn write_stack(instruction: &Instruction, state: &mut State) {
    let is_read = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Cmp | Mnemonic::Test);
    if is_read || instruction.op0_kind() != OpKind::Memory || instruction.memory_base() != Register::RSP {
        return;
    }
    let source = match instruction.code() {
        Code::Mov_rm64_r64 => get(state, instruction.op1_register()),
        _ => Value::Unknown,
    };
    let place = if let Value::Tls(place) = source { Some(place) } else { None };
    if instruction.memory_index() == Register::None {
        // Of an instruction that does not say how much it writes, what is behind is forgotten.
        let bytes = i64::try_from(instruction.memory_size().size()).ok().filter(|bytes| *bytes > 0);
        let distance = instruction.memory_displacement64().cast_signed();
        state.write_stack(distance, bytes.unwrap_or(i64::MAX), place);
    }
}

/// The registers that a function of the System V ABI may change are forgotten. The linker pads the call of
/// `__tls_get_addr` in general dynamic code to eight bytes.
fn after_call(instruction: &Instruction, mut state: State) -> State {
    const CHANGED: [Register; 9] = [
        Register::RAX,
        Register::RCX,
        Register::RDX,
        Register::RSI,
        Register::RDI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
    ];
    let argument = get(&state, Register::RDI);
    for register in CHANGED {
        set(&mut state, register, Value::Unknown);
    }
    if let (8, Value::Address(pair)) = (instruction.len(), argument) {
        set(&mut state, Register::RAX, Value::Tls(TlsPlace { base: TlsBase::Pair(pair), offset: 0 }));
    }
    state
}

/// Tells of what an instruction does to memory.
fn tell_of_memory(instruction: &Instruction, state: &State, tell: &mut impl FnMut(Access)) {
    let in_memory = instruction.op0_kind() == OpKind::Memory;
    match instruction.code() {
        Code::Mov_rm64_imm32 if in_memory && instruction.immediate32to64() == 0 => {
            if let Place::Member(offset) = place(instruction, state) {
                tell(Access::MemberZeroed(offset));
            }
        }
        Code::Mov_rm64_r64 if in_memory => {
            match (place(instruction, state), get(state, instruction.op1_register())) {
                (Place::Member(offset), Value::Constant(0)) => tell(Access::MemberZeroed(offset)),
                (Place::Member(to), Value::Sum(a, b)) if to == a => {
                    tell(Access::MemberAdded { to, added: b })
                }
                (Place::Member(to), Value::Sum(a, b)) if to == b => {
                    tell(Access::MemberAdded { to, added: a })
                }
                (Place::Tls(at), Value::TlsWord(from, true)) if at == from => {
                    tell(Access::TlsIncremented(at))
                }
                _ => {}
            }
        }
        Code::Add_rm64_r64 if in_memory => {
            if let (Place::Member(to), Value::Member(added)) =
                (place(instruction, state), get(state, instruction.op1_register()))
            {
                tell(Access::MemberAdded { to, added });
            }
        }
        Code::Add_rm64_imm8 if in_memory && instruction.immediate8to64() == 1 => {
            incremented(instruction, state, tell)
        }
        Code::Inc_rm64 if in_memory => incremented(instruction, state, tell),
        Code::Cmp_rm8_imm8 if in_memory && matches!(instruction.immediate8(), 1 | 2) => {
            if let Place::Tls(at) = place(instruction, state) {
                tell(Access::TlsByteComparedWithOne(at));
            }
        }
        _ => {}
    }
}

fn incremented(instruction: &Instruction, state: &State, tell: &mut impl FnMut(Access)) {
    if let Place::Tls(at) = place(instruction, state) {
        tell(Access::TlsIncremented(at));
    }
}

/// The register that an understood instruction writes, and what is then in it.
fn result(
    instruction: &Instruction,
    state: &State,
    tell: &mut impl FnMut(Access),
) -> Option<(Register, Value)> {
    let target = Some(instruction.op0_register()).filter(|_| instruction.op0_kind() == OpKind::Register)?;
    let before = get(state, target);
    let from_memory = instruction.op1_kind() == OpKind::Memory;
    let source = || get(state, instruction.op1_register());
    let value = match instruction.code() {
        Code::Mov_r64_rm64 if from_memory => loaded(place(instruction, state)),
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => source(),
        Code::Lea_r64_m => {
            let value = address(instruction, state);
            if let Value::Address(at) = value {
                tell(Access::AddressTaken(at));
            }
            value
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if !from_memory && instruction.op1_register() == target => {
            Value::Constant(0)
        }
        Code::Mov_r32_imm32 => Value::Constant(i64::from(instruction.immediate32())),
        Code::Mov_rm64_imm32 => Value::Constant(instruction.immediate32to64()),
        Code::Add_r64_rm64 if from_memory => sum(before, loaded(place(instruction, state))),
        Code::Add_r64_rm64 | Code::Add_rm64_r64 => sum(before, source()),
        Code::Add_rm64_imm8 => plus(before, instruction.immediate8to64()),
        Code::Add_rm64_imm32 | Code::Add_RAX_imm32 => plus(before, instruction.immediate32to64()),
        Code::Sub_rm64_imm8 => plus(before, instruction.immediate8to64().wrapping_neg()),
        Code::Sub_rm64_imm32 => plus(before, instruction.immediate32to64().wrapping_neg()),
        Code::Inc_rm64 => plus(before, 1),
        Code::Dec_rm64 => plus(before, -1),
        Code::Sbb_rm64_imm8 | Code::Adc_rm64_imm8 => plus(before, 0).filter_sum(),
        _ => return None,
    };
    Some((target, value))
}

impl Value {
    /// Only a sum survives a carry added to it.
    fn filter_sum(self) -> Value {
        if matches!(self, Value::Sum(..)) { self } else { Value::Unknown }
    }
}

fn loaded(place: Place) -> Value {
    match place {
        Place::Member(offset) => Value::Member(offset),
        Place::File(address) => Value::Word(address),
        Place::ThreadPointer => Value::Tls(THREAD_POINTER),
        Place::Tls(at) => Value::TlsWord(at, false),
        Place::Spilled(at) => Value::Tls(at),
        Place::Unknown => Value::Unknown,
    }
}

/// The address that `lea` computes.
fn address(instruction: &Instruction, state: &State) -> Value {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let displacement = instruction.memory_displacement64();
    if base == Register::RIP {
        return Value::Address(displacement);
    }
    match (index, instruction.memory_index_scale()) {
        (Register::None, _) => plus(get(state, base), displacement.cast_signed()),
        // `lea (%rax,%rbx),%rcx` adds two registers.
        (index, 1) => plus(sum(get(state, base), get(state, index)), displacement.cast_signed()),
        _ => Value::Unknown,
    }
}

/// The sum of two values.
fn sum(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Member(a), Value::Member(b)) => Value::Sum(a, b),
        (Value::Tls(at), Value::Word(word)) | (Value::Word(word), Value::Tls(at)) if at == THREAD_POINTER => {
            Value::Tls(TlsPlace { base: TlsBase::OffsetWord(word), offset: 0 })
        }
        (value, Value::Constant(constant)) | (Value::Constant(constant), value) => plus(value, constant),
        _ => Value::Unknown,
    }
}

fn plus(value: Value, constant: i64) -> Value {
    match value {
        Value::Object(offset) => Value::Object(offset.wrapping_add(constant)),
        Value::Tls(place) => Value::Tls(moved(place, constant)),
        Value::Address(address) => Value::Address(address.wrapping_add_signed(constant)),
        Value::Constant(number) => Value::Constant(number.wrapping_add(constant)),
        // A sum less the key that an iterator stopped at is still that sum here.
        Value::Sum(..) => value,
        Value::TlsWord(place, false) if constant == 1 => Value::TlsWord(place, true),
        _ if constant == 0 => value,
        _ => Value::Unknown,
    }
}

/// Forgets every register that the instruction writes, in whatever part.
fn forget_written(instruction: &Instruction, state: &mut State, factory: &mut InstructionInfoFactory) {
    if matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Cmp | Mnemonic::Test) {
        return;
    }
    for used in factory.info(instruction).used_registers() {
        let reads = matches!(
            used.access(),
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        );
        if !reads {
            set(state, used.register(), Value::Unknown);
            if used.register().full_register() == Register::RSP {
                state.spilled = [None; SPILLS_MAX];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 0x1000;

    fn accesses(code: &[u8]) -> BTreeSet<Access> {
        trace(START, |address| code.get(usize::try_from(address.checked_sub(START)?).ok()?..)).accesses
    }

    #[test]
    fn a_member_that_is_added_to_another_and_zeroed() {
        // mov 0x1d0(%rdi),%rax; add 0x298(%rdi),%rax; movq $0,0x1d0(%rdi); sub $1,%rax; mov %rax,0x298(%rdi);
        // ret
        let code = [
            0x48, 0x8b, 0x87, 0xd0, 0x01, 0, 0, 0x48, 0x03, 0x87, 0x98, 0x02, 0, 0, 0x48, 0xc7, 0x87, 0xd0,
            0x01, 0, 0, 0, 0, 0, 0, 0x48, 0x83, 0xe8, 0x01, 0x48, 0x89, 0x87, 0x98, 0x02, 0, 0, 0xc3,
        ];
        let expected = [Access::MemberZeroed(0x1d0), Access::MemberAdded { to: 0x298, added: 0x1d0 }];
        assert_eq!(accesses(&code), expected.into());
    }

    #[test]
    fn the_object_is_followed_through_registers_and_branches() {
        // mov %rdi,%rbx; test %esi,%esi; je +5; call 0x2000; movq $0,0x8(%rbx); ret
        let code = [
            0x48, 0x89, 0xfb, 0x85, 0xf6, 0x74, 0x05, 0xe8, 0xf4, 0x0f, 0, 0, 0x48, 0xc7, 0x43, 0x08, 0, 0,
            0, 0, 0xc3,
        ];
        assert_eq!(accesses(&code), [Access::MemberZeroed(8)].into());
        // The same with %rdi, which the call may change.
        let code = [
            0x48, 0x89, 0xfb, 0x85, 0xf6, 0x74, 0x05, 0xe8, 0xf4, 0x0f, 0, 0, 0x48, 0xc7, 0x47, 0x08, 0, 0,
            0, 0, 0xc3,
        ];
        assert_eq!(accesses(&code), [].into());
    }

    fn incremented(base: TlsBase, offset: i64) -> BTreeSet<Access> {
        [Access::TlsIncremented(TlsPlace { base, offset })].into()
    }

    #[test]
    fn general_dynamic_storage() {
        // data16 lea 0x100(%rip),%rdi; data16 data16 rex.W call; addq $1,0x118(%rax); ret
        let code = [
            0x66, 0x48, 0x8d, 0x3d, 0, 1, 0, 0, 0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0x80, 0x18,
            0x01, 0, 0, 0x01, 0xc3,
        ];
        let mut expected = incremented(TlsBase::Pair(START + 8 + 0x100), 0x118);
        expected.insert(Access::AddressTaken(START + 8 + 0x100));
        assert_eq!(accesses(&code), expected);
    }

    #[test]
    fn local_exec_storage() {
        // mov %fs:0,%rax; lea -0x540(%rax),%rax; addq $1,0x328(%rax); ret
        let code = [
            0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8d, 0x80, 0xc0, 0xfa, 0xff, 0xff, 0x48, 0x83,
            0x80, 0x28, 0x03, 0, 0, 0x01, 0xc3,
        ];
        assert_eq!(accesses(&code), incremented(TlsBase::ThreadOffset(-0x540), 0x328));
        // mov $-0x540,%rax; addq $1,%fs:0x328(%rax); ret: what the linker makes of initial exec
        let code =
            [0x48, 0xc7, 0xc0, 0xc0, 0xfa, 0xff, 0xff, 0x64, 0x48, 0x83, 0x80, 0x28, 0x03, 0, 0, 0x01, 0xc3];
        assert_eq!(accesses(&code), incremented(TlsBase::ThreadOffset(-0x540), 0x328));
        // addq $1,%fs:-0x218; ret
        let code = [0x64, 0x48, 0x83, 0x04, 0x25, 0xe8, 0xfd, 0xff, 0xff, 0x01, 0xc3];
        assert_eq!(accesses(&code), incremented(TlsBase::ThreadOffset(-0x218), 0));
    }

    #[test]
    fn initial_exec_storage() {
        // mov 0x100(%rip),%rax; addq $1,%fs:0x118(%rax); ret
        let code = [0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x64, 0x48, 0x83, 0x80, 0x18, 0x01, 0, 0, 0x01, 0xc3];
        assert_eq!(accesses(&code), incremented(TlsBase::OffsetWord(START + 7 + 0x100), 0x118));
        // mov %fs:0,%rax; add 0x100(%rip),%rax; cmpb $1,(%rax); ret
        let code =
            [0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x03, 0x05, 0, 1, 0, 0, 0x80, 0x38, 0x01, 0xc3];
        let place = TlsPlace { base: TlsBase::OffsetWord(START + 16 + 0x100), offset: 0 };
        assert_eq!(accesses(&code), [Access::TlsByteComparedWithOne(place)].into());
    }

    /// What clang makes of a function that counts in many places.
    #[test]
    fn an_address_is_followed_over_the_stack() {
        // mov %fs:0,%rax; lea -0x540(%rax),%rax; mov %rax,0x28(%rsp); xor %eax,%eax
        const SPILL: [u8; 23] = [
            0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8d, 0x80, 0xc0, 0xfa, 0xff, 0xff, 0x48, 0x89,
            0x44, 0x24, 0x28, 0x31, 0xc0,
        ];
        // mov 0x28(%rsp),%rax; incq 0x110(%rax); ret
        const COUNT: [u8; 13] = [0x48, 0x8b, 0x44, 0x24, 0x28, 0x48, 0xff, 0x80, 0x10, 0x01, 0, 0, 0xc3];
        let with = |between: &[u8]| accesses(&[&SPILL[..], between, &COUNT].concat());
        let counted = incremented(TlsBase::ThreadOffset(-0x540), 0x110);
        assert_eq!(with(&[]), counted);
        // call 0x2000; movl $0,0x30(%rsp)
        assert_eq!(with(&[0xe8, 0xe4, 0x0f, 0, 0]), counted);
        assert_eq!(with(&[0xc7, 0x44, 0x24, 0x30, 0, 0, 0, 0]), counted);
        // movl $0,0x2c(%rsp): a part of it; mov %rcx,0x28(%rsp); push %rcx: another place by that distance
        assert_eq!(with(&[0xc7, 0x44, 0x24, 0x2c, 0, 0, 0, 0]), [].into());
        assert_eq!(with(&[0x48, 0x89, 0x4c, 0x24, 0x28]), [].into());
        assert_eq!(with(&[0x51]), [].into());
        // cmpb $2,(%rax), once it is loaded again; jb +0; ret
        let asked = [&SPILL[..], &COUNT[..5], &[0x80, 0x38, 0x02, 0x72, 0x00, 0xc3]].concat();
        let place = TlsPlace { base: TlsBase::ThreadOffset(-0x540), offset: 0 };
        assert_eq!(accesses(&asked), [Access::TlsByteComparedWithOne(place)].into());
    }

    #[test]
    fn a_loop_ends() {
        // lea 1(%rdi),%rdi; jmp back
        assert_eq!(accesses(&[0x48, 0x8d, 0x7f, 0x01, 0xeb, 0xfa]), [].into());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(code in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = accesses(&code);
        }
    }
}
