/*
 * What a power failure leaves of a directory: every file keeps a durable copy and the list of what
 * happened since. The model is that of io-fault.h; the caller serialises the calls.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum io_change_kind { IO_WRITE, IO_TRUNCATE, IO_ALLOCATE };

struct io_node {
	int durable; /* descriptor of the durable copy */
	struct io_change *first, **last;
};

struct io_name {
	char *path;
	struct io_node *node; /* NULL = directory */
};

struct io_names {
	struct io_name *at;
	size_t n;
};

enum io_name_kind { IO_MAKE, IO_REMOVE, IO_MOVE };

struct io_disk {
	const char *root; /* borrowed */
	char *store;      /* directory of durable copies */
	unsigned serial;
	struct io_node **nodes; /* all of them */
	size_t n_nodes;
	struct io_names live, durable;
	struct io_name_change *first, **last;
	unsigned seed; /* of the choices */
};

void io_disk_init(struct io_disk *d, const char *root);
void io_disk_done(struct io_disk *d);
/* Borrowed until the next change of names; NULL: there is none now. */
struct io_name *io_disk_find(struct io_disk *d, const char *path);
/* to: of IO_MOVE, else NULL. node: NULL = directory. */
void io_disk_rename(struct io_disk *d, enum io_name_kind kind, const char *path, const char *to,
	struct io_node *node);
/* The names in dir become durable. */
void io_disk_sync(struct io_disk *d, const char *dir);
/* The power comes back: root holds what a crash now leaves. */
void io_disk_restart(struct io_disk *d);

/* An empty file without a name; the disk's. */
struct io_node *io_node_new(struct io_disk *d);
/* mode: of IO_ALLOCATE. data: len bytes of IO_WRITE, else NULL. */
void io_node_change(struct io_node *n, enum io_change_kind kind, int mode, uint64_t off,
	uint64_t len, const void *data);
/* All changes, or a choice of them, become durable; none is left. */
void io_node_settle(struct io_disk *d, struct io_node *n, bool all);
