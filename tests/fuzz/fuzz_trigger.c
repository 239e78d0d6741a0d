/* fuzz_trigger.c: any bytes as a trigger and a text: kind, the expression up to a NUL, the text.
 * The search that goes on as the text grows must fire where one of all the text does. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

enum { TEXT_MAX = 64 };

/* False where the search gave up. */
static bool search(const qn_triggers *t, size_t *from, const char *text, size_t size, bool *fires,
                   size_t *start)
{
    return qn__triggers_search(t, from, text, size, fires, start, NULL) == QN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 2 ? memchr(data + 1, '\0', size - 1) : NULL;
    if (!end || size > 4096) {
        return 0;
    }
    const char *text = (const char *)end + 1;
    size_t n = size - (size_t)(end + 1 - data), from[2] = {0};
    n = n < TEXT_MAX ? n : TEXT_MAX;
    const qn_trigger trigger = {.kind = (qn_trigger_kind)(1 + data[0] % 3),
                                .text = (const char *)data + 1};
    qn_triggers *t = NULL;
    if (qn__triggers_make(&trigger, 1, &t, NULL) != QN_OK) {
        return 0;
    }
    bool fires = false, all = false;
    for (size_t k = 0; k <= n && !fires; k += 1 + data[0] / 3 % 4) {
        size_t start = 0, all_start = 0, zero[2] = {0};
        if (!search(t, from, text, k, &fires, &start) ||
            !search(t, zero, text, k, &all, &all_start)) {
            break;
        }
        if (fires != all || (fires && start != all_start)) {
            abort();
        }
    }
    qn__triggers_free(t);
    return 0;
}
