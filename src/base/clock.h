/* clock.h: time for measuring, never for results. */
#ifndef QUERN_BASE_CLOCK_H
#define QUERN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of a clock that only goes forward. */
uint64_t qn__clock_ns(void);

#endif
