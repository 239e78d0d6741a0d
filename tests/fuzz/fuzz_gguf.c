/* fuzz_gguf.c: the reader on arbitrary bytes, from memory and through a stingy callback; what it
 * accepts is copied by the writer. */
#include <stdlib.h>
#include <string.h>

#include <quern/gguf.h>

typedef struct block {
    const uint8_t *bytes;
    size_t size;
} block;

static size_t read_block(void *user, void *buffer, uint64_t offset, size_t length)
{
    const block *b = user;
    if (offset >= b->size) {
        return 0;
    }
    size_t n = b->size - (size_t)offset < length ? b->size - (size_t)offset : length;
    memcpy(buffer, b->bytes + offset, n);
    return n;
}

static void use(const qn_gguf *g)
{
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        uint8_t last;
        if (qn_gguf_find_tensor(g, t->name) != t) {
            abort();
        }
        if (t->bytes > 0 && qn_gguf_read_tensor(g, t, t->bytes - 1, 1, &last, NULL) != QN_OK) {
            abort();
        }
    }
    qn_gguf_writer *w;
    if (qn_gguf_writer_new(&w, NULL) == QN_OK) {
        uint8_t *bytes = NULL;
        size_t size;
        qn_gguf_writer_copy(w, g);
        if (qn_gguf_writer_metadata(w, &bytes, &size, NULL) == QN_OK) {
            free(bytes);
        }
        qn_gguf_writer_free(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    block b = {data, size};
    qn_gguf *memory = NULL, *callback = NULL;
    qn_status status = qn_gguf_open_memory(&memory, data, size, "fuzz", NULL, NULL);
    if (qn_gguf_open_callback(&callback, read_block, &b, size, 7, "fuzz", NULL, NULL) != status) {
        abort();
    }
    if (status == QN_OK) {
        use(memory);
        use(callback);
    }
    qn_gguf_free(memory);
    qn_gguf_free(callback);
    return 0;
}
