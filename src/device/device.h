/*
 * device.h: what the house asks of a device.
 *
 * A device is a driver (a table of functions) and the driver's own state behind it. It takes
 * weights in a form of its own, says which nodes it can compute, gives memory, and turns a list of
 * nodes with storage into a program that can be run many times. The plan (plan.h) decides what is
 * computed, in which order and where results lie; it knows nothing about the inside of a device.
 */
#ifndef QUERN_DEVICE_DEVICE_H
#define QUERN_DEVICE_DEVICE_H

#include <quern/device.h>

#include "device/weight.h"
#include "tensor/graph.h"

/* Asked between the steps of a run, by any thread of the device but never by two at once: true ends
 * the run with QN_ERR_ABORTED. */
typedef struct qn_abort {
    bool (*fn)(void *user); /* NULL: never asked */
    void *user;
} qn_abort;

/*
 * Where weights come from while a device makes them usable. All of a weight's rows (of all planes,
 * numbered from 0) are asked for once, in ranges, by several threads at once; `worker` is the
 * thread's number, below n_threads(). next and done are never called by two threads at once, and
 * done follows when all rows of the weight were asked for.
 */
typedef struct qn_weight_feed {
    /* The next weight; NULL when there is none. */
    qn_weight *(*next)(void *user);
    /* The bytes of rows row .. row + n_rows, which stay until the worker's next call; NULL where
     * they cannot be had: the load ends. */
    const void *(*rows)(void *user, const qn_weight *w, int64_t row, int64_t n_rows,
                        int32_t worker);
    /* These rows are not needed in this form any more. May be NULL. */
    void (*used)(void *user, const qn_weight *w, int64_t row, int64_t n_rows);
    /* The weight is usable; false ends the load. May be NULL. */
    bool (*done)(void *user, qn_weight *w);
    void *user;
} qn_weight_feed;

/* Nodes made ready to run by a device. Opaque to the plan. */
typedef struct qn_program qn_program;

typedef struct qn_device_driver {
    qn_status (*describe)(qn_device_info *out, qn_error *err);
    qn_status (*open)(const qn_device_options *options, qn_device **out, qn_error *err);
    void (*free)(qn_device *device);
    const char *(*isa)(const qn_device *device);
    int32_t (*n_threads)(const qn_device *device);
    void (*pause)(qn_device *device);
    qn_status (*measure)(qn_device *device, qn_measure what, int32_t n_threads, double seconds,
                         double *out, qn_error *err);

    /* Weights; see qn__device_weights_load. */
    qn_status (*weights_load)(qn_device *device, const qn_weight_feed *feed, qn_error *err);
    bool (*packs_rows)(const qn_device *device, qn_type type);
    void (*weight_free)(qn_device *device, qn_weight *w);

    /* Zeroed memory that both the device and the caller can address, aligned to 64 bytes. */
    void *(*memory_alloc)(qn_device *device, size_t bytes);
    void (*memory_free)(qn_device *device, void *block, size_t bytes);

    bool (*supports)(const qn_device *device, const qn_node *node);
    /* Makes a program of nodes that it supports, in order. *workspace: bytes that a run needs
     * beside the storage of the nodes. The nodes live as long as the program. */
    qn_status (*compile)(qn_device *device, qn_node *const *nodes, int32_t n_nodes,
                         qn_program **out, size_t *workspace, qn_error *err);
    void (*program_free)(qn_program *program);
    /* Runs it, with the storage that the nodes' `data` point to now. n_threads: 1 .. n_threads().
     */
    qn_status (*run)(qn_program *program, void *workspace, int32_t n_threads, const qn_abort *abort,
                     qn_error *err);
} qn_device_driver;

/* The first member of every device. */
struct qn_device {
    const qn_device_driver *driver;
};

/* The table of drivers, in the order of device numbers; NULL at the end. */
extern const qn_device_driver *const qn__device_drivers[];

/*
 * Makes the weights of the feed usable on the device, by all its threads: a MATRIX is packed
 * (w->packed, w->packed_bytes), and w->data becomes NULL, unless it is also ROWS of a type that
 * cannot be read from the packed form. Rows of other weights are asked for too, so that the feed
 * may check or move them, but they stay as they are. Refuses types and shapes that the device
 * cannot compute with QN_ERR_UNSUPPORTED. Packed weights do not depend on the number of threads or
 * on the instruction set: a model is packed by one device and used by the devices of all its
 * contexts. Where the feed ends the load (rows, done), the result is QN_OK: it knows why.
 */
qn_status qn__device_weights_load(qn_device *device, const qn_weight_feed *feed, qn_error *err);
/* Whether rows of a packed matrix of this type can be read, so that its file form is not needed. */
bool qn__device_packs_rows(const qn_device *device, qn_type type);
void qn__device_weight_free(qn_device *device, qn_weight *w);

bool qn__device_supports(const qn_device *device, const qn_node *node);

/* Memory for stores (KV) and the like; zeroed. */
void *qn__device_memory_alloc(qn_device *device, size_t bytes);
void qn__device_memory_free(qn_device *device, void *block, size_t bytes);

#endif
