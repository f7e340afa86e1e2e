/* Going into the background so that the caller's shell learns whether it worked. */
#pragma once

struct mc_daemon {
	int pipe; /* child: tells the parent; -1 = in the foreground */
};

/*
 * Before any thread. In the parent: waits until the child is ready or gone and returns the exit
 * code to leave with (0 and more). In the child: returns -1 and fills ret; the child's own session,
 * its output still goes to the caller, so that it can print why it fails. -errno < -1 is not used:
 * when the fork fails that is printed and its exit code returned.
 */
int mc_daemon_fork(struct mc_daemon *ret);
/* The child works: the parent exits with 0, and standard input and output lead to /dev/null. */
void mc_daemon_ready(struct mc_daemon *d);
