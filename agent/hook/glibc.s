# The names that newer C libraries have moved or added, as glibc 2.17 has them: a library that is linked here then
# loads there. The linker is told (`--wrap`, build.rs) to take these for the names.

.macro old name, version
	.symver sexton_\name, \name@GLIBC_\version
	.globl __wrap_\name
	.hidden __wrap_\name
	.type __wrap_\name, @function
__wrap_\name:
	jmp *sexton_\name@GOTPCREL(%rip)
.endm

# stat(path, buffer) was __xstat(version, path, buffer).
.macro old_stat name, former
	.symver sexton_\former, \former@GLIBC_2.2.5
	.globl __wrap_\name
	.hidden __wrap_\name
	.type __wrap_\name, @function
__wrap_\name:
	mov %rsi, %rdx
	mov %rdi, %rsi
	mov $1, %edi
	jmp *sexton_\former@GOTPCREL(%rip)
.endm

	.text
	old dlopen, 2.2.5
	old dlsym, 2.2.5
	old pthread_attr_getguardsize, 2.2.5
	old pthread_attr_getstack, 2.2.5
	old pthread_attr_setstacksize, 2.2.5
	old pthread_create, 2.2.5
	old pthread_detach, 2.2.5
	old pthread_getattr_np, 2.2.5
	old pthread_join, 2.2.5
	old pthread_key_create, 2.2.5
	old pthread_key_delete, 2.2.5
	old pthread_setname_np, 2.12
	old pthread_setspecific, 2.2.5
	old pthread_sigmask, 2.2.5
	old_stat stat64, __xstat64
	old_stat fstat64, __fxstat64
	old_stat lstat64, __lxstat64

	.section .note.GNU-stack,"",@progbits
