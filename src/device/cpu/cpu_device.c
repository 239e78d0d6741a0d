/* cpu_device.c: the CPU's driver: what the machine is, opening it, memory. */
#include "device/cpu/cpu_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "device/cpu/measure.h"

/* Describing ------------------------------------------------------------------------------------
 */

/* The text behind "key ... :" in the file; "" where there is none. */
static void read_field(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "r");
    out[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (colon && strncmp(line, key, strlen(key)) == 0) {
            colon += 1 + strspn(colon + 1, " \t");
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(out, size, "%s", colon);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

/* A field of /proc/meminfo in bytes; 0 where there is none. */
static uint64_t memory_field(const char *key)
{
    char text[64];
    read_field("/proc/meminfo", key, text, sizeof text);
    return (uint64_t)strtoull(text, NULL, 10) * 1024;
}

static qn_status cpu_describe(qn_device_info *out, qn_error *err)
{
    (void)err;
    *out = (qn_device_info){
        .name = "cpu",
        .n_cores = qn__cpu_n_cores(),
        .memory_total = memory_field("MemTotal"),
        .memory_free = memory_field("MemAvailable"),
        .isa = qn__cpu_isa_find(NULL)->name,
        .canonical = true,
    };
    read_field("/proc/cpuinfo", "model name", out->description, sizeof out->description);
    if (out->description[0] == '\0') {
        snprintf(out->description, sizeof out->description, "CPU");
    }
    size_t used = 0;
    for (int32_t i = 0; qn__cpu_isa_at(i); i++) {
        int n = snprintf(out->isas + used, sizeof out->isas - used, "%s%s", i ? " " : "",
                         qn__cpu_isa_at(i)->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return QN_OK;
}

/* Opening ---------------------------------------------------------------------------------------
 */

static void cpu_free(qn_device *device)
{
    qn_cpu_device *cpu = (qn_cpu_device *)device;
    qn__pool_free(cpu->pool);
    free(cpu);
}

static qn_status cpu_open(const qn_device_options *options, qn_device **out, qn_error *err)
{
    /* The variable is for tests: results are the same with every instruction set. */
    const char *name = options->isa ? options->isa : getenv("QUERN_CPU");
    if (name && *name == '\0') {
        name = NULL;
    }
    const qn_cpu_isa *isa = qn__cpu_isa_find(name);
    if (!isa) {
        return qn__error(err, QN_ERR_UNSUPPORTED,
                         "instruction set '%s' is unknown or missing on this machine", name);
    }
    qn_cpu_device *cpu = qn__calloc(1, sizeof *cpu);
    if (!cpu) {
        return qn__error_memory(err, "device");
    }
    cpu->base.driver = &qn__cpu_driver;
    cpu->isa = isa;
    qn_status status = qn__pool_make(&options->threads, &options->log, &cpu->pool, err);
    if (status != QN_OK) {
        free(cpu);
        return status;
    }
    *out = &cpu->base;
    return QN_OK;
}

static const char *cpu_isa(const qn_device *device)
{
    return ((const qn_cpu_device *)device)->isa->name;
}

static int32_t cpu_n_threads(const qn_device *device)
{
    return qn__pool_n_threads(((const qn_cpu_device *)device)->pool);
}

static void cpu_pause(qn_device *device)
{
    qn__pool_pause(((qn_cpu_device *)device)->pool);
}

/* Memory, nodes, measures -----------------------------------------------------------------------
 */

static void *cpu_memory_alloc(qn_device *device, size_t bytes)
{
    (void)device;
    return qn__block_alloc(bytes);
}

static void cpu_memory_free(qn_device *device, void *block, size_t bytes)
{
    (void)device;
    qn__block_free(block, bytes);
}

static bool cpu_supports(const qn_device *device, const qn_node *node)
{
    const qn_cpu_kernel *kernel = qn__cpu_kernels[node->op];
    (void)device;
    return kernel && (!kernel->supports || kernel->supports(node));
}

static qn_status cpu_measure(qn_device *device, qn_measure what, int32_t n_threads, double seconds,
                             double *out, qn_error *err)
{
    qn_cpu_device *cpu = (qn_cpu_device *)device;
    return qn__cpu_measure(cpu->pool, cpu->isa, what, n_threads, seconds, out, err);
}

const qn_device_driver qn__cpu_driver = {
    .describe = cpu_describe,
    .open = cpu_open,
    .free = cpu_free,
    .isa = cpu_isa,
    .n_threads = cpu_n_threads,
    .pause = cpu_pause,
    .measure = cpu_measure,
    .weights_load = qn__cpu_weights_load,
    .packs_rows = qn__cpu_packs_rows,
    .weight_free = qn__cpu_weight_free,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = cpu_memory_free,
    .supports = cpu_supports,
    .compile = qn__cpu_compile,
    .program_free = qn__cpu_program_free,
    .run = qn__cpu_run,
};
