/* This node's name among those that share a remote: random, made once, kept in the local state. */
#pragma once

/* 32 hex digits in a new buffer (free()). 0 or -errno. */
int mc_node_name(char **ret);
