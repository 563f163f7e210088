/*
 * Counts.metric for Counts.java: the calling thread's perf context through the C API of the RocksDB that
 * RocksJava has loaded. That library is loaded locally, so that its functions have to be asked for by name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

typedef void *create_function(void);
typedef unsigned long long metric_function(void *context, int metric);
typedef void destroy_function(void *context);

static int is_rocksdb(struct dl_phdr_info *info, size_t size, void *name)
{
	(void)size;
	if (!strstr(info->dlpi_name, "librocksdbjni"))
		return 0;
	*(const char **)name = info->dlpi_name;
	return 1;
}

/* -1 when the library or its functions are not there. */
long long Java_Counts_metric(void *environment, void *class, int metric)
{
	const char *name = NULL;
	void *library, *context;
	create_function *create;
	metric_function *value;
	destroy_function *destroy;
	long long result;

	(void)environment, (void)class;
	dl_iterate_phdr(is_rocksdb, &name);
	library = name ? dlopen(name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (!library)
		return -1;
	create = (create_function *)dlsym(library, "rocksdb_perfcontext_create");
	value = (metric_function *)dlsym(library, "rocksdb_perfcontext_metric");
	destroy = (destroy_function *)dlsym(library, "rocksdb_perfcontext_destroy");
	if (!create || !value || !destroy)
		return -1;
	/* The context is a handle to this thread's own perf context. */
	context = create();
	result = (long long)value(context, metric);
	destroy(context);
	dlclose(library);
	return result;
}
