/*
 * importance.h: importance of the columns of weight matrices ("imatrix" files): one number >= 0 a
 * column, the mean square of the activation that meets it.
 */
#ifndef QUERN_MODEL_IMPORTANCE_H
#define QUERN_MODEL_IMPORTANCE_H

#include <quern/base.h>

typedef struct qn_importance qn_importance;

/* Reads the GGUF form or the older form with neither magic nor version. Errors name the file. */
qn_status qn__importance_open(qn_importance **out, const char *path, qn_error *err);
void qn__importance_free(qn_importance *imp);

/* The numbers of a weight and how many there are, or NULL where the file has none. */
const float *qn__importance_find(const qn_importance *imp, const char *weight, size_t *count);

size_t qn__importance_entries(const qn_importance *imp);
uint32_t qn__importance_chunks(const qn_importance *imp);     /* 0: unknown */
const char *qn__importance_dataset(const qn_importance *imp); /* the first; "": unknown */

#endif
