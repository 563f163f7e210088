/*
 * The native methods of Counts.java: the calling thread's perf context through the C API of the RocksDB that
 * RocksJava has loaded. That library is loaded locally, so that its functions have to be asked for by name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

typedef void *create_function(void);
typedef unsigned long long metric_function(void *context, int metric);
typedef void context_function(void *context);

static int is_rocksdb(struct dl_phdr_info *info, size_t size, void *name)
{
	(void)size;
	if (!strstr(info->dlpi_name, "librocksdbjni"))
		return 0;
	*(const char **)name = info->dlpi_name;
	return 1;
}

static void *function(const char *name)
{
	const char *path = NULL;
	void *library, *found;

	dl_iterate_phdr(is_rocksdb, &path);
	library = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (!library)
		return NULL;
	found = dlsym(library, name);
	/* It stays loaded: this was only one more reference. */
	dlclose(library);
	return found;
}

/* -1 when the library or its functions are not there. */
long long Java_Counts_metric(void *environment, void *class, int metric)
{
	create_function *create = (create_function *)function("rocksdb_perfcontext_create");
	metric_function *value = (metric_function *)function("rocksdb_perfcontext_metric");
	context_function *destroy = (context_function *)function("rocksdb_perfcontext_destroy");
	long long result;
	void *context;

	(void)environment, (void)class;
	if (!create || !value || !destroy)
		return -1;
	/* The context is a handle to this thread's own perf context. */
	context = create();
	result = (long long)value(context, metric);
	destroy(context);
	return result;
}

/* Whether the functions are there. */
unsigned char Java_Counts_resetAll(void *environment, void *class)
{
	create_function *create = (create_function *)function("rocksdb_perfcontext_create");
	context_function *reset = (context_function *)function("rocksdb_perfcontext_reset");
	context_function *destroy = (context_function *)function("rocksdb_perfcontext_destroy");
	void *context;

	(void)environment, (void)class;
	if (!create || !reset || !destroy)
		return 0;
	context = create();
	reset(context);
	destroy(context);
	return 1;
}
