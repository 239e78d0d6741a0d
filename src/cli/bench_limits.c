/*
 * bench_limits.c: how fast a test could be. A token reads every weight once (of experts: those it
 * uses) and multiplies with it; a batch reads the weights once for all its tokens. The machine's
 * read bandwidth and its multiply peak are measured; the longer of the two times is the limit.
 */
#include <string.h>

#include <quern/gguf.h>

#include "cli/bench.h"

/* Tensors that are looked up row by row instead of being multiplied with. */
static bool is_lookup(const char *name)
{
    static const char *const names[] = {"token_embd.", "position_embd.", "token_types.",
                                        "per_layer_token_embd.", "rope_"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncmp(name, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The part of the experts that one token uses. */
static double expert_share(const qn_model *model)
{
    const qn_gguf *g = qn_model_gguf(model);
    const char *arch = qn_model_architecture(model);
    char key[128];
    uint32_t count = 0, used = 0;
    snprintf(key, sizeof key, "%s.expert_count", arch);
    (void)qn_gguf_opt_u32(g, key, &count, NULL);
    snprintf(key, sizeof key, "%s.expert_used_count", arch);
    (void)qn_gguf_opt_u32(g, key, &used, NULL);
    return count > 0 && used > 0 && used < count ? (double)used / (double)count : 1.0;
}

/* Which peak bounds products with weights of this type. */
static qn_measure peak_of(qn_type type, const char *isa)
{
    const qn_type_info *info = qn_type_get_info(type);
    if (!info || !info->quantized) {
        return QN_MEASURE_F32;
    }
    if (strcmp(isa, "avx512") == 0 || strcmp(isa, "neon-dotprod") == 0) {
        return QN_MEASURE_INT8_DOT;
    }
    double bits = 8.0 * (double)info->block_bytes / (double)info->block_values;
    return bits < 5.2 ? QN_MEASURE_INT8_PAIR : QN_MEASURE_INT8;
}

bench_weight bench_weigh(const qn_model *model, const char *isa)
{
    const qn_gguf *g = qn_model_gguf(model);
    bench_weight w = {0};
    double experts = expert_share(model), by_type[QN_TYPE_COUNT] = {0};
    bool tied = qn_gguf_find_tensor(g, "output.weight") == NULL;
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        double bytes = (double)t->bytes;
        double operations = 2.0 * (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2];
        bool output = strcmp(t->name, tied ? "token_embd.weight" : "output.weight") == 0;
        if (output) {
            w.output_bytes = bytes;
            w.output_operations = operations;
            continue;
        }
        if (t->n_dims < 2 || is_lookup(t->name)) {
            continue;
        }
        double share = strstr(t->name, "_exps.") ? experts : 1.0;
        w.bytes += bytes * share;
        w.operations += operations * share;
        by_type[t->type] += operations * share;
    }
    qn_type main_type = QN_TYPE_F32;
    for (int type = 0; type < QN_TYPE_COUNT; type++) {
        main_type = by_type[type] > by_type[main_type] ? (qn_type)type : main_type;
    }
    w.peak = peak_of(main_type, isa);
    return w;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

double bench_time_limit(const bench_weight *weight, const bench_setting *s, double position_bytes,
                        double read_speed, double peak_speed)
{
    double sequences = s->n_seq, ns = 0;
    if (s->n_prompt > 0) {
        double tokens = sequences * s->n_prompt;
        double batch = s->n_ubatch < s->n_batch ? s->n_ubatch : s->n_batch;
        double passes = tokens <= batch ? 1 : tokens / batch;
        double bytes = passes * weight->bytes + weight->output_bytes;
        double operations = tokens * weight->operations + sequences * weight->output_operations;
        ns += 1e9 * longer(bytes / read_speed, operations / peak_speed);
    }
    if (s->n_gen > 0) {
        double steps = s->n_gen;
        double positions = sequences * (s->n_depth + s->n_prompt + steps / 2);
        double bytes = weight->bytes + weight->output_bytes + positions * position_bytes;
        double operations = sequences * (weight->operations + weight->output_operations);
        ns += 1e9 * steps * longer(bytes / read_speed, operations / peak_speed);
    }
    return ns;
}
