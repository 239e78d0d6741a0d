/* quantize_convert.h: rows of one format to rows of another, on several threads. */
#ifndef QUERN_MODEL_QUANTIZE_CONVERT_H
#define QUERN_MODEL_QUANTIZE_CONVERT_H

#include <quern/quantize.h>

/* Consecutive rows of one tensor. */
typedef struct qn_convert {
    const char *name; /* of the tensor, for messages */
    qn_type from, to;
    const uint8_t *in; /* packed rows, aligned to 4 */
    uint8_t *out;
    int64_t row_values;
    int64_t first_row, rows; /* of the tensor: [first_row, first_row + rows) */
    int64_t matrix_rows;     /* rows of one matrix of a stack */
    const float *importance; /* row_values numbers per set, or NULL */
    int64_t importance_sets; /* matrix m uses set m % sets */
    const void *tables;      /* of the target's encoder */
} qn_convert;

/* The threads and their row buffers, made once for a run. */
typedef struct qn_converter qn_converter;
qn_status qn__converter_make(qn_converter **out, int threads, qn_error *err);
void qn__converter_free(qn_converter *c);

/*
 * Converts the rows. `progress` (may be NULL) is told the share of these rows that is done, from
 * the calling thread; where it returns false the work ends with QN_ERR_ABORTED. Values that are not
 * finite, before or after, are QN_ERR_FORMAT and name tensor and row: the first such row, whatever
 * the number of threads.
 */
qn_status qn__converter_run(qn_converter *c, const qn_convert *job, qn_progress_fn progress,
                            void *user, qn_error *err);

#endif
