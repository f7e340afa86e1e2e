/* One NFS connection from inside: shared by remote-nfs-conn.c (calls) and remote-nfs-link.c (TCP).
 */
#pragma once

#include "tier/remote-nfs.h"

enum mc_nfs_phase {
	MC_NFS_DOWN,          /* no socket; the next attempt begins at retry_ns */
	MC_NFS_MOUNT_CONNECT, /* to the MOUNT service (metadata connection only) */
	MC_NFS_MOUNT,         /* MNT was sent */
	MC_NFS_CONNECT,       /* to the NFS service, and its answer to NULL */
	MC_NFS_UP,
};

/* The socket and how far it is. The connection's thread only. */
struct mc_nfs_link {
	enum mc_nfs_phase phase;
	struct rpc_context *rpc; /* owned; NULL in DOWN */
	int answer;              /* of the phase: 0 none yet, 1 good, -errno */
	uint64_t deadline_ns;    /* of the phase */
	uint64_t retry_ns;       /* DOWN: when to try again */
	uint64_t backoff_ns;     /* of the next failure, before jitter */
	unsigned seed;           /* of the jitter */
	bool was_up;             /* ever */
};

struct mc_nfs_slot {
	struct mc_nfs_conn *conn;
	bool busy;                /* libnfs owes a callback */
	struct mc_nfs_call *call; /* NULL: given up, the answer is thrown away */
};

struct mc_nfs_list {
	struct mc_nfs_call *head, **tail;
};

struct mc_nfs_conn {
	struct mc_nfs *n; /* borrowed */
	bool mounts;      /* this connection fetches the root's handle */
	pthread_t thread;
	int event_fd;          /* owned */
	_Atomic unsigned load; /* calls that it has */
	_Atomic bool remount;  /* asked to connect anew */
	_Atomic bool usable;   /* UP, for those who choose a connection */
	struct mc_mutex lock;
	struct mc_cond settled;
	struct mc_nfs_list inbox MC_GUARDED_BY(lock);
	bool wake_sent MC_GUARDED_BY(lock);
	bool stopping MC_GUARDED_BY(lock);
	bool up MC_GUARDED_BY(lock);
	bool failed MC_GUARDED_BY(lock); /* the first attempt; why: */
	int error MC_GUARDED_BY(lock);
	char text[256] MC_GUARDED_BY(lock);
	/* The thread's. */
	struct mc_nfs_link link;
	struct mc_nfs_list ready;  /* to be sent */
	struct mc_nfs_list later;  /* the server said: not now (JUKEBOX) */
	struct mc_nfs_list lost;   /* libnfs answered with an error of its own */
	struct mc_nfs_slot *slots; /* owned */
	unsigned depth;            /* slots */
	unsigned in_flight;        /* busy slots */
	uint64_t progress_ns; /* when something last came or went, while calls were in flight */
	uint64_t moved;       /* bytes the socket had moved then */
	uint64_t tick_ns;     /* of the last look at deadlines */
};

/* DOWN → the first phase. */
void mc_nfs_link_start(struct mc_nfs_conn *c);
/* Goes on after the answer of a phase, or gives up at its deadline. True when it came UP just now.
 */
bool mc_nfs_link_step(struct mc_nfs_conn *c);
/* Before libnfs sees a failed attempt to connect: keeps the reason, which libnfs does not tell. */
void mc_nfs_link_note_error(struct mc_nfs_conn *c, int revents);
/* Ends the socket; the next attempt comes after the backoff. No slot may be busy with a call. */
void mc_nfs_link_drop(struct mc_nfs_conn *c, int error, const char *text);
/* Bytes that the peer has acknowledged or sent on this socket, as the kernel counts them. */
uint64_t mc_nfs_link_moved(const struct mc_nfs_conn *c);
