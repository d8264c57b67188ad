/* JSON text, read forward. Every function stops at the end of the text, and returns false for text that is not JSON, or that only
 * the Python path reads. It accepts nothing that msgspec rejects. */
#ifndef STEPSCOPE_JSON_H
#define STEPSCOPE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MOST_DEPTH = 63, MOST_NUMBER = 400 };

typedef struct {
    const uint8_t *start, *at, *end;
} Text;

/* A part of the text: the content of a string, without its quotes, or any other value. */
typedef struct {
    uint32_t at, size;
    bool escaped; /* has backslashes */
    bool quoted;  /* is a string */
} Slice;

static inline void skip_blanks(Text *text) {
    const uint8_t *at = text->at, *end = text->end;
    while (at < end) {
        if (*at > ' ' || !(*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
            break;
        at++;
        uint64_t word; /* indentation */
        while (end - at >= 8 && (memcpy(&word, at, 8), word == 0x2020202020202020u))
            at += 8;
    }
    text->at = at;
}

static inline bool skip_byte(Text *text, uint8_t byte) {
    if (text->at >= text->end || *text->at != byte)
        return false;
    text->at++;
    return true;
}

static inline int next_byte(const Text *text) {
    return text->at < text->end ? *text->at : -1;
}

/* Whether one of eight bytes ends a run of plain characters: a quote, a backslash, a control character, or one beyond ASCII. */
static inline bool has_special(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    const uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
    return ((word | (word - ones * 0x20) | (quote - ones) | (slash - ones)) & high) != 0;
}

/* Past one character beyond ASCII, if it is well-formed UTF-8. */
static inline bool skip_character(Text *text) {
    const uint8_t *at = text->at;
    const ptrdiff_t left = text->end - at;
    const uint8_t lead = at[0];
    const int size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (size == 0 || left < size)
        return false;
    for (int index = 1; index < size; index++)
        if ((at[index] & 0xC0) != 0x80)
            return false;
    if ((lead == 0xE0 && at[1] < 0xA0) || (lead == 0xED && at[1] > 0x9F) || (lead == 0xF0 && at[1] < 0x90) || (lead == 0xF4 && at[1] > 0x8F))
        return false;
    text->at = at + size;
    return true;
}

static inline bool read_hex(Text *text, unsigned *value) {
    if (text->end - text->at < 4)
        return false;
    *value = 0;
    for (int index = 0; index < 4; index++) {
        const uint8_t byte = *text->at++;
        const int digit = byte >= '0' && byte <= '9' ? byte - '0' : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
        if (digit < 0)
            return false;
        *value = *value << 4 | (unsigned)digit;
    }
    return true;
}

/* Past a backslash and what belongs to it. Half of a surrogate pair is no text. */
static inline bool skip_escape(Text *text) {
    unsigned value;
    text->at++;
    if (text->at >= text->end)
        return false;
    const uint8_t kind = *text->at++;
    if (kind != 'u')
        return kind == '"' || kind == '\\' || kind == '/' || kind == 'b' || kind == 'f' || kind == 'n' || kind == 'r' || kind == 't';
    if (!read_hex(text, &value))
        return false;
    if (value < 0xD800 || value > 0xDFFF)
        return true;
    if (value > 0xDBFF || !skip_byte(text, '\\') || !skip_byte(text, 'u') || !read_hex(text, &value))
        return false;
    return value >= 0xDC00 && value <= 0xDFFF;
}

static inline bool read_string(Text *text, Slice *slice) {
    if (!skip_byte(text, '"'))
        return false;
    const uint8_t *first = text->at;
    bool escaped = false;
    for (;;) {
        uint64_t word;
        while (text->end - text->at >= 8 && (memcpy(&word, text->at, 8), !has_special(word)))
            text->at += 8;
        if (text->at >= text->end)
            return false;
        const uint8_t byte = *text->at;
        if (byte == '"')
            break;
        if (byte == '\\') {
            escaped = true;
            if (!skip_escape(text))
                return false;
        } else if (byte >= 0x80) {
            if (!skip_character(text))
                return false;
        } else if (byte < 0x20) {
            return false;
        } else {
            text->at++;
        }
    }
    *slice = (Slice){(uint32_t)(first - text->start), (uint32_t)(text->at - first), escaped, true};
    text->at++;
    return true;
}

static inline bool is_digit(const Text *text) {
    return text->at < text->end && (uint8_t)(*text->at - '0') < 10;
}

static inline bool skip_digits(Text *text) {
    if (!is_digit(text))
        return false;
    while (is_digit(text))
        text->at++;
    return true;
}

static inline bool skip_number(Text *text) {
    const uint8_t *first = text->at;
    if (next_byte(text) == '-')
        text->at++;
    if (next_byte(text) == '0')
        text->at++;
    else if (!skip_digits(text))
        return false;
    if (is_digit(text))
        return false;
    if (next_byte(text) == '.') {
        text->at++;
        if (!skip_digits(text))
            return false;
    }
    if ((next_byte(text) | 0x20) == 'e') {
        text->at++;
        if (next_byte(text) == '-' || next_byte(text) == '+')
            text->at++;
        if (!skip_digits(text))
            return false;
    }
    return text->at - first <= MOST_NUMBER;
}

static inline bool skip_word(Text *text, const char *word, ptrdiff_t size) {
    if (text->end - text->at < size || memcmp(text->at, word, (size_t)size) != 0)
        return false;
    text->at += size;
    return true;
}

static inline bool skip_scalar(Text *text) {
    Slice slice;
    switch (next_byte(text)) {
    case '"':
        return read_string(text, &slice);
    case 't':
        return skip_word(text, "true", 4);
    case 'f':
        return skip_word(text, "false", 5);
    case 'n':
        return skip_word(text, "null", 4);
    default:
        return skip_number(text);
    }
}

/* Past the key of an object and its colon. */
static inline bool read_key(Text *text, Slice *key) {
    skip_blanks(text);
    if (!read_string(text, key))
        return false;
    skip_blanks(text);
    if (!skip_byte(text, ':'))
        return false;
    skip_blanks(text);
    return true;
}

/* Past a value of any kind, which starts here. */
static inline bool skip_value(Text *text) {
    uint64_t objects = 0; /* one bit for each open container: whether it is an object */
    int depth = 0;
    Slice key;
    for (;;) {
        const int byte = next_byte(text);
        if (byte == '{' || byte == '[') {
            const bool object = byte == '{';
            text->at++;
            skip_blanks(text);
            if (next_byte(text) != (object ? '}' : ']')) {
                if (++depth > MOST_DEPTH)
                    return false;
                objects = objects << 1 | object;
                if (object && !read_key(text, &key))
                    return false;
                continue;
            }
            text->at++;
        } else if (!skip_scalar(text)) {
            return false;
        }
        for (;;) { /* behind a value */
            if (depth == 0)
                return true;
            skip_blanks(text);
            const int after = next_byte(text);
            text->at += after >= 0;
            if (after == ',')
                break;
            if (after != (objects & 1 ? '}' : ']'))
                return false;
            objects >>= 1;
            depth--;
        }
        skip_blanks(text);
        if ((objects & 1) && !read_key(text, &key))
            return false;
    }
}

#endif
