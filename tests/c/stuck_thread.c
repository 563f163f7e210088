/* A program with RocksDB in it. The thread pointer of one of its threads leads into a file that it has mapped and never
 * read: if the file's system hangs, so does whoever looks where the thread's counters are.
 *
 * Arguments: RocksDB's library, the file. Prints "ready", and ends with its standard input. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Farther into the file than what is read ahead of its beginning. */
#define BYTES (4 << 20)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Nothing of the C library works any more from the first system call on. */
static void *leave(void *region)
{
	long thread_pointer = (long)region + BYTES / 2;
	__asm__ volatile("mov %[set], %%eax\n"
			 "mov %[fs], %%edi\n"
			 "syscall\n"
			 "1: mov %[pause], %%eax\n"
			 "syscall\n"
			 "jmp 1b\n"
			 :
			 : "S"(thread_pointer), [set] "i"(SYS_arch_prctl), [fs] "i"(ARCH_SET_FS), [pause] "i"(SYS_pause)
			 : "rax", "rdi", "rcx", "r11", "memory");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *region;
	int descriptor;

	if (argc != 3 || !dlopen(argv[1], RTLD_NOW))
		fail("dlopen");
	descriptor = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (descriptor < 0)
		fail("open");
	region = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, descriptor, 0);
	if (region == MAP_FAILED)
		fail("mmap");
	if (pthread_create(&thread, NULL, leave, region))
		fail("pthread_create");
	usleep(100 * 1000);
	puts("ready");
	fflush(stdout);
	getchar();
	_exit(0);
}
