/*
 * quern/device.h: the devices that this build can compute on, what they are, and how fast they
 * could be. Models and contexts take a device by themselves; a program needs this header to list
 * devices, to choose threads and instruction sets by hand, and to measure.
 */
#ifndef QUERN_DEVICE_H
#define QUERN_DEVICE_H

#include <quern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a device is. Strings live as long as the program. */
typedef struct qn_device_info {
    const char *name;      /* "cpu" */
    char description[128]; /* of the hardware, as "AMD EPYC" */
    int32_t n_cores;       /* physical cores that this process may use */
    uint64_t memory_total; /* bytes */
    uint64_t memory_free;  /* bytes that could be taken now */
    char isas[64];         /* instruction sets that work here, worst first: "scalar avx2" */
    const char *isa;       /* the one that is used when none is asked for */
    bool canonical;        /* results have the canonical bits: those of the CPU's plain kernels */
} qn_device_info;

/* Devices are numbered 0 .. count - 1; 0 is the CPU. Thread safe. */
QN_API int32_t qn_device_count(void);
/* QN_ERR_NOT_FOUND for a number that is no device. Thread safe. */
QN_API qn_status qn_device_get_info(int32_t index, qn_device_info *out, qn_error *err);

/* Threads of the CPU device. */
#define QN_AFFINITY_WORDS 8
typedef struct qn_thread_options {
    int32_t n_threads;                    /* most that a run may use; 0: n_cores */
    uint64_t affinity[QN_AFFINITY_WORDS]; /* bit i: may run on processor i; all zero: anywhere */
    bool strict;      /* worker i on the i-th processor of the mask only, not on all of them */
    int32_t priority; /* -1 low, 0 normal, 1 medium, 2 high, 3 realtime; where the system refuses,
                         threads stay normal and the log says so */
    int32_t poll;     /* 0 .. 100: how long an idle worker spins before it sleeps; default 50 */
} qn_thread_options;

typedef struct qn_device_options {
    /* Instruction set: "scalar", "avx2", "avx512", "neon", "neon-dotprod". NULL: the environment
     * variable QUERN_CPU, or the best that the machine has. Results do not depend on it. */
    const char *isa;
    qn_thread_options threads;
    qn_log log;
} qn_device_options;

QN_API qn_device_options qn_device_defaults(void);

/*
 * An open device: for the CPU, a thread pool and a choice of kernels. Several contexts may share
 * one; their computations then take turns.
 */
typedef struct qn_device qn_device;

/* Opens device `index`. NULL options: the defaults. Errors: QN_ERR_ARGUMENT names the option;
 * QN_ERR_UNSUPPORTED for an instruction set that the machine lacks. */
QN_API qn_status qn_device_open(int32_t index, const qn_device_options *options, qn_device **out,
                                qn_error *err);
/* Whoever uses the device must be gone. */
QN_API void qn_device_free(qn_device *device);

/* The instruction set in use, and the most threads of a run. */
QN_API const char *qn_device_isa(const qn_device *device);
QN_API int32_t qn_device_n_threads(const qn_device *device);

/* Lets the workers sleep until the next run (at once, whatever the poll level). Thread safe. */
QN_API void qn_device_pause(qn_device *device);

/* What qn_device_measure can measure. Operations count a multiplication and an addition as two. */
typedef enum qn_measure {
    QN_MEASURE_READ,      /* bytes a second read from memory, one stream a thread */
    QN_MEASURE_F32,       /* F32 fused multiply-add, operations a second */
    QN_MEASURE_INT8_PAIR, /* u8 x s8 products added in pairs (maddubs), then 16-bit adds: 4-bit
                             weights */
    QN_MEASURE_INT8,      /* s8 x s8 by sign, maddubs, madd and 32-bit adds: 8-bit weights */
    QN_MEASURE_INT16,     /* 16-bit madd and 32-bit adds */
    QN_MEASURE_INT8_DOT,  /* u8 x s8 products, four added into 32 bits (VNNI) */
    QN_MEASURE_BF16_DOT,  /* BF16 pair products into F32 */
    QN_MEASURE_COUNT
} qn_measure;

/* A short name, as "int8_pair"; NULL for no measure. */
QN_API const char *qn_measure_name(qn_measure what);

/*
 * Measures the machine itself with `n_threads` threads (0: all of the device) for about `seconds`
 * (0: 0.3): the median of several runs, which on a machine with other work is what it gives and not
 * what it could. QN_ERR_UNSUPPORTED where the instruction set in use lacks the instruction. Takes
 * 256 MiB for QN_MEASURE_READ.
 */
QN_API qn_status qn_device_measure(qn_device *device, qn_measure what, int32_t n_threads,
                                   double seconds, double *out, qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
