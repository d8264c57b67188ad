/* Chrome trace events, from JSON text to rows, without an object for each event.
 *
 * Ordinary text only: what is not JSON, or has values of unusual types, is left to the Python path, which reports what it finds. */
#include "arrow.h"
#include "values.h"

#define EXPORTED __attribute__((visibility("default")))

#ifndef STEPSCOPE_VERSION
#define STEPSCOPE_VERSION 0
#endif

enum { SCANNED, UNUSUAL, OUT_OF_MEMORY, OTHER_PRECISION };
enum { SPANS, PAIRS, OTHERS, FLOWS, MEMORY, TIMES, ODD, NAMES, CATEGORIES, SHAPES, DTYPES, MODULES, TRACKS, TABLES };
enum { DICTIONARIES = TABLES - NAMES };

typedef struct {
    Rows tables[TABLES];
    int64_t entries; /* of the array */
    int64_t rest;    /* where text follows the array */
    int64_t stopped; /* where the scan ended */
    Precision precision;
} Result;

typedef struct {
    Text text;
    Result *result;
    Index indices[DICTIONARIES];
    bool no_memory;
} Scan;

typedef struct {
    Slice phase, name, category, pid, tid, id, args, shapes, dtypes, module;
    Time start, duration;
    bool has_start, has_duration, has_shapes, has_dtypes, has_module;
    int64_t external, old_external, correlation, flops, bytes;
    bool bad_memory; /* an argument of a memory event that is unusable */
    uint64_t address;
    int64_t memory_bytes, device_type, device_id, allocated, reserved;
} Event;

static inline bool is_text(const Scan *scan, const Slice *slice, const char *text, uint32_t size) {
    return slice->size == size && memcmp(scan->text.start + slice->at, text, size) == 0;
}

static inline bool once(uint32_t *seen, int key) {
    const uint32_t bit = UINT32_C(1) << key;
    const bool first = !(*seen & bit);
    *seen |= bit;
    return first;
}

/* A value as it is written. */
static bool read_raw(Text *text, Slice *slice) {
    const uint8_t *first = text->at;
    if (!skip_value(text))
        return false;
    *slice = (Slice){(uint32_t)(first - text->start), (uint32_t)(text->at - first), false, false};
    return true;
}

/* A number of a memory event. Other events may have anything under the same key. */
static bool read_memory_number(Text *text, Event *event, int64_t low, int64_t high, int64_t *value) {
    const uint8_t *first = text->at;
    if (read_integer(text, low, high, value))
        return true;
    event->bad_memory = true;
    text->at = first;
    return skip_value(text);
}

static bool read_memory_address(Text *text, Event *event) {
    const uint8_t *first = text->at;
    if (read_address(text, &event->address))
        return true;
    event->bad_memory = true;
    text->at = first;
    return skip_value(text);
}

static bool read_argument(Scan *scan, Event *event, const Slice *key, uint32_t *seen) {
    const int64_t size = INT64_C(1) << 53, count = INT64_C(1) << 60;
    Text *text = &scan->text;
    if (key->escaped)
        return false;
#define IS(word) is_text(scan, key, word, sizeof(word) - 1)
    switch (key->size) {
    case 4:
        if (IS("Addr"))
            return once(seen, 0) && read_memory_address(text, event);
        break;
    case 5:
        if (IS("bytes"))
            return once(seen, 1) && read_integer(text, -1, count, &event->bytes);
        if (IS("flops"))
            return once(seen, 2) && read_integer(text, -1, count, &event->flops);
        if (IS("Bytes"))
            return once(seen, 3) && read_memory_number(text, event, -size, size, &event->memory_bytes);
        break;
    case 9:
        if (IS("Device Id"))
            return once(seen, 4) && read_memory_number(text, event, INT32_MIN, INT32_MAX, &event->device_id);
        break;
    case 10:
        if (IS("Input Dims"))
            return once(seen, 5) && (event->has_shapes = read_raw(text, &event->shapes));
        if (IS("Input type"))
            return once(seen, 6) && (event->has_dtypes = read_raw(text, &event->dtypes));
        break;
    case 11:
        if (IS("External id")) /* a smaller one than -1 is rare, and the larger of two counts */
            return once(seen, 7) && read_integer(text, -1, INT64_MAX, &event->external);
        if (IS("external id"))
            return once(seen, 8) && read_integer(text, -1, INT64_MAX, &event->old_external);
        if (IS("correlation"))
            return once(seen, 9) && read_integer(text, -INT64_MAX, INT64_MAX, &event->correlation);
        if (IS("Device Type"))
            return once(seen, 10) && read_memory_number(text, event, INT32_MIN, INT32_MAX, &event->device_type);
        break;
    case 14:
        if (IS("Total Reserved"))
            return once(seen, 11) && read_memory_number(text, event, -size, size, &event->reserved);
        break;
    case 15:
        if (IS("Total Allocated"))
            return once(seen, 12) && read_memory_number(text, event, -size, size, &event->allocated);
        break;
    case 16:
        if (IS("Module Hierarchy"))
            return once(seen, 13) && (event->has_module = read_string(text, &event->module));
        event->bad_memory |= IS("stepscope device");
        break;
    }
    return skip_value(text);
}

