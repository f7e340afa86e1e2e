/* Numeric addresses with a port, from text. */
#include "tier/address.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PORT_DIGITS 5u
#define PORT_MAX 65535

static bool is_port(const char *text)
{
	size_t len = strlen(text);

	return len > 0 && len <= PORT_DIGITS && strspn(text, "0123456789") == len &&
		strtoul(text, NULL, 10) <= PORT_MAX;
}

int mc_address_parse(const char *text, struct addrinfo **ret)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
		.ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	size_t len = colon == NULL ? 0 : (size_t)(colon - text);
	char host[64];

	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	}
	if (len == 0 || len >= sizeof(host) || !is_port(colon + 1))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	return getaddrinfo(host, colon + 1, &hints, ret) == 0 ? 0 : -EINVAL;
}
