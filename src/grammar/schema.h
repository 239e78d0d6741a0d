/*
 * schema.h: a JSON schema on its way to GBNF text.
 *
 * Each node of the schema becomes one rule. schema.c takes nodes from a queue, says what each means
 * and puts the nodes inside it into the queue, so that nothing recurses; schema_object.c writes
 * objects, schema_integer.c ranges of integers, pattern.c regular expressions.
 */
#ifndef QUERN_GRAMMAR_SCHEMA_H
#define QUERN_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include <quern/grammar.h>

#include "base/mem.h"

enum {
    QN_SCHEMA_NODES_MAX = 100000,
    QN_SCHEMA_TEXT_MAX = 16 << 20 /* bytes of the grammar */
};

/* A node that is to become a rule. */
typedef struct qn_schema_node {
    json_t *json;
    const char *name; /* of the rule */
    const char *path; /* "#/properties/a" */
} qn_schema_node;

typedef struct qn_schema {
    json_t *root;
    json_t *names; /* of rules, as keys */
    json_t *known; /* node (its address) -> name of its rule */
    json_t *owned; /* nodes that are no part of the schema */
    qn_schema_node *queue;
    size_t n_queue, queue_room;
    qn_arena arena;
    qn_buf out;
    qn_buf warnings;
    qn_error *err;
    qn_status status; /* the first error */
} qn_schema;

/* A property of an object that is to be written. */
typedef struct qn_property {
    const char *key;
    size_t key_size;
    json_t *json;
    const char *path;
    bool required;
} qn_property;

/* "JSON schema error at PATH: …"; false. */
bool qn__schema_fail(qn_schema *s, const char *path, const char *format, ...) QN_PRINTF(3, 4);
/* false, without memory. */
bool qn__schema_no_memory(qn_schema *s);
void qn__schema_warn(qn_schema *s, const char *path, const char *what);

/* A name that no rule has: `base` with what names may not contain replaced, and a number if needed.
 * NULL on failure; lives as long as `s`. */
const char *qn__schema_name(qn_schema *s, const char *base, const char *suffix);
const char *qn__schema_path(qn_schema *s, const char *path, const char *key);
/* The rule of a node, which is queued when it is first asked for. NULL on failure. */
const char *qn__schema_rule(qn_schema *s, json_t *json, const char *base, const char *path);

/* The node that a $ref at `path` means; NULL after an error. */
json_t *qn__schema_resolve(qn_schema *s, json_t *ref, const char *path);

/* Writes "NAME ::= " object, and the rules that it needs. `additional`: NULL: none; else the
 * schema of further properties (an empty one: any value). */
bool qn__schema_object(qn_schema *s, const char *name, const char *path, const qn_property *list,
                       size_t n, json_t *additional);

/* Writes alternatives of integers: bounds both included, NULL for none. */
void qn__schema_integers(qn_buf *out, const int64_t *low, const int64_t *high);

/* Writes the regular expression as GBNF within quotes. False with *why: it cannot be written
 * (`invalid`: it is no expression at all). */
bool qn__schema_pattern(qn_buf *out, const char *pattern, size_t size, bool *invalid,
                        const char **why);

/* Text as JSON writes it inside quotes. */
void qn__json_escape(qn_buf *out, const char *text, size_t size);
/* A value without blanks. False without memory. */
bool qn__json_compact(qn_buf *out, json_t *value);
/* Bytes as a GBNF literal. */
void qn__gbnf_quote(qn_buf *out, const char *bytes, size_t size);

#endif