/* The next entry of an object or array that is open: whether there is one; `*right` is false where neither it nor the end follows. */
static inline bool next_entry(Text *text, uint8_t close, bool first, bool *right) {
    skip_blanks(text);
    if (skip_byte(text, close)) {
        *right = true;
        return false;
    }
    *right = first || skip_byte(text, ',');
    return *right;
}

static bool read_args(Scan *scan, Event *event) {
    Text *text = &scan->text;
    const uint8_t *begin = text->at;
    uint32_t seen = 0;
    bool right;
    Slice key;
    if (!skip_byte(text, '{'))
        return false;
    for (bool first = true; next_entry(text, '}', first, &right); first = false)
        if (!read_key(text, &key) || !read_argument(scan, event, &key, &seen))
            return false;
    event->args = (Slice){(uint32_t)(begin - text->start), (uint32_t)(text->at - begin), false, false};
    return right;
}

static bool read_field(Scan *scan, Event *event, const Slice *key, uint32_t *seen) {
    Text *text = &scan->text;
    Precision *precision = &scan->result->precision;
    if (key->escaped)
        return false;
    switch (key->size) {
    case 2:
        if (IS("ph"))
            return once(seen, 0) && read_string(text, &event->phase) && !event->phase.escaped;
        if (IS("ts"))
            return once(seen, 1) && (event->has_start = read_time(text, 0, &event->start, precision));
        if (IS("id"))
            return once(seen, 2) && read_identifier(text, &event->id) && !event->id.escaped;
        if (IS("bp")) {
            Slice unused;
            return once(seen, 3) && read_string(text, &unused);
        }
        break;
    case 3:
        if (IS("dur"))
            return once(seen, 4) && (event->has_duration = read_time(text, 1, &event->duration, precision));
        if (IS("cat"))
            return once(seen, 5) && read_string(text, &event->category) && !event->category.escaped;
        if (IS("pid"))
            return once(seen, 6) && read_identifier(text, &event->pid);
        if (IS("tid"))
            return once(seen, 7) && read_identifier(text, &event->tid);
        break;
    case 4:
        if (IS("name"))
            return once(seen, 8) && read_string(text, &event->name);
        if (IS("args"))
            return once(seen, 9) && read_args(scan, event);
        break;
    case 9:
        if (IS("stepscope"))
            return false;
        break;
    }
#undef IS
    return skip_value(text);
}

static bool read_event(Scan *scan, Event *event) {
    const Slice empty = {0, 0, false, true};
    Text *text = &scan->text;
    uint32_t seen = 0;
    bool right;
    Slice key;
    memset(event, 0, sizeof *event);
    event->phase = event->name = event->category = event->pid = event->tid = event->id = empty;
    event->external = event->old_external = event->correlation = event->flops = event->bytes = -1;
    event->allocated = event->reserved = event->device_id = -1;
    if (!skip_byte(text, '{'))
        return false;
    for (bool first = true; next_entry(text, '}', first, &right); first = false)
        if (!read_key(text, &key) || !read_field(scan, event, &key, &seen))
            return false;
    return right;
}

