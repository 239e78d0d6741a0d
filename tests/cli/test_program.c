/* test_program.c: the program on small models: run, logits, bench; messages and exit codes. */
#define _GNU_SOURCE
#include "support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "support/tiny_model.h"

/* ---- Running the program ---- */

typedef struct outcome {
    int code;
    char *out, *err;
    size_t out_size;
} outcome;

static const char *model; /* a small llama, made for the whole group */

static const char *program(void)
{
    const char *path = getenv("QUERN_PROGRAM");
    if (!path) {
        fail_msg("QUERN_PROGRAM does not name the program");
    }
    return path;
}

/* Starts the program; `args` ends with NULL; standard input is the file `input`, or empty. */
static pid_t start(const char *const *args, const char *input, const char *out, const char *err)
{
    const char *argv[64] = {program()};
    for (size_t i = 0; args[i]; i++) {
        assert_true(i < 60);
        argv[i + 1] = args[i];
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("HOME", "/nowhere", 1);
        unsetenv("XDG_CONFIG_HOME");
        dup2(open(input ? input : "/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
        dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static outcome collect(pid_t pid, const char *out, const char *err)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    size_t err_size;
    outcome o = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
    o.out = (char *)qn_test_read(out, &o.out_size);
    o.err = (char *)qn_test_read(err, &err_size);
    unlink(out);
    unlink(err);
    return o;
}

static outcome run_with_input(const char *input, const char *const *args)
{
    const char *out = qn_test_temporary(".out"), *err = qn_test_temporary(".err");
    return collect(start(args, input, out, err), out, err);
}

#define RUN(...) run_with_input(NULL, (const char *const[]){__VA_ARGS__, NULL})

static void outcome_free(outcome *o)
{
    free(o->out);
    free(o->err);
}

static void assert_code(const outcome *o, int code)
{
    if (o->code != code) {
        fail_msg("exit code %d, not %d; stderr: %s", o->code, code, o->err);
    }
}

static void assert_says(const outcome *o, const char *text)
{
    if (!strstr(o->err, text)) {
        fail_msg("no \"%s\" in: %s", text, o->err);
    }
}

/* Both write the same bytes. */
static void assert_same(outcome a, outcome b)
{
    assert_code(&a, 0);
    assert_code(&b, 0);
    assert_int_equal(a.out_size, b.out_size);
    assert_memory_equal(a.out, b.out, a.out_size);
    outcome_free(&a);
    outcome_free(&b);
}

static const char *write_file(const char *bytes, size_t n)
{
    const char *path = qn_test_temporary(".txt");
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    return path;
}

/* ---- run ---- */

static void text_does_not_depend_on_how_it_is_computed(void **state)
{
    (void)state;
#define TEXT "run", "-m", model, "-p", "The mill grinds", "-n", "24", "--ignore-eos"
    assert_same(RUN(TEXT, "-s", "7"), RUN(TEXT, "-s", "7", "-t", "1", "-ub", "1"));
    assert_same(RUN(TEXT, "-s", "7"), RUN(TEXT, "-s", "7", "-t", "3", "-b", "3", "--no-mmap"));
    assert_same(RUN(TEXT, "--temp", "0"), RUN(TEXT, "--temp", "0", "--isa", "scalar"));
    for (int i = 0; i < 3; i++) { /* inside the graph or outside, or its end outside */
        static const char *const seeds[] = {"7", "8", "9"};
        assert_same(RUN(TEXT, "-s", seeds[i]), RUN(TEXT, "-s", seeds[i], "--no-backend-sampling"));
        assert_same(RUN("run", "-m", model, "-p", "ab", "-n", "24", "-s", seeds[i], "-bs"),
                    RUN("run", "-m", model, "-p", "ab", "-n", "24", "-s", seeds[i],
                        "--no-backend-sampling"));
    }
    outcome random = RUN(TEXT);
    const char *printed = strstr(random.err, "seed: ");
    assert_non_null(printed);
    char seed[32];
    snprintf(seed, sizeof seed, "%lu", strtoul(printed + 6, NULL, 10));
    assert_same(random, RUN(TEXT, "-s", seed));
#undef TEXT
}

static void the_prompt_is_shown_or_not(void **state)
{
    (void)state;
    outcome with = RUN("run", "-m", model, "-p", "ab\\n", "-n", "8", "--temp", "0");
    outcome without = RUN("run", "-m", model, "-p", "ab\\n", "-n", "8", "--temp", "0",
                          "--no-display-prompt", "--no-show-timings");
    assert_code(&with, 0);
    assert_int_equal(with.out_size, without.out_size + 3);
    assert_memory_equal(with.out, "ab\n", 3);
    assert_memory_equal(with.out + 3, without.out, without.out_size);
    assert_says(&with, "tokens per second");
    assert_null(strstr(without.err, "tokens per second"));
    outcome_free(&with);
    outcome_free(&without);
    outcome none = RUN("run", "-m", model, "-p", "ab", "-n", "0");
    assert_code(&none, 0);
    assert_string_equal(none.out, "ab");
    outcome_free(&none);
}

static void prompts_come_from_files_and_standard_input(void **state)
{
    (void)state;
    const char *path = write_file("one\\ttwo\n", 9);
    const char *const by_input[] = {"run", "-m", model, "-n", "6", "--temp", "0", NULL};
    assert_same(RUN("run", "-m", model, "-n", "6", "--temp", "0", "-f", path),
                RUN("run", "-m", model, "-n", "6", "--temp", "0", "-p", "one\ttwo"));
    assert_same(run_with_input(path, by_input),
                RUN("run", "-m", model, "-n", "6", "--temp", "0", "-p", "one\ttwo"));
    outcome raw = RUN("run", "-m", model, "-n", "0", "-bf", path);
    assert_string_equal(raw.out, "one\\ttwo\n");
    outcome_free(&raw);
    outcome plain = RUN("run", "-m", model, "-n", "0", "-f", path, "--no-escape");
    assert_string_equal(plain.out, "one\\ttwo");
    outcome_free(&plain);
    outcome listed = RUN("run", "-m", model, "-n", "0", "-p", "xy", "--verbose-prompt");
    assert_says(&listed, "tokens\n");
    assert_says(&listed, " -> '");
    outcome_free(&listed);
    unlink(path);
}

static void a_full_context_stops_or_shifts(void **state)
{
    (void)state;
    outcome full = RUN("run", "-m", model, "-p", "abc", "-c", "256", "--ignore-eos", "-s", "1");
    assert_code(&full, 0);
    assert_says(&full, "context full (256 tokens)");
    outcome_free(&full);
    outcome shifted = RUN("run", "-m", model, "-p", "abc", "-c", "256", "--ignore-eos", "-s", "1",
                          "--context-shift", "--keep", "2", "-n", "400");
    assert_code(&shifted, 0);
    assert_says(&shifted, "/   400 runs");
    outcome_free(&shifted);
    char text[2048];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    outcome large = RUN("run", "-m", model, "-p", text, "-c", "256");
    assert_code(&large, 1);
    assert_says(&large, "the prompt is too long");
    outcome_free(&large);
}

static void a_prompt_cache_gives_the_same_text(void **state)
{
    (void)state;
    const char *cache = qn_test_temporary(".state");
#define TEXT                                                                                       \
    "run", "-m", model, "-p", "grain and stone and water", "-n", "12", "--ignore-eos", "-s", "5"
    outcome plain = RUN(TEXT);
    outcome first = RUN(TEXT, "--prompt-cache", cache);
    outcome second = RUN(TEXT, "--prompt-cache", cache, "--prompt-cache-ro");
    assert_says(&second, "are known");
    assert_null(strstr(second.err, "cache: 0 of"));
    assert_string_equal(plain.out, first.out);
    assert_same(first, second);
    outcome_free(&plain);
#undef TEXT
    outcome damaged = RUN("run", "-m", model, "-p", "x", "--prompt-cache", model);
    assert_code(&damaged, 1);
    outcome_free(&damaged);
    unlink(cache);
}

static void interrupts_end_a_run(void **state)
{
    (void)state;
    const char *out = qn_test_temporary(".out"), *err = qn_test_temporary(".err");
    const char *const args[] = {"run",
                                "-m",
                                model,
                                "-p",
                                "abc",
                                "--ignore-eos",
                                "-n",
                                "1000000",
                                "-c",
                                "256",
                                "--context-shift",
                                NULL};
    pid_t pid = start(args, NULL, out, err);
    for (int i = 0; i < 500; i++) { /* until text comes */
        usleep(20000);
        FILE *f = fopen(out, "rb");
        char some[64];
        size_t n = f ? fread(some, 1, sizeof some, f) : 0;
        if (f) {
            fclose(f);
        }
        if (n > 8) {
            break;
        }
    }
    kill(pid, SIGINT);
    outcome o = collect(pid, out, err);
    assert_code(&o, 130);
    assert_says(&o, "total time");
    outcome_free(&o);
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    const char *text = write_file("not a model", 11);
    const struct {
        const char *args[8];
        const char *message;
    } cases[] = {
        {{"run", "-p", "x"}, "--model is required"},
        {{"run", "-m", "no/such.gguf", "-p", "x"}, "no/such.gguf: cannot open"},
        {{"run", "-m", text, "-p", "x"}, "not a GGUF file"},
        {{"run", "-m", model, "-f", "no/such.txt"}, "no/such.txt"},
        {{"run", "-m", model, "-p", "x", "-f", "y"}, "only one of"},
        {{"run", "-m", model, "-p", "x", "-t", "many"}, "\"many\" is not a whole number"},
        {{"run", "-m", model, "-p", "x", "-ctk", "q9"}, "is none of: f32 f16 bf16 q8_0"},
        {{"run", "-m", model, "-p", "x", "--isa", "z80"}, "z80"},
        {{"run", "-m", model, "-p", "x", "-C", "0xg"}, "no mask of processors"},
        {{"logits", "-m", model, "-p", "x"}, "give -o FILE or --top N"},
        {{"logits", "-m", model, "-p", "x", "-o", "/nowhere/x"}, "error: /nowhere/x: No such file"},
        {{"logits", "-m", model, "-p", "x", "-o", "/dev/full"}, "error: /dev/full: No space left"},
        {{"logits", "-m", model, "--top", "1", "--ids", "1,99999"}, "99999 is no token"},
        {{"logits", "-m", model, "--top", "1", "--ids", "1,x"}, "no list of numbers"},
        {{"bench", "-m", model, "-pg", "7"}, "is no pair"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome o = run_with_input(NULL, cases[i].args);
        assert_code(&o, 1);
        assert_says(&o, cases[i].message);
        outcome_free(&o);
    }
    unlink(text);
}

/* ---- logits ---- */

typedef struct rows {
    int32_t n, width;
    const float *values;
    uint8_t *bytes;
} rows;

static rows read_rows(const char *path)
{
    rows r;
    size_t size;
    r.bytes = qn_test_read(path, &size);
    assert_true(size >= 8);
    memcpy(&r.n, r.bytes, 4);
    memcpy(&r.width, r.bytes + 4, 4);
    assert_int_equal(size, 8 + 4 * (size_t)r.n * (size_t)r.width);
    r.values = (const float *)(const void *)(r.bytes + 8);
    unlink(path);
    return r;
}

static void logits_are_the_same_for_every_cut(void **state)
{
    (void)state;
    const char *a = qn_test_temporary(".logits"), *b = qn_test_temporary(".logits");
    outcome o = RUN("logits", "-m", model, "--ids", "5,17,99,3-8", "-o", a);
    assert_code(&o, 0);
    outcome_free(&o);
    rows all = read_rows(a);
    assert_int_equal(all.n, 9);
    assert_int_equal(all.width, QN_TEST_TINY_VOCAB);
    o = RUN("logits", "-m", model, "--ids", "5,17,99,3-8", "-o", b, "-b", "2", "-t", "1");
    assert_code(&o, 0);
    outcome_free(&o);
    rows cut = read_rows(b);
    assert_int_equal(cut.n, all.n);
    assert_memory_equal(cut.values, all.values, 4 * 9 * QN_TEST_TINY_VOCAB);
    free(cut.bytes);
    o = RUN("logits", "-m", model, "--ids", "5,17,99,3-8", "-o", b, "--rows", "last");
    assert_code(&o, 0);
    outcome_free(&o);
    rows last = read_rows(b);
    assert_int_equal(last.n, 1);
    assert_memory_equal(last.values, all.values + 8 * QN_TEST_TINY_VOCAB, 4 * QN_TEST_TINY_VOCAB);
    free(last.bytes);
    free(all.bytes);
}

static void the_best_candidates_are_listed(void **state)
{
    (void)state;
    outcome o = RUN("logits", "-m", model, "-p", "mill", "--top", "3", "--json", "--rows", "last");
    assert_code(&o, 0);
    json_error_t error;
    json_t *list = json_loads(o.out, 0, &error);
    if (!list) {
        fail_msg("%s in: %s", error.text, o.out);
    }
    assert_int_equal(json_array_size(list), 1);
    json_t *top = json_object_get(json_array_get(list, 0), "top");
    assert_int_equal(json_array_size(top), 3);
    double first = json_number_value(json_object_get(json_array_get(top, 0), "logit"));
    double second = json_number_value(json_object_get(json_array_get(top, 1), "logit"));
    double logprob = json_number_value(json_object_get(json_array_get(top, 0), "logprob"));
    assert_true(first >= second && logprob <= 0);
    json_decref(list);
    outcome_free(&o);
}

/* ---- bench ---- */

static void bench_forms_agree(void **state)
{
    (void)state;
#define TESTS                                                                                      \
    "bench", "-m", model, "-p", "8", "-n", "2,4", "-np", "1-2", "-d", "0,3", "-r", "2",            \
        "--no-limits", "-o"
    outcome o = RUN(TESTS, "json");
    assert_code(&o, 0);
    json_error_t error;
    json_t *list = json_loads(o.out, 0, &error);
    if (!list) {
        fail_msg("line %d: %s in: %s", error.line, error.text, o.out);
    }
    assert_int_equal(json_array_size(list), 12);
    json_t *one = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(one, "n_prompt")), 8);
    assert_int_equal(json_array_size(json_object_get(one, "samples_ns")), 2);
    assert_true(json_real_value(json_object_get(one, "avg_ts")) > 0);
    assert_true(json_is_false(json_object_get(one, "embeddings")));
    json_decref(list);
    outcome_free(&o);
    const struct {
        const char *format;
        int lines;
    } forms[] = {{"csv", 13}, {"jsonl", 12}, {"md", 16}};
    for (size_t i = 0; i < 3; i++) {
        o = RUN(TESTS, forms[i].format);
        assert_code(&o, 0);
        int lines = 0;
        for (const char *c = o.out; *c; c++) {
            lines += *c == '\n';
        }
        assert_int_equal(lines, forms[i].lines);
        outcome_free(&o);
    }
#undef TESTS
}

static void bench_tells_the_share_of_the_limit(void **state)
{
    (void)state;
    outcome o = RUN("bench", "-m", model, "-p", "8", "-n", "0", "-r", "1", "-o", "md", "-oe",
                    "jsonl", "-pg", "4,4");
    assert_code(&o, 0);
    assert_non_null(strstr(o.out, "| model "));
    assert_non_null(strstr(o.out, "| -----"));
    assert_non_null(strstr(o.out, "pp4+tg4"));
    assert_non_null(strstr(o.out, "% of the limit (read "));
    assert_says(&o, "\"share_of_peak\": ");
    outcome_free(&o);
}

/* ---- tokenize ---- */

static void tokens_are_shown(void **state)
{
    (void)state;
    outcome o = RUN("tokenize", "-m", model, "-p", "ab\\n", "--show-count");
    assert_code(&o, 0);
    assert_non_null(strstr(o.out, " -> '"));
    assert_non_null(strstr(o.out, "Total number of tokens: "));
    outcome_free(&o);
    o = RUN("tokenize", "-m", model, "-p", "ab", "--ids", "--no-bos");
    assert_code(&o, 0);
    json_t *list = json_loads(o.out, 0, NULL);
    assert_true(json_array_size(list) >= 1);
    json_decref(list);
    outcome_free(&o);
    o = RUN("tokenize", "-m", model, "-p", "ab", "--stdin");
    assert_code(&o, 1);
    assert_says(&o, "exactly one of");
    outcome_free(&o);
    o = RUN("tokenize", "-p", "ab");
    assert_code(&o, 1);
    assert_says(&o, "--model is required");
    outcome_free(&o);
}

/* ---- devices ---- */

static void devices_are_listed(void **state)
{
    (void)state;
    outcome o = RUN("devices", "--json");
    assert_code(&o, 0);
    json_t *list = json_loads(o.out, 0, NULL);
    assert_true(json_array_size(list) >= 1);
    json_t *cpu = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(cpu, "name")), "cpu");
    assert_true(json_integer_value(json_object_get(cpu, "n_cores")) >= 1);
    assert_non_null(strstr(json_string_value(json_object_get(cpu, "isas")), "scalar"));
    json_decref(list);
    outcome_free(&o);
    o = RUN("devices");
    assert_code(&o, 0);
    assert_non_null(strstr(o.out, "instruction sets: scalar"));
    outcome_free(&o);
}

/* ---- The group ---- */

static int make_model(void **state)
{
    (void)state;
    static char path[512];
    snprintf(path, sizeof path, "%s", qn_test_temporary(".gguf"));
    qn_test_tiny_write(path, QN_TEST_TINY_LLAMA, QN_TYPE_Q8_0, 1);
    model = path;
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_does_not_depend_on_how_it_is_computed),
        cmocka_unit_test(the_prompt_is_shown_or_not),
        cmocka_unit_test(prompts_come_from_files_and_standard_input),
        cmocka_unit_test(a_full_context_stops_or_shifts),
        cmocka_unit_test(a_prompt_cache_gives_the_same_text),
        cmocka_unit_test(interrupts_end_a_run),
        cmocka_unit_test(wrong_calls_are_named),
        cmocka_unit_test(logits_are_the_same_for_every_cut),
        cmocka_unit_test(the_best_candidates_are_listed),
        cmocka_unit_test(bench_forms_agree),
        cmocka_unit_test(bench_tells_the_share_of_the_limit),
        cmocka_unit_test(tokens_are_shown),
        cmocka_unit_test(devices_are_listed),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
