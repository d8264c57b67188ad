/* Texts as an array of the Arrow C data interface, which owns its memory. */
#ifndef STEPSCOPE_ARROW_H
#define STEPSCOPE_ARROW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

static void release_schema(struct ArrowSchema *schema) { schema->release = NULL; }

static void release_array(struct ArrowArray *array) {
    free(array->private_data); /* offsets and texts are one block */
    free(array->buffers);
    array->release = NULL;
}

/* Parts of the text, one for each row; an empty part becomes `empty`. Rows are `stride` bytes apart and begin with offset and size.
 * False where a part is outside of the text, or memory runs out. */
static bool gather_texts(const char *text, int64_t size, const char *rows, int64_t count, int64_t stride, const char *empty,
                         struct ArrowArray *array) {
    const size_t empty_size = strlen(empty);
    uint32_t part[2];
    size_t total = 0;
    for (int64_t row = 0; row < count; row++) {
        memcpy(part, rows + row * stride, sizeof part);
        if ((int64_t)part[0] + part[1] > size)
            return false;
        total += part[1] ? part[1] : empty_size;
    }
    const size_t head = ((size_t)count + 1) * sizeof(int64_t);
    char *block = malloc(head + total + 1);
    const void **buffers = malloc(3 * sizeof *buffers);
    if (block == NULL || buffers == NULL) {
        free(block);
        free(buffers);
        return false;
    }
    int64_t *offsets = (int64_t *)(void *)block;
    char *at = block + head;
    offsets[0] = 0;
    for (int64_t row = 0; row < count; row++) {
        memcpy(part, rows + row * stride, sizeof part);
        const size_t length = part[1] ? part[1] : empty_size;
        memcpy(at, part[1] ? text + part[0] : empty, length);
        at += length;
        offsets[row + 1] = at - block - (int64_t)head;
    }
    buffers[0] = NULL;
    buffers[1] = offsets;
    buffers[2] = block + head;
    *array = (struct ArrowArray){.length = count, .n_buffers = 3, .buffers = buffers, .release = release_array, .private_data = block};
    return true;
}

#endif
