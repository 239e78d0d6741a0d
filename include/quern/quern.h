/*
 * quern/quern.h: the whole public interface. In the order in which a token passes through it:
 * a model file is opened (gguf.h) and loaded (model.h), a text becomes tokens (vocab.h), a context
 * computes them (context.h), a sampler picks the next (sampler.h).
 */
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <quern/base.h>
#include <quern/context.h>
#include <quern/quantize.h>
#include <quern/sampler.h>
#include <quern/type.h>

#endif
