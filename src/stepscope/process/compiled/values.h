/* Values of events: times in exact nanoseconds, whole numbers, numbers or texts that identify something. */
#ifndef STEPSCOPE_VALUES_H
#define STEPSCOPE_VALUES_H

#include <math.h>

#include "rows.h"

typedef struct {
    int64_t ns;
    uint32_t at, size; /* of the text, if the caller computes the time from it; else size is 0 */
} Time;

/* How the times of a piece are computed, which the Python path decides once for all of them: from floats of microseconds, or from
 * their digits where floats do not hold nanoseconds. Both give the same for times with at most three decimals. */
typedef struct {
    bool from_digits;
    bool inexact; /* a time with more decimals, or with an exponent */
    struct {
        bool far;   /* a time that a float of microseconds does not hold to the nanosecond */
        bool mixed; /* one that is missing, or no plain whole number */
    } fields[2];    /* start, duration */
} Precision;

#define FAR_MICROSECONDS (INT64_C(1) << 43)
#define MOST_MICROSECONDS ((INT64_C(1) << 61) / 1000)

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Digits as a number of at most 16 of them; a leading zero stands alone. */
static inline bool read_whole(Text *text, int64_t *whole) {
    const uint8_t *first = text->at;
    int64_t value = 0;
    while (is_digit(text) && text->at - first < 17)
        value = value * 10 + (*text->at++ - '0');
    const ptrdiff_t count = text->at - first;
    *whole = value;
    return count > 0 && count <= 16 && !(count > 1 && *first == '0');
}

/* Decimals, as nanoseconds. */
static inline bool read_fraction(Text *text, int64_t whole, bool negative, Time *time, Precision *precision) {
    const uint8_t *first = text->at;
    int64_t digits = 0;
    while (is_digit(text) && text->at - first < 15)
        digits = digits * 10 + (*text->at++ - '0');
    const ptrdiff_t count = text->at - first;
    const bool more = is_digit(text) && skip_digits(text);
    if (count == 0)
        return false;
    if (count > 3 && !precision->from_digits) {
        const double scale = POWERS[count], mantissa = (double)whole * scale + (double)digits;
        precision->inexact = true;
        if (more || mantissa >= 4503599627370496.0) { /* the quotient of larger ones may not be the nearest float */
            time->size = 1;
            return true;
        }
        const double value = (negative ? -mantissa : mantissa) / scale, below = floor(value);
        time->ns = (int64_t)below * 1000 + (int64_t)rint((value - below) * 1000);
        return true;
    }
    precision->inexact |= count > 3;
    for (ptrdiff_t place = count; place < 4; place++)
        digits *= 10;
    for (ptrdiff_t place = 4; place < count; place++)
        digits /= 10;
    time->ns = whole * 1000 + digits / 10 + (digits % 10 >= 5);
    if (negative)
        time->ns = -time->ns;
    return true;
}

/* A time in microseconds: a number, or a string that holds one. `field` is 0 for the start, 1 for the duration. */
static inline bool read_time(Text *text, int field, Time *time, Precision *precision) {
    const bool quoted = skip_byte(text, '"');
    const uint8_t *first = text->at;
    const bool negative = skip_byte(text, '-');
    bool mixed = quoted;
    int64_t whole;
    *time = (Time){0, 0, 0};
    if (!read_whole(text, &whole) || whole >= MOST_MICROSECONDS)
        return false;
    if (skip_byte(text, '.')) {
        mixed = true;
        if (!read_fraction(text, whole, negative, time, precision))
            return false;
    } else {
        time->ns = negative ? -whole * 1000 : whole * 1000;
    }
    if ((next_byte(text) | 0x20) == 'e') {
        text->at = first;
        if (quoted || !skip_number(text))
            return false;
        mixed = precision->inexact = true;
        time->size = 1;
    }
    precision->fields[field].far |= whole >= FAR_MICROSECONDS;
    precision->fields[field].mixed |= mixed;
    if (time->size) {
        time->at = (uint32_t)(first - text->start);
        time->size = (uint32_t)(text->at - first);
    }
    return !quoted || skip_byte(text, '"');
}

/* Whether the times were computed as the Python path computes them. */
static inline bool is_right(const Precision *precision) {
    const bool from_digits =
        (precision->fields[0].far && precision->fields[0].mixed) || (precision->fields[1].far && precision->fields[1].mixed);
    return !precision->inexact || precision->from_digits == from_digits;
}

/* A whole number within bounds; also as a string, or with decimals that are zero, as some tools write it. */
static inline bool read_integer(Text *text, int64_t low, int64_t high, int64_t *value) {
    const bool quoted = skip_byte(text, '"'), negative = skip_byte(text, '-');
    const uint8_t *first = text->at;
    uint64_t whole = 0;
    while (is_digit(text) && text->at - first < 19)
        whole = whole * 10 + (uint64_t)(*text->at++ - '0');
    const ptrdiff_t count = text->at - first;
    if (count == 0 || (count > 1 && *first == '0') || is_digit(text) || whole > INT64_MAX)
        return false;
    if (skip_byte(text, '.')) {
        const uint8_t *zeros = text->at;
        while (next_byte(text) == '0')
            text->at++;
        if (text->at == zeros || is_digit(text))
            return false;
    }
    if ((next_byte(text) | 0x20) == 'e' || (quoted && !skip_byte(text, '"')))
        return false;
    *value = negative ? -(int64_t)whole : (int64_t)whole;
    return *value >= low && *value <= high;
}

/* An address as 64 bits: Kineto prints those above 2^63 as negative numbers. */
static inline bool read_address(Text *text, uint64_t *address) {
    const bool negative = skip_byte(text, '-');
    const uint8_t *first = text->at;
    uint64_t whole = 0;
    while (is_digit(text) && text->at - first < 20) {
        const unsigned digit = *text->at++ - '0';
        if (whole > (UINT64_MAX - digit) / 10)
            return false;
        whole = whole * 10 + digit;
    }
    const int after = next_byte(text);
    if (text->at == first || (text->at - first > 1 && *first == '0') || is_digit(text) || after == '.' || (after | 0x20) == 'e')
        return false;
    if (negative && whole > (uint64_t)INT64_MAX + 1)
        return false;
    *address = negative ? 0 - whole : whole;
    return true;
}

/* A string, or a whole number in its only spelling. */
static inline bool read_identifier(Text *text, Slice *slice) {
    if (next_byte(text) == '"')
        return read_string(text, slice);
    const uint8_t *first = text->at;
    const bool negative = skip_byte(text, '-');
    const uint8_t *digits = text->at;
    if (!skip_digits(text) || text->at - digits > 19)
        return false;
    if (*digits == '0' && (negative || text->at - digits > 1))
        return false;
    const int after = next_byte(text);
    *slice = (Slice){(uint32_t)(first - text->start), (uint32_t)(text->at - first), false, false};
    return after != '.' && (after | 0x20) != 'e';
}

#endif
