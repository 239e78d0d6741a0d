/* test_quantize_mix.c: the formats that mixes choose, against the recorded choices and by hand. */
#include "support/support.h"

#include "model/quantize_mix.h"

enum { MAX_TENSORS = 64, MAX_EXPECTED = 2048, MAX_LAYERS = 128, TEXT = 64 };

typedef struct tensor_line {
    char name[TEXT]; /* "blk.N.attn_k.weight" stands for every layer */
    int n_dims;
    int64_t ne[4];
} tensor_line;

typedef struct model_lines {
    char name[TEXT], arch[TEXT];
    int layers, heads, kv_heads, experts;
    tensor_line tensor[MAX_TENSORS];
    int count;
} model_lines;

typedef struct expected_line {
    char model[TEXT], mix[TEXT], tensor[TEXT], layers[256], type[TEXT];
} expected_line;

static int read_expected(expected_line *out)
{
    FILE *f = fopen(qn_test_shared("ftype-mixes/expected.tsv"), "r");
    assert_non_null(f);
    char line[1024];
    int count = 0;
    while (fgets(line, sizeof line, f)) {
        expected_line *e = &out[count];
        if (line[0] != '#' && sscanf(line, "%63s %63s %63s %255s %63s", e->model, e->mix, e->tensor,
                                     e->layers, e->type) == 5) {
            assert_true(++count < MAX_EXPECTED);
        }
    }
    fclose(f);
    return count;
}

/* Reads the next model; `line` holds the first line of it before and of the following one after. */
static bool read_model(FILE *f, char line[1024], model_lines *model)
{
    memset(model, 0, sizeof *model);
    while (line[0]) {
        char name[TEXT];
        char arch[TEXT];
        char shape[TEXT];
        int facts[4];
        tensor_line *t = &model->tensor[model->count];
        assert_true(model->count < MAX_TENSORS);
        int fields = sscanf(line, "%63s %63s %d %d %d %d %63s %63s", name, arch, &facts[0],
                            &facts[1], &facts[2], &facts[3], t->name, shape);
        if (line[0] != '#' && fields == 8) {
            if (model->count > 0 && strcmp(model->name, name) != 0) {
                break;
            }
            snprintf(model->name, TEXT, "%s", name);
            snprintf(model->arch, TEXT, "%s", arch);
            model->layers = facts[0];
            model->heads = facts[1];
            model->kv_heads = facts[2];
            model->experts = facts[3];
            long long ne[3] = {1, 1, 1};
            t->n_dims = sscanf(shape, "%lldx%lldx%lld", &ne[0], &ne[1], &ne[2]);
            for (int i = 0; i < 4; i++) {
                t->ne[i] = i < 3 ? ne[i] : 1;
            }
            model->count++;
        }
        if (!fgets(line, 1024, f)) {
            line[0] = '\0';
        }
    }
    return model->count > 0;
}

/* "0-1,4,7" or "-" */
static bool in_layers(const char *list, int layer)
{
    if (strcmp(list, "-") == 0) {
        return layer < 0;
    }
    while (*list) {
        char *end;
        long first = strtol(list, &end, 10);
        long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (layer >= first && layer <= last) {
            return true;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return false;
}

typedef struct named_tensor {
    char name[TEXT];
    const tensor_line *line;
    int layer;
} named_tensor;

static int compare_tensors(const void *a, const void *b)
{
    return qn__mix_compare(((const named_tensor *)a)->name, ((const named_tensor *)b)->name);
}

/* All tensors of the model in the order in which they are visited. */
static int list_tensors(const model_lines *model, named_tensor *out)
{
    int count = 0;
    for (int t = 0; t < model->count; t++) {
        const tensor_line *line = &model->tensor[t];
        bool layered = strncmp(line->name, "blk.N.", 6) == 0;
        for (int layer = 0; layer < (layered ? model->layers : 1); layer++, count++) {
            assert_true(count < MAX_TENSORS * MAX_LAYERS);
            out[count].line = line;
            out[count].layer = layered ? layer : -1;
            if (layered) {
                snprintf(out[count].name, TEXT, "blk.%d.%.40s", layer, line->name + 6);
            } else {
                snprintf(out[count].name, TEXT, "%s", line->name);
            }
        }
    }
    qsort(out, (size_t)count, sizeof *out, compare_tensors);
    return count;
}

/* The lines of one model and mix stand together: narrows the list to them. */
static const expected_line *lines_of(const expected_line *expected, int *count, const char *model,
                                     const char *mix)
{
    int start = 0;
    while (start < *count &&
           (strcmp(expected[start].model, model) != 0 || strcmp(expected[start].mix, mix) != 0)) {
        start++;
    }
    int end = start;
    while (end < *count && strcmp(expected[end].model, model) == 0 &&
           strcmp(expected[end].mix, mix) == 0) {
        end++;
    }
    *count = end - start;
    return expected + start;
}

static const char *expected_type(const expected_line *expected, int count,
                                 const named_tensor *tensor)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(expected[i].tensor, tensor->line->name) == 0 &&
            in_layers(expected[i].layers, tensor->layer)) {
            return expected[i].type;
        }
    }
    return NULL;
}

