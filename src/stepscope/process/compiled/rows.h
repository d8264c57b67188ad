/* What a scan fills: rows of fixed size, and the distinct texts that they refer to by number. */
#ifndef STEPSCOPE_ROWS_H
#define STEPSCOPE_ROWS_H

#include <stdlib.h>

#include "json.h"

#define MISSING INT64_MIN
#define NO_TEXT UINT32_MAX

typedef struct {
    int64_t start, duration, correlation, external, flops, bytes;
    uint32_t category, name, track, shapes, dtypes, module;
    uint32_t args_at, args_size, id_at, id_size;
    uint32_t number; /* of the event in the array */
    uint8_t phase, unused[3];
} SpanRow;

typedef struct {
    int64_t at;
    uint32_t category, track, id_at, id_size;
    uint8_t phase, unused[7];
} FlowRow;

typedef struct {
    uint64_t address;
    int64_t at, bytes, allocated, reserved;
    int32_t device_type, device_id;
    uint32_t track, unused;
} MemoryRow;

/* A time that the caller computes from its text: row and field (0: start, 1: duration) of a table. */
typedef struct {
    uint32_t table, row, field, at, size;
} TimeRow;

/* An event without a time (0), or a complete event without a duration (1). */
typedef struct {
    uint32_t number, kind;
} OddRow;

typedef struct {
    uint32_t at, size, escaped;
} TextRow;

typedef struct {
    uint32_t pid_at, pid_size, tid_at, tid_size, role_at, role_size;
    uint8_t role, pid_quoted, tid_quoted, escaped; /* role: 0 none, 1 annotation, 2 async with the text of the role */
} TrackRow;

/* Rows that grow. The caller reads `rows` and `count`. */
typedef struct {
    void *rows;
    int64_t count, capacity;
} Rows;

/* A new row at the end; NULL where memory runs out. */
static inline void *add_row(Rows *rows, size_t size) {
    if (rows->count == rows->capacity) {
        const int64_t capacity = rows->capacity ? rows->capacity * 2 : 256;
        void *moved = realloc(rows->rows, (size_t)capacity * size);
        if (moved == NULL)
            return NULL;
        rows->rows = moved;
        rows->capacity = capacity;
    }
    return (char *)rows->rows + (size_t)rows->count++ * size;
}

/* A hash table of numbers of rows. */
typedef struct {
    uint32_t *slots; /* number of the row + 1; 0 is free */
    uint32_t *hashes;
    uint32_t mask, seed;
} Index;

static inline uint32_t hash_bytes(uint32_t seed, const uint8_t *bytes, uint32_t size) {
    uint64_t hash = (seed ^ (uint64_t)size) * 0x9E3779B97F4A7C15u, word;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    word = 0;
    if (size)
        memcpy(&word, bytes, size);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Room for one more row: at most half of the slots are taken. */
static inline bool grow_index(Index *index, int64_t rows) {
    if (index->slots != NULL && (uint64_t)rows * 2 <= index->mask)
        return true;
    const uint64_t size = index->slots ? ((uint64_t)index->mask + 1) * 4 : 256;
    if (size > UINT32_MAX / 2)
        return false;
    Index larger = {calloc(size, sizeof(uint32_t)), malloc(size * sizeof(uint32_t)), (uint32_t)size - 1, index->seed};
    if (larger.slots == NULL || larger.hashes == NULL) {
        free(larger.slots);
        free(larger.hashes);
        return false;
    }
    for (uint32_t old = 0; index->slots != NULL && old <= index->mask; old++) {
        if (index->slots[old] == 0)
            continue;
        uint32_t slot = index->hashes[old] & larger.mask;
        while (larger.slots[slot] != 0)
            slot = (slot + 1) & larger.mask;
        larger.slots[slot] = index->slots[old];
        larger.hashes[slot] = index->hashes[old];
    }
    free(index->slots);
    free(index->hashes);
    *index = larger;
    return true;
}

static inline void free_index(Index *index) {
    free(index->slots);
    free(index->hashes);
    *index = (Index){0};
}

static inline bool same_bytes(const uint8_t *start, uint32_t at, uint32_t size, uint32_t other, uint32_t other_size) {
    return size == other_size && memcmp(start + at, start + other, size) == 0;
}

/* The number of a text among the distinct ones. */
static inline bool number_text(Rows *rows, Index *index, const uint8_t *start, const Slice *slice, uint32_t *number) {
    if (!grow_index(index, rows->count))
        return false;
    const uint32_t hash = hash_bytes(index->seed, start + slice->at, slice->size);
    const TextRow *texts = rows->rows;
    uint32_t slot = hash & index->mask;
    for (; index->slots[slot] != 0; slot = (slot + 1) & index->mask) {
        const TextRow *text = &texts[index->slots[slot] - 1];
        if (index->hashes[slot] == hash && same_bytes(start, text->at, text->size, slice->at, slice->size)) {
            *number = index->slots[slot] - 1;
            return true;
        }
    }
    TextRow *row = add_row(rows, sizeof(TextRow));
    if (row == NULL)
        return false;
    *row = (TextRow){slice->at, slice->size, slice->escaped};
    index->slots[slot] = (uint32_t)rows->count;
    index->hashes[slot] = hash;
    *number = (uint32_t)rows->count - 1;
    return true;
}

static inline bool same_track(const uint8_t *start, const TrackRow *one, const TrackRow *other) {
    return one->role == other->role && one->pid_quoted == other->pid_quoted && one->tid_quoted == other->tid_quoted &&
           same_bytes(start, one->pid_at, one->pid_size, other->pid_at, other->pid_size) &&
           same_bytes(start, one->tid_at, one->tid_size, other->tid_at, other->tid_size) &&
           same_bytes(start, one->role_at, one->role_size, other->role_at, other->role_size);
}

/* The number of a track among the distinct ones. */
static inline bool number_track(Rows *rows, Index *index, const uint8_t *start, const TrackRow *track, uint32_t *number) {
    if (!grow_index(index, rows->count))
        return false;
    const uint32_t hash = hash_bytes(index->seed, start + track->pid_at, track->pid_size) ^
                          3 * hash_bytes(index->seed, start + track->tid_at, track->tid_size) ^
                          5 * hash_bytes(index->seed, start + track->role_at, track->role_size) ^ track->role;
    const TrackRow *tracks = rows->rows;
    uint32_t slot = hash & index->mask;
    for (; index->slots[slot] != 0; slot = (slot + 1) & index->mask)
        if (index->hashes[slot] == hash && same_track(start, &tracks[index->slots[slot] - 1], track)) {
            *number = index->slots[slot] - 1;
            return true;
        }
    TrackRow *row = add_row(rows, sizeof(TrackRow));
    if (row == NULL)
        return false;
    *row = *track;
    index->slots[slot] = (uint32_t)rows->count;
    index->hashes[slot] = hash;
    *number = (uint32_t)rows->count - 1;
    return true;
}

#endif
