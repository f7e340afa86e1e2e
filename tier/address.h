/* Where a server of ours listens, as an administrator writes it. */
#pragma once

#include <netdb.h>

/*
 * The stream address of "HOST:PORT" or "[HOST]:PORT", both numeric, so that nobody is asked; the
 * caller frees it with freeaddrinfo(). -EINVAL.
 */
int mc_address_parse(const char *text, struct addrinfo **ret);
