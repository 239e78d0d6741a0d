/* order.c: the names and letters by which people put samplers in order. */
#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "sampler/sampler.h"

/* "a_b" is also found as "a-b" and "ab". */
static const struct {
    const char *name, *alias;
    char letter;
} kinds[QN_SAMPLER_KINDS] = {
    [QN_SAMPLER_DRY] = {"dry", NULL, 'd'},
    [QN_SAMPLER_TOP_K] = {"top_k", NULL, 'k'},
    [QN_SAMPLER_TYPICAL] = {"typ_p", "typ", 'y'},
    [QN_SAMPLER_TOP_P] = {"top_p", "nucleus", 'p'},
    [QN_SAMPLER_TOP_N_SIGMA] = {"top_n_sigma", NULL, 's'},
    [QN_SAMPLER_MIN_P] = {"min_p", NULL, 'm'},
    [QN_SAMPLER_TEMPERATURE] = {"temperature", "temp", 't'},
    [QN_SAMPLER_XTC] = {"xtc", NULL, 'x'},
    [QN_SAMPLER_INFILL] = {"infill", NULL, 'i'},
    [QN_SAMPLER_PENALTIES] = {"penalties", NULL, 'e'},
    [QN_SAMPLER_ADAPTIVE_P] = {"adaptive_p", NULL, 'a'},
};

const char *qn_sampler_kind_name(qn_sampler_kind kind)
{
    return (unsigned)kind < QN_SAMPLER_KINDS ? kinds[kind].name : NULL;
}

/* Whether text[0, n) is the name; `mark` stands where the name has '_', 0 for nothing. */
static bool is_name(const char *text, size_t n, const char *name, char mark)
{
    size_t i = 0;
    for (; *name; name++) {
        char want = *name == '_' ? mark : *name;
        if (want && (i >= n || tolower((unsigned char)text[i]) != want)) {
            return false;
        }
        i += want != 0;
    }
    return i == n;
}

/* The kind that a name means, or -1. */
static int find_name(const char *text, size_t n)
{
    for (int k = 0; k < QN_SAMPLER_KINDS; k++) {
        const char *name = kinds[k].name, *alias = kinds[k].alias;
        if (is_name(text, n, name, '_') || is_name(text, n, name, '-') ||
            is_name(text, n, name, 0) || (alias && is_name(text, n, alias, '_'))) {
            return k;
        }
    }
    return -1;
}

static int find_letter(char letter)
{
    for (int k = 0; k < QN_SAMPLER_KINDS; k++) {
        if (kinds[k].letter == letter) {
            return k;
        }
    }
    return -1;
}

/* One item of an order: a kind, or -1 for what is unknown. */
static qn_status add(qn_sampler_order *order, int kind, const char *text, size_t n,
                     const qn_log *log, qn_error *err)
{
    if (kind < 0) {
        qn__log_line(log, QN_LOG_WARN, "no sampler is called \"%.*s\"; it is passed over",
                     (int)(n < 64 ? n : 64), text);
        return QN_OK;
    }
    if (order->count >= QN_SAMPLER_ORDER_MAX) {
        return qn__error(err, QN_ERR_LIMIT, "an order has at most %d samplers",
                         QN_SAMPLER_ORDER_MAX);
    }
    order->kinds[order->count++] = (qn_sampler_kind)kind;
    return QN_OK;
}

qn_status qn_sampler_order_from_names(const char *names, const qn_log *log, qn_sampler_order *out,
                                      qn_error *err)
{
    qn_sampler_order order = {.count = 0};
    qn_status status = QN_OK;
    while (*names && status == QN_OK) {
        size_t n = strcspn(names, ";");
        if (n > 0) {
            status = add(&order, find_name(names, n), names, n, log, err);
        }
        names += n + (names[n] == ';');
    }
    if (status == QN_OK) {
        *out = order;
    }
    return status;
}

qn_status qn_sampler_order_from_letters(const char *letters, const qn_log *log,
                                        qn_sampler_order *out, qn_error *err)
{
    qn_sampler_order order = {.count = 0};
    qn_status status = QN_OK;
    for (; *letters && status == QN_OK; letters++) {
        status = add(&order, find_letter(*letters), letters, 1, log, err);
    }
    if (status == QN_OK) {
        *out = order;
    }
    return status;
}