static void check_model(const model_lines *lines, int mix, const named_tensor *tensors, int count,
                        const expected_line *expected, int expected_count)
{
    qn_mix_model model = {.architecture = lines->arch,
                          .layers = lines->layers,
                          .heads = lines->heads,
                          .kv_heads = lines->kv_heads,
                          .experts = lines->experts,
                          .tied = true};
    for (int i = 0; i < count; i++) {
        model.v_like += qn__mix_is_v_like(tensors[i].name);
        model.tied = model.tied && !qn__mix_is_output(tensors[i].name);
    }
    qn_mix_state state = {0};
    qn_error err = {0};
    expected = lines_of(expected, &expected_count, lines->name, qn_mix_name(mix));
    /* Q1_0 has no way out for rows that do not fit: the run stops, nothing is recorded. */
    bool impossible = mix == QN_MIX_Q1_0 && strncmp(lines->name, "odd-width", 9) == 0;
    for (int i = 0; i < count; i++) {
        const tensor_line *line = tensors[i].line;
        const char *recorded = expected_type(expected, expected_count, &tensors[i]);
        if (!qn__mix_may_convert(tensors[i].name, line->n_dims, line->ne)) {
            assert_null(recorded);
            continue;
        }
        qn_type type;
        bool fell_back;
        qn_test_ok(qn__mix_choose(mix, &model, &state, tensors[i].name, line->ne, &type, &err),
                   err);
        if (qn__mix_fit_shape(tensors[i].name, line->ne[0], &type, &fell_back, &err) != QN_OK) {
            assert_true(impossible);
            assert_non_null(strstr(err.message, tensors[i].name));
            return;
        }
        if (impossible) {
            continue;
        }
        qn_type start;
        assert_true(qn__mix_default_type(mix, &start));
        const char *want = recorded ? recorded : qn_type_get_info(start)->name;
        if (strcmp(qn_type_get_info(type)->name, want) != 0) {
            fail_msg("%s, %s, %s: %s, recorded %s", lines->name, qn_mix_name(mix), tensors[i].name,
                     qn_type_get_info(type)->name, want);
        }
    }
    assert_false(impossible);
}

static void mixes_choose_as_recorded(void **state)
{
    (void)state;
    if (!qn_test_shared("ftype-mixes/models.tsv")) {
        qn_test_skip("no recorded ftype-mixes");
    }
    expected_line *expected = calloc(MAX_EXPECTED, sizeof *expected);
    model_lines *model = malloc(sizeof *model);
    named_tensor *tensors = malloc(MAX_TENSORS * MAX_LAYERS * sizeof *tensors);
    assert_true(expected && model && tensors);
    int expected_count = read_expected(expected);
    FILE *f = fopen(qn_test_shared("ftype-mixes/models.tsv"), "r");
    assert_non_null(f);
    char line[1024] = "#";
    int models = 0;
    while (read_model(f, line, model)) {
        int count = list_tensors(model, tensors);
        for (int mix = 2; mix <= QN_MIX_Q2_0; mix++) {
            /* Not recorded: Q2_0 where rows do not fit its blocks. */
            bool unrecorded = mix == QN_MIX_Q2_0 && strncmp(model->name, "odd-width", 9) == 0;
            if (qn_mix_name(mix) && mix != QN_MIX_BF16 && !unrecorded) {
                check_model(model, mix, tensors, count, expected, expected_count);
            }
        }
        models++;
    }
    fclose(f);
    assert_int_equal(models, 9);
    free(tensors);
    free(model);
    free(expected);
}

