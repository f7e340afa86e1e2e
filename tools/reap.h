/* Removing what killed processes of this node left unpublished on a remote. */
#pragma once

struct mc_remote;

/*
 * Removes the files below tmp/<node>/ that are older than a day; a living put is finished long
 * before. Best effort: what cannot be removed stays for the next time. Returns how many were
 * removed.
 */
unsigned mc_reap_leftovers(struct mc_remote *r, const char *node);
