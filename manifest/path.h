/* Rules for names that come from a manifest, an index or a source directory: nothing that leaves
 * the tree, nothing a terminal or a script trips over. */
#pragma once

#include <stddef.h>

#define MC_PATH_MAX 4095 /* bytes */
#define MC_NAME_MAX 255  /* bytes of one component */

/*
 * A relative path: components separated by single '/', none empty, "." or "..", each ≤ 255 bytes,
 * no control bytes (< 0x20, 0x7f), UTF-8, ≤ 4095 bytes in all. NULL when good, else the rule it
 * breaks (a constant phrase).
 */
const char *mc_path_fault(const char *path);
/* One component by the same rules. */
const char *mc_name_fault(const char *name);
/*
 * The target of a symbolic link at path (which is good): relative, ".." only as leading components
 * and not more of them than the link has parents, then a path as above (or nothing). So no chain of
 * good links leaves the tree. NULL when good, else the rule.
 */
const char *mc_link_fault(const char *path, const char *target);
