/*
 * What the catalogue says, remembered: the lists of organisations and of an organisation's models,
 * loaded revisions, and views of them. Asking never blocks; the remote is asked by the work pool,
 * once per question however many wait, and what is known already is used while the remote is slow
 * or down. Thread-safe.
 */
#pragma once

#include "fs/place.h"
#include "fs/work.h"

struct mc_catalogue;
struct mc_names;
struct mc_views;

enum mc_topic {
	MC_TOPIC_ORGS,   /* names of organisations */
	MC_TOPIC_ORG,    /* names in an organisation: <model> (with target) and <model>@<rev> */
	MC_TOPIC_LATEST, /* one item: a model and its newest revision */
	MC_TOPIC_REV,    /* one revision, loaded */
	MC_TOPIC_FITS,   /* names of layouts that a revision can be seen in */
	MC_TOPIC_VIEW,   /* one directory of a view, compiled */
	MC_TOPIC_DOCS,   /* names of the registered layout documents, "<name>.json" */
	MC_TOPIC_DOC,    /* one of them, loaded */
};

struct mc_question {
	enum mc_topic topic;
	const char *org; /* "" for ORGS, DOCS, DOC */
	/* LATEST: the model; REV, FITS: "<model>@<rev>"; VIEW: "<model>@<rev>/<layout>", or that
	 * and
	 * "/rank-00000"; DOC: "<name>.json"; as in the path; else "". */
	const char *name;
};

struct mc_listed {
	char *name;   /* owned */
	char *target; /* owned; the newest revision's name when this is a link, else NULL */
};

/* Immutable, reference-counted. */
struct mc_answer {
	_Atomic uint32_t refs;
	int res;                 /* 0, -ENOENT, or the failure */
	struct mc_listed *items; /* lists: owned, sorted by name */
	size_t n_items;
	struct mc_place *place; /* REV, VIEW, DOC: owned reference */
	char *why;              /* owned; VIEW: what is wrong, NULL = nothing was said */
};
struct mc_answer *mc_answer_ref(struct mc_answer *a);
void mc_answer_unref(struct mc_answer *a); /* NULL allowed */
/* A reference to an answer that says nothing but res, −errno; never NULL, -ENOMEM without memory.
 */
struct mc_answer *mc_answer_refusal(int res);
/* The item of that name, or NULL. */
const struct mc_listed *mc_answer_find(const struct mc_answer *a, const char *name);

/* A question; the asker's memory until done ran. */
struct mc_ask {
	/* Exactly once, from any thread, possibly before mc_names_ask returns; a is borrowed. */
	void (*done)(struct mc_ask *ask, struct mc_answer *a);
	struct mc_ask *next;
};

/* Who is asked; borrowed until mc_names_close returned. */
struct mc_names_sources {
	struct mc_catalogue *catalogue;
	struct mc_views *views;
	struct mc_remote *remote;
};
/* clock: nanoseconds, monotonic; mc_now_ns outside of tests. */
int mc_names_open(const struct mc_names_sources *sources, struct mc_work *work,
	uint64_t (*clock)(void), struct mc_names **ret);
/* No ask is waiting and the pool is closed. NULL allowed. */
void mc_names_close(struct mc_names *ns);

/*
 * Strings are copied. fresh: do not accept that something is missing in a list on the word of one
 * that is older than a second.
 */
void mc_names_ask(struct mc_names *ns, const struct mc_question *q, bool fresh, struct mc_ask *ask);
/* Asks and waits, for as long as the catalogue takes: a reference, the caller's. */
struct mc_answer *mc_names_wait(struct mc_names *ns, const struct mc_question *q);
/* A layout was published or removed here: what is remembered about it is asked anew. */
void mc_names_layout_changed(struct mc_names *ns, const char *layout);
/* Everything that can change is asked anew by who needs it next. */
void mc_names_refresh(struct mc_names *ns);
/* Why the layout that was asked for last among those that do not fit the revision "<model>@<rev>"
 * does not; "" = none is remembered. */
void mc_names_misfit(struct mc_names *ns, const char *org, const char *rev, char *out, size_t size);
/* Every quarter of a second: gives those who wait too long the last known answer. */
void mc_names_tick(struct mc_names *ns, uint64_t now_ns);
/* Questions remembered now. */
size_t mc_names_count(struct mc_names *ns);
