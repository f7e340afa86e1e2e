/* Private to the layout compiler: the parsed document and the resolved tensors. */
#pragma once

#include "manifest/layout-pattern.h"
#include "manifest/layout.h"

#define MAX_AXES 16
#define MAX_SPLITS 4
#define MAX_PARTS 8
#define MAX_OWNS 2

struct axis {
	char name[32];
	uint32_t size;
	uint32_t stride; /* base axes: rank / stride % size is the coordinate */
	bool derived;
	uint32_t from[MAX_AXES], n_from; /* derived: mixed radix of these, outermost first */
	uint32_t div, mod;               /* derived: then / div, then % mod (0 = none) */
};

struct mesh {
	struct axis axis[MAX_AXES];
	uint32_t n;
	uint32_t world;
	uint32_t *at; /* coordinates, axis × rank, owned */
};

enum split_kind { SPLIT_EVEN, SPLIT_CEIL, SPLIT_BALANCED, SPLIT_SIZES };

/* Expressions are JSON integers or strings, borrowed from the document; NULL = not given. */
struct part {
	const json_t *size, *units;
	bool replicate, replicate_set;
};

struct split {
	uint32_t axis, dim;
	enum split_kind kind;
	const json_t *units, *granule, *pad, *interleave, *sizes;
	bool replicate;
	struct part part[MAX_PARTS];
	uint32_t n_parts;
};

enum place { PLACE_LINEAR, PLACE_ROUND_ROBIN, PLACE_TABLE };

struct own {
	uint32_t axis, index; /* index: number of the capture */
	const json_t *count, *table;
	enum place place;
};

enum edge { EDGE_ERROR, EDGE_COVER, EDGE_PAD };

struct rule {
	char where[48];                  /* JSON pointer */
	const char *match;               /* borrowed */
	struct mc_name_pattern *pattern; /* owned */
	struct split split[MAX_SPLITS];
	uint32_t n_splits;
	struct own own[MAX_OWNS];
	uint32_t n_owns;
	const char *follow;  /* suffix to strip, borrowed; NULL = none */
	const json_t *block; /* array of expressions */
	enum edge edge;
	bool only, only_zero;
	uint32_t only_axis, only_rank;
	bool replicate, drop, optional;
};

enum stage_split { STAGES_VLLM, STAGES_SGLANG, STAGES_EVEN, STAGES_LIST };
enum extra_layers { EXTRA_ERROR, EXTRA_DROP, EXTRA_LAST };

struct patterns {
	struct mc_name_pattern **v; /* owned */
	uint32_t n;
};

struct tied {
	const char *name, *of; /* borrowed */
};

struct layers {
	bool given;
	const char *prefix;            /* borrowed */
	struct mc_name_pattern *regex; /* owned; capture 1 is the layer number */
	const json_t *count, *list;
	enum stage_split split;
	enum extra_layers extra;
	struct patterns first, last, every;
	struct tied *tied; /* owned */
	uint32_t n_tied;
};

/* A constant: once, or once for every tensor that matches. */
struct constant {
	const char *name;             /* template */
	struct mc_name_pattern *each; /* owned, NULL = once */
	uint8_t dtype;
	uint32_t rank;
	uint64_t shape[MC_BOX_RANK];
	uint8_t value[8];
};

struct fuse {
	char where[48];
	const char *name; /* template */
	struct patterns from;
	uint32_t dim;
	bool optional;
};

struct stack {
	char where[48];
	const char *name;             /* template */
	struct mc_name_pattern *from; /* owned */
	uint32_t index;               /* number of the capture that orders */
	bool optional;
};

struct rename_rule {
	char where[48];
	struct mc_name_pattern *match; /* owned */
	const char *name;              /* template */
};

enum fallback { FALLBACK_ERROR, FALLBACK_REPLICATE, FALLBACK_DROP };

struct mc_layout {
	json_t *root; /* owned; all borrowed strings and expressions live in it */
	const char *name;
	struct mesh mesh;
	const json_t *params; /* object or NULL */
	const json_t *quant;  /* array of accepted quantisation methods or NULL */
	struct layers layers;
	uint32_t pp;       /* axis of the stages, or UINT32_MAX */
	struct rule *rule; /* owned */
	uint32_t n_rules;
	struct constant *constant; /* owned */
	uint32_t n_constants;
	struct fuse *fuse; /* owned */
	uint32_t n_fuses;
	struct stack *stack; /* owned */
	uint32_t n_stacks;
	struct rename_rule *rename; /* owned */
	uint32_t n_renames;
	enum fallback fallback;
	bool unused_allowed;
	enum mc_layout_style style;
	const char *profile;
};