static void *add(Scan *scan, int table, size_t size) {
    void *row = add_row(&scan->result->tables[table], size);
    scan->no_memory |= row == NULL;
    return row;
}

static uint32_t number(Scan *scan, int dictionary, const Slice *slice) {
    uint32_t code = 0;
    if (!number_text(&scan->result->tables[dictionary], &scan->indices[dictionary - NAMES], scan->text.start, slice, &code))
        scan->no_memory = true;
    return code;
}

static uint32_t find_track(Scan *scan, const Event *event, uint8_t phase) {
    TrackRow track = {event->pid.at, event->pid.size, event->tid.at, event->tid.size, 0, 0, 0, event->pid.quoted, event->tid.quoted,
                      event->pid.escaped || event->tid.escaped};
    if (phase != 0 && strchr("bneSTFp", phase) != NULL) { /* an async range belongs to no thread */
        const Slice *role = event->category.size ? &event->category : &event->name;
        track = (TrackRow){event->pid.at, event->pid.size, 0, 0, role->at, role->size, 2, event->pid.quoted, true,
                           event->pid.escaped || role->escaped};
    } else if (is_text(scan, &event->category, "user_annotation", 15) || is_text(scan, &event->category, "gpu_user_annotation", 19)) {
        track.role = 1;
    }
    uint32_t code = 0;
    if (!number_track(&scan->result->tables[TRACKS], &scan->indices[TRACKS - NAMES], scan->text.start, &track, &code))
        scan->no_memory = true;
    return code;
}

/* A time that the caller computes, for the last row of a table. */
static void defer_time(Scan *scan, int table, uint32_t field, const Time *time) {
    TimeRow *row = time->size ? add(scan, TIMES, sizeof *row) : NULL;
    if (row != NULL)
        *row = (TimeRow){(uint32_t)table, (uint32_t)scan->result->tables[table].count - 1, field, time->at, time->size};
}

static void add_odd(Scan *scan, uint32_t kind) {
    OddRow *row = add(scan, ODD, sizeof *row);
    if (row != NULL)
        *row = (OddRow){(uint32_t)scan->result->entries, kind};
}

static void add_flow(Scan *scan, const Event *event, uint8_t phase, uint32_t track) {
    FlowRow *row = add(scan, FLOWS, sizeof *row);
    if (row != NULL)
        *row = (FlowRow){event->start.ns, number(scan, CATEGORIES, &event->category), track, event->id.at, event->id.size, phase, {0}};
    defer_time(scan, FLOWS, 0, &event->start);
}

static void add_memory(Scan *scan, const Event *event, uint32_t track) {
    MemoryRow *row = add(scan, MEMORY, sizeof *row);
    if (row != NULL)
        *row = (MemoryRow){event->address,   event->start.ns, event->memory_bytes, event->allocated, event->reserved, (int32_t)event->device_type,
                           (int32_t)event->device_id, track, 0};
    defer_time(scan, MEMORY, 0, &event->start);
}

static void add_span(Scan *scan, const Event *event, int table, uint8_t phase, uint32_t track) {
    const bool complete = phase == 'X' && table == SPANS;
    SpanRow *row = add(scan, table, sizeof *row);
    if (row == NULL)
        return;
    *row = (SpanRow){
        .start = event->has_start ? event->start.ns : MISSING,
        .duration = complete ? event->duration.ns : 0,
        .correlation = event->correlation,
        .external = event->old_external > event->external ? event->old_external : event->external,
        .flops = event->flops,
        .bytes = event->bytes,
        .category = number(scan, CATEGORIES, &event->category),
        .name = number(scan, NAMES, &event->name),
        .track = track,
        .shapes = event->has_shapes ? number(scan, SHAPES, &event->shapes) : NO_TEXT,
        .dtypes = event->has_dtypes ? number(scan, DTYPES, &event->dtypes) : NO_TEXT,
        .module = event->has_module && event->module.size ? number(scan, MODULES, &event->module) : NO_TEXT,
        .args_at = event->args.at,
        .args_size = event->args.size,
        .id_at = event->id.at,
        .id_size = event->id.size,
        .number = (uint32_t)scan->result->entries,
        .phase = phase,
    };
    if (event->has_start)
        defer_time(scan, table, 0, &event->start);
    if (complete)
        defer_time(scan, table, 1, &event->duration);
}

