/* weight.h: weights, for the device room and those below it. */
#ifndef QUERN_DEVICE_WEIGHT_H
#define QUERN_DEVICE_WEIGHT_H

#include "tensor/weight.h"

#endif
