/* clock.c: POSIX clock. */
#define _GNU_SOURCE
#include "base/clock.h"

#include <time.h>

uint64_t qn__clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}
