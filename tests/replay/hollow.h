/* A remote in memory for replays of objects that hold zeros; see hollow.c. */
#pragma once

struct mc_remote;

/* like: gives the deadline, borrowed until return. 0 or -ENOMEM. */
int replay_hollow_open(const struct mc_remote *like, struct mc_remote **ret);
