/* What a worker and its keeper say to each other. For tools/keeper*.c. */
#pragma once

#include <stdbool.h>

/* By datagrams of one byte. */
enum mc_keeper_word {
	MC_WORD_MOUNTED = 'm', /* with the device's descriptor */
	MC_WORD_READY = 'r',
	MC_WORD_STOPPING = 's', /* answered by the same */
	MC_WORD_DRAINED = 'd',
};

/* fd: a descriptor to go with it, -1 = none. */
void mc_line_say(int line, char word, int fd);
/* The next word, waiting for it or not; 0: none, or the other side is gone. *ret_fd: a descriptor
 * that came along, the caller's, or -1. */
char mc_line_hear(int line, bool wait, int *ret_fd);
