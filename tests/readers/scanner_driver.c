/* Scans the texts of a file (each: its size in 8 bytes, then the text) under sanitizers, from memory of exactly their size. */
#include <stdio.h>

#include "scan.c"

static uint64_t seen;

static void read_texts(const Result *result, const char *text, int64_t size, int table, size_t stride, size_t offset) {
    struct ArrowSchema schema;
    struct ArrowArray array;
    const Rows *rows = &result->tables[table];
    if (rows->count == 0)
        return;
    if (stepscope_texts(text, size, (const char *)rows->rows + offset, rows->count, (int64_t)stride, "{}", &schema, &array) != SCANNED)
        abort(); /* every part is inside of the text */
    const int64_t *offsets = array.buffers[1];
    const char *letters = array.buffers[2];
    for (int64_t at = 0; at < offsets[array.length]; at++)
        seen += (unsigned char)letters[at];
    array.release(&array);
    schema.release(&schema);
}

static void scan(const char *bytes, size_t size) {
    char *text = malloc(size ? size : 1);
    memcpy(text, bytes, size);
    for (int from_digits = 0; from_digits < 2; from_digits++) {
        Result result;
        if (stepscope_scan((const uint8_t *)text, (int64_t)size, 7, from_digits, &result) != SCANNED)
            continue;
        read_texts(&result, text, (int64_t)size, SPANS, sizeof(SpanRow), offsetof(SpanRow, args_at));
        read_texts(&result, text, (int64_t)size, SPANS, sizeof(SpanRow), offsetof(SpanRow, id_at));
        read_texts(&result, text, (int64_t)size, PAIRS, sizeof(SpanRow), offsetof(SpanRow, args_at));
        read_texts(&result, text, (int64_t)size, FLOWS, sizeof(FlowRow), offsetof(FlowRow, id_at));
        for (int table = NAMES; table < TRACKS; table++)
            read_texts(&result, text, (int64_t)size, table, sizeof(TextRow), offsetof(TextRow, at));
        seen++;
        stepscope_free(&result);
    }
    free(text);
}

int main(int count, char **names) {
    FILE *file = count == 2 ? fopen(names[1], "rb") : NULL;
    uint64_t size, texts = 0;
    if (file == NULL)
        return 2;
    while (fread(&size, sizeof size, 1, file) == 1) {
        char *bytes = malloc(size ? size : 1);
        if (bytes == NULL || fread(bytes, 1, size, file) != size)
            return 2;
        scan(bytes, size);
        free(bytes);
        texts++;
    }
    printf("%llu texts, %llu\n", (unsigned long long)texts, (unsigned long long)seen);
    return 0;
}