static void names_and_numbers_of_mixes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int mix;
    } cases[] = {{"q4_k_m", 15}, {"Q4_K", 15},   {"q3_k", 12}, {"Q5_K", 17}, {"7", 7},
                 {"0", 0},       {"copy", -1},   {"bf16", 32}, {"41", 41},   {"MXFP4_MOE", 38},
                 {"4", -2},      {"Q4_K_X", -2}, {"", -2},     {"-1", -2},   {"7x", -2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qn_mix mix;
        bool found = qn_mix_from_name(cases[i].text, &mix);
        assert_int_equal(found, cases[i].mix != -2);
        if (found) {
            assert_int_equal(mix, cases[i].mix);
        }
    }
    assert_string_equal(qn_mix_name(QN_MIX_Q4_K_M), "Q4_K_M");
    assert_null(qn_mix_name(39));
}

static void which_tensors_may_change(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool may;
    } cases[] = {
        {"token_embd.weight", true},          {"output.weight", true},
        {"blk.0.attn_q.weight", true},        {"blk.0.attn_q.bias", false},
        {"blk.0.attn_norm.weight", false},    {"blk.3.ffn_gate_inp.weight", false},
        {"position_embd.weight", false},      {"token_types.weight", false},
        {"blk.0.time_mix_w2.weight", false},  {"blk.0.time_mix_key.weight", true},
        {"blk.0.altup_router.weight", false},
    };
    const int64_t matrix[4] = {64, 8, 1, 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(qn__mix_may_convert(cases[i].name, 2, matrix), cases[i].may);
        assert_false(qn__mix_may_convert(cases[i].name, 1, matrix));
    }
    const int64_t column[4] = {64, 1, 1, 1};
    assert_false(qn__mix_may_convert("output.weight", 2, column));
}

static void order_and_layers(void **state)
{
    (void)state;
    assert_int_equal(qn__mix_layer("blk.12.attn_q.weight"), 12);
    assert_int_equal(qn__mix_layer("blk.x.attn_q.weight"), -1);
    assert_int_equal(qn__mix_layer("blk.3"), -1);
    assert_int_equal(qn__mix_layer("output.weight"), -1);
    assert_int_equal(qn__mix_layer("blk.99999999999999999999.a"), -1);
    assert_true(qn__mix_compare("token_embd.weight", "blk.0.attn_k.weight") < 0);
    assert_true(qn__mix_compare("blk.2.z", "blk.10.a") < 0);
    assert_true(qn__mix_compare("blk.2.a", "blk.2.b") < 0);
}

static void experts_take_their_layer_from_the_name(void **state)
{
    (void)state;
    qn_mix_model model = {
        .architecture = "llama", .layers = 16, .heads = 8, .kv_heads = 8, .experts = 4};
    const int64_t ne[4] = {512, 512, 4, 1};
    qn_mix_state counters = {0};
    qn_error err = {0};
    qn_type type;
    qn_test_ok(qn__mix_choose(QN_MIX_Q4_K_M, &model, &counters, "blk.15.ffn_down_exps.weight", ne,
                              &type, &err),
               err);
    assert_int_equal(type, QN_TYPE_Q6_K);
    assert_int_equal(qn__mix_choose(QN_MIX_Q4_K_M, &model, &counters, "blk.16.ffn_down_exps.weight",
                                    ne, &type, &err),
                     QN_ERR_FORMAT);
    assert_int_equal(
        qn__mix_choose(QN_MIX_Q4_K_M, &model, &counters, "ffn_up.weight", ne, &type, &err),
        QN_ERR_FORMAT);
}

static void importance_is_asked_for(void **state)
{
    (void)state;
    assert_true(qn__mix_needs_importance(QN_MIX_IQ2_XS, "blk.0.ffn_up.weight", QN_TYPE_IQ2_XS));
    assert_false(qn__mix_needs_importance(QN_MIX_IQ2_XS, "output.weight", QN_TYPE_IQ2_XS));
    assert_true(qn__mix_needs_importance(QN_MIX_Q2_K_S, "blk.0.ffn_up.weight", QN_TYPE_Q2_K));
    assert_false(qn__mix_needs_importance(QN_MIX_Q2_K, "blk.0.ffn_up.weight", QN_TYPE_Q2_K));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes_choose_as_recorded),
        cmocka_unit_test(names_and_numbers_of_mixes),
        cmocka_unit_test(which_tensors_may_change),
        cmocka_unit_test(order_and_layers),
        cmocka_unit_test(experts_take_their_layer_from_the_name),
        cmocka_unit_test(importance_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