/* The rows of one event. */
static bool add_event(Scan *scan, const Event *event) {
    scan->result->precision.fields[0].mixed |= !event->has_start;
    scan->result->precision.fields[1].mixed |= !event->has_duration;
    const uint8_t phase = event->phase.size == 1 ? scan->text.start[event->phase.at] : 0;
    const bool instant = phase == 'i';
    if (instant && event->name.escaped) /* it may spell the name of memory events */
        return false;
    const uint32_t track = find_track(scan, event, phase);
    if (phase == 'M') {
        add_span(scan, event, OTHERS, phase, track);
        return true;
    }
    if (!event->has_start) {
        add_odd(scan, 0);
        return true;
    }
    switch (phase) {
    case 'X':
        if (!event->has_duration) {
            add_odd(scan, 1);
            return true;
        }
        if (event->duration.ns < 0)
            return false;
        break;
    case 'C':
        add_span(scan, event, OTHERS, phase, track);
        return true;
    case 's':
    case 't':
    case 'f':
        add_flow(scan, event, phase, track);
        return true;
    case 'B':
    case 'E':
    case 'b':
    case 'e':
    case 'S':
    case 'F':
        add_span(scan, event, PAIRS, phase, track);
        return true;
    }
    if (instant && is_text(scan, &event->name, "[memory]", 8)) {
        add_memory(scan, event, track);
        return !event->bad_memory;
    }
    add_span(scan, event, SPANS, phase, track);
    return true;
}

static bool scan_array(Scan *scan) {
    Text *text = &scan->text;
    Event event;
    bool right;
    skip_blanks(text);
    if (!skip_byte(text, '['))
        return false;
    for (; next_entry(text, ']', scan->result->entries == 0, &right); scan->result->entries++) {
        skip_blanks(text);
        if (!read_event(scan, &event) || !add_event(scan, &event) || scan->no_memory)
            return false;
    }
    skip_blanks(text);
    scan->result->rest = text->at - text->start;
    return right;
}

EXPORTED uint32_t stepscope_version(void) { return STEPSCOPE_VERSION; }

EXPORTED void stepscope_free(Result *result) {
    for (int table = 0; table < TABLES; table++) {
        free(result->tables[table].rows);
        result->tables[table] = (Rows){0};
    }
}

/* Fill `result`, which `stepscope_free` empties, from an array of events. Times come from digits or from floats (see Precision). */
EXPORTED int stepscope_scan(const uint8_t *start, int64_t size, uint32_t seed, bool from_digits, Result *result) {
    memset(result, 0, sizeof *result);
    result->precision.from_digits = from_digits;
    if (start == NULL || size < 0 || size > INT32_MAX)
        return UNUSUAL;
    Scan scan = {.text = {start, start, start + size}, .result = result};
    for (int index = 0; index < DICTIONARIES; index++)
        scan.indices[index].seed = seed;
    const bool scanned = scan_array(&scan);
    result->stopped = scan.text.at - start;
    for (int index = 0; index < DICTIONARIES; index++)
        free_index(&scan.indices[index]);
    const bool right = is_right(&result->precision);
    if (scanned && !scan.no_memory && right)
        return SCANNED;
    stepscope_free(result);
    return scan.no_memory ? OUT_OF_MEMORY : scanned ? OTHER_PRECISION : UNUSUAL;
}

/* Texts of rows as an Arrow array of large UTF-8. */
EXPORTED int stepscope_texts(const char *text, int64_t size, const char *rows, int64_t count, int64_t stride, const char *empty,
                             struct ArrowSchema *schema, struct ArrowArray *array) {
    if (!gather_texts(text, size, rows, count, stride, empty, array))
        return OUT_OF_MEMORY;
    *schema = (struct ArrowSchema){.format = "U", .name = "", .release = release_schema};
    return SCANNED;
}
