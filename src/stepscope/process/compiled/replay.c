/* The longest path through a graph of dependent durations. Each node comes after those that it depends on. */
#include <stdbool.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

static const int64_t NEVER = -(INT64_C(1) << 62); /* before every time, also with dependencies that never bind */

/* The end of each node, and the dependency that it waited for, -1 for none. The dependencies of node i are the entries offset[i] to
 * offset[i + 1] of `node` and `lag`. False for a graph that is not in order, and for times that fit no number. */
EXPORTED bool stepscope_replay(int64_t count, const int64_t *offset, const int64_t *node, const int64_t *lag, const int64_t *duration,
                               const int64_t *start, int64_t *end, int64_t *waited) {
    for (int64_t at = 0; at < count; at++) {
        int64_t begin = NEVER;
        waited[at] = -1;
        for (int64_t edge = offset[at]; edge < offset[at + 1]; edge++) {
            int64_t ready;
            if (node[edge] < 0 || node[edge] >= at || __builtin_add_overflow(end[node[edge]], lag[edge], &ready))
                return false;
            if (ready > begin) {
                begin = ready;
                waited[at] = node[edge];
            }
        }
        if (offset[at] == offset[at + 1]) /* nothing recorded holds it */
            begin = start[at];
        if (__builtin_add_overflow(begin, duration[at], &end[at]))
            return false;
    }
    return true;
}

/* The nodes from `last` back, each the one that the node before it waited for, while they end after `low`; how many they are. */
EXPORTED int64_t stepscope_path(int64_t count, const int64_t *waited, const int64_t *end, int64_t last, int64_t low, int64_t *path) {
    int64_t length = 0;
    for (int64_t at = last; at >= 0 && at < count && length < count && end[at] > low; at = waited[at])
        path[length++] = at;
    return length;
}
