/* fuzz_importance.c: any bytes as an importance file, both forms. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/importance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("importance", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        abort();
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    qn_importance *imp = NULL;
    qn_error err;
    if (qn__importance_open(&imp, path, &err) == QN_OK) {
        size_t count;
        qn__importance_find(imp, "blk.0.attn_q.weight", &count);
        if (qn__importance_entries(imp) == 0) {
            abort();
        }
    }
    qn__importance_free(imp);
    close(fd);
    return 0;
}