/* Where in the document the parser is. */
struct pointer {
	char text[128];
	struct mc_err *err;
};
int mc_ly_bad_at(const struct pointer *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The pointer one step further: a key, or an index when key is NULL. */
struct pointer mc_ly_deeper(const struct pointer *p, const char *key, size_t index);
void mc_ly_pointer_copy(
	const struct pointer *p, char *out, size_t size); /* cut short where it must be */
/* An optional string of at most MC_PATTERN_MAX bytes; *ret keeps its value when absent. */
int mc_ly_get_string(const json_t *o, const char *key, const char **ret, const struct pointer *p);
int mc_ly_get_bool(const json_t *o, const char *key, bool *ret, const struct pointer *p);
int mc_ly_get_uint(
	const json_t *o, const char *key, uint32_t max, uint32_t *ret, const struct pointer *p);
/* A whole number or a string that is not too long. */
int mc_ly_check_expr(const json_t *v, const struct pointer *p);
/* An optional expression. */
int mc_ly_get_expr(const json_t *o, const char *key, const json_t **ret, const struct pointer *p);
int mc_ly_get_array(
	const json_t *o, const char *key, size_t max, const json_t **ret, const struct pointer *p);
int mc_ly_only_keys(const json_t *o, const char *const *known, const struct pointer *p);
/* A string out of a NULL-terminated list; *ret is its number, unchanged when absent. */
int mc_ly_get_choice(const json_t *o, const char *key, const char *const *list, unsigned *ret,
	const struct pointer *p);
int mc_ly_get_pattern(
	const json_t *o, const char *key, struct mc_name_pattern **ret, const struct pointer *p);
int mc_ly_get_patterns(
	const json_t *o, const char *key, struct patterns *ret, const struct pointer *p);
void mc_ly_patterns_done(struct patterns *p);

/* layout-mesh.c */
int mc_ly_mesh_parse(const json_t *mesh, struct mesh *ret, const struct pointer *p);
int mc_ly_mesh_find(const struct mesh *m, const char *name, uint32_t *ret); /* -ENOENT */
int mc_ly_get_axis(const json_t *o, const char *key, const struct mesh *m, uint32_t *ret,
	const struct pointer *p);
uint32_t mc_ly_mesh_at(const struct mesh *m, uint32_t axis, uint32_t rank);
void mc_ly_mesh_done(struct mesh *m);

/* layout-rule.c */
int mc_ly_rules_parse(const json_t *rules, struct mc_layout *l, const struct pointer *p);
void mc_ly_rule_done(struct rule *r);
/* layout-parse-emit.c */
int mc_ly_emit_parse(const json_t *emit, struct mc_layout *l, const struct pointer *p);
int mc_ly_constants_parse(const json_t *v, struct mc_layout *l, const struct pointer *p);
void mc_ly_emit_done(struct mc_layout *l);

/* layout-expr.c */
struct expr_env {
	const json_t *params, *config; /* NULL allowed */
};
/* The expression's value; 0 … 2^53 - 1. -EINVAL with a text that quotes it. */
int mc_ly_expr_value(
	const struct expr_env *e, const json_t *expr, uint64_t *ret, struct mc_err *err);

/* layout-cut.c: a rule with numbers instead of expressions. */
struct segment {
	uint64_t src, len, dst; /* elements */
};
struct dim_cut {
	struct segment seg[MAX_PARTS];
	uint32_t n;
	uint64_t len; /* of the rank's tensor, padding included */
};
struct cut {
	bool present, zero;
	uint32_t rank;
	struct dim_cut dim[MC_BOX_RANK];
};

struct num_part {
	uint64_t size;  /* elements, padding included */
	uint64_t units; /* of unit elements; the last may be short */
	uint64_t unit;
	bool replicate;
};
struct num_split {
	uint32_t axis, dim;
	enum split_kind kind;
	uint64_t size; /* of the tensor's dimension, without padding */
	struct num_part part[MAX_PARTS];
	uint32_t n_parts;
	uint64_t *sizes; /* units of each coordinate, owned; SPLIT_SIZES */
};

#define STAGE_ALL UINT32_MAX
#define STAGE_ENDS (UINT32_MAX - 1) /* first and last */

/* What tensors with the same rule, shape and place on the mesh have in common. */
struct kind {
	uint32_t rule; /* UINT32_MAX: replicated by default */
	uint8_t dtype, rank;
	uint64_t shape[MC_BOX_RANK];
	uint32_t stage;
	uint32_t owner[MAX_OWNS]; /* coordinates */
	uint32_t follows;         /* kind of the weight, or UINT32_MAX */
	uint64_t block[MC_BOX_RANK];
	struct num_split split[MAX_SPLITS];
	uint32_t n_splits;
	uint32_t example; /* tensor, for messages */
};

struct output {
	uint32_t name;     /* offset in names */
	uint32_t first, n; /* members */
	uint32_t fuse_dim; /* for n_parts > 1 */
	uint32_t n_parts;  /* members of one stack entry */
	bool stacked;
};
struct member {
	uint32_t tensor;
	uint32_t kind;
	uint32_t index; /* in the stack */
	uint32_t part;  /* in the fuse */
};

struct mc_sharding {
	const struct mc_layout *l;             /* borrowed */
	const struct mc_layout_tensor *tensor; /* borrowed */
	uint32_t n_tensors;
	struct expr_env env; /* during compile */
	uint32_t n_stages;
	uint32_t *stage_of_layer; /* n_layers, owned */
	uint32_t n_layers;
	struct kind *kind; /* owned */
	uint32_t n_kinds, cap_kinds;
	uint32_t *kind_hash; /* owned */
	uint32_t hash_size;
	uint32_t *kind_of;   /* by tensor; UINT32_MAX = dropped; owned */
	uint32_t *name_hash; /* tensor + 1 by name, owned; NULL until needed */
	uint32_t name_hash_size;
	struct output *output; /* owned */
	uint32_t n_outputs, cap_outputs;
	struct member *member; /* owned */
	uint32_t n_members, cap_members;
	uint32_t *out_first, *out_list; /* outputs of tensor t: out_list[out_first[t] … out_first[t
					   + 1]), owned */
	char *names;                    /* owned */
	size_t names_len, names_cap;
	/* constants, by output number n_outputs onwards */
	struct const_output {
		uint32_t name, constant,
			like; /* like: kind whose presence it shares, UINT32_MAX = all */
	} * const_output;     /* owned */
	uint32_t n_const_outputs, cap_const_outputs;
};

/* Evaluates the expressions of kind k's rule. */
int mc_ly_kind_numbers(struct mc_sharding *s, struct kind *k, struct mc_err *err);
/* What rank holds of a tensor of this kind. */
int mc_ly_kind_cut(const struct mc_sharding *s, uint32_t kind, uint32_t rank, struct cut *ret,
	struct mc_err *err);
bool mc_ly_kind_present(const struct mc_sharding *s, uint32_t kind, uint32_t rank);
void mc_ly_kind_done(struct kind *k);
/* "rule /rules/3 (glob)" or "the default". */
const char *mc_ly_rule_text(const struct mc_sharding *s, uint32_t rule, char *out, size_t size);

/* layout-stage.c */
int mc_ly_stages_make(struct mc_sharding *s, struct mc_err *err);
int mc_ly_stage_of(const struct mc_sharding *s, const char *name, size_t len, uint32_t *ret,
	bool *ret_drop, struct mc_err *err);

/* layout-kind.c: the tables of names and kinds. */
int mc_ly_names_index(struct mc_sharding *s); /* before mc_ly_tensor_find */
uint32_t mc_ly_tensor_find(struct mc_sharding *s, const char *name, size_t len); /* UINT32_MAX */
int mc_ly_names_add(struct mc_sharding *s, const char *name, uint32_t *ret);
int mc_ly_kind_intern(struct mc_sharding *s, struct kind *k, uint32_t *ret, struct mc_err *err);

/* layout-emit.c: outputs from tensors. */
int mc_ly_outputs_make(struct mc_sharding *s, struct mc_err *err);
/* layout-output.c: renames, sorts and indexes them, and adds constants. */
int mc_ly_outputs_finish(struct mc_sharding *s, struct mc_err *err);
/* A template filled from a match; out holds MC_NAME_MAX bytes. */
int mc_ly_expand(const struct mc_match *m, const char *name, const char *template,
	const char *where, char *out, struct mc_err *err);

/* layout-rank.c: one output at one rank. */
struct local_shape {
	bool present;
	uint8_t dtype;
	uint32_t rank;
	uint64_t shape[MC_BOX_RANK];
};
/* Where the pieces go; NULL = only the shape is wanted. */
struct piece_sink {
	int (*fn)(void *arg, const struct mc_local_piece *p);
	void *arg;
};
int mc_ly_output_at(const struct mc_sharding *s, const struct output *o, uint32_t rank,
	struct local_shape *ret, const struct piece_sink *sink, struct mc_err *err);
