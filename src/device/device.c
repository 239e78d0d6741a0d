/* device.c: the table of devices, and the calls that go through a device's driver. */
#include "device/device.h"

#include "base/error.h"
#include "device/cpu/cpu_device.h"

const qn_device_driver *const qn__device_drivers[] = {
    &qn__cpu_driver,
    NULL,
};

int32_t qn_device_count(void)
{
    int32_t n = 0;
    while (qn__device_drivers[n]) {
        n++;
    }
    return n;
}

static const qn_device_driver *driver_of(int32_t index, qn_error *err)
{
    if (index < 0 || index >= qn_device_count()) {
        qn__error(err, QN_ERR_NOT_FOUND, "there is no device %d", (int)index);
        return NULL;
    }
    return qn__device_drivers[index];
}

qn_status qn_device_get_info(int32_t index, qn_device_info *out, qn_error *err)
{
    const qn_device_driver *driver = driver_of(index, err);
    return driver ? driver->describe(out, err) : QN_ERR_NOT_FOUND;
}

qn_device_options qn_device_defaults(void)
{
    return (qn_device_options){.threads = {.poll = 50}};
}

qn_status qn_device_open(int32_t index, const qn_device_options *options, qn_device **out,
                         qn_error *err)
{
    const qn_device_options defaults = qn_device_defaults();
    const qn_device_driver *driver = driver_of(index, err);
    return driver ? driver->open(options ? options : &defaults, out, err) : QN_ERR_NOT_FOUND;
}

void qn_device_free(qn_device *device)
{
    if (device) {
        device->driver->free(device);
    }
}

const char *qn_device_isa(const qn_device *device)
{
    return device->driver->isa(device);
}

int32_t qn_device_n_threads(const qn_device *device)
{
    return device->driver->n_threads(device);
}

void qn_device_pause(qn_device *device)
{
    device->driver->pause(device);
}

const char *qn_measure_name(qn_measure what)
{
    static const char *const names[QN_MEASURE_COUNT] = {
        [QN_MEASURE_READ] = "read",           [QN_MEASURE_F32] = "f32",
        [QN_MEASURE_INT8_PAIR] = "int8_pair", [QN_MEASURE_INT8] = "int8",
        [QN_MEASURE_INT16] = "int16",         [QN_MEASURE_INT8_DOT] = "int8_dot",
        [QN_MEASURE_BF16_DOT] = "bf16_dot",
    };
    return what >= 0 && what < QN_MEASURE_COUNT ? names[what] : NULL;
}

qn_status qn_device_measure(qn_device *device, qn_measure what, int32_t n_threads, double seconds,
                            double *out, qn_error *err)
{
    if (!qn_measure_name(what)) {
        return qn__error(err, QN_ERR_ARGUMENT, "there is no measure %d", (int)what);
    }
    if (!(seconds >= 0.0 && seconds <= 60.0)) {
        return qn__error(err, QN_ERR_ARGUMENT, "cannot measure for %g seconds", seconds);
    }
    int32_t most = qn_device_n_threads(device);
    if (n_threads < 1 || n_threads > most) {
        n_threads = most;
    }
    return device->driver->measure(device, what, n_threads, seconds > 0.0 ? seconds : 0.3, out,
                                   err);
}

qn_status qn__device_weights_load(qn_device *device, const qn_weight_feed *feed, qn_error *err)
{
    return device->driver->weights_load(device, feed, err);
}

bool qn__device_packs_rows(const qn_device *device, qn_type type)
{
    return device->driver->packs_rows(device, type);
}

void qn__device_weight_free(qn_device *device, qn_weight *w)
{
    device->driver->weight_free(device, w);
}

bool qn__device_supports(const qn_device *device, const qn_node *node)
{
    return device->driver->supports(device, node);
}

void *qn__device_memory_alloc(qn_device *device, size_t bytes)
{
    return device->driver->memory_alloc(device, bytes);
}

void qn__device_memory_free(qn_device *device, void *block, size_t bytes)
{
    if (block) {
        device->driver->memory_free(device, block, bytes);
    }
}
