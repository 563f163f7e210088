/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The few kernel types that Sexton's programs touch, instead of a vmlinux.h of 130,000 lines.
 *
 * Structures that the kernel may rearrange carry preserve_access_index: their field offsets are
 * relocated to the running kernel's by its BTF (CO-RE). Only the fields that are read are listed. Fixed
 * ABI (struct pt_regs on x86-64, the UAPI enumerators) is written out as it is.
 */
#ifndef SEXTON_KERNEL_H
#define SEXTON_KERNEL_H

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };

/* Only to ask the running kernel's BTF which of these it has. */
enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_struct {
	unsigned long fsbase;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	/* Threads that have not ended. */
	atomic_t live;
};

struct sched_entity {
	/* Processor time, as of the task's last tick or switch. */
	__u64 sum_exec_runtime;
};

struct mm_struct;

struct task_struct {
	int pid;
	int tgid;
	__u64 start_boottime;
	struct sched_entity se;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct thread_struct thread;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* arch/x86/include/asm/ptrace.h: user space ABI, does not move. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

#endif
