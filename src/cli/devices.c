/* devices.c: "quern devices": what this machine offers, and with --measure how fast it could be. */
#include <quern/device.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/support.h"

typedef struct devices_options {
    cli_common common;
    bool json, measure;
} devices_options;

/* Speeds of one device; -1 where it lacks the instruction. */
static bool measure_all(const devices_options *o, const qn_log *log, double out[QN_MEASURE_COUNT])
{
    qn_device *device;
    qn_error err = {0};
    if (!cli_open_device(&o->common, log, &device)) {
        return false;
    }
    for (int what = 0; what < QN_MEASURE_COUNT; what++) {
        qn_status status = qn_device_measure(device, (qn_measure)what, 0, 0, &out[what], &err);
        if (status != QN_OK) {
            out[what] = -1;
        }
        if (status != QN_OK && status != QN_ERR_UNSUPPORTED) {
            cli_error("%s: %s", qn_measure_name((qn_measure)what), err.message);
        }
    }
    qn_device_free(device);
    return true;
}

static void print_text(int32_t index, const qn_device_info *info, const double *speeds)
{
    printf("%d: %s, %s\n", index, info->name, info->description);
    printf("   %d cores, %.1f GiB of memory, %.1f GiB free\n", info->n_cores,
           (double)info->memory_total / (1 << 30), (double)info->memory_free / (1 << 30));
    printf("   instruction sets: %s; used: %s\n", info->isas, info->isa);
    printf("   bits: %s\n",
           info->canonical ? "canonical, the same as on every machine" : "its own");
    for (int what = 0; speeds && what < QN_MEASURE_COUNT; what++) {
        if (speeds[what] >= 0) {
            printf("   %-10s %8.1f %s\n", qn_measure_name((qn_measure)what), speeds[what] * 1e-9,
                   what == QN_MEASURE_READ ? "GB/s" : "GOP/s");
        }
    }
}

static void print_json(cli_json *j, const qn_device_info *info, const double *speeds)
{
    cli_json_open(j, '{');
    cli_json_key(j, "name");
    cli_json_text(j, info->name);
    cli_json_key(j, "description");
    cli_json_text(j, info->description);
    cli_json_key(j, "n_cores");
    cli_json_i64(j, info->n_cores);
    cli_json_key(j, "memory_total");
    cli_json_u64(j, info->memory_total);
    cli_json_key(j, "memory_free");
    cli_json_u64(j, info->memory_free);
    cli_json_key(j, "isas");
    cli_json_text(j, info->isas);
    cli_json_key(j, "isa");
    cli_json_text(j, info->isa);
    cli_json_key(j, "canonical");
    cli_json_bool(j, info->canonical);
    for (int what = 0; speeds && what < QN_MEASURE_COUNT; what++) {
        if (speeds[what] >= 0) {
            cli_json_key(j, qn_measure_name((qn_measure)what));
            cli_json_number(j, speeds[what], 6);
        }
    }
    cli_json_close(j, '}');
}

static int devices_main(const cli_args *args)
{
    const devices_options *o = args->options;
    double speeds[QN_MEASURE_COUNT];
    cli_json json = {.out = stdout};
    cli_log log_state;
    qn_log log;
    int code = 0;
    if (!cli_log_open(&log_state, &o->common, &log)) {
        return 1;
    }
    if (o->json) {
        cli_json_open(&json, '[');
    }
    for (int32_t i = 0; i < qn_device_count() && code == 0; i++) {
        qn_device_info info;
        qn_error err = {0};
        bool measured = o->measure && i == 0;
        if (qn_device_get_info(i, &info, &err) != QN_OK) {
            code = cli_error("%s", err.message);
        } else if (measured && !measure_all(o, &log, speeds)) {
            code = 1;
        } else if (o->json) {
            print_json(&json, &info, measured ? speeds : NULL);
        } else {
            print_text(i, &info, measured ? speeds : NULL);
        }
    }
    if (o->json) {
        cli_json_close(&json, ']');
    }
    cli_log_close(&log_state);
    return code;
}

static const cli_flag flags[] = {
    {.names = "--json",
     .kind = CLI_SWITCH,
     .help = "print JSON",
     .offset = offsetof(devices_options, json)},
    {.names = "--measure",
     .kind = CLI_SWITCH,
     .help = "measure how fast memory is read and numbers are multiplied",
     .offset = offsetof(devices_options, measure)},
};

const cli_command cli_command_devices = {
    .name = "devices",
    .usage = "[flags]",
    .summary = "Lists the devices that can compute here.",
    .groups = CLI_GROUP_THREADS,
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(devices_options),
    .main = devices_main,
};
