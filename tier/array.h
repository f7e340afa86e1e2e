/* Arrays that grow as they are filled: their capacity doubles. */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/* *ret_v holds need elements of size bytes afterwards. cap, max: elements. See mc_array_room. */
static inline int mc_array_grow(
	void **ret_v, uint64_t *ret_cap, uint64_t need, size_t size, uint64_t max)
{
	uint64_t cap = *ret_cap > 8 ? *ret_cap : 8;
	void *v;

	if (need <= *ret_cap)
		return 0;
	if (need > max)
		return -E2BIG;
	while (cap < need)
		cap = cap <= max / 2 ? 2 * cap : max;
	v = reallocarray(*ret_v, cap, size);
	if (v == NULL)
		return -ENOMEM;
	*ret_v = v;
	*ret_cap = cap;
	return 0;
}

/*
 * Room for need elements in the array *(v), which its owner frees; *(cap) elements are allocated.
 * 0, or with nothing changed -ENOMEM, or -E2BIG when the type of *(cap) cannot say so many.
 */
#define mc_array_room(v, cap, need)                                                                \
	__extension__({                                                                            \
		void *room_v_ = *(v);                                                              \
		uint64_t room_cap_ = *(cap);                                                       \
		int room_r_ = mc_array_grow(&room_v_, &room_cap_, (need), sizeof(**(v)),           \
			(uint64_t)(typeof(*(cap)))-1);                                             \
                                                                                                   \
		*(v) = room_v_;                                                                    \
		*(cap) = (typeof(*(cap)))room_cap_;                                                \
		room_r_;                                                                           \
	})
