/* A set of directories, each behind a remote that misbehaves on order. */
#pragma once

#include "tier/remote-fault.h"
#include "tier/remote-set.h"

#include <check.h>

#define SET_MEMBERS 3

struct set_fixture {
	char root[64]; /* its directories m0, m1, … are the members */
	unsigned n;
	struct mc_set_opts opts;
	struct mc_remote_opts remote_opts;
	struct mc_set_url urls[SET_MEMBERS];
	struct mc_fault *faults[SET_MEMBERS]; /* of the members of r; NULL while one is not open */
	bool away[SET_MEMBERS];               /* cannot be opened */
	struct mc_remote *r;
};

/* n members with so many copies of chunks; short deadlines. */
void set_fixture_open(struct set_fixture *x, unsigned n, unsigned copies);
/* n members that hold a chunk of these bytes in so many copies; ret_path holds 80. */
void set_fixture_open_chunk(
	struct set_fixture *x, unsigned n, unsigned copies, const char *text, char *ret_path);
/* Closes and opens again what lies in the directories. */
void set_fixture_reopen(struct set_fixture *x);
void set_fixture_done(struct set_fixture *x);

/* A chunk's path for these bytes; ret holds 80. */
void chunk_path(const void *buf, size_t len, char *ret);
/* The homes of path: indexes in their order. */
void set_homes(struct set_fixture *x, const char *path, unsigned ret[SET_MEMBERS]);
/* Whether the member's directory has the file, with these bytes (buf not NULL). */
bool member_has(
	struct set_fixture *x, unsigned member, const char *path, const void *buf, size_t len);
void member_write(
	struct set_fixture *x, unsigned member, const char *path, const void *buf, size_t len);
void member_remove(struct set_fixture *x, unsigned member, const char *path);
/* Waits until that is so; fails after a minute. */
void await_member_has(
	struct set_fixture *x, unsigned member, const char *path, const void *buf, size_t len);
void await_up(struct set_fixture *x, unsigned member, bool up);
void await_no_notes(struct set_fixture *x);
/* Everything at this member fails with error, 0: nothing does. */
void member_fails(struct set_fixture *x, unsigned member, int error);
void member_hangs(struct set_fixture *x, unsigned member, bool hangs);

/* One read, waited for. */
int set_read_at(struct mc_remote *r, const char *path, void *buf, uint32_t len, uint32_t avoid,
	uint32_t *ret_served);
/* Puts text, whatever is there now. */
void put_text(struct set_fixture *x, const char *path, const char *text);
/* A chunk with these bytes, as a caller reads it: bytes that do not match are asked for again. */
int read_chunk(struct set_fixture *x, const char *path, const char *text);
/* How many members have path with these bytes. */
unsigned count_copies(struct set_fixture *x, const char *path, const char *text);
struct mc_set_status status_of(struct set_fixture *x);
