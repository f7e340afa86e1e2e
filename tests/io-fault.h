/*
 * An I/O table that fails or tears the n-th changing call, or crashes there: what was not synced is
 * then lost in part, as after a power failure.
 *
 * Model. Content: a write, truncation or hole is durable once its file was fsynced; a crash keeps a
 * random choice of the 4 KiB pieces of later writes and a random number of the later truncations
 * and holes. Names: durable once a directory concerned was fsynced; a crash keeps a random prefix
 * of the later changes. A failed fsync loses a random part for ever, though reads still show it.
 */
#pragma once

#include "tier/io.h"

#include <stdbool.h>

struct io_fault;

enum io_fault_kind {
	IO_FAULT_NONE,
	IO_FAULT_FAIL,  /* the call answers -EIO, the next ones work */
	IO_FAULT_CRASH, /* the call and all later ones answer -EIO */
	IO_FAULT_TEAR,  /* like CRASH, but a write is done in part */
};

/* root: directory in use, empty, canonical path, borrowed. The durable copies go to a temporary
 * place. */
struct io_fault *io_fault_open(const char *root);
void io_fault_close(struct io_fault *f);
const struct mc_io *io_fault_table(struct io_fault *f);
/* Arms: the at-th changing call from now on (1 = the next) goes wrong. Choices follow from seed. */
void io_fault_arm(struct io_fault *f, enum io_fault_kind kind, uint64_t at, unsigned seed);
/* Calls on_crash when the power goes, before the call answers; it must not use the table. */
void io_fault_tell(struct io_fault *f, void (*on_crash)(void *ctx), void *ctx);
/* Changing calls since io_fault_arm. */
uint64_t io_fault_calls(struct io_fault *f);
/* The power comes back: root holds what a crash now leaves. All descriptors must be closed. */
void io_fault_restart(struct io_fault *f);
