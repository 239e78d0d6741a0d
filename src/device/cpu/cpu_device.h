/* cpu_device.h: the CPU as a device. */
#ifndef QUERN_DEVICE_CPU_CPU_DEVICE_H
#define QUERN_DEVICE_CPU_CPU_DEVICE_H

#include "device/cpu/cpu.h"
#include "device/cpu/pool.h"
#include "device/device.h"

extern const qn_device_driver qn__cpu_driver;

typedef struct qn_cpu_device {
    qn_device base;
    qn_pool *pool;
    const qn_cpu_isa *isa;
} qn_cpu_device;

/* weights.c: the driver's functions for weights. */
qn_status qn__cpu_weights_load(qn_device *device, const qn_weight_feed *feed, qn_error *err);
bool qn__cpu_packs_rows(const qn_device *device, qn_type type);
void qn__cpu_weight_free(qn_device *device, qn_weight *w);

/* program.c: the driver's compile, program_free and run. */
qn_status qn__cpu_compile(qn_device *device, qn_node *const *nodes, int32_t n_nodes,
                          qn_program **out, size_t *workspace, qn_error *err);
void qn__cpu_program_free(qn_program *program);
qn_status qn__cpu_run(qn_program *program, void *workspace, int32_t n_threads,
                      const qn_abort *abort, qn_error *err);

#endif
