/*
 * A place: which organisation, model link, loaded revision or layout of one a node of the tree
 * belongs to. Immutable and reference-counted; thread-safe.
 */
#pragma once

#include "manifest/catalogue.h"
#include "manifest/view.h"

#include <stdatomic.h>

struct mc_place {
	_Atomic uint32_t refs;
	char *org;    /* owned */
	char *model;  /* owned; NULL: the place is the organisation */
	char *rev;    /* owned; NULL: the place is the link to the newest revision */
	char *layout; /* owned; NULL: not below views/<org>/<model>@<rev>/ */
	/* Owned references. What the entries of the tree are: of a revision, or of a view. */
	struct mc_manifest *manifest;
	struct mc_view_layout *view_layout; /* with layout */
	struct mc_view *view; /* with layout; NULL: its directory, which holds those of ranks */
	uint64_t name_hash;   /* of the strings: the same on every node, for inode numbers */
	uint64_t hash;        /* of all of the above */
	/* node-record.c's: its text in the table of takeover.h, 0 = none, and the nodes there. */
	uint32_t record;
	uint64_t record_users;
};

/* name_hash of a place, which need not exist. model and rev may be NULL. */
uint64_t mc_place_name_hash(const char *org, const char *model, const char *rev);
/* The same of a directory of a view, from that of its revision. */
uint64_t mc_place_layout_hash(uint64_t revision, const char *layout);

/* One reference, the caller's. Copies the strings; takes its own reference of manifest. -ENOMEM. */
int mc_place_open(const char *org, const char *model, const char *rev, struct mc_manifest *manifest,
	struct mc_place **ret);
/* A directory of a view: manifest becomes the tree of view, if there is one. */
int mc_place_open_view(const struct mc_rev_name *rev, const char *layout,
	struct mc_view_layout *view_layout, struct mc_view *view, struct mc_place **ret);
/* layouts/<name>.json: the file is entry 1 of view. */
int mc_place_open_document(const char *name, struct mc_view *view, struct mc_place **ret);
struct mc_place *mc_place_ref(struct mc_place *p);                       /* NULL allowed */
void mc_place_unref(struct mc_place *p);                                 /* NULL allowed */
bool mc_place_equal(const struct mc_place *a, const struct mc_place *b); /* either may be NULL */

/* FNV-1a over len bytes, continuing from h; start with MC_HASH_SEED. Not for untrusted collisions.
 */
#define MC_HASH_SEED UINT64_C(0xcbf29ce484222325)
uint64_t mc_hash_bytes(uint64_t h, const void *p, size_t len);
/* Spreads a hash over all bits. */
uint64_t mc_hash_mix(uint64_t h);
