/* The file by which a tier knows its directory: its format and a uuid, as text. */
#pragma once

#include "tier/error.h"

#include <stdint.h>

struct mc_io;

struct mc_dir_id {
	const char *dir, *name; /* STORE, KVSTORE */
	const char *kind;       /* "nvme", "kv": as the text has it */
	const char *what;       /* as messages call it */
	unsigned format;        /* of the kind, from 1 on */
};

/* 0; -ENOENT; -EPROTONOSUPPORT another format, -EBADMSG damaged, both with a text; -errno. */
int mc_dir_id_read(const struct mc_io *io, const struct mc_dir_id *id, uint8_t ret_uuid[16],
	struct mc_err *err);
/* Durable on return, in place of what was there. */
int mc_dir_id_write(const struct mc_io *io, const struct mc_dir_id *id, const uint8_t uuid[16]);
/* The same with a new uuid. */
int mc_dir_id_make(const struct mc_io *io, const struct mc_dir_id *id, uint8_t ret_uuid[16]);
